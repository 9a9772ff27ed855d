"""Softmax over the last dimension in Triton: a sketch, and one for every row length.

Rows that fit in registers are read once (`softmax_rows_kernel`). Longer ones are read twice, the
second time backwards, so that what was read last is met first, while it is still in a cache
(`softmax_online_kernel`).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from reference.contract import check_softmax, dense
from triton_impl.launch import DEVICES, on_device, place, processors, settle, vector

__all__ = ["sketch", "softmax"]

# The most elements that a Triton tile may have.
LARGEST_TILE = 2**20
LARGEST_GRID = 2**31 - 1

# Rows kernel: (up to this many columns, elements a program, warps).
ROW_PLANS = (
    # One warp holds whole rows, 64 values a lane: no barrier, no shared memory, and 20 programs
    # a multiprocessor have 80 KB in flight. Several short rows a program, because the card starts
    # 1.6e9 programs a second and no more: one row of 128 a program stops at a fifth of a copy.
    (2048, 2048, 1),
    # From here on one row a program, 32 values a lane: at 50 registers the multiprocessor is full
    # of threads, and the rows of one program load while another's reduce.
    (4096, 4096, 4),
    (8192, 8192, 8),
    (16384, 16384, 16),
    # Only four-byte types come here, see ROWS_LIMIT.
    (32768, 32768, 32),
)

# The longest row read once, by bytes an element. A program of 32 warps has the multiprocessor for
# itself, so its loads, reductions and stores don't overlap: float32 has the bytes to hide that
# (4.07 TB/s at 32768), two-byte types don't (3.2 TB/s).
ROWS_LIMIT = {4: 32768, 2: 16384}

# Online kernel: what a thread has in flight: four loads of 16 bytes where rows are aligned, and no
# more than 16 narrower ones where they aren't, whose addresses take registers too.
THREAD_BYTES = 64
THREAD_LOADS = 16

# Online kernel: (up to this many bytes a row, warps).
ONLINE_PLANS = (
    # Two or three programs a multiprocessor, whose rows together fit in its 256 KB of L1.
    (2**17, 16),
    # One program a multiprocessor, so that the card's unfinished rows fit in the 60 MB of L2.
    (2**62, 32),
)


LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax_sketch_kernel(x_ptr, y_ptr, n_cols, BLOCK_COLS: tl.constexpr):
    # 64-bit: row * n_cols passes 2^31 at sizes that fit the card.
    start = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK_COLS)
    mask = cols < n_cols
    # -inf is neutral for the maximum, and its exponential for the sum.
    x = tl.load(x_ptr + start + cols, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + start + cols, numerator / tl.sum(numerator, axis=0), mask=mask)


def sketch(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The fused softmax of a first draft, one row a program: illustrative, not production.

    x: [..., cols], cols up to 2^20; float32, float16 or bfloat16 -> [..., cols]
    Raises ValueError for longer rows, and what `reference.contract.check_softmax` raises.
    """
    check_softmax(x, out, DEVICES)
    n_cols = x.shape[-1]
    if n_cols > LARGEST_TILE:
        raise ValueError(
            f"x must have at most {LARGEST_TILE} columns, the largest Triton tile, got {n_cols}"
        )
    y = place(out, x.shape, x)
    if x.numel():
        n_rows = x.numel() // n_cols
        if n_rows > LARGEST_GRID:
            raise ValueError(f"x must have at most {LARGEST_GRID} rows, got {n_rows}")
        block_cols = triton.next_power_of_2(n_cols)
        with on_device(x):
            softmax_sketch_kernel[(n_rows,)](
                dense(x), y, n_cols, block_cols, num_warps=min(max(block_cols // 512, 4), 32)
            )
    return settle(y, out, x)


@triton.jit
def _exp(x):
    # tl.exp spends three more instructions on results below 2^-126, which tl.exp2 flushes to 0.
    # Folding the factor into the subtraction before would lose it all at large common offsets.
    return tl.exp2(x * LOG2_E)


@triton.jit
def softmax_rows_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_units,
    UNIT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    n_cols = n_units * UNIT
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    # Past the end the last row is done again: the same values go to the same place.
    rows = tl.minimum(rows, n_rows - 1)
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    offsets = rows * n_cols + cols
    mask = cols < n_cols
    # -inf is neutral for the maximum, and its exponential for the sum.
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    # tl.max skips NaN, but a NaN, +inf or a row of -inf is NaN here and so reaches the sum.
    numerator = _exp(x - tl.max(x, axis=1, keep_dims=True))
    inverse = 1.0 / tl.sum(numerator, axis=1, keep_dims=True)
    tl.store(y_ptr + offsets, numerator * inverse, mask=mask)


@triton.jit
def _finite_or_zero(peak):
    # Where nothing but -inf was seen, -inf - -inf would be NaN; with 0 the exponentials are 0.
    return tl.where(peak == -float("inf"), 0.0, peak)


@triton.jit
def softmax_online_kernel(
    x_ptr, y_ptr, n_units, n_shares, UNIT: tl.constexpr, ITEMS: tl.constexpr, LANES: tl.constexpr
):
    TILE: tl.constexpr = ITEMS * LANES
    n_cols = n_units.to(tl.int64) * UNIT
    start = tl.program_id(0).to(tl.int64) * n_cols
    x_ptr += start
    y_ptr += start
    # One thread holds all ITEMS of its columns, so the loop needs neither shuffle nor barrier.
    cols = tl.arange(0, ITEMS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    n_tiles = tl.cdiv(n_cols, TILE)

    # Online softmax: Milakov and Gimelshein, 2018, with one maximum and sum for each lane.
    peak = tl.full([LANES], -float("inf"), tl.float32)
    total = tl.zeros([LANES], tl.float32)
    for tile in range(n_tiles):
        offsets = tile * TILE + cols
        # -inf is neutral for the maximum, and its exponential for the sum.
        x = tl.load(
            x_ptr + offsets,
            mask=offsets < n_cols,
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, axis=0))
        pivot = _finite_or_zero(higher)
        # tl.max and tl.maximum skip NaN; it comes into the sum here.
        total = total * _exp(peak - pivot) + tl.sum(_exp(x - pivot[None, :]), axis=0)
        peak = higher
    pivot = _finite_or_zero(tl.max(peak, axis=0))
    inverse = 1.0 / tl.sum(total * _exp(peak - pivot), axis=0)

    # Programs of one row have all read the whole of it, and each writes its share.
    share = tl.cdiv(n_tiles, n_shares)
    end = tl.maximum(n_tiles - tl.program_id(1) * share, 0)
    begin = tl.maximum(end - share, 0)
    for step in range(end - begin):
        offsets = (end - 1 - step) * TILE + cols
        mask = offsets < n_cols
        # other is never stored.
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
        y = _exp(x.to(tl.float32) - pivot) * inverse
        tl.store(y_ptr + offsets, y, mask=mask, eviction_policy="evict_first")


def softmax(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) over the last dimension, in one launch.

    x: [..., cols]; float32, float16 or bfloat16 -> [..., cols]
    Raises what `reference.contract.check_softmax` raises.
    """
    check_softmax(x, out, DEVICES)
    y = place(out, x.shape, x)
    if x.numel():
        with on_device(x):
            _launch(dense(x), y)
    return settle(y, out, x)


def online_tile(unit: int, itemsize: int, num_warps: int) -> tuple[int, int]:
    """(items, lanes) for rows of a multiple of `unit` elements: one load a thread and item."""
    width = min(unit, 16 // itemsize)
    return min(THREAD_BYTES // (width * itemsize), THREAD_LOADS), num_warps * 32 * width


def _launch(x: Tensor, y: Tensor) -> None:
    """x, y: contiguous, one shape, not empty"""
    n_cols = x.shape[-1]
    n_rows = x.numel() // n_cols
    unit = vector(n_cols)
    if n_cols <= ROWS_LIMIT[x.element_size()]:
        elements, num_warps = next(plan[1:] for plan in ROW_PLANS if n_cols <= plan[0])
        block_cols = triton.next_power_of_2(n_cols)
        block_rows = elements // block_cols
        softmax_rows_kernel[(triton.cdiv(n_rows, block_rows),)](
            x, y, n_rows, n_cols // unit, unit, block_rows, block_cols, num_warps=num_warps
        )
        return
    # With fewer rows than multiprocessors the idle ones help: a row read by several costs L2
    # traffic that nobody else wants, and no memory for partial sums and no second launch.
    few = n_rows < processors(x)
    row_bytes = n_cols * x.element_size()
    num_warps = 32 if few else next(plan[1] for plan in ONLINE_PLANS if row_bytes <= plan[0])
    items, lanes = online_tile(unit, x.element_size(), num_warps)
    n_tiles = triton.cdiv(n_cols, items * lanes)
    n_shares = min(processors(x) // n_rows, n_tiles) if few else 1
    softmax_online_kernel[(n_rows, n_shares)](
        x, y, n_cols // unit, n_shares, unit, items, lanes, num_warps=num_warps
    )
