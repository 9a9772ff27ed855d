"""Softmax over the last dimension in Triton: a sketch, and one for every row length.

Which kernels a call takes depends on its row: `softmax_short` reads once what one program holds,
`softmax_meeting` what several hold between them, `softmax_online` reads twice what is left, and
`softmax_few` shares out few long rows to all multiprocessors.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from reference.contract import check_softmax, dense
from triton_impl.launch import DEVICES, next_power_of_2, on_device, place, processors, settle
from triton_impl.softmax_few import launch_shares, suits_shares
from triton_impl.softmax_meeting import launch_meeting, meeting_plan
from triton_impl.softmax_online import launch_online
from triton_impl.softmax_short import (
    LONGEST_PACKED,
    PACKED_FROM,
    ROWS_LIMIT,
    has_pairs,
    launch_packed,
    launch_rows,
)

__all__ = ["sketch", "softmax"]

# The most elements that a Triton tile may have, and programs a grid.
LARGEST_TILE = 2**20
LARGEST_GRID = 2**31 - 1


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


def softmax(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) over the last dimension.

    x: [..., cols]; float32, float16 or bfloat16 -> [..., cols]
    Raises what `reference.contract.check_softmax` raises.
    """
    check_softmax(x, out, DEVICES)
    y = place(out, x.shape, x)
    if x.numel():
        with on_device(x):
            _launch(dense(x), y)
    return settle(y, out, x)


def _launch(x: Tensor, y: Tensor) -> None:
    """x, y: contiguous, one shape, not empty"""
    n_cols = x.shape[-1]
    n_rows = x.numel() // n_cols
    size = x.element_size()
    # Of tensors that start between two packs no load can be one.
    pack = 1 if (x.data_ptr() | y.data_ptr()) % 16 else 16 // size
    pairs = pack == 8 and has_pairs(x)
    packed = pairs and PACKED_FROM < n_cols <= LONGEST_PACKED
    if n_cols <= ROWS_LIMIT[size] and not packed:
        launch_rows(x, y, n_rows, n_cols)
    elif n_cols > ROWS_LIMIT[size] and n_rows < processors(x) and suits_shares(n_cols):
        launch_shares(x, y, n_rows, n_cols, pack)
    elif packed:
        launch_packed(x, y, n_rows, n_cols)
    elif plan := (pairs or pack == 4) and meeting_plan(n_rows, n_cols // pack, processors(x)):
        launch_meeting(x, y, n_rows, n_cols, plan)
    else:
        launch_online(x, y, n_rows, n_cols, pack)
