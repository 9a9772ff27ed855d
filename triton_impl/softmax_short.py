"""Rows that one program holds in registers: read once.

As float32 (`softmax_rows_kernel`), or with two 16-bit values a register (`softmax_packed_kernel`).
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_impl.launch import INTERPRETED, cdiv, next_power_of_2, vector
from triton_impl.softmax_row import ends_of, exp, halves, highest, window

__all__ = [
    "LONGEST_PACKED",
    "PACKED_FROM",
    "ROWS_LIMIT",
    "has_pairs",
    "launch_packed",
    "launch_rows",
]

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
    # What isn't packed, see PACKED_FROM: four-byte types, and tensors that start between two packs.
    (16384, 16384, 16),
    (32768, 32768, 32),
)

# The longest row read once as float32, by bytes an element. A program of 32 warps has the
# multiprocessor for itself, so its loads, reductions and stores don't overlap: float32 has the
# bytes to hide that (4.07 TB/s at 32768), two-byte types don't (3.2 TB/s).
ROWS_LIMIT = {4: 32768, 2: 16384}

# Packed kernel, for two-byte types: rows longer than this. At 8192 columns the rows kernel has
# 0.979 of a copy and this one 0.975, at 16384 it has 0.90.
PACKED_FROM = 8192

# Packed kernel: (up to this many columns, warps, registers a thread). 16 words a lane: with twice
# as many values in flight as the rows kernel has, four programs of 16384 columns or two of 32768
# fit the multiprocessor, and load, reduce and store in turns: 0.975 and 0.979 of a copy. Eviction
# hints cost a hundredth or two.
PACKED_PLANS = (
    (16384, 16, 32),
    (32768, 32, 32),
)

LONGEST_PACKED = PACKED_PLANS[-1][0]

# Registers for rows that start anywhere, whose ends are held apart: 32 would spill with 16 warps.
RAGGED_REGISTERS = {16: 40, 32: 32}

# 16 bytes of them.
PACK = tl.constexpr(8)


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
    numerator = exp(x - tl.max(x, axis=1, keep_dims=True))
    inverse = 1.0 / tl.sum(numerator, axis=1, keep_dims=True)
    tl.store(y_ptr + offsets, numerator * inverse, mask=mask)


@triton.jit
def softmax_packed_kernel(
    x_ptr,  # 16-bit values
    y_ptr,
    n_cols,
    WORDS: tl.constexpr,
    WHOLE: tl.constexpr,
    PORTABLE: tl.constexpr,
):
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    base, low, high = window(tl.program_id(0), n_cols, WHOLE, PACK)
    x_ptr += base
    y_ptr += base
    # The row's own packs, in words of two values.
    first = (low + PACK - 1) // PACK * PACK
    n_words = (high // PACK - first // PACK) * (PACK // 2)
    items = tl.arange(0, WORDS)
    # Twice -inf: neutral for the maximum, and its exponential for the sum.
    nothing: tl.constexpr = -0x007F0080 if TYPE == tl.bfloat16 else -0x03FF0400
    x_words = (x_ptr + first).to(tl.pointer_type(tl.int32), bitcast=True)
    words = tl.load(x_words + items, mask=items < n_words, other=nothing)
    peak = highest(words, TYPE, PORTABLE)
    if not WHOLE:
        ends, inside = ends_of(low, high, PACK)
        x_ends = tl.load(x_ptr + ends, mask=inside, other=-float("inf")).to(tl.float32)
        peak = tl.maximum(peak, tl.max(x_ends, axis=0))
    # All maxima skip NaN, but a NaN, +inf or a row of -inf is NaN here and so reaches the sum.
    left, right = halves(words, TYPE)
    total = tl.sum(exp(left - peak) + exp(right - peak), axis=0)
    if not WHOLE:
        total += tl.sum(exp(x_ends - peak), axis=0)
    inverse = 1.0 / total
    # There is no second dimension: 0 is added. The compiler doesn't know, and so keeps the words
    # and not their exponentials, twice as many registers. (It would see through a bitwise
    # operation: this number has 16 bits.)
    left, right = halves(words + tl.program_id(1), TYPE)
    y = tl.join(exp(left - peak) * inverse, exp(right - peak) * inverse).reshape(2 * WORDS)
    cols = tl.arange(0, 2 * WORDS)
    tl.store(y_ptr + first + cols, y, mask=cols < 2 * n_words)
    if not WHOLE:
        tl.store(y_ptr + ends, exp(x_ends - peak) * inverse, mask=inside)


@functools.cache
def _maxima_of_pairs(index: int) -> bool:
    """Whether a device finds two 16-bit maxima in one instruction."""
    return torch.cuda.get_device_capability(index) >= (8, 0)


def has_pairs(x: Tensor) -> bool:
    """Whether two values of x can be kept as one word."""
    return x.element_size() == 2 and (INTERPRETED or _maxima_of_pairs(x.get_device()))


def launch_rows(x: Tensor, y: Tensor, n_rows: int, n_cols: int) -> None:
    """x, y: contiguous, [n_rows, n_cols], up to 32768 columns"""
    elements, num_warps = next(plan[1:] for plan in ROW_PLANS if n_cols <= plan[0])
    block_cols = next_power_of_2(n_cols)
    block_rows = elements // block_cols
    unit = vector(n_cols)
    softmax_rows_kernel[(cdiv(n_rows, block_rows),)](
        x, y, n_rows, n_cols // unit, unit, block_rows, block_cols, num_warps=num_warps
    )


def launch_packed(x: Tensor, y: Tensor, n_rows: int, n_cols: int) -> None:
    """x, y: contiguous, [n_rows, n_cols], aligned to 16 bytes, what `has_pairs`, up to 32768
    columns"""
    most_cols, num_warps, registers = next(plan for plan in PACKED_PLANS if n_cols <= plan[0])
    whole = n_cols % PACK.value == 0
    softmax_packed_kernel[(n_rows,)](
        *(x, y, n_cols, most_cols // 2, whole, INTERPRETED),
        num_warps=num_warps,
        maxnreg=registers if whole else RAGGED_REGISTERS[num_warps],
    )
