"""Who computes a row of softmax, by its length: tables, each row with its reason.

Read by cuda_impl/softmax.py for the extension and for CuPy alike. Figures are of 2^28 elements of
bfloat16 on an H200, against a copy of the same size.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from cuda_impl import rawmodule

__all__ = [
    "RowPlan",
    "block_plan",
    "few_plan",
    "naive_plan",
    "online_plan",
    "registers_plan",
]

# (threads, blocks, elements a thread) that share a row, by bytes an element; the first that can
# hold the row is taken. A share that isn't full costs as much time as one that is, so there are
# many.
SHARED_BY = {
    2: (
        # Lanes of one warp, and several rows a warp. Sixteen lanes and more as soon as they have
        # a pack each: at 128 columns 1.00 of a copy, where four lanes of 32 elements have 0.96.
        *((4, 1, 8), (8, 1, 8), (16, 1, 8), (16, 1, 16), (32, 1, 16)),
        # A warp a row: no barrier, and whoever is done makes room for the next. 1.00 to 0.98.
        # More than 32 elements are kept in 16 bits, twice as many a register.
        *((32, 1, held) for held in (24, 32, 40, 48, 56, 64, 80, 96)),
        # One barrier. Blocks stay small, so that an SM has several, in different phases: while one
        # waits for its loads another computes and a third stores. 0.97.
        *((128, 1, held) for held in (32, 40, 48, 56)),
        # Two of them, through distributed shared memory: 0.98, where one of 256 threads has 0.96.
        (128, 2, 32),
        *((128, 1, 80), (256, 2, 24), (512, 1, 32), (512, 1, 40)),
        # Three blocks of 256 threads fit an SM, whose 80 registers a thread hold 64 elements: 96 KB
        # of the row on their way. As floats they had 64 KB, and 0.85 at 131072 columns; now 0.98.
        *((256, 2, 48), (256, 2, 56), (128, 4, 64)),
        *((256, 4, held) for held in (40, 48)),
        # GPT-2's vocabulary, 50257: 0.97, and 0.92 in shares of 56 that are not full.
        (256, 5, 40),
        *((256, 4, held) for held in (56, 64)),
        *((256, 8, held) for held in (40, 48, 56, 64)),
        # As far as clusters reach: 0.95 at 262144 columns.
        *((256, 16, held) for held in (40, 48, 56, 64)),
        # Where there are no clusters: a block alone on its SM.
        *((1024, 1, 24), (1024, 1, 32)),
    ),
    4: (
        *((4, 1, 8), (8, 1, 8), (16, 1, 8), (16, 1, 16), (32, 1, 16)),
        *((32, 1, held) for held in (24, 32, 40, 48, 56, 64)),
        *((128, 1, 24), (128, 2, 16), (256, 1, 24), (256, 2, 16)),
        *((512, 1, 24), (256, 2, 32), (512, 2, 24), (512, 2, 32)),
        # 50257 columns: 0.98.
        *((256, 8, held) for held in (20, 24, 28)),
        (512, 4, 32),
        *((512, blocks, held) for blocks in (8, 16) for held in (24, 32)),
        *((512, 1, 32), (1024, 1, 24), (1024, 1, 32)),
    ),
}

# The same for rows that are too few to fill the device, where what counts is when the last of its
# threads is done: more of them, with less to compute each, and so on more multiprocessors.
FEW_SHARED_BY = (
    # (threads, blocks, floats a thread)
    (128, 1, 8),
    (256, 1, 8),
    (512, 1, 8),
    (1024, 1, 8),
    (512, 4, 8),
    (512, 8, 8),
    (512, 4, 16),
    (512, 8, 16),
    (512, 4, 32),
    (512, 8, 24),
    (512, 8, 32),
)

# Bytes at whose multiples warps divide a row that starts anywhere.
LINE = 128

# Threads a multiprocessor up to which rows count as few: with twice as many, 64 rows of 32000 take
# longer (6.0 us) than with a block each (5.6 us).
FEW_THREADS = 1024


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
        if self.threads == 32 and self.elements >= 24:
            return 32
        return max(self.threads, 128)

    def blocks(self, rows: int) -> int:
        """Blocks of the whole grid."""
        return -(-rows * self.threads // self.block) * self.cluster


def naive_plan() -> int:
    """Threads a block, one thread a row."""
    return 128


def block_plan() -> int:
    """Threads a block, one block a row."""
    return 256


def online_plan() -> int:
    """Threads a block, one block a row."""
    return 512


@functools.lru_cache(maxsize=1024)
def registers_plan(
    rows: int, cols: int, itemsize: int, whole: bool, *, processors: int, most_blocks: int
) -> RowPlan:
    """Who computes a row of `cols` elements, of `rows`.

    whole: see RowPlan; processors: multiprocessors of the device; most_blocks: of
    a cluster on it, 1 where there are none
    """
    few = few_plan(rows, cols, itemsize, whole, processors) if most_blocks > 1 else None
    if few is not None:
        return few
    for threads, blocks, elements in SHARED_BY[itemsize]:
        fits = blocks <= most_blocks
        if fits and _holds(threads, blocks, elements, cols, itemsize, whole):
            return RowPlan(threads, elements, blocks, whole)
    # Two reads of a row, whatever its length.
    return RowPlan(online_plan(), 0, 1, False)


def few_plan(rows: int, cols: int, itemsize: int, whole: bool, processors: int) -> RowPlan | None:
    """Who computes a row where all rows fit the device at once with room to spare; else None."""
    if cols <= 256:  # more lanes would have nothing to hold
        return None
    for threads, blocks, elements in FEW_SHARED_BY:
        fits = rows * threads * blocks <= processors * FEW_THREADS
        if fits and _holds(threads, blocks, elements, cols, itemsize, whole):
            return RowPlan(threads, elements, blocks, whole)
    return None


def _holds(threads: int, blocks: int, elements: int, cols: int, itemsize: int, whole: bool) -> bool:
    """Whether they hold a row wherever it starts; kBoundaryOf in csrc/kernels/softmax_registers.cuh
    says where packs are counted from."""
    pack = 16 // itemsize
    before = 0 if whole else (LINE if threads > 32 else 16) // itemsize - 1
    return -(-(before + cols) // pack) * pack <= threads * blocks * elements
