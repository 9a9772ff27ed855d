"""chain_sfu in CUDA C++: csrc/ through the extension and through CuPy, with one launch choice.

The forty steps: reference/chain_sfu.py; here: csrc/kernels/chain_sfu_*.cuh, in float32 inside.
"""

from __future__ import annotations

from torch import Tensor

from cuda_impl import pointwise
from cuda_impl.extension import compiled

__all__ = [
    "approx_extension",
    "approx_rawmodule",
    "exact_extension",
    "exact_rawmodule",
    "naive_extension",
    "naive_rawmodule",
    "packed_extension",
    "packed_rawmodule",
    "tanh_extension",
    "tanh_rawmodule",
]


def naive_plan() -> int:
    """Threads a block, one thread an element."""
    return 256


def packed_plan(rows: int, cols: int, bias_packs: bool) -> tuple[int, int]:
    """(threads a block, packs a thread) for x: [rows, cols].

    bias_packs: rows of whole packs, so that a thread's packs can share one of bias. The special
    functions bind, not memory: loads have to stay ahead of them, and no more.
    """
    # One pack keeps registers few and threads many; where these are too few to fill the device,
    # two packs a thread overlap instead.
    # (Packs lie below one another: of a single row there is but one.)
    return 256, 1 if bias_packs and (rows == 1 or rows * cols >= 2**22) else 2


def naive_extension(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The forty steps in one kernel, one thread an element, through the extension.

    x, residual: [..., cols]; bias: [cols], float32, float16 or bfloat16 on a CUDA device
    -> [..., cols]. Errors as reference.contract says.
    """

    def launch(*tensors: Tensor) -> None:
        compiled().chain_sfu_naive(*tensors, naive_plan())

    return pointwise.run(launch, x, residual, bias, out, compiled().chain_landing)


def naive_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernel as `naive_extension`, through CuPy."""

    def launch(*tensors: Tensor) -> None:
        pointwise.launch_naive("chain_sfu", naive_plan(), *tensors)

    return pointwise.run(launch, x, residual, bias, out)


def exact_extension(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """As `packed_extension`, with the library's own tanhf and expf."""
    return _extension("exact", x, residual, bias, out)


def exact_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernel as `exact_extension`, through CuPy."""
    return _rawmodule("exact", x, residual, bias, out)


def approx_extension(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """As `packed_extension`, with functions of two results each of the special-function unit."""
    return _extension("approx", x, residual, bias, out)


def approx_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernel as `approx_extension`, through CuPy."""
    return _rawmodule("approx", x, residual, bias, out)


def tanh_extension(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """As `packed_extension`, with functions of one result each of the special-function unit; in
    float32 as `approx`."""
    return _extension("tanh", x, residual, bias, out)


def tanh_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernel as `tanh_extension`, through CuPy."""
    return _rawmodule("tanh", x, residual, bias, out)


def packed_extension(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The forty steps in one kernel that moves 16 bytes at a time, through the extension.

    x, residual: [..., cols]; bias: [cols], float32, float16 or bfloat16 on a CUDA device
    -> [..., cols]. Errors as reference.contract says.
    """
    return _extension("packed", x, residual, bias, out)


def packed_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernel as `packed_extension`, through CuPy."""
    return _rawmodule("packed", x, residual, bias, out)


def _extension(
    variant: str, x: Tensor, residual: Tensor, bias: Tensor, out: Tensor | None
) -> Tensor:
    module = compiled()
    binding = getattr(module, f"chain_sfu_{variant}")

    def launch(*tensors: Tensor) -> None:
        binding(*tensors, *pointwise.plan_for(*tensors, packed_plan))

    return pointwise.run(launch, x, residual, bias, out, module.chain_landing)


def _rawmodule(
    variant: str, x: Tensor, residual: Tensor, bias: Tensor, out: Tensor | None
) -> Tensor:
    def launch(*tensors: Tensor) -> None:
        plan = pointwise.plan_for(*tensors, packed_plan)
        pointwise.launch_packed("chain_sfu", plan, *tensors, variant=variant)

    return pointwise.run(launch, x, residual, bias, out)
