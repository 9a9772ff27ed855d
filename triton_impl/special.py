"""tanh, and a sigmoid, for the chains: as many special-function results as needed, and no more.

An H200 makes 4.1e12 special-function results a second and seven times as many multiply-adds, so
each kernel says how exact it must be by a `MODE`, and the host picks it by `mode`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_impl.launch import INTERPRETED

__all__ = ["mode", "sigmoid_of_twice", "tanh", "widen"]

TWO_LOG2_E = tl.constexpr(2.8853900817779268)


def mode(dtype: torch.dtype) -> str:
    """ "narrow" for 16-bit results, "wide" for float32, "portable" where PTX can't run."""
    if INTERPRETED:
        return "portable"
    return "wide" if dtype is torch.float32 else "narrow"


@triton.jit
def widen(x, MODE: tl.constexpr):
    """x as float32. A pair of bfloat16 in two instructions, of the three that Triton makes of it:
    the chains have 42 issue slots an element at the speed of memory, and half-rate ones at that."""
    # A single column's bias is one element, and no pair.
    if MODE == "narrow" and x.dtype == tl.bfloat16 and x.numel > 1:
        return tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;",
            "=r,=r,r",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=2,
        )
    return x.to(tl.float32)


@triton.jit
def tanh(x, MODE: tl.constexpr):
    """narrow: one special function, within 2^-11; else two, within 2e-7. +-1 at +-inf."""
    if MODE == "narrow":
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 - 2.0 * _reciprocal(tl.exp2(x * TWO_LOG2_E) + 1.0, MODE)


@triton.jit
def sigmoid_of_twice(t, SCALE: tl.constexpr, shift, MODE: tl.constexpr):
    """SCALE * sigmoid(2 t) + shift for |t| <= 1, with no special function at all.

    sigmoid(2 t) is 0.5 + 0.5 tanh(t), and tanh(t) is t times a polynomial in t^2: minimax on
    [-1, 1], within 3.3e-5 (four terms) or 2e-8 (seven). SCALE goes into the coefficients.
    """
    HALF: tl.constexpr = 0.5 * SCALE
    square = t * t
    if MODE == "narrow":
        slope = square * (HALF * -0.02465408551) + HALF * 0.1154138016
        slope = slope * square + HALF * -0.3288920061
        slope = slope * square + HALF * 0.9996937667
    else:
        slope = square * (HALF * 0.0009637722725) + HALF * -0.005951280751
        slope = slope * square + HALF * 0.01997328304
        slope = slope * square + HALF * -0.05326583551
        slope = slope * square + HALF * 0.133195837
        slope = slope * square + HALF * -0.3333212933
        slope = slope * square + HALF * 0.9999996931
    return t * slope + (shift + HALF)


@triton.jit
def _reciprocal(x, MODE: tl.constexpr):
    if MODE == "wide":
        # One instruction, within 1 ulp; 1.0 / x makes eight, for denominators beyond 2^126.
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x
