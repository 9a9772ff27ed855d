"""The rows of softmax: in every tier what measures it, and what counts as its source."""

from __future__ import annotations

from benchmarks.implementation import Implementation
from benchmarks.skips import DRAFT, ONLINE, REGISTERS_TWIN, SEARCH_SOFTMAX, SOFTMAX_TWIN, Skip
from benchmarks.tier_rows import compiled_rows, cuda_rows, library_row, triton_row

__all__ = ["SOFTMAX"]


def _softmax(
    variant: str,
    effort: str,
    kernels: tuple[str, ...],
    *symbols: str,
    more: tuple[str, ...] = (),
    more_cuda: tuple[str, ...] = (),
    skips: tuple[Skip, ...] = (),
    skips_cupy: tuple[Skip, ...] = (),
) -> tuple[Implementation, Implementation]:
    return cuda_rows(
        "softmax",
        variant,
        effort,
        kernels,
        symbols=symbols,
        more=("cuda_impl/softmax.py:_run", *more),
        more_cuda=more_cuda,
        more_cupy=("cuda_impl/softmax.py:_rows,_launch",),
        plans="cuda_impl/softmax_plan.py",
        skips=skips,
        skips_cupy=skips_cupy,
    )


SOFTMAX: tuple[Implementation, ...] = (
    library_row("softmax", "eager", "eager"),
    *compiled_rows("softmax", skips_max=SEARCH_SOFTMAX),
    triton_row(
        "softmax",
        "tuned",
        "softmax",
        "good",
        (
            *("softmax_rows_kernel", "softmax_packed_kernel", "softmax_online_kernel"),
            *("softmax_partials_kernel", "softmax_shares_kernel"),
            "softmax_combine_kernel",
        ),
        *("ROW_PLANS", "ROWS_LIMIT", "PACKED_FROM", "PACKED_PLANS", "RAGGED_REGISTERS"),
        *("THREAD_BYTES", "THREAD_LOADS", "RAGGED_THREAD_BYTES"),
        *("ONLINE_PLANS", "ONLINE_REGISTERS", "PROGRAMS", "LEAST_SHARE", "LARGEST_SHARE"),
        *("MOST_PARTIALS", "MOST_SHARES", "LOG2_E", "_exp", "_finite_or_zero", "_window"),
        *("_load", "_store", "_store_ends", "_ends", "online_tile", "shares_block"),
        *("_halves", "_higher_bfloat16", "_higher_float16", "_highest"),
        *("_has_pairs", "_launch", "_launch_shares"),
    ),
    *_softmax(
        "registers",
        "good",
        ("softmax_registers_kernel", "softmax_cluster_kernel", "softmax_online_kernel"),
        *("SHARED_BY", "LINE", "FEW_SHARED_BY", "FEW_THREADS", "few_plan", "RowPlan"),
        *("online_plan", "_holds"),
        more=("cuda_impl/softmax.py:_registers_plan,_plan",),
        more_cuda=(
            "csrc/softmax_registers.h",
            *(f"csrc/softmax_registers_{name}.cu" for name in ("float32", "float16", "bfloat16")),
            "csrc/softmax_online.cu",
        ),
        skips_cupy=REGISTERS_TWIN,
    ),
    *_softmax(
        "online",
        "good",
        ("softmax_online_kernel",),
        skips=ONLINE,
        skips_cupy=SOFTMAX_TWIN,
    ),
    triton_row("softmax", "sketch", "sketch", "sketch", ("softmax_sketch_kernel",), skips=DRAFT),
    *_softmax("block", "sketch", ("softmax_block_kernel",), skips=DRAFT, skips_cupy=SOFTMAX_TWIN),
    *_softmax("naive", "naive", ("softmax_naive_kernel",), skips=DRAFT, skips_cupy=SOFTMAX_TWIN),
)
