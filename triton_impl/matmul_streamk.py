"""Few rows of a by a narrow b in Triton: stream-K, in two launches.

A tile of 64 columns a program would leave most multiprocessors idle here. So all steps of all tiles
are laid end to end and cut into equal shares, one a program (Osama et al., Stream-K, 2023). A share
may end in the middle of a tile; every part goes to a slot of its own in a workspace
(`matmul_parts_kernel`), and a second launch adds each tile's parts in the order of K
(`matmul_sum_kernel`): the same bits each time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from triton_impl.launch import INTERPRETED, TensorMap, cdiv, processors

__all__ = ["launch_streamk", "streamk_plan", "tiles_of"]


@dataclass(frozen=True)
class StreamPlan:
    """A launch for up to block_m rows.

    swap: whether the tile's transpose is computed, so that the 64 columns of b are the 64 rows that
        wgmma wants, whatever the rows of a
    """

    block_m: int
    swap: bool
    num_stages: int


# As many stages as two programs a multiprocessor have room for. Against cuBLAS, with one launch and
# counters that nobody had to zero (H200, torch 2.11, triton 3.6, K x N of 14336 x 4096 and
# 4096 x 4096; in parentheses a tile a program):
STREAM_PLANS = (
    StreamPlan(16, swap=True, num_stages=5),  # 1.021 (0.826), 1.125 (0.991)
    StreamPlan(32, swap=True, num_stages=4),  # 1.016 (0.631), 1.096 (0.789)
    StreamPlan(64, swap=False, num_stages=3),  # 1.010 (0.620), 0.847 (0.654)
)
COLUMNS = tl.constexpr(64)
DEPTH = tl.constexpr(128)
PROGRAMS = 2  # a multiprocessor

# A shorter K is through before a second launch could have begun.
LEAST_STEPS = 16

# Elements of y a program of the second launch, four a thread, and parts of each on their way.
SUMS = tl.constexpr(512)
IN_FLIGHT = tl.constexpr(4)


@triton.jit
def tiles_of(size, TILE: tl.constexpr):
    # How many tiles cover a size of 1 or more. size + TILE - 1, which tl.cdiv takes, can pass 2^31.
    return (size - 1) // TILE + 1


# One instance for all numbers of rows.
@triton.jit(do_not_specialize=["size_m", "share"])
def matmul_parts_kernel(
    a_desc,  # [M, K]
    b_desc,  # [N, K]
    parts_ptr,  # [programs, 2, BLOCK_M, COLUMNS] float32: of the first tile and the second
    size_m,
    size_n,
    size_k,
    share,  # steps a program, of DEPTH each; no more than a tile has
    BLOCK_M: tl.constexpr,
    SWAP: tl.constexpr,
    WIDEN: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        # The second launch may be set up from now on; it waits for the end of this one.
        gdc_launch_dependents()
    steps = tiles_of(size_k, DEPTH)
    # 2^31 steps would be 32 TB of b.
    begin = tl.program_id(0) * share
    end = tl.minimum(begin + share, tiles_of(size_n, COLUMNS) * steps)
    rows = tl.arange(0, BLOCK_M)
    cols = tl.arange(0, COLUMNS)
    if SWAP:
        inside = rows[None, :] * COLUMNS + cols[:, None]
        mask = rows[None, :] < size_m
        total = tl.zeros((COLUMNS, BLOCK_M), tl.float32)
    else:
        inside = rows[:, None] * COLUMNS + cols[None, :]
        mask = rows[:, None] < size_m
        total = tl.zeros((BLOCK_M, COLUMNS), tl.float32)
    parts_ptr += tl.program_id(0) * (2 * BLOCK_M * COLUMNS)
    for unit in range(begin, end):
        tile = unit // steps
        step = unit % steps
        # Past an edge a and b give 0.
        a = a_desc.load([0, step * DEPTH])
        b = b_desc.load([tile * COLUMNS, step * DEPTH])
        if WIDEN:
            a = a.to(tl.float32)
            b = b.to(tl.float32)
        if SWAP:
            total = tl.dot(b, a.T, total)
        else:
            total = tl.dot(a, b.T, total)
        if (step == steps - 1) | (unit == end - 1):
            slot = tile - begin // steps
            tl.store(parts_ptr + slot * (BLOCK_M * COLUMNS) + inside, total, mask=mask)
            total = tl.zeros_like(total)


@triton.jit(do_not_specialize=["size_m", "share"])
def matmul_sum_kernel(
    parts_ptr,  # as matmul_parts_kernel left them
    y_ptr,  # [M, N]
    size_m,
    size_n,
    size_k,
    share,
    BLOCK_M: tl.constexpr,
    EARLY: tl.constexpr,
):
    steps = tiles_of(size_k, DEPTH)
    tile = tl.program_id(0)
    first = tile * steps // share
    last = (tile * steps + steps - 1) // share
    inside = tl.program_id(1) * SUMS + tl.arange(0, SUMS)
    row = inside // COLUMNS
    col = tile * COLUMNS + inside % COLUMNS
    mask = (row < size_m) & (col < size_n)
    total = tl.zeros((SUMS,), tl.float32)
    if EARLY:
        # Until the first launch has ended and all it wrote can be seen.
        gdc_wait()
    # One thread has all of an element's parts, so that they come side by side.
    ahead = tl.arange(0, IN_FLIGHT)[:, None]
    for start in range(first, last + 1, IN_FLIGHT):
        program = start + ahead
        slot = 2 * program + tile - program * share // steps
        parts = tl.load(
            parts_ptr + slot * (BLOCK_M * COLUMNS) + inside[None, :],
            mask=mask[None, :] & (program <= last),
            other=0.0,  # adds nothing
        )
        total += tl.sum(parts, axis=0)
    tl.store(y_ptr + row * size_n + col, total.to(y_ptr.dtype.element_ty), mask=mask)


def streamk_plan(size_m: int, size_n: int, size_k: int, n_processors: int) -> StreamPlan | None:
    """How to share out a product of few rows, None where it isn't worth a second launch.

    With 64 tiles for 132 multiprocessors it is (above). With 224 a tile a program already keeps all
    of the memory busy: at 4096 x 14336 stream-K had 0.91 of cuBLAS at 16 rows and 0.88 at 64, a
    tile a program 0.98 and 1.05.
    """
    if cdiv(size_n, COLUMNS.value) >= n_processors or size_k <= (LEAST_STEPS - 1) * DEPTH.value:
        return None
    return next((plan for plan in STREAM_PLANS if size_m <= plan.block_m), None)


def launch_streamk(a: Tensor, b: Tensor, y: Tensor, plan: StreamPlan) -> None:
    """a: [M, K]; b: [N, K]; y: [M, N] contiguous; M <= plan.block_m

    The workspace is this call's own, from torch's allocator: calls on several streams, graphs that
    replay at one time and a call that fails half-way have nothing in common. Counters in one launch
    would need zeros: a memset each call, a node of the graph as the second launch is, or zeros that
    calls hand on, which two graphs would share. Here the order of two launches is all there is.
    """
    size_m, size_k = a.shape
    size_n = y.shape[1]
    columns, depth = COLUMNS.value, DEPTH.value
    tiles = cdiv(size_n, columns)
    units = tiles * cdiv(size_k, depth)
    share = cdiv(units, processors(a) * PROGRAMS)
    programs = cdiv(units, share)
    slots = programs * 2 * plan.block_m * columns
    parts = torch.empty(slots, dtype=torch.float32, device=a.device)
    # "Early" is programmatic dependent launch, which the interpreter knows nothing of.
    matmul_parts_kernel[(programs,)](
        TensorMap(a, a.shape, a.stride(), [plan.block_m, depth]),
        TensorMap(b, b.shape, b.stride(), [columns, depth]),
        *(parts, size_m, size_n, size_k, share),
        *(plan.block_m, plan.swap, INTERPRETED, not INTERPRETED),
        num_warps=4,
        num_stages=plan.num_stages,
    )
    matmul_sum_kernel[(tiles, cdiv(size_m * columns, SUMS.value))](
        *(parts, y, size_m, size_n, size_k, share, plan.block_m, not INTERPRETED),
        num_warps=4,
        launch_pdl=not INTERPRETED,
    )
