"""What an implementation is: one way to compute one op, as the harness knows it.

It is found by name (`module`, `function`), so a tier that is missing something costs its own rows
and no others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from benchmarks.skips import Skip

__all__ = ["EAGER", "EFFORTS", "KIT", "NEEDS", "TIERS", "Implementation", "Needs"]

TIERS = ("library", "triton", "cuda", "cupy")

# The library call that every op has, and that the library's other calls are held against.
EAGER = "library/eager"

# A kernel that its user makes of a library's templates. That takes C++ and a compiler, so it is no
# call of the library's: nothing is held against it, and it wins for no tier.
KIT = "kit"

# What a variant stands for. Comparing a first draft of one tier with a tuned kernel of another
# compares effort, not tiers, so every table shows the label.
EFFORTS = ("call", KIT, "sketch", "naive", "good", "tuned")

# What a row may need of the machine. `benchmarks.device.unmet` says which are missing, and how
# to get them. A row may leave out cases besides: benchmarks/skips.py.
NEEDS = ("gpu", "triton", "cupy", "extension", "cutlass", "sm_90", "cxx")

Needs = Literal["gpu", "triton", "cupy", "extension", "cutlass", "sm_90", "cxx"]


@dataclass(frozen=True)
class Implementation:
    """One way to compute one op.

    op, tier, variant: its name, all three unique together
    module, function: where to find ``function(*inputs, out=None) -> Tensor``
    sources: what counts as its code: ``path`` for a whole file or ``path:name,name`` for
        functions, classes and constants of a Python file. A .cuh that a named file includes counts
        too. What launches every op alike (triton_impl/launch.py, cuda_impl/device.py,
        cuda_impl/rawmodule.py, csrc/launch.h, csrc/landing.h) counts for none.
    kernels: the device functions by name, as they stand in the compiled code
    effort: one of ``EFFORTS``
    needs: some of ``NEEDS``
    own_output: is called without ``out`` and returns a tensor of its own
    rounds_once: computes wider than its 16-bit dtype and rounds the result alone
    skips: cases that it leaves out: what it hands to a variant with a row of its own, and what
        would take long and say nothing new
    patience: seconds that a call may take; slower cases are skipped
    issue: how its calls are sent to the device when it is timed: "graph" (replayed from a CUDA
        graph, launch cost outside) or "stream" (one by one, as its user would)

    Errors: ValueError for a tier, an effort or a need that is not among those above.
    """

    op: str
    tier: str
    variant: str
    module: str
    function: str
    sources: tuple[str, ...]
    effort: str
    kernels: tuple[str, ...] = ()
    needs: tuple[Needs, ...] = ()
    issue: Literal["graph", "stream"] = "graph"
    own_output: bool = False
    rounds_once: bool = True
    skips: tuple[Skip, ...] = ()
    patience: float = math.inf

    def __post_init__(self) -> None:
        if self.tier not in TIERS:
            raise ValueError(f"tier must be one of {TIERS}, got {self.tier!r}")
        if self.effort not in EFFORTS:
            raise ValueError(f"effort must be one of {EFFORTS}, got {self.effort!r}")
        unknown = set(self.needs) - set(NEEDS)
        if unknown:
            raise ValueError(f"needs must be among {NEEDS}, got {sorted(unknown)}")

    @property
    def name(self) -> str:
        """For instance ``triton/tuned``: unique within its op."""
        return f"{self.tier}/{self.variant}"

    @property
    def is_call(self) -> bool:
        """Whether it is a call of the library's, of which the fastest is the others' bar."""
        return self.tier == "library" and self.effort != KIT

    def left_out(self, sizes: Mapping[str, int], dtype: str, hopper: bool = True) -> str:
        """Why the row leaves a case out; "" where it doesn't.

        sizes: of the case, by axis; hopper: whether the device is one
        """
        return next((skip.reason for skip in self.skips if skip.covers(sizes, dtype, hopper)), "")

    def resolve(self) -> Callable[..., Any]:
        """The function itself. Imports its tier."""
        function: Callable[..., Any] = getattr(import_module(self.module), self.function)
        return function
