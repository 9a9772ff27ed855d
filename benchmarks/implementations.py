"""IMPLEMENTATIONS: one row per op x tier x variant. Data only: importing it imports no tier.

An implementation is found by name (`module`, `function`), so a tier that is missing something
costs its own rows and no others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

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

__all__ = [
    "EAGER",
    "EFFORTS",
    "IMPLEMENTATIONS",
    "NEEDS",
    "TIERS",
    "Implementation",
    "find",
    "of_op",
]

TIERS = ("library", "triton", "cuda", "cupy")

# The library call that every op has, and that the library's other calls are held against.
EAGER = "library/eager"

# What a variant stands for. Comparing a first draft of one tier with a tuned kernel of another
# compares effort, not tiers, so every table shows the label.
EFFORTS = ("call", "sketch", "naive", "good", "tuned")

# What a row may need of the machine. `benchmarks.device.unmet` says which are missing, and how
# to get them. A row may leave out cases besides: benchmarks/skips.py.
NEEDS = ("gpu", "triton", "cupy", "extension", "sm_90", "cxx")

Needs = Literal["gpu", "triton", "cupy", "extension", "sm_90", "cxx"]


@dataclass(frozen=True)
class Implementation:
    """One way to compute one op.

    op, tier, variant: its name, all three unique together
    module, function: where to find ``function(*inputs, out=None) -> Tensor``
    sources: what counts as its code: ``path`` for a whole file or ``path:name,name`` for
        functions, classes and constants of a Python file. A .cuh that a named file includes counts
        too. What launches every op alike (triton_impl/launch.py, cuda_impl/device.py,
        cuda_impl/rawmodule.py, csrc/launch.h) counts for none.
    kernels: the device functions by name, as they stand in the compiled code
    effort: one of ``EFFORTS``
    needs: some of ``NEEDS``
    rounds_once: computes wider than its 16-bit dtype and rounds the result alone
    skips: cases that it leaves out: what it hands to a variant with a row of its own, and what
        would take long and say nothing new
    patience: seconds that a call may take; slower cases are skipped
    issue: how its calls are sent to the device when it is timed: "graph" (replayed from a CUDA
        graph, launch cost outside) or "stream" (one by one, as its user would)
    """

    op: str
    tier: str
    variant: str
    module: str
    function: str
    sources: tuple[str, ...]
    effort: str
    kernels: tuple[str, ...] = ()
    needs: tuple[Needs, ...] = ()
    issue: Literal["graph", "stream"] = "graph"
    own_output: bool = False
    rounds_once: bool = True
    skips: tuple[Skip, ...] = ()
    patience: float = math.inf

    def __post_init__(self) -> None:
        if self.tier not in TIERS:
            raise ValueError(f"tier must be one of {TIERS}, got {self.tier!r}")
        if self.effort not in EFFORTS:
            raise ValueError(f"effort must be one of {EFFORTS}, got {self.effort!r}")
        unknown = set(self.needs) - set(NEEDS)
        if unknown:
            raise ValueError(f"needs must be among {NEEDS}, got {sorted(unknown)}")

    @property
    def name(self) -> str:
        """For instance ``triton/tuned``: unique within its op."""
        return f"{self.tier}/{self.variant}"

    def left_out(self, sizes: Mapping[str, int], dtype: str, hopper: bool = True) -> str:
        """Why the row leaves a case out; "" where it doesn't.

        sizes: of the case, by axis; hopper: whether the device is one
        """
        return next((skip.reason for skip in self.skips if skip.covers(sizes, dtype, hopper)), "")

    def resolve(self) -> Callable[..., Any]:
        """The function itself. Imports its tier."""
        function: Callable[..., Any] = getattr(import_module(self.module), self.function)
        return function


def _library(op: str, variant: str, function: str, *symbols: str, **more: Any) -> Implementation:
    return Implementation(
        op=op,
        tier="library",
        variant=variant,
        module=f"reference.{op}",
        function=function,
        sources=(f"reference/{op}.py:{','.join((function, *symbols))}",),
        effort="call",
        **more,
    )


def _triton(
    op: str,
    variant: str,
    function: str,
    effort: str,
    kernels: tuple[str, ...],
    *symbols: str,
    more: tuple[str, ...] = (),
    skips: tuple[Skip, ...] = (),
) -> Implementation:
    return Implementation(
        op=op,
        tier="triton",
        variant=variant,
        module=f"triton_impl.{op}",
        function=function,
        sources=(f"triton_impl/{op}.py:{','.join((function, *kernels, *symbols))}", *more),
        effort=effort,
        kernels=kernels,
        needs=("triton",),
        skips=skips,
    )


def _cuda(
    op: str,
    variant: str,
    effort: str,
    kernels: tuple[str, ...],
    *needs: Needs,
    symbols: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
    more_cuda: tuple[str, ...] = (),
    more_cupy: tuple[str, ...] = (),
    skips: tuple[Skip, ...] = (),
    skips_cupy: tuple[Skip, ...] = (),
    file: str = "",
    plans: str = "",
) -> tuple[Implementation, Implementation]:
    """The two ways to one kernel source: the extension and CuPy.

    file: of cuda_impl/, where that is not `op`.py; plans: the one with the plan, where that is not
        `file`
    symbols: that both count, of the file with the plan
    more: sources that both count; more_cuda, more_cupy: that one of them does
    skips: of both; skips_cupy: of CuPy's besides
    """
    file = file or op
    kernel_source = f"csrc/kernels/{op}_{variant}.cuh"
    # Some cases would take a first draft minutes.
    patience = 0.2 if effort == "naive" else math.inf
    ways = f"cuda_impl/{file}.py"
    plan = ",".join((f"{variant}_plan", *symbols))

    def functions(way: str) -> tuple[str, ...]:
        if plans:
            return (f"{ways}:{variant}_{way}", f"{plans}:{plan}")
        return (f"{ways}:{variant}_{way},{plan}",)

    return (
        Implementation(
            op=op,
            tier="cuda",
            variant=variant,
            module=f"cuda_impl.{file}",
            function=f"{variant}_extension",
            sources=(
                kernel_source,
                f"csrc/{op}_{variant}.cu",
                *functions("extension"),
                *more,
                *more_cuda,
            ),
            effort=effort,
            kernels=kernels,
            needs=("gpu", "extension", *needs),
            skips=skips,
            patience=patience,
        ),
        Implementation(
            op=op,
            tier="cupy",
            variant=variant,
            module=f"cuda_impl.{file}",
            function=f"{variant}_rawmodule",
            sources=(
                kernel_source,
                *functions("rawmodule"),
                *more,
                *more_cupy,
            ),
            effort=effort,
            kernels=kernels,
            needs=("gpu", "cupy", *needs),
            skips=(*skips, *skips_cupy),
            patience=patience,
        ),
    )


def _compiled(
    op: str, *symbols: str, skips: tuple[Skip, ...] = (), skips_max: tuple[Skip, ...] = ()
) -> tuple[Implementation, Implementation]:
    """symbols: what is compiled, where that is the project's own; skips: of the default mode;
    skips_max: of max-autotune"""
    return (
        _library(
            op,
            "compile",
            "compiled",
            "_compile",
            *symbols,
            needs=("cxx",),
            own_output=True,
            skips=skips,
        ),
        _library(
            op,
            "compile-max",
            "compiled_max_autotune",
            "_compile",
            *symbols,
            needs=("cxx",),
            own_output=True,
            skips=skips_max,
        ),
    )


def _chain(
    op: str, *special: str, further: tuple[Implementation, ...] = ()
) -> tuple[Implementation, ...]:
    """special: what of triton_impl/special.py the op's kernel calls; further: CUDA variants"""
    return (
        _library(op, "eager", "eager", "forty", issue="stream", rounds_once=False),
        _library(op, "graph", "eager", "forty", needs=("gpu",), rounds_once=False),
        *_compiled(op, "forty", skips_max=SEARCH_CHAIN),
        _triton(
            op,
            "tuned",
            op,
            "good",
            (f"{op}_kernel",),
            *("TILE", "TILE_COLS", "NUM_WARPS"),
            more=(f"triton_impl/special.py:{','.join(special)}",),
        ),
        *_cuda(
            op,
            "packed",
            "good",
            (f"{op}_packed_kernel",),
            more=("cuda_impl/pointwise.py:PackedPlan,run,plan_for,_plan",),
            more_cuda=("csrc/packed_launch.h",),
            more_cupy=("cuda_impl/pointwise.py:launch_packed,_pointers",),
        ),
        *further,
        *_cuda(
            op,
            "naive",
            "naive",
            (f"{op}_naive_kernel",),
            more=("cuda_impl/pointwise.py:run",),
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
_REGISTERS_PLAN = "cuda_impl/softmax.py:_layout,_registers_plan"


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
    return _cuda(
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
    _library("softmax", "eager", "eager"),
    *_compiled("softmax", skips_max=SEARCH_SOFTMAX),
    _triton(
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
        *(
            "MOST_PARTIALS",
            "MOST_SHARES",
            "LOG2_E",
            "_exp",
            "_finite_or_zero",
            "_window",
            "_load",
            "_store",
        ),
        *("_store_ends", "online_tile", "shares_block", "_launch", "_launch_shares"),
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
        more=(
            "csrc/kernels/softmax_registers.cuh",
            *(_REGISTERS_PLAN, "cuda_impl/softmax.py:_streamed_plan"),
        ),
        more_cuda=("csrc/softmax_registers.cu", "csrc/softmax_online.cu"),
        more_cupy=(
            "cuda_impl/clusters.py",
            "cuda_impl/softmax.py:_launch_registers,_launch_streamed",
        ),
        skips=STREAMED,
    ),
    *_softmax(
        "registers",
        "good",
        _REGISTERS_KERNELS,
        *_REGISTERS_SYMBOLS,
        more=(_REGISTERS_PLAN,),
        more_cuda=("csrc/softmax_online.cu",),
        more_cupy=("cuda_impl/softmax.py:_launch_registers",),
        skips_cupy=REGISTERS_TWIN,
    ),
    *_softmax(
        "online",
        "good",
        ("softmax_online_kernel",),
        skips=ONLINE,
        skips_cupy=SOFTMAX_TWIN,
    ),
    _triton("softmax", "sketch", "sketch", "sketch", ("softmax_sketch_kernel",), skips=DRAFT),
    *_softmax("block", "sketch", ("softmax_block_kernel",), skips=DRAFT, skips_cupy=SOFTMAX_TWIN),
    *_softmax("naive", "naive", ("softmax_naive_kernel",), skips=DRAFT, skips_cupy=SOFTMAX_TWIN),
    # chains
    *_chain(
        *("chain", "TWO_LOG2_E", "mode", "widen", "tanh", "_reciprocal"),
        further=_cuda(
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
    *_chain("chain_sfu", "TWO_LOG2_E", "mode", "widen", "tanh", "sigmoid_of_twice", "_reciprocal"),
    # matmul
    _library("matmul", "eager", "eager"),
    *_compiled(
        "matmul",
        skips=DEFAULT_MATMUL,
        skips_max=SEARCH_MATMUL,
    ),
    _triton(
        "matmul",
        "tuned",
        "matmul",
        "good",
        ("matmul_descriptor_kernel", "matmul_pointer_kernel"),
        *(
            "Plan",
            "DECODE_PLANS",
            "NARROW_PLANS",
            "LARGE",
            "MEDIUM",
            "SMALL",
            "POINTER",
            "POINTER_FP32",
            "BAND",
        ),
        *("_tile_of", "_launch", "_has_descriptors", "_capability", "_describable", "_choose"),
        *("_launch_descriptor", "_launch_pointer"),
    ),
    *_cuda(
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
    *_cuda(
        "matmul",
        "mma",
        "good",
        ("matmul_mma_kernel",),
        symbols=("MmaPlan", "MMA_PLANS", "_suits_mma", "_processors"),
        more=("cuda_impl/matrices.py:Operands,operands,by_rows,stored,is_weight,is_addressable",),
        skips=(*TENSOR_CORES, *MANY_ROWS),
        file="mma",
    ),
    *_cuda(
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
    *_cuda(
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
    *_cuda(
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
    *_cuda(
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
    *_cuda(
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
