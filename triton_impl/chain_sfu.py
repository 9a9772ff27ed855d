"""The forty steps of `chain_sfu` in Triton: one launch, and half of its special functions.

Every sigmoid here has twice a tanh as its argument, so it lies where a short polynomial is exact
enough: eight special functions an element are left for 16-bit results and sixteen for float32
(torch.compile's kernel needs 32), and the multiply-add pipe, seven times as fast, does the rest.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from reference.contract import check_chain, dense
from triton_impl.launch import DEVICES, cdiv, next_power_of_2, on_device, place, settle, vector
from triton_impl.special import mode, sigmoid_of_twice, tanh, widen

__all__ = ["chain_sfu"]

# 32 elements a thread, four rows of eight columns: addresses, masks and the bias are shared by four
# rows, and there are enough independent elements to keep both pipes busy.
TILE = 4096
TILE_COLS = 1024
NUM_WARPS = 4


@triton.jit
def chain_sfu_kernel(
    x_ptr,
    residual_ptr,
    bias_ptr,
    y_ptr,
    n_rows,
    n_units,
    UNIT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    MODE: tl.constexpr,
):
    n_cols = n_units * UNIT
    # Neighbouring programs take neighbouring columns, so that memory is walked in order.
    col_tiles = tl.cdiv(n_cols, BLOCK_COLS)
    row_tile = tl.program_id(0) // col_tiles
    col_tile = tl.program_id(0) % col_tiles
    cols = col_tile * BLOCK_COLS + tl.arange(0, BLOCK_COLS)[None, :]
    # 64-bit: row * n_cols passes 2^31 at sizes that fit the card.
    rows = row_tile.to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    offsets = rows * n_cols + cols
    mask = (rows < n_rows) & (cols < n_cols)
    # What masked lanes hold is never stored; 0 keeps them finite.
    x = widen(tl.load(x_ptr + offsets, mask=mask, other=0.0), MODE)
    residual = widen(tl.load(residual_ptr + offsets, mask=mask, other=0.0), MODE)
    bias = widen(tl.load(bias_ptr + cols, mask=cols < n_cols, other=0.0), MODE)

    v = tanh(x * 0.75 + bias, MODE)  # scale_1, shift_1, tanh_1
    v = sigmoid_of_twice(v, 4.0, -1.5, MODE)  # gain_1, sigmoid_1, scale_2, shift_2
    v = tanh(v, MODE)  # tanh_2
    v = sigmoid_of_twice(v, 4.0, -1.5, MODE)  # gain_2, sigmoid_2, scale_3, shift_3
    v = tanh(v, MODE)  # tanh_3
    v = sigmoid_of_twice(v, 4.0, -1.5, MODE)  # gain_3, sigmoid_3, scale_4, shift_4
    v = tanh(v, MODE)  # tanh_4
    v = sigmoid_of_twice(v, -2.0, residual, MODE)  # gain_4, sigmoid_4, scale_5, shift_5
    v = tanh(v, MODE)  # tanh_5
    v = sigmoid_of_twice(v, 4.0, -1.5, MODE)  # gain_5, sigmoid_5, scale_6, shift_6
    v = tanh(v, MODE)  # tanh_6
    v = sigmoid_of_twice(v, 4.0, -1.5, MODE)  # gain_6, sigmoid_6, scale_7, shift_7
    v = tanh(v, MODE)  # tanh_7
    v = sigmoid_of_twice(v, 4.0, -1.5, MODE)  # gain_7, sigmoid_7, scale_8, shift_8
    v = tanh(v, MODE)  # tanh_8
    v = sigmoid_of_twice(v, 1.0, 0.0, MODE)  # gain_8, sigmoid_8

    tl.store(y_ptr + offsets, v, mask=mask)


def chain_sfu(x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The forty steps of `reference.chain_sfu.STEPS` in one launch, rounded once.

    x, residual: [..., cols]; bias: [cols]; float32, float16 or bfloat16 -> [..., cols]
    Raises what `reference.contract.check_chain` raises.
    """
    check_chain(x, residual, bias, out, DEVICES)
    y = place(out, x.shape, x)
    if x.numel():
        n_cols = x.shape[-1]
        n_rows = x.numel() // n_cols
        unit = vector(n_cols)
        block_cols = min(next_power_of_2(n_cols), TILE_COLS)
        block_rows = TILE // block_cols
        grid = (cdiv(n_rows, block_rows) * cdiv(n_cols, block_cols),)
        with on_device(x):
            chain_sfu_kernel[grid](
                dense(x),
                dense(residual),
                dense(bias),
                y,
                n_rows,
                n_cols // unit,
                unit,
                block_rows,
                block_cols,
                mode(x.dtype),
                num_warps=NUM_WARPS,
            )
    return settle(y, out, x)
