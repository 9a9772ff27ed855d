"""Softmax over the last dimension in Triton: a sketch, and one for every row length.

Rows that fit in registers are read once: as float32 (`softmax_rows_kernel`), or with two 16-bit
values a register (`softmax_packed_kernel`). Longer ones are read twice, the second time backwards,
so that what was read last is met first, while it is still in a cache (`softmax_online_kernel`).
Few long ones are shared out to all multiprocessors, which meet between two launches
(`softmax_partials_kernel`, `softmax_shares_kernel`).
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference.contract import check_softmax, dense
from triton_impl.launch import (
    DEVICES,
    INTERPRETED,
    cdiv,
    next_power_of_2,
    on_device,
    place,
    processors,
    settle,
    vector,
)

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

# The same for rows that start anywhere, whose ends are held apart: 32 would spill with 16 warps.
RAGGED_REGISTERS = {16: 40, 32: 32}

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
        block_cols = next_power_of_2(n_cols)
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
def _halves(words, TYPE: tl.constexpr):
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
def _highest(words, TYPE: tl.constexpr, PORTABLE: tl.constexpr):
    # Two maxima an instruction, and no float32 copy of the row, which the compiler would keep for
    # later instead of the words.
    if PORTABLE:
        low, high = _halves(words, TYPE)
        return tl.max(tl.maximum(low, high), axis=0)
    if TYPE == tl.bfloat16:
        low, high = _halves(tl.reduce(words, 0, _higher_bfloat16), TYPE)
    else:
        low, high = _halves(tl.reduce(words, 0, _higher_float16), TYPE)
    return tl.maximum(low, high)


@triton.jit
def _finite_or_zero(peak):
    # Where nothing but -inf was seen, -inf - -inf would be NaN; with 0 the exponentials are 0.
    return tl.where(peak == -float("inf"), 0.0, peak)


@triton.jit
def _window(row, n_cols, WHOLE: tl.constexpr, PACK: tl.constexpr):
    # Rows of an odd length start anywhere, and loads of 16 bytes don't: columns are counted from
    # the pack of PACK elements in which the row starts, as far as the one in which it ends.
    start = row.to(tl.int64) * n_cols
    base = start // PACK * PACK
    low = start - base
    if WHOLE:
        low = low * 0
    return base, low, low + n_cols


@triton.jit
def _load(x_ptr, cols, low, high, WHOLE: tl.constexpr, PACK: tl.constexpr, EXACT: tl.constexpr):
    # Whole packs: a mask that differs between elements of one would split the load. -inf is neutral
    # for the maximum, and its exponential for the sum.
    end = high if EXACT else (high + PACK - 1) // PACK * PACK
    x = tl.load(x_ptr + cols, mask=cols < end, other=-float("inf"), eviction_policy="evict_last")
    x = x.to(tl.float32)
    if not WHOLE:
        x = tl.where((cols >= low) & (cols < high), x, -float("inf"))
    return x


@triton.jit
def _store(x_ptr, y_ptr, cols, low, high, pivot, inverse, WHOLE: tl.constexpr, PACK: tl.constexpr):
    # Only whole packs that are the row's own: the others are `_store_ends`'s.
    mask = cols < high // PACK * PACK
    if not WHOLE:
        mask = mask & (cols >= (low + PACK - 1) // PACK * PACK)
    # other is never stored.
    x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
    y = _exp(x.to(tl.float32) - pivot) * inverse
    tl.store(y_ptr + cols, y, mask=mask, eviction_policy="evict_first")


@triton.jit
def _ends(low, high, PACK: tl.constexpr):
    # The row's elements outside its own packs, at most PACK - 1 at both ends. A row has PACK
    # elements or more.
    first = (low + PACK - 1) // PACK * PACK
    last = high // PACK * PACK
    items = tl.arange(0, 2 * PACK)
    cols = tl.where(items < PACK, low + items, last + items - PACK)
    return cols, tl.where(items < PACK, cols < first, cols < high)


@triton.jit
def _store_ends(x_ptr, y_ptr, low, high, pivot, inverse, PACK: tl.constexpr):
    cols, mask = _ends(low, high, PACK)
    x = tl.load(x_ptr + cols, mask=mask, other=0.0)
    tl.store(y_ptr + cols, _exp(x.to(tl.float32) - pivot) * inverse, mask=mask)


@triton.jit
def softmax_packed_kernel(
    x_ptr,  # 16-bit values
    y_ptr,
    n_cols,
    WORDS: tl.constexpr,
    WHOLE: tl.constexpr,
    PORTABLE: tl.constexpr,
):
    PACK: tl.constexpr = 8
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    base, low, high = _window(tl.program_id(0), n_cols, WHOLE, PACK)
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
    peak = _highest(words, TYPE, PORTABLE)
    if not WHOLE:
        ends, inside = _ends(low, high, PACK)
        x_ends = tl.load(x_ptr + ends, mask=inside, other=-float("inf")).to(tl.float32)
        peak = tl.maximum(peak, tl.max(x_ends, axis=0))
    # All maxima skip NaN, but a NaN, +inf or a row of -inf is NaN here and so reaches the sum.
    left, right = _halves(words, TYPE)
    total = tl.sum(_exp(left - peak) + _exp(right - peak), axis=0)
    if not WHOLE:
        total += tl.sum(_exp(x_ends - peak), axis=0)
    inverse = 1.0 / total
    # There is no second dimension: 0 is added. The compiler doesn't know, and so keeps the words
    # and not their exponentials, twice as many registers. (It would see through a bitwise
    # operation: this number has 16 bits.)
    left, right = _halves(words + tl.program_id(1), TYPE)
    y = tl.join(_exp(left - peak) * inverse, _exp(right - peak) * inverse).reshape(2 * WORDS)
    cols = tl.arange(0, 2 * WORDS)
    tl.store(y_ptr + first + cols, y, mask=cols < 2 * n_words)
    if not WHOLE:
        tl.store(y_ptr + ends, _exp(x_ends - peak) * inverse, mask=inside)


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
    base, low, high = _window(tl.program_id(0), n_cols, WHOLE, PACK)
    x_ptr += base
    y_ptr += base
    # One thread holds all ITEMS of its columns, so the loop needs neither shuffle nor barrier.
    cols = tl.arange(0, ITEMS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    n_tiles = tl.cdiv(high, TILE)

    # Online softmax: Milakov and Gimelshein, 2018, with one maximum and sum for each lane.
    peak = tl.full([LANES], -float("inf"), tl.float32)
    total = tl.zeros([LANES], tl.float32)
    for tile in range(n_tiles):
        x = _load(x_ptr, tile * TILE + cols, low, high, WHOLE, PACK, EXACT)
        higher = tl.maximum(peak, tl.max(x, axis=0))
        pivot = _finite_or_zero(higher)
        # tl.max and tl.maximum skip NaN; it comes into the sum here.
        total = total * _exp(peak - pivot) + tl.sum(_exp(x - pivot[None, :]), axis=0)
        peak = higher
    pivot = _finite_or_zero(tl.max(peak, axis=0))
    inverse = 1.0 / tl.sum(total * _exp(peak - pivot), axis=0)

    for step in range(n_tiles):
        offsets = (n_tiles - 1 - step) * TILE + cols
        _store(x_ptr, y_ptr, offsets, low, high, pivot, inverse, WHOLE, PACK)
    if not WHOLE:
        _store_ends(x_ptr, y_ptr, low, high, pivot, inverse, PACK)


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
    base, low, high = _window(row, n_cols, WHOLE, PACK)
    cols = share * BLOCK + tl.arange(0, BLOCK)
    x = _load(x_ptr + base, cols, low, high, WHOLE, PACK, EXACT)
    peak = tl.max(x, axis=0)
    total = tl.sum(_exp(x - _finite_or_zero(peak)), axis=0)
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
        pivot = _finite_or_zero(higher)
        total = total * _exp(peak - pivot) + totals * _exp(peaks - pivot)
        peak = higher
    highest = tl.max(peak, axis=0)
    tl.store(row_ptr + 2 * row, highest)
    tl.store(row_ptr + 2 * row + 1, tl.sum(total * _exp(peak - _finite_or_zero(highest)), axis=0))


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
    pivot = _finite_or_zero(tl.max(peaks, axis=0))
    # A share of -inf alone has a sum of 0 at -inf, and counts as nothing.
    inverse = 1.0 / tl.sum(totals * _exp(peaks - pivot), axis=0)
    base, low, high = _window(row, n_cols, WHOLE, PACK)
    cols = share * BLOCK + tl.arange(0, BLOCK)
    _store(x_ptr + base, y_ptr + base, cols, low, high, pivot, inverse, WHOLE, PACK)
    if not WHOLE:
        if share == 0:
            _store_ends(x_ptr + base, y_ptr + base, low, high, pivot, inverse, PACK)


def softmax(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) over the last dimension.

    One launch; for long rows fewer than the multiprocessors two, with partial sums between them,
    and three for the longest.

    x: [..., cols]; float32, float16 or bfloat16 -> [..., cols]
    Raises what `reference.contract.check_softmax` raises.
    """
    check_softmax(x, out, DEVICES)
    y = place(out, x.shape, x)
    if x.numel():
        with on_device(x):
            _launch(dense(x), y)
    return settle(y, out, x)


