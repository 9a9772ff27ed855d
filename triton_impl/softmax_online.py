"""Rows of any length, each by one program that reads it twice.

The second time backwards, so that what was read last is met first, while it is still in a cache.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from triton_impl.launch import INTERPRETED
from triton_impl.softmax_row import (
    exp,
    finite_or_zero,
    load_window,
    store_ends,
    store_window,
    window,
)

__all__ = ["launch_online"]

# Online kernel: what a thread has in flight: four loads of 16 bytes where rows are aligned, and no
# more than 16 narrower ones where they aren't, whose addresses take registers too.
THREAD_BYTES = 64

THREAD_LOADS = 16

# The same for rows that start anywhere: what is compared with both ends takes registers too.
RAGGED_THREAD_BYTES = 32

# Online kernel: (up to this many bytes a row, warps).
ONLINE_PLANS = (
    # Two or three programs a multiprocessor, whose rows together fit in its 256 KB of L1.
    (2**17, 16),
    # One program a multiprocessor, so that the card's unfinished rows fit in the 60 MB of L2.
    (2**62, 32),
)

# Registers a thread: two programs of 16 warps fit a multiprocessor. Left to itself the compiler
# takes 87 and saves no spill by it, but with loads of single elements.
ONLINE_REGISTERS = 64


@triton.jit
def softmax_online_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    ITEMS: tl.constexpr,
    LANES: tl.constexpr,
    PACK: tl.constexpr,
    WHOLE: tl.constexpr,
    EXACT: tl.constexpr,
):
    TILE: tl.constexpr = ITEMS * LANES
    base, low, high = window(tl.program_id(0), n_cols, WHOLE, PACK)
    x_ptr += base
    y_ptr += base
    # One thread holds all ITEMS of its columns, so the loop needs neither shuffle nor barrier.
    cols = tl.arange(0, ITEMS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    n_tiles = tl.cdiv(high, TILE)

    # Online softmax: Milakov and Gimelshein, 2018, with one maximum and sum for each lane.
    peak = tl.full([LANES], -float("inf"), tl.float32)
    total = tl.zeros([LANES], tl.float32)
    for tile in range(n_tiles):
        x = load_window(x_ptr, tile * TILE + cols, low, high, WHOLE, PACK, EXACT)
        higher = tl.maximum(peak, tl.max(x, axis=0))
        pivot = finite_or_zero(higher)
        # tl.max and tl.maximum skip NaN; it comes into the sum here.
        total = total * exp(peak - pivot) + tl.sum(exp(x - pivot[None, :]), axis=0)
        peak = higher
    pivot = finite_or_zero(tl.max(peak, axis=0))
    inverse = 1.0 / tl.sum(total * exp(peak - pivot), axis=0)

    for step in range(n_tiles):
        offsets = (n_tiles - 1 - step) * TILE + cols
        store_window(x_ptr, y_ptr, offsets, low, high, pivot, inverse, WHOLE, PACK)
    if not WHOLE:
        store_ends(x_ptr, y_ptr, low, high, pivot, inverse, PACK)


def online_tile(pack: int, itemsize: int, num_warps: int, whole: bool) -> tuple[int, int]:
    """(items, lanes) for loads of `pack` elements: one a thread and item."""
    in_flight = THREAD_BYTES if whole else RAGGED_THREAD_BYTES
    return min(in_flight // (pack * itemsize), THREAD_LOADS), num_warps * 32 * pack


def launch_online(x: Tensor, y: Tensor, n_rows: int, n_cols: int, pack: int) -> None:
    """x, y: contiguous, [n_rows, n_cols], aligned to `pack` elements"""
    itemsize = x.element_size()
    num_warps = next(plan[1] for plan in ONLINE_PLANS if n_cols * itemsize <= plan[0])
    whole = n_cols % pack == 0
    items, lanes = online_tile(pack, itemsize, num_warps, whole)
    softmax_online_kernel[(n_rows,)](
        *(x, y, n_cols, items, lanes, pack, whole, INTERPRETED),
        num_warps=num_warps,
        maxnreg=ONLINE_REGISTERS if pack > 1 else None,
    )
