"""Long rows, read once: programs of a row meet in memory, while their shares stay in registers.

A program publishes the maximum and the sum of its share as one word of 64 bits. The word is its
own flag, so that neither fence nor lock is needed: 0 stands for "not there yet". No share's word is
0: a finite maximum adds exp(0) = 1 to the sum, a share of -inf alone has -inf in its word, and any
other has a sum of NaN.

Programs that wait need the others of their row to run, so all of a row have to fit the device at
one time. `meeting_plan` sees to that with room to spare, for a dozen such calls at once on several
streams. It can't know of a green context, which gives a stream some of the multiprocessors: fewer
than an eighth of an H200's may hold too few programs, which then wait for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_impl.launch import INTERPRETED, cdiv
from triton_impl.softmax_row import ends_of, exp, finite_or_zero, halves, highest, window

__all__ = ["MeetingPlan", "launch_meeting", "meeting_plan"]

# 16-byte packs a share has room for, four a thread. The largest that will be nearly full is taken:
# then the fewest programs have to meet.
SHARE_PACKS = (2048, 1024, 512)
THREAD_PACKS = 4
NEARLY_FULL = 0.94

# Registers a thread, so that a multiprocessor is full of threads: some programs load and store
# while others wait. float32 rows that start anywhere would spill.
REGISTERS = 32
RAGGED_FLOAT32_REGISTERS = 40

# A warp reads the words of a row one a lane. Where two lanes read one word, one might see it and
# the other not yet, and they would leave the loop at different times, in the middle of a shuffle.
MOST_SHARES = tl.constexpr(32)

# And no more than one for so many multiprocessors, see above.
SHARE_PROCESSORS = 4

LARGEST_GRID = 2**31 - 1


@triton.jit
def _values(words, TYPE: tl.constexpr):
    # In float32 a word is one value, given twice.
    if TYPE == tl.float32:
        return words, words
    else:
        return halves(words, TYPE)


@triton.jit
def softmax_meeting_kernel(
    x_ptr,
    y_ptr,
    board_ptr,  # [rows, shares] int64: a maximum in the upper half, its sum in the lower; or 0
    counter_ptr,  # [1] int64: how many programs have begun
    n_cols,
    n_shares,
    share_packs,
    WORDS: tl.constexpr,  # of 32 bits, that a share has room for
    WHOLE: tl.constexpr,
    PORTABLE: tl.constexpr,
    WAIT: tl.constexpr,
):
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    SINGLE: tl.constexpr = TYPE == tl.float32
    PACK: tl.constexpr = 4 if SINGLE else 8
    # In the order in which programs begin, whatever that is: all that a program waits for have
    # begun, but for the rest of its own row, which is next.
    ticket = tl.atomic_add(counter_ptr, 1, sem="relaxed").to(tl.int32)
    row = ticket // n_shares
    share = ticket - row * n_shares
    base, low, high = window(row, n_cols, WHOLE, PACK)
    x_ptr += base
    y_ptr += base
    # The share's own packs, in words. The last share may be shorter, or empty.
    first = (low + PACK - 1) // PACK + share * share_packs
    n_words = tl.minimum(high // PACK - first, share_packs) * 4
    first *= PACK
    items = tl.arange(0, WORDS)
    inside = items < n_words
    # -inf, or it twice: neutral for the maximum, and its exponential for the sum.
    if SINGLE:
        words = tl.load(x_ptr + first + items, mask=inside, other=-float("inf"))
        peak = tl.max(words, axis=0)
    else:
        nothing: tl.constexpr = -0x007F0080 if TYPE == tl.bfloat16 else -0x03FF0400
        x_words = (x_ptr + first).to(tl.pointer_type(tl.int32), bitcast=True)
        words = tl.load(x_words + items, mask=inside, other=nothing)
        peak = highest(words, TYPE, PORTABLE)
    if not WHOLE:
        ends, own = ends_of(low, high, PACK)
        own = own & (share == 0)
        x_ends = tl.load(x_ptr + ends, mask=own, other=-float("inf")).to(tl.float32)
        peak = tl.maximum(peak, tl.max(x_ends, axis=0))
    # All maxima skip NaN; it comes into the sum here.
    pivot = finite_or_zero(peak)
    left, right = _values(words, TYPE)
    terms = exp(left - pivot)
    if not SINGLE:
        terms += exp(right - pivot)
    total = tl.sum(terms, axis=0)
    if not WHOLE:
        total += tl.sum(exp(x_ends - pivot), axis=0)

    board_ptr += ticket - share
    upper = peak.to(tl.int32, bitcast=True).to(tl.int64) << 32
    lower = total.to(tl.uint32, bitcast=True).to(tl.int64)
    tl.atomic_xchg(board_ptr + share, upper | lower, sem="relaxed")
    if not WAIT:
        return
    slots = tl.arange(0, MOST_SHARES)
    there = slots < n_shares
    met = tl.load(board_ptr + slots, mask=there, other=-1, volatile=True)
    # Each warp for itself: no barrier.
    while tl.min((met != 0).to(tl.int32), axis=0) == 0:
        met = tl.load(board_ptr + slots, mask=there, other=-1, volatile=True)
    peaks = tl.where(there, (met >> 32).to(tl.int32).to(tl.float32, bitcast=True), -float("inf"))
    totals = tl.where(there, met.to(tl.int32).to(tl.float32, bitcast=True), 0.0)
    pivot = tl.max(peaks, axis=0)
    inverse = 1.0 / tl.sum(totals * exp(peaks - pivot), axis=0)

    # No sum is negative, and NaN isn't less than 0 either: 0 is added. The compiler doesn't know,
    # and so keeps the words across the meeting and not their values, twice as many registers.
    if not SINGLE:
        words += (inverse < 0).to(tl.int32)
    left, right = _values(words, TYPE)
    if SINGLE:
        tl.store(y_ptr + first + items, exp(left - pivot) * inverse, mask=inside)
    else:
        y = tl.join(exp(left - pivot) * inverse, exp(right - pivot) * inverse).reshape(2 * WORDS)
        cols = tl.arange(0, 2 * WORDS)
        tl.store(y_ptr + first + cols, y, mask=cols < 2 * n_words)
    if not WHOLE:
        tl.store(y_ptr + ends, exp(x_ends - pivot) * inverse, mask=own)


@dataclass(frozen=True)
class MeetingPlan:
    """shares: programs a row; packs: of 16 bytes a share; room: for how many of them a program is
    made, a power of two
    """

    shares: int
    packs: int
    room: int

    @property
    def num_warps(self) -> int:
        return self.room // (32 * THREAD_PACKS)


def meeting_plan(n_rows: int, row_packs: int, n_processors: int) -> MeetingPlan | None:
    """How to share out rows of so many 16-byte packs; None where too many would have to meet."""
    most = min(MOST_SHARES.value, n_processors // SHARE_PROCESSORS)
    plans = []
    for room in SHARE_PACKS:
        shares = cdiv(row_packs, room)
        if shares > most or n_rows * shares > LARGEST_GRID:
            continue
        plan = MeetingPlan(shares, cdiv(row_packs, shares), room)
        if plan.packs >= NEARLY_FULL * room:
            return plan
        plans.append(plan)
    return max(plans, key=lambda plan: plan.packs / plan.room, default=None)


def registers(single: bool, whole: bool) -> int:
    """A thread's; single: of float32; whole: of rows that start and end with packs"""
    return RAGGED_FLOAT32_REGISTERS if single and not whole else REGISTERS


def launch_meeting(x: Tensor, y: Tensor, n_rows: int, n_cols: int, plan: MeetingPlan) -> None:
    """x, y: contiguous, [n_rows, n_cols], aligned to 16 bytes

    The board is this call's own, zeroed by torch in its stream: calls on several streams and graphs
    that replay at one time share no memory.
    """
    whole = n_cols % (16 // x.element_size()) == 0
    n_programs = n_rows * plan.shares
    # The interpreter runs program after program, and nobody would come: there all publish first.
    waits = (False, True) if INTERPRETED else (True,)
    board = torch.zeros(n_programs + len(waits), dtype=torch.int64, device=x.device)
    for turn, wait in enumerate(waits):
        softmax_meeting_kernel[(n_programs,)](
            *(x, y, board, board[n_programs + turn :], n_cols, plan.shares, plan.packs),
            *(plan.room * 4, whole, INTERPRETED, wait),
            num_warps=plan.num_warps,
            maxnreg=registers(x.element_size() == 4, whole),
        )
