"""Few long rows, shared out to all multiprocessors, which meet between two launches."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_impl.launch import INTERPRETED, cdiv, next_power_of_2, processors
from triton_impl.softmax_row import (
    exp,
    finite_or_zero,
    load_window,
    store_ends,
    store_window,
    window,
)

__all__ = ["launch_shares", "suits_shares"]

# Few rows: programs a multiprocessor, and columns a program. One row of 131072 takes 4.4 us, in
# one launch that meets half way 5.2 us with programs of 1024 as of 4096, and 11.8 us where each
# program reads the whole row.
PROGRAMS = 2

LEAST_SHARE = 1024

LARGEST_SHARE = 8192

# Of a row, that each program reads: with more, that takes longer than its share does, and they are
# combined first, by a launch of its own.
MOST_PARTIALS = 1024

# What the second dimension of a grid can count.
MOST_SHARES = 65535


@triton.jit
def softmax_partials_kernel(
    x_ptr,
    partials_ptr,  # [rows, shares, 2]: maximum, and sum of the exponentials below it
    n_cols,
    BLOCK: tl.constexpr,
    PACK: tl.constexpr,
    WHOLE: tl.constexpr,
    EXACT: tl.constexpr,
):
    row, share = tl.program_id(0), tl.program_id(1)
    base, low, high = window(row, n_cols, WHOLE, PACK)
    cols = share * BLOCK + tl.arange(0, BLOCK)
    x = load_window(x_ptr + base, cols, low, high, WHOLE, PACK, EXACT)
    peak = tl.max(x, axis=0)
    total = tl.sum(exp(x - finite_or_zero(peak)), axis=0)
    partials_ptr += 2 * (row.to(tl.int64) * tl.num_programs(1) + share)
    tl.store(partials_ptr, peak)
    tl.store(partials_ptr + 1, total)


@triton.jit
def softmax_combine_kernel(
    partials_ptr,  # [rows, n_partials, 2]: as softmax_partials_kernel left them
    row_ptr,  # [rows, 1, 2]: the row's
    n_partials,
    LANES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, LANES)
    peak = tl.full([LANES], -float("inf"), tl.float32)
    total = tl.zeros([LANES], tl.float32)
    for start in range(0, n_partials, LANES):
        there = start + lanes < n_partials
        at = partials_ptr + 2 * (row * n_partials + start + lanes)
        peaks = tl.load(at, mask=there, other=-float("inf"))
        totals = tl.load(at + 1, mask=there, other=0.0)
        higher = tl.maximum(peak, peaks)
        pivot = finite_or_zero(higher)
        total = total * exp(peak - pivot) + totals * exp(peaks - pivot)
        peak = higher
    highest = tl.max(peak, axis=0)
    tl.store(row_ptr + 2 * row, highest)
    tl.store(row_ptr + 2 * row + 1, tl.sum(total * exp(peak - finite_or_zero(highest)), axis=0))


@triton.jit
def softmax_shares_kernel(
    x_ptr,
    y_ptr,
    partials_ptr,  # [rows, n_partials, 2]
    n_cols,
    n_partials,
    BLOCK: tl.constexpr,
    SLOTS: tl.constexpr,  # a power of two, n_partials or more
    PACK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    row, share = tl.program_id(0), tl.program_id(1)
    slots = tl.arange(0, SLOTS)
    there = slots < n_partials
    partials_ptr += 2 * (row.to(tl.int64) * n_partials + slots)
    peaks = tl.load(partials_ptr, mask=there, other=-float("inf"))
    totals = tl.load(partials_ptr + 1, mask=there, other=0.0)
    pivot = finite_or_zero(tl.max(peaks, axis=0))
    # A share of -inf alone has a sum of 0 at -inf, and counts as nothing.
    inverse = 1.0 / tl.sum(totals * exp(peaks - pivot), axis=0)
    base, low, high = window(row, n_cols, WHOLE, PACK)
    cols = share * BLOCK + tl.arange(0, BLOCK)
    store_window(x_ptr + base, y_ptr + base, cols, low, high, pivot, inverse, WHOLE, PACK)
    if not WHOLE:
        if share == 0:
            store_ends(x_ptr + base, y_ptr + base, low, high, pivot, inverse, PACK)


def shares_block(n_rows: int, n_cols: int, processors: int) -> int:
    """Columns a program of few rows, a power of two."""
    wanted = next_power_of_2(cdiv(n_cols, max(PROGRAMS * processors // n_rows, 1)))
    return min(max(wanted, LEAST_SHARE), LARGEST_SHARE)


def suits_shares(n_cols: int) -> bool:
    """Whether a grid has room for the shares of such a row."""
    return n_cols <= (MOST_SHARES - 1) * LARGEST_SHARE


def launch_shares(x: Tensor, y: Tensor, n_rows: int, n_cols: int, pack: int) -> None:
    """x, y: contiguous, [n_rows, n_cols], aligned to `pack` elements

    Two launches with partial sums between them; three, where those are many.
    """
    whole = n_cols % pack == 0
    block = shares_block(n_rows, n_cols, processors(x))
    # A row that starts in the middle of a pack reaches further.
    shares = cdiv(n_cols + (0 if whole else pack - 1), block)
    partials = torch.empty(n_rows, shares, 2, dtype=torch.float32, device=x.device)
    grid, num_warps = (n_rows, shares), max(4, block // 1024)
    softmax_partials_kernel[grid](
        x, partials, n_cols, block, pack, whole, INTERPRETED, num_warps=num_warps
    )
    if shares > MOST_PARTIALS:
        whole_row = torch.empty(n_rows, 1, 2, dtype=torch.float32, device=x.device)
        softmax_combine_kernel[(n_rows,)](partials, whole_row, shares, MOST_PARTIALS)
        partials = whole_row
    n_partials = partials.shape[1]
    slots = next_power_of_2(n_partials)
    softmax_shares_kernel[grid](
        *(x, y, partials, n_cols, n_partials, block, slots, pack, whole), num_warps=num_warps
    )