def online_tile(pack: int, itemsize: int, num_warps: int, whole: bool) -> tuple[int, int]:
    """(items, lanes) for loads of `pack` elements: one a thread and item."""
    in_flight = THREAD_BYTES if whole else RAGGED_THREAD_BYTES
    return min(in_flight // (pack * itemsize), THREAD_LOADS), num_warps * 32 * pack


def shares_block(n_rows: int, n_cols: int, processors: int) -> int:
    """Columns a program of few rows, a power of two."""
    wanted = next_power_of_2(cdiv(n_cols, max(PROGRAMS * processors // n_rows, 1)))
    return min(max(wanted, LEAST_SHARE), LARGEST_SHARE)


@functools.cache
def _has_pairs(index: int) -> bool:
    """Whether a device finds two 16-bit maxima in one instruction."""
    return torch.cuda.get_device_capability(index) >= (8, 0)


def _launch(x: Tensor, y: Tensor) -> None:
    """x, y: contiguous, one shape, not empty"""
    n_cols = x.shape[-1]
    n_rows = x.numel() // n_cols
    # Of tensors that start between two packs no load can be one.
    pack = 1 if (x.data_ptr() | y.data_ptr()) % 16 else 16 // x.element_size()
    packed = (
        PACKED_FROM < n_cols <= PACKED_PLANS[-1][0]
        and pack == 8
        and (INTERPRETED or _has_pairs(x.get_device()))
    )
    if n_cols <= ROWS_LIMIT[x.element_size()] and not packed:
        elements, num_warps = next(plan[1:] for plan in ROW_PLANS if n_cols <= plan[0])
        block_cols = next_power_of_2(n_cols)
        block_rows = elements // block_cols
        unit = vector(n_cols)
        softmax_rows_kernel[(cdiv(n_rows, block_rows),)](
            x, y, n_rows, n_cols // unit, unit, block_rows, block_cols, num_warps=num_warps
        )
        return
    whole = n_cols % pack == 0
    few = n_rows < processors(x) and n_cols + pack <= MOST_SHARES * LARGEST_SHARE
    if few and n_cols > ROWS_LIMIT[x.element_size()]:
        _launch_shares(x, y, n_rows, n_cols, pack, whole)
        return
    if packed:
        most_cols, num_warps, registers = next(plan for plan in PACKED_PLANS if n_cols <= plan[0])
        softmax_packed_kernel[(n_rows,)](
            *(x, y, n_cols, most_cols // 2, whole, INTERPRETED),
            num_warps=num_warps,
            maxnreg=registers if whole else RAGGED_REGISTERS[num_warps],
        )
        return
    row_bytes = n_cols * x.element_size()
    num_warps = next(plan[1] for plan in ONLINE_PLANS if row_bytes <= plan[0])
    items, lanes = online_tile(pack, x.element_size(), num_warps, whole)
    softmax_online_kernel[(n_rows,)](
        *(x, y, n_cols, items, lanes, pack, whole, INTERPRETED),
        num_warps=num_warps,
        maxnreg=ONLINE_REGISTERS if pack > 1 else None,
    )


def _launch_shares(x: Tensor, y: Tensor, n_rows: int, n_cols: int, pack: int, whole: bool) -> None:
    """With fewer rows than multiprocessors the idle ones help, each with a share of a row."""
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
