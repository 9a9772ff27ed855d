"""chain in CUDA C++: csrc/ through the extension and through CuPy, with one launch choice.

The forty steps: reference/chain.py; here: csrc/kernels/chain_steps.cuh, in float32 inside.
"""

from __future__ import annotations

from torch import Tensor

from cuda_impl import pointwise
from cuda_impl.extension import compiled
from reference.contract import check_chain, dense, landing

__all__ = ["naive_extension", "naive_rawmodule", "packed_extension", "packed_rawmodule"]

DEVICES = ("cuda",)


def naive_extension(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The forty steps in one kernel, one thread an element, through the extension.

    x, residual: [..., cols]; bias: [cols], float32, float16 or bfloat16 on a CUDA device
    -> [..., cols]. Errors as reference.contract says.
    """
    check_chain(x, residual, bias, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        tensors = dense(x), dense(residual), dense(bias), target
        compiled().chain_naive(*tensors, pointwise.naive_plan())
    return target if out is None or out is target else out.copy_(target)


def naive_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernel as `naive_extension`, through CuPy."""
    check_chain(x, residual, bias, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        pointwise.launch_naive("chain", dense(x), dense(residual), dense(bias), target)
    return target if out is None or out is target else out.copy_(target)


def packed_extension(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The forty steps in one kernel that moves 16 bytes at a time, through the extension.

    x, residual: [..., cols]; bias: [cols], float32, float16 or bfloat16 on a CUDA device
    -> [..., cols]. Errors as reference.contract says.
    """
    check_chain(x, residual, bias, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        tensors = dense(x), dense(residual), dense(bias), target
        compiled().chain_packed(*tensors, *pointwise.packed_plan(*tensors))
    return target if out is None or out is target else out.copy_(target)


def packed_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernel as `packed_extension`, through CuPy."""
    check_chain(x, residual, bias, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        pointwise.launch_packed("chain", dense(x), dense(residual), dense(bias), target)
    return target if out is None or out is target else out.copy_(target)
