"""softmax in CUDA C++: csrc/ through the extension and through CuPy, with one launch choice.

Formula: exp(x - max) / sum(exp(x - max)) over the last dimension, in float32 inside.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cuda_impl import rawmodule
from cuda_impl.extension import compiled
from reference.contract import check_softmax, dense, landing

__all__ = [
    "naive_extension",
    "naive_rawmodule",
    "registers_extension",
    "registers_rawmodule",
]

DEVICES = ("cuda",)

# Floats of a row that a thread holds at most: with those, 1024 threads fit an SM's registers, and
# have 64 KB of 16-bit data in flight between them.
HELD = 32

# (threads, blocks) that share a row, fewest first; the first that can hold the row is taken.
SHARED_BY = (
    # Lanes of one warp, and several rows a warp: few shuffles, no barrier.
    (4, 1),
    (8, 1),
    (16, 1),
    (32, 1),
    # One barrier. Blocks stay small, so that an SM has several, in different phases: while one
    # waits for its loads another computes and a third stores.
    (64, 1),
    (128, 1),
    (256, 1),
    (512, 1),
    # A block alone on its SM: 0.91 of a copy at 32768 bfloat16 columns, where two blocks of 512
    # that wait for each other reach 0.78.
    (1024, 1),
    # A cluster shares the row, through distributed shared memory.
    (1024, 2),
    (512, 8),
    # As far as registers and portable clusters reach: 262144 columns.
    (1024, 8),
)

# Before compute capability 9.0 there are no clusters.
SHARED_BY_ONE_BLOCK = tuple(pair for pair in SHARED_BY if pair[1] == 1)


class RowPlan(NamedTuple):
    """Who computes a row of softmax.

    threads: that share a row, in each of its blocks
    elements: of the row that a thread holds; 0 for the online kernel, which holds none
    cluster: blocks that share a row
    whole: rows of x and out start and end at 16-byte boundaries
    """

    threads: int
    elements: int
    cluster: int
    whole: bool

    def expression(self, dtype: torch.dtype) -> str:
        """The kernel's name with its template arguments."""
        ctype, whole = rawmodule.CTYPES[dtype], str(self.whole).lower()
        if self.elements == 0:
            return f"softmax_online_kernel<{ctype}, {self.threads}>"
        if self.cluster == 1:
            return f"softmax_registers_kernel<{ctype}, {self.threads}, {self.elements}, {whole}>"
        return (
            f"softmax_cluster_kernel<{ctype}, {self.threads}, {self.elements}, "
            f"{self.cluster}, {whole}>"
        )

    @property
    def block(self) -> int:
        """Threads a block. Short rows share one: kBlockOf in csrc/kernels/softmax_registers.cuh."""
        return max(self.threads, 128)

    def blocks(self, rows: int) -> int:
        """Blocks of the whole grid."""
        return -(-rows * self.threads // self.block) * self.cluster


def naive_plan() -> int:
    """Threads a block, one thread a row."""
    return 128


@functools.lru_cache(maxsize=1024)
def registers_plan(cols: int, itemsize: int, whole: bool, clusters: bool) -> RowPlan:
    """Who computes a row of `cols` elements.

    whole: see RowPlan; clusters: whether the device has them
    """
    pack = 16 // itemsize
    # A row that starts and ends anywhere touches up to two partial packs.
    slots = cols if whole else (cols + 2 * (pack - 1)) // pack * pack
    for threads, blocks in SHARED_BY if clusters else SHARED_BY_ONE_BLOCK:
        share = -(-slots // (threads * blocks * 8)) * 8
        if share <= HELD:
            return RowPlan(threads, share, blocks, whole)
    # Two reads of a row, whatever its length.
    return RowPlan(512, 0, 1, False)


def naive_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension, one thread a row, through the extension.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        cols = x.shape[-1]
        compiled().softmax_naive(dense(x).view(-1, cols), target.view(-1, cols), naive_plan())
    return target if out is None or out is target else out.copy_(target)


def naive_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `naive_extension`, through CuPy."""
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        cols = x.shape[-1]
        rows = x.numel() // cols
        source = dense(x)
        threads = naive_plan()
        rawmodule.launch(
            source,
            "softmax_naive.cuh",
            f"softmax_naive_kernel<{rawmodule.CTYPES[x.dtype]}>",
            rawmodule.grid_of(-(-rows // threads)),
            threads,
            (source.data_ptr(), target.data_ptr(), np.int64(rows), np.int64(cols)),
        )
    return target if out is None or out is target else out.copy_(target)


def registers_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension with one read and one write, through the extension.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        cols = x.shape[-1]
        source = dense(x)
        plan = _plan(source, target)
        compiled().softmax_registers(source.view(-1, cols), target.view(-1, cols), *plan)
    return target if out is None or out is target else out.copy_(target)


def registers_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernels as `registers_extension`, through CuPy."""
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        cols = x.shape[-1]
        rows = x.numel() // cols
        source = dense(x)
        plan = _plan(source, target)
        # Only the online kernel takes rows of more than 2^31 elements.
        width = np.int32(cols) if plan.elements else np.int64(cols)
        rawmodule.launch(
            source,
            "softmax_registers.cuh",
            plan.expression(x.dtype),
            rawmodule.grid_of(plan.blocks(rows)),
            plan.block,
            (source.data_ptr(), target.data_ptr(), np.int64(rows), width),
            prefer_l1=True,
        )
    return target if out is None or out is target else out.copy_(target)


def _plan(source: Tensor, target: Tensor) -> RowPlan:
    cols, itemsize = source.shape[-1], source.element_size()
    ends = source.data_ptr() | target.data_ptr() | cols * itemsize
    return registers_plan(cols, itemsize, ends % 16 == 0, _has_clusters(source.device))


@functools.cache
def _has_clusters(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (9, 0)
