"""Matrix product: the truth in float64, and the library's calls (cuBLAS through torch)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from reference.contract import check_matmul

__all__ = ["compiled", "compiled_max_autotune", "eager", "oracle"]

DEVICES = ("cpu", "cuda")


def oracle(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float64, from the rounded a and b.

    a: [..., M, K]; b: [K, N] -> float64 [..., M, N]
    """
    return torch.matmul(a.double(), b.double())


def eager(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.matmul, cuBLAS on a GPU.

    a: [..., M, K]; b: [K, N], stored either way round -> [..., M, N]
    """
    check_matmul(a, b, out, DEVICES)
    return torch.matmul(a, b, out=out)


def compiled(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.compile, default mode, of torch.matmul.

    a: [..., M, K]; b: [K, N], stored either way round -> [..., M, N]
    """
    check_matmul(a, b, out, DEVICES)
    y: Tensor = _compile("default")(a, b)
    return y if out is None else out.copy_(y)


def compiled_max_autotune(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.compile, max-autotune without its own CUDA graphs, of torch.matmul.

    a: [..., M, K]; b: [K, N], stored either way round -> [..., M, N]
    """
    check_matmul(a, b, out, DEVICES)
    y: Tensor = _compile("max-autotune-no-cudagraphs")(a, b)
    return y if out is None else out.copy_(y)


@functools.cache
def _compile(mode: str) -> Callable[[Tensor, Tensor], Tensor]:
    # dynamic=False: each case is compiled for its own shape, the best the compiler can do.
    return torch.compile(torch.matmul, mode=mode, dynamic=False)
