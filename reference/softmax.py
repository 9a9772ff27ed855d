"""Softmax over the last dimension: the truth in float64, and the library's calls."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from reference.contract import check_softmax

__all__ = ["compiled", "compiled_max_autotune", "eager", "oracle"]

DEVICES = ("cpu", "cuda")


def oracle(x: Tensor) -> Tensor:
    """exp(x - max) / sum(exp(x - max)) in float64, from the rounded x.

    x: [..., cols] -> float64 [..., cols]
    """
    wide = x.double()
    if wide.shape[-1] == 0:
        return wide
    # In place from here on: at 2^28 elements each float64 temporary is 2 GB.
    wide = wide - wide.amax(-1, keepdim=True)
    wide.exp_()
    return wide.div_(wide.sum(-1, keepdim=True))


def eager(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.softmax.

    x: [..., cols] -> [..., cols]
    """
    check_softmax(x, out, DEVICES)
    return torch.softmax(x, -1, out=out)


def compiled(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.compile, default mode, of torch.softmax.

    x: [..., cols] -> [..., cols]
    """
    check_softmax(x, out, DEVICES)
    y: Tensor = _compile("default")(x)
    return y if out is None else out.copy_(y)


def compiled_max_autotune(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.compile, max-autotune without its own CUDA graphs, of torch.softmax.

    x: [..., cols] -> [..., cols]
    """
    check_softmax(x, out, DEVICES)
    y: Tensor = _compile("max-autotune-no-cudagraphs")(x)
    return y if out is None else out.copy_(y)


@functools.cache
def _compile(mode: str) -> Callable[[Tensor], Tensor]:
    # dynamic=False: each case is compiled for its own shape, the best the compiler can do.
    return torch.compile(lambda x: torch.softmax(x, -1), mode=mode, dynamic=False)
