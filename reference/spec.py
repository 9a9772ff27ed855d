"""What an op is: frozen values that say its inputs, its truth and its cost.

Nothing here runs a kernel or measures one. `reference.ops.OPS` holds one `Op` per op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LAYOUTS", "Case", "Op", "Tolerance", "dtype_name"]

# How matmul's b is stored: "kn" as b[K, N] contiguous, "nk" as the transposed view of a
# weight[N, K], which is what torch.nn.Linear holds. "" for ops that have no such choice.
LAYOUTS = ("", "kn", "nk")


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.bfloat16` -> `"bfloat16"`."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Tolerance:
    """How wrong a result may be, for one dtype, in the op's own error measure.

    A result passes when its error is at most
    ``min(ceiling, 2 * library_error + floor)``, where ``library_error`` is the error of the
    library's own result in the same dtype on the same inputs: the library earns the slack.

    once: the most for an implementation that computes wider and rounds once, where the library
        rounds after every step and so earns more slack than a kernel may use
    """

    floor: float
    ceiling: float
    once: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.floor <= self.ceiling:
            raise ValueError(
                f"floor must lie in (0, ceiling], got floor {self.floor}, ceiling {self.ceiling}"
            )

    def limit(self, library_error: float) -> float:
        """The largest error that passes, given the library's own error."""
        return min(self.ceiling, 2 * library_error + self.floor)


@dataclass(frozen=True)
class Case:
    """One point at which an op is tested or timed.

    sizes: one positive or zero integer per axis, in the order of ``Op.axes``
    dtype: of every input and of the output
    layout: one of ``LAYOUTS``
    """

    sizes: tuple[int, ...]
    dtype: torch.dtype
    layout: str = ""

    def __post_init__(self) -> None:
        # Python integers, so that byte and flop counts can't wrap as numpy's would.
        object.__setattr__(self, "sizes", tuple(int(size) for size in self.sizes))
        if any(size < 0 for size in self.sizes):
            raise ValueError(f"sizes must not be negative, got {self.sizes}")
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout must be one of {LAYOUTS}, got {self.layout!r}")

    @property
    def name(self) -> str:
        """For instance ``262144x1024-bfloat16`` or ``16x4096x14336-bfloat16-nk``."""
        parts = ["x".join(map(str, self.sizes)), dtype_name(self.dtype), self.layout]
        return "-".join(part for part in parts if part)


@dataclass(frozen=True)
class Op:
    """One op: what goes in, what must come out, and the least work that takes.

    name: also the name of its file and of its public function in every tier
    axes: what ``Case.sizes`` means, for instance ``("rows", "cols")``
    parameters: names of the inputs, the same in every tier
    make_inputs: ``(case, device, generator) -> inputs``, drawn from N(0, 1)
    oracle: ``(*inputs) -> float64 tensor``, from the rounded inputs
    error_scale: ``(expected, *inputs) -> tensor`` that ``|got - expected|`` is divided by,
        element by element, to give the op's error
    bytes_moved: least traffic: each input read once, each output written once
    flops: floating-point operations that the matrix units would do; 0 for pointwise ops
    special_functions: exp, tanh and sigmoid evaluations
    tolerances: by dtype
    test_cases: small, for the gate's own tests and the interpreter
    cpu_cases: timed on a machine without a GPU
    benchmark_cases: timed on a GPU
    """

    name: str
    axes: tuple[str, ...]
    parameters: tuple[str, ...]
    make_inputs: Callable[[Case, torch.device, torch.Generator], tuple[Tensor, ...]]
    oracle: Callable[..., Tensor]
    error_scale: Callable[..., Tensor]
    bytes_moved: Callable[[Case], int]
    flops: Callable[[Case], int]
    special_functions: Callable[[Case], int]
    tolerances: Mapping[torch.dtype, Tolerance]
    test_cases: tuple[Case, ...]
    cpu_cases: tuple[Case, ...]
    benchmark_cases: tuple[Case, ...]

    def __post_init__(self) -> None:
        for case in (*self.test_cases, *self.cpu_cases, *self.benchmark_cases):
            if len(case.sizes) != len(self.axes):
                raise ValueError(f"{self.name}: case {case.name} must have the axes {self.axes}")
            if case.dtype not in self.tolerances:
                raise ValueError(f"{self.name}: case {case.name} has no tolerance for its dtype")

    def sizes(self, case: Case) -> dict[str, int]:
        """The case's sizes by axis name."""
        return dict(zip(self.axes, case.sizes, strict=True))
