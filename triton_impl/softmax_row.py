"""What the softmax kernels of this tier share: values of a row, and the window it lies in."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "ends_of",
    "exp",
    "finite_or_zero",
    "halves",
    "highest",
    "load_window",
    "store_ends",
    "store_window",
    "window",
]

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def exp(x):
    # tl.exp spends three more instructions on results below 2^-126, which tl.exp2 flushes to 0.
    # Folding the factor into the subtraction before would lose it all at large common offsets.
    return tl.exp2(x * LOG2_E)


@triton.jit
def halves(words, TYPE: tl.constexpr):
    # The two values of a word as float32, the first in memory first.
    if TYPE == tl.bfloat16:
        # bfloat16 is float32's upper half.
        low, high = words << 16, words & -65536
        return low.to(tl.float32, bitcast=True), high.to(tl.float32, bitcast=True)
    low = words.to(tl.int16).to(TYPE, bitcast=True)
    high = (words >> 16).to(tl.int16).to(TYPE, bitcast=True)
    return low.to(tl.float32), high.to(tl.float32)


@triton.jit
def _higher_bfloat16(a, b):
    return tl.inline_asm_elementwise(
        "max.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _higher_float16(a, b):
    return tl.inline_asm_elementwise(
        "max.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def highest(words, TYPE: tl.constexpr, PORTABLE: tl.constexpr):
    # Two maxima an instruction, and no float32 copy of the row, which the compiler would keep for
    # later instead of the words.
    if PORTABLE:
        low, high = halves(words, TYPE)
        return tl.max(tl.maximum(low, high), axis=0)
    if TYPE == tl.bfloat16:
        low, high = halves(tl.reduce(words, 0, _higher_bfloat16), TYPE)
    else:
        low, high = halves(tl.reduce(words, 0, _higher_float16), TYPE)
    return tl.maximum(low, high)


@triton.jit
def finite_or_zero(peak):
    # Where nothing but -inf was seen, -inf - -inf would be NaN; with 0 the exponentials are 0.
    return tl.where(peak == -float("inf"), 0.0, peak)


@triton.jit
def window(row, n_cols, WHOLE: tl.constexpr, PACK: tl.constexpr):
    # Rows of an odd length start anywhere, and loads of 16 bytes don't: columns are counted from
    # the pack of PACK elements in which the row starts, as far as the one in which it ends.
    start = row.to(tl.int64) * n_cols
    base = start // PACK * PACK
    low = start - base
    if WHOLE:
        low = low * 0
    return base, low, low + n_cols


@triton.jit
def ends_of(low, high, PACK: tl.constexpr):
    # The row's elements outside its own packs, at most PACK - 1 at both ends. A row has PACK
    # elements or more.
    first = (low + PACK - 1) // PACK * PACK
    last = high // PACK * PACK
    items = tl.arange(0, 2 * PACK)
    cols = tl.where(items < PACK, low + items, last + items - PACK)
    return cols, tl.where(items < PACK, cols < first, cols < high)


@triton.jit
def load_window(
    x_ptr, cols, low, high, WHOLE: tl.constexpr, PACK: tl.constexpr, EXACT: tl.constexpr
):
    # Whole packs: a mask that differs between elements of one would split the load. -inf is neutral
    # for the maximum, and its exponential for the sum.
    end = high if EXACT else (high + PACK - 1) // PACK * PACK
    x = tl.load(x_ptr + cols, mask=cols < end, other=-float("inf"), eviction_policy="evict_last")
    x = x.to(tl.float32)
    if not WHOLE:
        x = tl.where((cols >= low) & (cols < high), x, -float("inf"))
    return x


@triton.jit
def store_window(
    x_ptr, y_ptr, cols, low, high, pivot, inverse, WHOLE: tl.constexpr, PACK: tl.constexpr
):
    # Only whole packs that are the row's own: the others are `store_ends`'s.
    mask = cols < high // PACK * PACK
    if not WHOLE:
        mask = mask & (cols >= (low + PACK - 1) // PACK * PACK)
    # other is never stored.
    x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
    y = exp(x.to(tl.float32) - pivot) * inverse
    tl.store(y_ptr + cols, y, mask=mask, eviction_policy="evict_first")


@triton.jit
def store_ends(x_ptr, y_ptr, low, high, pivot, inverse, PACK: tl.constexpr):
    cols, mask = ends_of(low, high, PACK)
    x = tl.load(x_ptr + cols, mask=mask, other=0.0)
    tl.store(y_ptr + cols, exp(x.to(tl.float32) - pivot) * inverse, mask=mask)
