"""chain in CUDA C++: csrc/ through the extension and through CuPy, with one launch choice.

The forty steps: reference/chain.py; here: csrc/kernels/chain_*.cuh, in float32 inside.
"""

from __future__ import annotations

from torch import Tensor

from cuda_impl import pointwise
from cuda_impl.extension import compiled
from reference.contract import check_chain, dense, landing

__all__ = ["naive_extension", "naive_rawmodule", "packed_extension", "packed_rawmodule"]

DEVICES = ("cuda",)


def naive_plan() -> int:
    """Threads a block, one thread an element."""
    return 256


def packed_plan(rows: int, cols: int, bias_packs: bool) -> tuple[int, int]:
    """(threads a block, packs a thread) for x: [rows, cols].

    bias_packs: rows of whole packs, so that a thread's packs can share one of bias
    """
    # Without them a pack of bias for each of x: more would not fit the registers. With them four
    # rows share what is computed from one pack of bias, which is the fewest instructions, 33 an
    # element: 0.98 of a copy at 2^28. At 2^24 that makes 3.9 waves of blocks, and the last one
    # counts, 0.93; half as much a thread reaches 0.96 there, and 0.92 at 2^28.
    if bias_packs and rows == 1:
        return 128, 1  # packs lie below one another, and would all be the one row's
    return 128, 4 if bias_packs and rows * cols >= 2**26 else 2


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
        compiled().chain_naive(*tensors, naive_plan())
    return target if out is None or out is target else out.copy_(target)


def naive_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernel as `naive_extension`, through CuPy."""
    check_chain(x, residual, bias, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        tensors = dense(x), dense(residual), dense(bias), target
        pointwise.launch_naive("chain", naive_plan(), *tensors)
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
        compiled().chain_packed(*tensors, *pointwise.plan_for(*tensors, packed_plan))
    return target if out is None or out is target else out.copy_(target)


def packed_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernel as `packed_extension`, through CuPy."""
    check_chain(x, residual, bias, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        tensors = dense(x), dense(residual), dense(bias), target
        plan = pointwise.plan_for(*tensors, packed_plan)
        pointwise.launch_packed("chain", plan, *tensors)
    return target if out is None or out is target else out.copy_(target)
