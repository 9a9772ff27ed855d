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
    "RING",
    "RowPlan",
    "StreamPlan",
    "block_plan",
    "few_plan",
    "naive_plan",
    "online_plan",
    "registers_plan",
    "streamed_plan",
]

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
    (512, 8, 16),
    (512, 8, 24),
    (512, 8, 32),
)

# Threads of a multiprocessor that registers are left for, by floats a thread; kResident in
# csrc/kernels/softmax_registers.cuh.
RESIDENT = {8: 2048, 16: 1536, 24: 1024, 32: 1024}

# Who shares a streamed row (csrc/kernels/softmax_streamed.cuh): (threads, blocks, floats a thread),
# of which the first that can hold the row is taken.
STREAMED_SHORT = (
    # 16-bit rows of 65 to 1024 elements. A warp that has its row in registers, with no barrier to
    # keep the block's four together, reaches 0.95 of a copy at 1024; two warps a row that wait for
    # each other reach 0.98. Here up to 192 KB a multiprocessor are on their way whatever the warps
    # do. Eight lanes at least, so that what they load at once is a line of memory.
    (8, 1, 16),
    (8, 1, 24),
    (8, 1, 32),
    (16, 1, 24),
    (16, 1, 32),
    (32, 1, 24),
    (32, 1, 32),
)
STREAMED_LONG = (
    # From 16385 elements on a block has its multiprocessor for itself, and nothing loads while it
    # computes: 0.91 of a copy at 32768, 0.84 and 0.70 where two and eight such blocks also start
    # together and wait for each other. 64 floats a thread, since half as many warps exchange half
    # as many partials.
    (512, 1, 48),
    (512, 1, 64),
    # Fewest blocks first: 66 clusters of 2 fill 132 multiprocessors; of 4 or 8, that fit processing
    # clusters of 16 or 18, at most 32 or 16, and 4 multiprocessors idle.
    (512, 2, 48),
    (512, 2, 64),
    (512, 4, 48),
    (512, 4, 64),
    (512, 8, 48),
    (512, 8, 64),
)

# Bytes of shared memory, of 227 KB, for what a multiprocessor's blocks have on their way.
RING = 192 * 1024

# Rows of a thread among them at most: memory answers no sooner for more.
DEPTH = 4

# Rows that a block takes in turn at most. One launch and one first load in so many, both beside
# other blocks' traffic, and still blocks enough for the hardware to even out who got more of it.
TURNS = 8


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


class StreamPlan(NamedTuple):
    """Who computes a row of softmax that is streamed.

    threads, elements, cluster, whole: as in RowPlan
    depth: rows of a thread that are on their way
    turns: rows that a thread takes one after another
    """

    threads: int
    elements: int
    depth: int
    cluster: int
    whole: bool
    turns: int

    def expression(self, dtype: torch.dtype) -> str:
        """The kernel's name with its template arguments."""
        ctype, whole = rawmodule.CTYPES[dtype], str(self.whole).lower()
        arguments = f"{ctype}, {self.threads}, {self.elements}, {self.depth}"
        if self.cluster == 1:
            return f"softmax_streamed_kernel<{arguments}, {whole}>"
        return f"softmax_streamed_cluster_kernel<{arguments}, {self.cluster}, {whole}>"

    @property
    def block(self) -> int:
        """Threads a block: kStreamBlockOf in csrc/kernels/softmax_streamed.cuh."""
        return 256 if self.threads <= 32 else self.threads

    @property
    def resident(self) -> int:
        """Blocks a multiprocessor: kStreamResident there."""
        return 4 if self.threads <= 32 else 1

    def blocks(self, rows: int) -> int:
        """Blocks of the whole grid."""
        return -(-rows // (self.block // self.threads * self.turns)) * self.cluster

    def shared_bytes(self, itemsize: int) -> int:
        """kStreamBytes there."""
        return self.depth * self.elements * self.block * itemsize


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
def registers_plan(cols: int, itemsize: int, whole: bool, clusters: bool) -> RowPlan:
    """Who computes a row of `cols` elements.

    whole: see RowPlan; clusters: whether the device has them
    """
    slots = _slots(cols, itemsize, whole)
    for threads, blocks in SHARED_BY if clusters else SHARED_BY_ONE_BLOCK:
        share = -(-slots // (threads * blocks * 8)) * 8
        if share <= HELD:
            return RowPlan(threads, share, blocks, whole)
    # Two reads of a row, whatever its length.
    return RowPlan(online_plan(), 0, 1, False)


def few_plan(rows: int, slots: int, whole: bool, processors: int) -> RowPlan | None:
    """Who computes a row where all rows fit the device at once with room to spare; else None.

    slots: elements of a row, with those beside it that its first and last 16 bytes may have
    """
    if slots <= 256:  # more lanes would have nothing to hold
        return None
    for threads, blocks, elements in FEW_SHARED_BY:
        if slots <= threads * blocks * elements:
            fits = rows * threads * blocks <= processors * RESIDENT[elements]
            return RowPlan(threads, elements, blocks, whole) if fits else None
    return None


@functools.lru_cache(maxsize=1024)
def streamed_plan(
    rows: int,
    cols: int,
    itemsize: int,
    whole: bool,
    *,
    processors: int,
    clusters: bool,
    shared_bytes: int,
) -> RowPlan | StreamPlan:
    """Who computes a row of `cols` elements, of `rows`: streamed where that is faster.

    whole: see RowPlan; processors: multiprocessors of the device; clusters: whether it has them;
    shared_bytes: that a block may have there
    """
    # Beside the ring: partials and barriers.
    if not clusters or shared_bytes < RING + 4096:
        return registers_plan(cols, itemsize, whole, clusters)
    slots = _slots(cols, itemsize, whole)
    few = few_plan(rows, slots, whole, processors)
    if few is not None:
        return few
    # Between the tables two blocks or more fill a multiprocessor with rows in different phases:
    # 0.98 of a copy and more. float32 has twice the bytes on their way, also in short rows.
    table: tuple[tuple[int, int, int], ...] = ()
    if 64 < slots <= 1024 and itemsize == 2:
        table = STREAMED_SHORT
    elif slots > 16384:
        table = STREAMED_LONG
    for threads, blocks, elements in table:
        if slots <= threads * blocks * elements:
            plan = StreamPlan(threads, elements, 1, blocks, whole, 1)
            depth = RING // (plan.resident * plan.shared_bytes(itemsize))
            # Larger clusters leave over what doesn't fill a processing cluster.
            usable = processors if blocks <= 2 else max(processors // 16 * 16, blocks)
            at_once = max(usable * plan.resident // blocks, 1) * (plan.block // threads)
            rounds = -(-rows // at_once)
            if rounds == 1 and table is STREAMED_SHORT:
                break  # no next row to load meanwhile
            # Waves of blocks as long as each other, where one more would be too long.
            turns = -(-rounds // -(-rounds // TURNS))
            return plan._replace(depth=min(depth, DEPTH), turns=turns)
    return registers_plan(cols, itemsize, whole, clusters)


def _slots(cols: int, itemsize: int, whole: bool) -> int:
    pack = 16 // itemsize
    # A row that starts and ends anywhere touches up to two partial packs.
    return cols if whole else (cols + 2 * (pack - 1)) // pack * pack
