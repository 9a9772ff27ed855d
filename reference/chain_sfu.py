"""Forty pointwise steps, sixteen of them special functions: bound by the special-function units.

Eight rounds of scale, shift, tanh, gain and sigmoid. Once the forty steps are one kernel, the
bound is no longer memory: on an H200 sixteen results at 4.14 T/s take 1.04 ms for 2^28 elements
and a bfloat16 pass over memory 0.38 ms. It shows where the roofline moves once fusion is done.
The constants keep each argument where tanh and sigmoid bend, so that no step can be left out.
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
    Step("scale_1", "v", lambda r: r.v * 0.75),
    Step("shift_1", "v", lambda r: r.v + r.bias),
    Step("tanh_1", "v", lambda r: r.v.tanh(), special=True),
    Step("gain_1", "v", lambda r: r.v * 2.0),
    Step("sigmoid_1", "v", lambda r: r.v.sigmoid(), special=True),
    Step("scale_2", "v", lambda r: r.v * 4.0),
    Step("shift_2", "v", lambda r: r.v - 1.5),
    Step("tanh_2", "v", lambda r: r.v.tanh(), special=True),
    Step("gain_2", "v", lambda r: r.v * 2.0),
    Step("sigmoid_2", "v", lambda r: r.v.sigmoid(), special=True),
    Step("scale_3", "v", lambda r: r.v * 4.0),
    Step("shift_3", "v", lambda r: r.v - 1.5),
    Step("tanh_3", "v", lambda r: r.v.tanh(), special=True),
    Step("gain_3", "v", lambda r: r.v * 2.0),
    Step("sigmoid_3", "v", lambda r: r.v.sigmoid(), special=True),
    Step("scale_4", "v", lambda r: r.v * 4.0),
    Step("shift_4", "v", lambda r: r.v - 1.5),
    Step("tanh_4", "v", lambda r: r.v.tanh(), special=True),
    Step("gain_4", "v", lambda r: r.v * 2.0),
    Step("sigmoid_4", "v", lambda r: r.v.sigmoid(), special=True),
    Step("scale_5", "v", lambda r: r.v * -2.0),
    Step("shift_5", "v", lambda r: r.v + r.residual),
    Step("tanh_5", "v", lambda r: r.v.tanh(), special=True),
    Step("gain_5", "v", lambda r: r.v * 2.0),
    Step("sigmoid_5", "v", lambda r: r.v.sigmoid(), special=True),
    Step("scale_6", "v", lambda r: r.v * 4.0),
    Step("shift_6", "v", lambda r: r.v - 1.5),
    Step("tanh_6", "v", lambda r: r.v.tanh(), special=True),
    Step("gain_6", "v", lambda r: r.v * 2.0),
    Step("sigmoid_6", "v", lambda r: r.v.sigmoid(), special=True),
    Step("scale_7", "v", lambda r: r.v * 4.0),
    Step("shift_7", "v", lambda r: r.v - 1.5),
    Step("tanh_7", "v", lambda r: r.v.tanh(), special=True),
    Step("gain_7", "v", lambda r: r.v * 2.0),
    Step("sigmoid_7", "v", lambda r: r.v.sigmoid(), special=True),
    Step("scale_8", "v", lambda r: r.v * 4.0),
    Step("shift_8", "v", lambda r: r.v - 1.5),
    Step("tanh_8", "v", lambda r: r.v.tanh(), special=True),
    Step("gain_8", "v", lambda r: r.v * 2.0),
    Step("sigmoid_8", "v", lambda r: r.v.sigmoid(), special=True),
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
    v = x * 0.75  # scale_1
    v = v + bias  # shift_1
    v = v.tanh()  # tanh_1
    v = v * 2.0  # gain_1
    v = v.sigmoid()  # sigmoid_1
    v = v * 4.0  # scale_2
    v = v - 1.5  # shift_2
    v = v.tanh()  # tanh_2
    v = v * 2.0  # gain_2
    v = v.sigmoid()  # sigmoid_2
    v = v * 4.0  # scale_3
    v = v - 1.5  # shift_3
    v = v.tanh()  # tanh_3
    v = v * 2.0  # gain_3
    v = v.sigmoid()  # sigmoid_3
    v = v * 4.0  # scale_4
    v = v - 1.5  # shift_4
    v = v.tanh()  # tanh_4
    v = v * 2.0  # gain_4
    v = v.sigmoid()  # sigmoid_4
    v = v * -2.0  # scale_5
    v = v + residual  # shift_5
    v = v.tanh()  # tanh_5
    v = v * 2.0  # gain_5
    v = v.sigmoid()  # sigmoid_5
    v = v * 4.0  # scale_6
    v = v - 1.5  # shift_6
    v = v.tanh()  # tanh_6
    v = v * 2.0  # gain_6
    v = v.sigmoid()  # sigmoid_6
    v = v * 4.0  # scale_7
    v = v - 1.5  # shift_7
    v = v.tanh()  # tanh_7
    v = v * 2.0  # gain_7
    v = v.sigmoid()  # sigmoid_7
    v = v * 4.0  # scale_8
    v = v - 1.5  # shift_8
    v = v.tanh()  # tanh_8
    v = v * 2.0  # gain_8
    return torch.sigmoid(v, out=out)  # sigmoid_8


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
