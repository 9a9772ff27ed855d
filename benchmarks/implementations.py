"""IMPLEMENTATIONS: one row per op x tier x variant. Data only: importing it imports no tier."""

from __future__ import annotations

from benchmarks.implementation import KIT, Implementation, Needs
from benchmarks.skips import (
    DEFAULT_MATMUL,
    DRAFT,
    FEW_ROWS,
    HALVES,
    MANY_ROWS,
    NAIVE_MATMUL,
    ONLINE,
    REGISTERS_TWIN,
    RUNG,
    SEARCH_CHAIN,
    SEARCH_MATMUL,
    SEARCH_SOFTMAX,
    SOFTMAX_TWIN,
    TENSOR_CORES,
    TWIN,
    Skip,
    up_to,
)
from benchmarks.tier_rows import compiled_rows, cuda_rows, library_row, triton_row

__all__ = ["IMPLEMENTATIONS", "find", "of_op"]


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


def _softmax(
    variant: str,
    effort: str,
    kernels: tuple[str, ...],
    *symbols: str,
    needs: tuple[Needs, ...] = (),
    more: tuple[str, ...] = (),
    more_cuda: tuple[str, ...] = (),
    more_cupy: tuple[str, ...] = (),
    skips: tuple[Skip, ...] = (),
    skips_cupy: tuple[Skip, ...] = (),
) -> tuple[Implementation, Implementation]:
    return cuda_rows(
        "softmax",
        variant,
        effort,
        kernels,
        *needs,
        symbols=symbols,
        more=("cuda_impl/softmax.py:_run", *more),
        more_cuda=more_cuda,
        more_cupy=("cuda_impl/softmax.py:_rows,_launch", *more_cupy),
        plans="cuda_impl/softmax_plan.py",
        skips=skips,
        skips_cupy=skips_cupy,
    )


# Measured in this order: the library first, since it is every ratio's denominator, and first drafts
# last, since minutes of them leave the card hot and its clocks low.
IMPLEMENTATIONS: tuple[Implementation, ...] = (
    # softmax
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
    # chains
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
    # matmul
    library_row("matmul", "eager", "eager"),
    *compiled_rows(
        "matmul",
        skips=DEFAULT_MATMUL,
        skips_max=SEARCH_MATMUL,
    ),
    # What its user writes is counted, CUTLASS not.
    Implementation(
        op="matmul",
        tier="library",
        variant="cutlass",
        module="cuda_impl.cutlass",
        function="cutlass",
        sources=(
            "csrc/matmul_cutlass.cu",
            "cuda_impl/cutlass.py:cutlass,SWIZZLE,_suits_cutlass,_capability",
            "cuda_impl/matrices.py",
        ),
        effort=KIT,
        needs=("gpu", "sm_90", "cutlass"),
        skips=(*TENSOR_CORES, *MANY_ROWS),
    ),
    triton_row(
        "matmul",
        "tuned",
        "matmul",
        "good",
        ("matmul_descriptor_kernel", "matmul_pointer_kernel"),
        *("Plan", "DECODE_PLANS", "LARGE", "MEDIUM", "SMALL", "POINTER", "POINTER_FP32", "BAND"),
        *("_tile_of", "_launch", "_has_descriptors", "_capability", "_describable", "_choose"),
        *("_launch_descriptor", "_launch_pointer"),
        more=("triton_impl/matmul_streamk.py",),
        more_kernels=("matmul_parts_kernel", "matmul_sum_kernel"),
    ),
    *cuda_rows(
        "matmul",
        "tiled",
        "good",
        ("matmul_tiled_kernel",),
        more=("cuda_impl/matrices.py:Operands,operands,by_rows,stored,is_weight",),
        more_cupy=("cuda_impl/matmul.py:_pointers",),
        skips=MANY_ROWS,
        skips_cupy=(Skip(TWIN, dtypes=HALVES),),
    ),
    *cuda_rows(
        "matmul",
        "mma",
        "good",
        ("matmul_mma_kernel",),
        symbols=("MmaPlan", "MMA_PLANS", "_suits_mma"),
        more=("cuda_impl/matrices.py",),
        skips=(*TENSOR_CORES, *MANY_ROWS),
        skips_cupy=(Skip(TWIN, dtypes=("float16",)), Skip(TWIN, "n", but=(4096,))),
        file="mma",
    ),
    *cuda_rows(
        "matmul",
        "wgmma",
        "good",
        ("matmul_wgmma_kernel",),
        "sm_90",
        symbols=(
            *("Tile", "LARGE", "SMALL", "WgmmaPlan"),
            "_suits_wgmma",
        ),
        more=("cuda_impl/matrices.py",),
        more_cuda=("csrc/tensor_map.h",),
        more_cupy=("cuda_impl/matmul.py:_pointers", "cuda_impl/tensor_map.py"),
        skips=(*TENSOR_CORES, *MANY_ROWS),
    ),
    *cuda_rows(
        "matmul",
        "decode",
        "good",
        ("matmul_decode_kernel",),
        "sm_90",
        symbols=("Tile", "DecodePlan", "DECODE_TILES", "_plan", "_even_tiles"),
        more=("cuda_impl/matrices.py",),
        more_cupy=("cuda_impl/decode.py:_launch_rawmodule",),
        skips=up_to(FEW_ROWS),
        skips_cupy=(Skip(TWIN, "m", but=(16,)),),
        file="decode",
    ),
    *cuda_rows(
        "matmul",
        "skinny",
        "good",
        ("matmul_skinny_kernel",),
        "sm_90",
        symbols=(
            *("SkinnyPlan", "SKINNY_PLANS", "SKINNY_STEPS"),
            *("_plan", "_run"),
        ),
        more=("cuda_impl/matrices.py",),
        more_cuda=("csrc/tensor_map.h", "cuda_impl/skinny.py:_launch_extension"),
        more_cupy=("cuda_impl/skinny.py:_launch_rawmodule", "cuda_impl/tensor_map.py"),
        skips=up_to(FEW_ROWS),
        skips_cupy=(Skip(TWIN, "m", but=(1, 16, 64)),),
        file="skinny",
    ),
    *cuda_rows(
        "matmul",
        "gemv",
        "good",
        ("matmul_gemv_kernel",),
        symbols=("GemvPlan", "ROWS", "_plan"),
        more=("cuda_impl/matrices.py",),
        more_cupy=("cuda_impl/gemv.py:_launch_rawmodule",),
        skips=up_to(4),
        skips_cupy=(Skip(TWIN, "m", but=(1,)),),
        file="gemv",
    ),
    *cuda_rows(
        "matmul",
        "naive",
        "naive",
        ("matmul_naive_kernel",),
        more_cupy=("cuda_impl/matmul.py:_pointers",),
        skips=NAIVE_MATMUL,
        skips_cupy=(Skip(TWIN, dtypes=HALVES),),
    ),
)


def of_op(op: str) -> tuple[Implementation, ...]:
    """The rows of one op, library first, so that a ratio's denominator is measured first."""
    return tuple(row for row in IMPLEMENTATIONS if row.op == op)


def find(op: str, name: str) -> Implementation:
    """The row of `op` called `name`, for instance ``("softmax", "triton/tuned")``."""
    for row in of_op(op):
        if row.name == name:
            return row
    known = ", ".join(row.name for row in of_op(op)) or "no implementation"
    raise ValueError(f"{op} has no implementation {name!r}; it has {known}")
