"""Forty pointwise steps of decode glue, bound by memory once they are one kernel.

Two of the steps are special functions (one tanh, one sigmoid), so that a fused kernel has issue
slots to spare in every dtype: at 6 bytes an element and 4.2 TB/s an H200 has about 42 of them
for each bfloat16 element, and the steps pair up into multiply-adds.

The tanh form of GELU: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, with its
sqrt(2/pi) multiplied in: tanh(v * (0.7978845608 + 0.0356774081 * v^2)).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from reference import steps
from reference.contract import check_chain
from reference.steps import Step

__all__ = ["STEPS", "compiled", "compiled_max_autotune", "eager", "oracle"]

DEVICES = ("cpu", "cuda")

STEPS = (
    Step("add_bias", "v", lambda r: r.v + r.bias),
    Step("scale_in", "v", lambda r: r.v * 0.75),
    Step("add_residual", "v", lambda r: r.v + r.residual),
    Step("clamp_in", "v", lambda r: r.v.clamp(-1.5, 1.5)),
    Step("gelu_square", "u", lambda r: r.v * r.v),
    Step("gelu_cubic", "u", lambda r: r.u * 0.0356774081),
    Step("gelu_linear", "u", lambda r: r.u + 0.7978845608),
    Step("gelu_argument", "u", lambda r: r.u * r.v),
    Step("gelu_tanh", "u", lambda r: r.u.tanh(), special=True),
    Step("gelu_half", "u", lambda r: r.u * 0.5),
    Step("gelu_centre", "u", lambda r: r.u + 0.5),
    Step("gelu", "v", lambda r: r.v * r.u),
    Step("rescale", "v", lambda r: r.v * 1.5),
    Step("recentre", "v", lambda r: r.v - 0.25),
    Step("gate_scale", "u", lambda r: r.v * 1.702),
    Step("gate_bias", "u", lambda r: r.u + r.bias),
    Step("gate_sigmoid", "u", lambda r: r.u.sigmoid(), special=True),
    Step("gate", "v", lambda r: r.v * r.u),
    Step("skip", "v", lambda r: r.v + r.residual),
    Step("relu", "u", lambda r: r.v.relu()),
    Step("relu_square", "u", lambda r: r.u * r.u),
    Step("relu_scale", "u", lambda r: r.u * 0.125),
    Step("add_relu", "v", lambda r: r.v + r.u),
    Step("cap", "v", lambda r: r.v.clamp(-2.0, 2.0)),
    Step("bend_square", "u", lambda r: r.v * r.v),
    Step("bend_slope", "u", lambda r: r.u * -0.0625),
    Step("bend_one", "u", lambda r: r.u + 1.0),
    Step("bend", "v", lambda r: r.v * r.u),
    Step("dequant_scale", "v", lambda r: r.v * 1.25),
    Step("dequant_zero", "v", lambda r: r.v - 0.125),
    Step("blend_weight", "u", lambda r: r.residual * 0.3),
    Step("blend", "v", lambda r: r.v + r.u),
    Step("leak_slope", "u", lambda r: r.v * 0.1),
    Step("leak", "v", lambda r: torch.maximum(r.v, r.u)),
    Step("norm_scale", "v", lambda r: r.v * 0.8),
    Step("norm_shift", "v", lambda r: r.v + 0.05),
    Step("bias_gain", "u", lambda r: r.v * r.bias),
    Step("add_gain", "v", lambda r: r.v + r.u),
    Step("out_scale", "v", lambda r: r.v * 0.5),
    Step("out_shift", "v", lambda r: r.v + 0.0625),
)


def oracle(x: Tensor, residual: Tensor, bias: Tensor) -> Tensor:
    """The forty steps in float64, from the rounded inputs.

    x, residual: [..., cols]; bias: [cols] -> float64 [..., cols]
    """
    return steps.run(STEPS, x, residual, bias)


def eager(x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The forty steps as forty PyTorch calls, forty kernels, as a model's author writes them.

    x, residual: [..., cols]; bias: [cols] -> [..., cols]. The thirty-nine intermediate values
    come from PyTorch's caching allocator; in 16-bit dtypes each is rounded.
    """
    check_chain(x, residual, bias, out, DEVICES)
    return forty(x, residual, bias, out)


def forty(x: Tensor, residual: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
    """The steps alone, without the contract's checks: what torch.compile is given."""
    v = x + bias  # add_bias
    v = v * 0.75  # scale_in
    v = v + residual  # add_residual
    v = v.clamp(-1.5, 1.5)  # clamp_in
    u = v * v  # gelu_square
    u = u * 0.0356774081  # gelu_cubic
    u = u + 0.7978845608  # gelu_linear
    u = u * v  # gelu_argument
    u = u.tanh()  # gelu_tanh
    u = u * 0.5  # gelu_half
    u = u + 0.5  # gelu_centre
    v = v * u  # gelu
    v = v * 1.5  # rescale
    v = v - 0.25  # recentre
    u = v * 1.702  # gate_scale
    u = u + bias  # gate_bias
    u = u.sigmoid()  # gate_sigmoid
    v = v * u  # gate
    v = v + residual  # skip
    u = v.relu()  # relu
    u = u * u  # relu_square
    u = u * 0.125  # relu_scale
    v = v + u  # add_relu
    v = v.clamp(-2.0, 2.0)  # cap
    u = v * v  # bend_square
    u = u * -0.0625  # bend_slope
    u = u + 1.0  # bend_one
    v = v * u  # bend
    v = v * 1.25  # dequant_scale
    v = v - 0.125  # dequant_zero
    u = residual * 0.3  # blend_weight
    v = v + u  # blend
    u = v * 0.1  # leak_slope
    v = torch.maximum(v, u)  # leak
    v = v * 0.8  # norm_scale
    v = v + 0.05  # norm_shift
    u = v * bias  # bias_gain
    v = v + u  # add_gain
    v = v * 0.5  # out_scale
    return torch.add(v, 0.0625, out=out)  # out_shift


def compiled(x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.compile, default mode, of `eager`: one fused kernel.

    x, residual: [..., cols]; bias: [cols] -> [..., cols]
    """
    check_chain(x, residual, bias, out, DEVICES)
    y: Tensor = _compile("default")(x, residual, bias)
    return y if out is None else out.copy_(y)


def compiled_max_autotune(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """torch.compile, max-autotune without its own CUDA graphs, of `eager`.

    x, residual: [..., cols]; bias: [cols] -> [..., cols]
    """
    check_chain(x, residual, bias, out, DEVICES)
    y: Tensor = _compile("max-autotune-no-cudagraphs")(x, residual, bias)
    return y if out is None else out.copy_(y)


@functools.cache
def _compile(mode: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    # dynamic=False: each case is compiled for its own shape, the best the compiler can do.
    return torch.compile(forty, mode=mode, dynamic=False)
