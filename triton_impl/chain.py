"""The forty steps of `chain` in Triton: one launch, every tensor moved once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference.contract import check_chain, dense
from triton_impl.launch import DEVICES, cdiv, next_power_of_2, on_device, place, settle, vector
from triton_impl.special import mode, tanh, widen

__all__ = ["chain"]

# 16 elements a thread, two rows of eight columns, which share addresses, masks and whatever depends
# on the column alone. Four rows save instructions, but take 96 registers a thread: that pays in
# float16, which is slower to widen (27.0 us against 27.5 on an H200 at 2^24 elements).
TILE = 2048
TILE_COLS = 1024
NUM_WARPS = 4

NAN = tl.constexpr(tl.PropagateNan.ALL)


@triton.jit
def chain_kernel(
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

    # In bfloat16 the card's memory leaves 42 issue slots an element, so a factor goes into the
    # constants before it where it can: rescale's 1.5, dequant_scale's 1.25, and the half of v in
    # sigmoid(v) = tanh(v / 2) / 2 + 1 / 2. Not where a residual may be infinite by then: with
    # v + v * bias folded into v * (1 + bias), inf * 0 would no longer be NaN.
    half_bias = bias * 0.5

    v = x + bias  # add_bias
    v = v * 0.75 + residual  # scale_in, add_residual
    v = tl.clamp(v, -1.5, 1.5, propagate_nan=NAN)  # clamp_in
    u = v * v * 0.0356774081 + 0.7978845608  # gelu_square, gelu_cubic, gelu_linear
    u = tanh(u * v, MODE)  # gelu_argument, gelu_tanh
    u = u * 0.75 + 0.75  # gelu_half, gelu_centre
    v = v * u - 0.25  # gelu, rescale, recentre
    u = tanh(v * 0.851 + half_bias, MODE)  # gate_scale, gate_bias
    u = u * 0.5 + 0.5  # gate_sigmoid
    v = v * u + residual  # gate, skip
    u = tl.maximum(v, 0.0, propagate_nan=NAN)  # relu
    v = u * u * 0.125 + v  # relu_square, relu_scale, add_relu
    v = tl.clamp(v, -2.0, 2.0, propagate_nan=NAN)  # cap
    u = v * v * -0.078125 + 1.25  # bend_square, bend_slope, bend_one
    v = v * u - 0.125  # bend, dequant_scale, dequant_zero
    v = residual * 0.3 + v  # blend_weight, blend
    v = tl.maximum(v, v * 0.1, propagate_nan=NAN)  # leak_slope, leak
    v = v * 0.8 + 0.05  # norm_scale, norm_shift
    v = v * bias + v  # bias_gain, add_gain
    v = v * 0.5 + 0.0625  # out_scale, out_shift

    tl.store(y_ptr + offsets, v, mask=mask)


def chain(x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The forty steps of `reference.chain.STEPS` in one launch, rounded once.

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
        block_rows = TILE // block_cols * (2 if x.dtype is torch.float16 else 1)
        grid = (cdiv(n_rows, block_rows) * cdiv(n_cols, block_cols),)
        with on_device(x):
            chain_kernel[grid](
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
