"""The rows of both chains: in every tier what measures them, and what counts as their source."""

from __future__ import annotations

from benchmarks.implementation import Implementation
from benchmarks.skips import RUNG, SEARCH_CHAIN, TWIN, Skip
from benchmarks.tier_rows import compiled_rows, cuda_rows, library_row, triton_row

__all__ = ["CHAINS"]


def _chain(
    op: str,
    *special: str,
    further: tuple[Implementation, ...] = (),
    steps: tuple[str, ...] = (),
    extension: tuple[str, ...] = (),
    rawmodule: tuple[str, ...] = (),
) -> tuple[Implementation, ...]:
    """special: what of triton_impl/special.py the op's kernel calls; further: CUDA variants
    steps: where the draft's are, beside its file; extension, rawmodule: what `packed` shares with
    others of `further`
    """
    return (
        library_row(op, "eager", "eager", "forty", issue="stream", rounds_once=False),
        library_row(op, "graph", "eager", "forty", needs=("gpu",), rounds_once=False),
        *compiled_rows(op, "forty", skips_max=SEARCH_CHAIN),
        triton_row(
            op,
            "tuned",
            op,
            "good",
            (f"{op}_kernel",),
            *("TILE", "TILE_COLS", "NUM_WARPS"),
            more=(f"triton_impl/special.py:{','.join(special)}",),
        ),
        *cuda_rows(
            op,
            "packed",
            "good",
            (f"{op}_packed_kernel",),
            more=("cuda_impl/pointwise.py:PackedPlan,run,plan_for,_plan",),
            more_cuda=("csrc/packed_launch.h", *extension),
            more_cupy=("cuda_impl/pointwise.py:launch_packed,_pointers", *rawmodule),
        ),
        *further,
        *cuda_rows(
            op,
            "naive",
            "naive",
            (f"{op}_naive_kernel",),
            more=("cuda_impl/pointwise.py:run", *steps),
            more_cupy=("cuda_impl/pointwise.py:launch_naive,_pointers",),
            skips_cupy=(Skip(TWIN, "rows", but=(4096,)), Skip(TWIN, dtypes=("float32",))),
        ),
    )


def _rung(variant: str, *kernels: str) -> tuple[Implementation, Implementation]:
    """Of chain_sfu's: the walk of `packed`. kernels: files whose functions it takes as well"""
    return cuda_rows(
        "chain_sfu",
        variant,
        "good",
        (f"chain_sfu_{variant}_kernel",),
        plan="packed_plan",
        more=(
            *(f"csrc/kernels/{name}.cuh" for name in ("chain_sfu_steps", *kernels)),
            "cuda_impl/pointwise.py:PackedPlan,plan_for,_plan,run",
        ),
        more_cuda=("csrc/packed_launch.h", "cuda_impl/chain_sfu.py:_extension"),
        more_cupy=(
            "cuda_impl/pointwise.py:launch_packed,_pointers",
            "cuda_impl/chain_sfu.py:_rawmodule",
        ),
        skips=RUNG,
        skips_cupy=(Skip(TWIN, dtypes=("float32",)),),
    )


CHAINS: tuple[Implementation, ...] = (
    *_chain(
        *("chain", "TWO_LOG2_E", "mode", "widen", "tanh", "_reciprocal"),
        further=cuda_rows(
            "chain",
            "streamed",
            "good",
            ("chain_streamed_kernel",),
            symbols=("StreamPlan", "_stream_plan", "packed_plan"),
            more=(
                "csrc/kernels/chain_packed.cuh",
                "cuda_impl/pointwise.py:PackedPlan,run,plan_for,_plan",
            ),
            # Few, ragged and misaligned rows go as in `packed`.
            more_cuda=("csrc/chain_packed.cu", "csrc/packed_launch.h"),
            more_cupy=("cuda_impl/pointwise.py:launch_packed,_pointers",),
        ),
    ),
    *_chain(
        *("chain_sfu", "TWO_LOG2_E", "mode", "widen", "tanh", "sigmoid_of_twice", "_reciprocal"),
        further=(
            *_rung("tanh", "chain_sfu_approx"),
            *_rung("approx"),
            *_rung("exact", "chain_sfu_naive"),
        ),
        steps=("csrc/kernels/chain_sfu_steps.cuh",),
        extension=("cuda_impl/chain_sfu.py:_extension",),
        rawmodule=("cuda_impl/chain_sfu.py:_rawmodule",),
    ),
)
