"""IMPLEMENTATIONS: one row per op x tier x variant. Data only: importing it imports no tier."""

from __future__ import annotations

from benchmarks.implementation import Implementation, Needs
from benchmarks.skips import (
    DEFAULT_MATMUL,
    DRAFT,
    FEW_ROWS,
    HALVES,
    MANY_ROWS,
    NAIVE_MATMUL,
    ONLINE,
    REGISTERS_TWIN,
    SEARCH_CHAIN,
    SEARCH_MATMUL,
    SEARCH_SOFTMAX,
    SOFTMAX_TWIN,
    STREAMED,
    TENSOR_CORES,
    TWIN,
    Skip,
    up_to,
)
from benchmarks.tier_rows import compiled_rows, cuda_rows, library_row, triton_row

__all__ = ["IMPLEMENTATIONS", "find", "of_op"]


def _chain(
    op: str, *special: str, further: tuple[Implementation, ...] = ()
) -> tuple[Implementation, ...]:
    """special: what of triton_impl/special.py the op's kernel calls; further: CUDA variants"""
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
            more=("cuda_impl/pointwise.py:PackedPlan,plan_for",),
            more_cuda=("csrc/packed_launch.h",),
            more_cupy=("cuda_impl/pointwise.py:launch_packed,_pointers",),
        ),
        *further,
        *cuda_rows(
            op,
            "naive",
            "naive",
            (f"{op}_naive_kernel",),
            more_cupy=("cuda_impl/pointwise.py:launch_naive,_pointers",),
            skips_cupy=(Skip(TWIN, "rows", but=(4096,)), Skip(TWIN, dtypes=("float32",))),
        ),
    )


# What gemv and decode count beside their own.
_DECODE = ("_plan", "_even_tiles", "_laid_out", "_is_hopper", "_processors")
_BY_ROWS = "cuda_impl/matrices.py:Operands,operands,by_rows,is_weight,is_addressable,addressable"


# What softmax's `registers` counts, and what hands on to it.
_REGISTERS_KERNELS = ("softmax_registers_kernel", "softmax_cluster_kernel", "softmax_online_kernel")
_REGISTERS_SYMBOLS = (
    *("HELD", "SHARED_BY", "SHARED_BY_ONE_BLOCK", "RowPlan", "online_plan", "_slots"),
    *("PACKED_FROM", "PACKED_HELD", "PACKED_SHARED_BY"),
    *("few_plan", "FEW_SHARED_BY", "FEW_THREADS"),
)
_STREAMED_PLAN = "_streamed_plan,_registers_plan,_processors,_is_hopper"


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
    shared = "_rows,_whole,_has_clusters" if symbols else "_rows"
    return cuda_rows(
        "softmax",
        variant,
        effort,
        kernels,
        *needs,
        symbols=symbols,
        more=more,
        more_cuda=(*more_cuda, f"cuda_impl/softmax.py:{shared}") if symbols else more_cuda,
        more_cupy=(*more_cupy, f"cuda_impl/softmax.py:{shared},_launch"),
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
            *("softmax_rows_kernel", "softmax_online_kernel"),
            *("softmax_partials_kernel", "softmax_shares_kernel"),
            "softmax_combine_kernel",
        ),
        *("ROW_PLANS", "ROWS_LIMIT", "THREAD_BYTES", "THREAD_LOADS", "RAGGED_THREAD_BYTES"),
        *("ONLINE_PLANS", "ONLINE_REGISTERS", "PROGRAMS", "LEAST_SHARE", "LARGEST_SHARE"),
        *("MOST_PARTIALS", "MOST_SHARES", "LOG2_E", "_exp", "_finite_or_zero", "_window"),
        *("_load", "_store", "_store_ends", "online_tile", "shares_block"),
        *("_launch", "_launch_shares"),
    ),
    *_softmax(
        "streamed",
        "good",
        ("softmax_streamed_kernel", *_REGISTERS_KERNELS),
        *("StreamedPlan", "STREAMED_BY", "STREAMED_FROM", "STREAMED_ANYWHERE_FROM"),
        *("STREAMED_THREADS", "LINE", "SLOTS"),
        # Short and few rows, and misaligned ones, go as in `registers`.
        *("registers_plan", *_REGISTERS_SYMBOLS),
        needs=("sm_90",),
        more=("csrc/kernels/softmax_registers.cuh", f"cuda_impl/softmax.py:{_STREAMED_PLAN}"),
        more_cuda=(
            *("csrc/softmax_registers.cu", "csrc/softmax_online.cu"),
            "cuda_impl/softmax.py:registers_extension",
        ),
        more_cupy=(
            "cuda_impl/clusters.py",
            "cuda_impl/softmax.py:registers_rawmodule,_launch_streamed",
        ),
        skips=STREAMED,
    ),
    *_softmax(
        "registers",
        "good",
        _REGISTERS_KERNELS,
        *_REGISTERS_SYMBOLS,
        more_cuda=("csrc/softmax_online.cu", "cuda_impl/softmax.py:_registers_plan,_processors"),
        more_cupy=("cuda_impl/softmax.py:_registers_plan,_processors",),
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
            symbols=("StreamPlan", "_stream_plan", "_processors", "packed_plan"),
            more=("csrc/kernels/chain_packed.cuh", "cuda_impl/pointwise.py:PackedPlan,plan_for"),
            # Few, ragged and misaligned rows go as in `packed`.
            more_cuda=("csrc/chain_packed.cu", "csrc/packed_launch.h"),
            more_cupy=("cuda_impl/pointwise.py:launch_packed,_pointers",),
        ),
    ),
    *_chain("chain_sfu", "TWO_LOG2_E", "mode", "widen", "tanh", "sigmoid_of_twice", "_reciprocal"),
    # matmul
    library_row("matmul", "eager", "eager"),
    *compiled_rows(
        "matmul",
        skips=DEFAULT_MATMUL,
        skips_max=SEARCH_MATMUL,
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
        symbols=("_processors",),
        more=("cuda_impl/matrices.py:Operands,operands,by_rows,stored,is_weight",),
        more_cupy=("cuda_impl/matmul.py:_pointers",),
        skips=MANY_ROWS,
        skips_cupy=(Skip(TWIN, dtypes=HALVES),),
    ),
    *cuda_rows(
        "matmul",
        "wgmma",
        "good",
        ("matmul_wgmma_kernel",),
        "sm_90",
        symbols=(
            *("Tile", "LARGE", "SMALL", "WgmmaPlan"),
            *("_suits_wgmma", "_capability", "_processors"),
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
        symbols=(
            *("Tile", "DecodePlan", "DECODE_TILES", "_check_hopper"),
            *_DECODE,
        ),
        more=(_BY_ROWS,),
        more_cuda=("cuda_impl/decode.py:_launch_extension",),
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
            *("_plan", "_is_hopper", "_processors"),
        ),
        more=(_BY_ROWS,),
        more_cuda=("csrc/tensor_map.h",),
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
        symbols=("GemvPlan", "GEMV_ROWS", "GEMV_WARPS", *_DECODE),
        more=(_BY_ROWS,),
        more_cuda=("cuda_impl/decode.py:_launch_extension",),
        more_cupy=("cuda_impl/decode.py:_launch_rawmodule",),
        skips=up_to(4),
        skips_cupy=(Skip(TWIN, "m", but=(1,)),),
        file="decode",
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
