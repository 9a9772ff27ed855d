"""A case's inputs and outputs, over as many sets as leave the cache, and what is called on them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import check
from benchmarks.ceilings import copy_arm, set_count
from benchmarks.implementation import Implementation
from benchmarks.timing import Arm, make_arm
from reference.spec import Case, Op

__all__ = ["Buffers", "Machine"]


@dataclass(frozen=True)
class Machine:
    """The device that is measured, its cache, its ceilings (empty before they are measured)."""

    device: torch.device
    cache_bytes: int
    ceilings: dict[str, Any]


class Buffers:
    """Made once for a case and regime, used by all its implementations alike.

    truth: of the first set's inputs
    count: of the sets; 1 in the regime "hot"
    """

    def __init__(self, op: Op, case: Case, regime: str, machine: Machine) -> None:
        self.key = (op.name, case.name, regime)
        self._op = op
        self._case = case
        self._machine = machine
        self._seed = 1
        # Of a cache of no bytes one set is as cold as many.
        self._cache_bytes = 0 if regime == "hot" else machine.cache_bytes
        self.count = set_count(op.bytes_moved(case), machine.device, self._cache_bytes)
        draw = functools.partial(check.draw, op, case, machine.device)
        self._inputs = [draw(seed) for seed in range(1, self.count + 1)]
        self.truth = check.find_truth(op, case, self._inputs[0])
        passes = check.inadequate(self.truth, draw(self.count + 1))
        if passes:
            raise ValueError(f"the case is no test: {', '.join(passes)} would pass")
        shape = self.truth.expected.shape
        self._outputs = [
            torch.empty(shape, dtype=case.dtype, device=machine.device) for _ in self._inputs
        ]

    def calls(self, row: Implementation) -> list[Callable[[], Any]]:
        """One call of the implementation for each set."""
        function = row.resolve()
        if row.own_output:
            return [functools.partial(function, *inputs) for inputs in self._inputs]
        return [
            functools.partial(function, *inputs, out=out)
            for inputs, out in zip(self._inputs, self._outputs, strict=True)
        ]

    def arm(self, row: Implementation, sample_seconds: float, *, rotate: bool = True) -> Arm:
        """rotate: over all sets, else on the last alone"""
        calls = self.calls(row) if rotate else self.calls(row)[-1:]
        return make_arm(calls, self._machine.device, row.issue, sample_seconds)

    def copy_arm(self, sample_seconds: float) -> Arm:
        """The copy that moves as many bytes as the op must, over sets as the op's."""
        size = self._op.bytes_moved(self._case)
        return copy_arm(size, self._machine.device, self._cache_bytes, sample_seconds)

    def redraw(self) -> check.Truth:
        """New values at the last set's addresses, and their truth."""
        self._seed += 1000
        fresh = check.draw(self._op, self._case, self._machine.device, self._seed)
        for old, new in zip(self._inputs[-1], fresh, strict=True):
            old.copy_(new)
        return check.find_truth(self._op, self._case, self._inputs[-1])

    def run_again(self, row: Implementation, arm: Arm, truth: check.Truth) -> check.Verdict:
        """One pass exactly as it was timed, into poisoned outputs.

        truth: of the last set. The other sets are only asked for a result: one call that did the
            work of all, or none, would leave poison in theirs.
        """
        if not row.own_output:
            for output in self._outputs:
                output.fill_(float("nan"))
        elif self._machine.device.type == "cuda" and row.issue == "graph":
            for written in arm.outputs:
                assert isinstance(written, Tensor)
                written.fill_(float("nan"))
        with torch.no_grad():
            arm.run()
        for number, result in enumerate(arm.outputs[:-1], 1):
            if isinstance(result, Tensor) and bool(result.isnan().any()):
                reason = f"buffer set {number} of {self.count} was left without a result"
                return check.Verdict("wrong", reason, None, truth.limit(row.rounds_once))
        return check.compare(truth, arm.outputs[-1], rounds_once=row.rounds_once)
