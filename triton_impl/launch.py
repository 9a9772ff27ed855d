"""Around a Triton launch, the same for every op: its device, its output, the width of its loads."""

from __future__ import annotations

import contextlib
import functools
import math

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from reference.contract import landing

__all__ = [
    "DEVICES",
    "INTERPRETED",
    "TensorMap",
    "cdiv",
    "next_power_of_2",
    "on_device",
    "place",
    "processors",
    "settle",
    "vector",
]

# Decided when a kernel is decorated, so it is read once, here. The interpreter runs on numpy:
# bfloat16 must be widened right after each load there, and inline PTX can't run.
INTERPRETED: bool = triton.knobs.runtime.interpret

# The device types that the kernels of this process can take.
DEVICES = ("cpu", "cuda") if INTERPRETED else ("cuda",)

# A tile may reach beyond the last column, by less than this leaves to 2^31.
MOST_COLS_IN_32_BITS = 2**31 - 2**16

# The H200's processors; in the interpreter the number only shapes the grid.
INTERPRETER_PROCESSORS = 132


# triton's own two serve kernels too, and take 2 us a call on the host.
def cdiv(x: int, y: int) -> int:
    """x / y, rounded up."""
    return -(-x // y)


def next_power_of_2(x: int) -> int:
    """The smallest power of two that is x or more; x: 1 or more"""
    return 1 << (x - 1).bit_length()


class TensorMap(TensorDescriptor):
    """A descriptor of what is known to suit one: triton's own checks take 1.3 us of 1.7."""

    def __post_init__(self) -> None:
        pass


def on_device(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Triton launches on the current device: make it x's, at no cost where it is already."""
    if not x.is_cuda or x.get_device() == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)


def place(out: Tensor | None, shape: torch.Size | tuple[int, ...], like: Tensor) -> Tensor:
    """The tensor that a kernel writes: `out` where it can. `settle` makes the result of it."""
    if INTERPRETED and like.dtype is torch.bfloat16:
        # The interpreter cuts bits off where the hardware rounds, so torch rounds for it.
        return torch.empty(shape, dtype=torch.float32, device=like.device)
    return landing(out, shape, like)


def settle(y: Tensor, out: Tensor | None, like: Tensor) -> Tensor:
    """What the caller gets, once a kernel has written y."""
    if out is None:
        return y.to(like.dtype)
    return out if y is out else out.copy_(y)


def processors(x: Tensor) -> int:
    """How many multiprocessors x's device has."""
    return _processors(x.get_device()) if x.is_cuda else INTERPRETER_PROCESSORS


@functools.cache
def _processors(index: int) -> int:
    return torch.cuda.get_device_properties(index).multi_processor_count


def vector(n_cols: int) -> int:
    """The largest power of two up to 16 that divides n_cols.

    For kernels that take ``n_cols`` as ``n_cols // vector`` and a compile-time ``vector``: Triton
    by itself only sees divisibility by 16, and would read rows of 1000 16-bit values two bytes at a
    time.
    """
    # Triton counts in 64 bits what it is handed as 64 bits: so many columns, undivided.
    return math.gcd(n_cols, 16) if n_cols < MOST_COLS_IN_32_BITS else 1
