"""One row, measured: check, time, check again. Runs inside a worker process."""

from __future__ import annotations

import functools
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import check
from benchmarks.binary import resources
from benchmarks.ceilings import copy_arm, set_count
from benchmarks.device import Clocks
from benchmarks.implementations import Implementation
from benchmarks.timing import Arm, Settings, host_seconds, make_arm, measure
from reference.spec import Case, Op, dtype_name

__all__ = ["COPY", "Bench", "Machine"]

# The name of the copy's arm among a row's pairs.
COPY = "ceiling/copy"

# A time below this part of what bytes and flops allow on the measured ceilings is a mistake. Not
# 1: ceilings are measured too, and a kernel may beat cuBLAS or the copy by a few per cent.
IMPOSSIBLE = 0.85


@dataclass(frozen=True)
class Machine:
    """The device that is measured, its cache, its ceilings (empty before they are measured)."""

    device: torch.device
    cache_bytes: int
    ceilings: dict[str, Any]


class Bench:
    """Measures rows of one case after another, keeping a case's buffers until the next.

    interpreted: check in Triton's interpreter, on the CPU; nothing is timed
    """

    def __init__(self, machine: Machine, settings: Settings, *, interpreted: bool = False) -> None:
        self._machine = machine
        self._settings = settings
        self._interpreted = interpreted
        self._buffers: _Buffers | None = None

    def row(
        self, op: Op, case: Case, row: Implementation, baseline: Implementation, regime: str
    ) -> dict[str, Any]:
        """The measured fields of a record. Whatever the implementation raises comes out of here.

        baseline: the library call that is sampled in the same rounds
        regime: "cold" (what is read has left the cache) or "hot" (one buffer set)
        """
        buffers = self._for_case(op, case, regime)
        function = row.resolve()
        first_call_seconds = self._call_seconds(row, function, buffers)
        too_slow = self._outlasts_patience(row, function, buffers, first_call_seconds)
        if too_slow and not self._interpreted:
            return {"status": "skipped", "reason": too_slow}
        verdict = check.verify_call(buffers.truth, function, own_output=row.own_output)
        fields = {
            "status": verdict.status,
            "reason": verdict.reason,
            "max_error": verdict.max_error,
            "error_limit": verdict.error_limit,
            "library_error": buffers.truth.library_error,
        }
        if not verdict.ok:
            return fields
        if self._interpreted:
            reason = "verified in Triton's interpreter, which has no meaningful time"
            return {**fields, "reason": reason}
        timed = self._time(op, row, function, baseline, buffers)
        arm = timed.pop("arm")
        after = self._check_again(row, arm, buffers)
        if not after.ok:
            return {
                **fields,
                "status": "wrong",
                "reason": f"after timing, with new inputs in place: {after.reason}",
                "max_error": after.max_error,
            }
        impossible = self._impossible(op, case, regime, timed)
        if impossible:
            return {**fields, "status": "error", "reason": impossible}
        median = statistics.median(timed["seconds"])
        call = buffers.calls(function, row.own_output)[0]
        host, stream = host_seconds(call, self._machine.device, median)
        return {
            **fields,
            **timed,
            "host_seconds": host,
            "stream_seconds": stream,
            "first_call_seconds": first_call_seconds,
            "resources": resources(row),
        }

    def _for_case(self, op: Op, case: Case, regime: str) -> _Buffers:
        if self._buffers is None or self._buffers.key != (op.name, case.name, regime):
            self._buffers = None
            # torch.compile falls back to eager, without a word, after a number of shapes.
            torch._dynamo.reset()
            gc.collect()
            # Each capture of a graph collects garbage: 0.18 s with all of torch to look through,
            # twice a row, unless what is alive here, modules and caches, is set aside.
            gc.freeze()
            if self._machine.device.type == "cuda":
                torch.cuda.empty_cache()
            self._buffers = _Buffers(op, case, regime, self._machine)
        return self._buffers

    def _outlasts_patience(
        self,
        row: Implementation,
        function: Callable[..., Tensor],
        buffers: _Buffers,
        first_call_seconds: float,
    ) -> str:
        """Why the row is skipped, or "". The first call is no measure: it may have compiled."""
        if first_call_seconds * buffers.count <= row.patience:
            return ""
        seconds = self._call_seconds(row, function, buffers) * buffers.count
        if seconds <= row.patience:
            return ""
        return (
            f"a pass over the case's {buffers.count} buffer sets takes {seconds:.2g} s, and the "
            f"variant is measured up to {row.patience:g} s"
        )

    def _call_seconds(
        self, row: Implementation, function: Callable[..., Tensor], buffers: _Buffers
    ) -> float:
        """One call, from before it is issued to after it is done. The first one compiles, loads
        a module, and does whatever else happens once."""
        call = buffers.calls(function, row.own_output)[0]
        self._synchronize()
        start = time.perf_counter()
        with torch.no_grad():
            call()
        self._synchronize()
        return time.perf_counter() - start

    def _time(
        self,
        op: Op,
        row: Implementation,
        function: Callable[..., Tensor],
        baseline: Implementation,
        buffers: _Buffers,
    ) -> dict[str, Any]:
        length = self._settings.sample_seconds
        clocks = Clocks()
        with torch.no_grad():
            calls = buffers.calls(function, row.own_output)
            arm = make_arm(calls, self._machine.device, row.issue, length)
            # A row that is its own baseline is paired with a second arm of itself: the A/A test.
            arms = {
                row.name: arm,
                f"{baseline.name} (pair)": buffers.baseline(baseline, length),
            }
            if op.flops(buffers.case) == 0:
                arms[COPY] = buffers.copy(length)
            samples = measure(arms, self._settings, clocks)
        names = {row.name: None, f"{baseline.name} (pair)": baseline.name, COPY: COPY}
        return {
            "arm": arm,
            "seconds": samples.seconds[row.name],
            "paired": {
                name: samples.seconds[key]
                for key, name in names.items()
                if name is not None and key in samples.seconds
            },
            "stop": samples.stop,
            "clocks": clocks.record(),
        }

    def _check_again(self, row: Implementation, arm: Arm, buffers: _Buffers) -> check.Verdict:
        """New inputs at the same addresses, poisoned outputs, one pass exactly as it was timed."""
        buffers.redraw()
        with torch.no_grad():
            if not row.own_output:
                buffers.poison()
            elif self._machine.device.type == "cuda" and row.issue == "graph":
                for output in arm.outputs:
                    assert isinstance(output, Tensor)
                    output.fill_(float("nan"))
            arm.run()
        return check.compare(buffers.truth, arm.outputs[0])

    def _impossible(self, op: Op, case: Case, regime: str, timed: dict[str, Any]) -> str:
        if regime != "cold" or not self._machine.ceilings:
            return ""
        floors = self._floors(op, case, timed["paired"].get(COPY))
        bound, floor = max(floors.items(), key=lambda item: item[1], default=("", 0.0))
        fastest = min(timed["seconds"])
        if fastest >= IMPOSSIBLE * floor:
            return ""
        return (
            f"impossible: {fastest:.3g} s, and its {bound} alone need {floor:.3g} s "
            "on the ceilings measured in this run"
        )

    def _floors(self, op: Op, case: Case, copies: list[float] | None) -> dict[str, float]:
        """Seconds that the case needs at least, by what needs them."""
        ceilings = self._machine.ceilings
        if self._machine.device.type == "cpu":
            # Its cores are shared: a ceiling from minutes ago may be a neighbour's doing, so only
            # a copy that was sampled in the same rounds counts, at its fastest.
            return {"bytes": min(copies) / 2} if copies else {}
        bandwidth = max([ceilings["read"], ceilings["write"], *(r for _, r in ceilings["copy"])])
        floors = {"bytes": op.bytes_moved(case) / bandwidth}
        rate = ceilings["matmul"].get(dtype_name(case.dtype))
        if rate:
            floors["flops"] = op.flops(case) / rate
        return floors

    def _synchronize(self) -> None:
        if self._machine.device.type == "cuda":
            torch.cuda.synchronize(self._machine.device)


class _Buffers:
    """A case's inputs, outputs and shared arms.

    truth: of the first set's inputs, as they are now
    count: of the sets
    """

    def __init__(self, op: Op, case: Case, regime: str, machine: Machine) -> None:
        self.key = (op.name, case.name, regime)
        self.case = case
        self._op = op
        self._machine = machine
        self._seed = 1
        set_bytes = op.bytes_moved(case)
        hot = regime == "hot"
        count = 1 if hot else set_count(set_bytes, machine.device, machine.cache_bytes)
        self.count = count
        draw = functools.partial(check.draw, op, case, machine.device)
        self._inputs = [draw(seed) for seed in range(1, count + 1)]
        self.truth = check.find_truth(op, case, self._inputs[0])
        passes = check.inadequate(self.truth, draw(count + 1))
        if passes:
            raise ValueError(f"the case is no test: {', '.join(passes)} would pass")
        shape = self.truth.expected.shape
        self._outputs = [
            torch.empty(shape, dtype=case.dtype, device=machine.device) for _ in self._inputs
        ]
        self._arms: dict[str, Arm] = {}

    def calls(
        self, function: Callable[..., Tensor], own_output: bool
    ) -> list[Callable[[], object]]:
        """One call for each buffer set."""
        if own_output:
            return [functools.partial(function, *inputs) for inputs in self._inputs]
        return [
            functools.partial(function, *inputs, out=out)
            for inputs, out in zip(self._inputs, self._outputs, strict=True)
        ]

    def baseline(self, row: Implementation, sample_seconds: float) -> Arm:
        if row.name not in self._arms:
            calls = self.calls(row.resolve(), row.own_output)
            self._arms[row.name] = make_arm(calls, self._machine.device, row.issue, sample_seconds)
        return self._arms[row.name]

    def copy(self, sample_seconds: float) -> Arm:
        """The copy that moves as many bytes as the op must."""
        if COPY not in self._arms:
            machine = self._machine
            size = self._op.bytes_moved(self.case)
            # The hot regime's copy rotates as the op does: over one set.
            cache = 0 if self.key[2] == "hot" else machine.cache_bytes
            self._arms[COPY] = copy_arm(size, machine.device, cache, sample_seconds)
        return self._arms[COPY]

    def redraw(self) -> None:
        """New values at the first set's addresses, and their truth."""
        self._seed += 1000
        fresh = check.draw(self._op, self.case, self._machine.device, self._seed)
        for old, new in zip(self._inputs[0], fresh, strict=True):
            old.copy_(new)
        self.truth = check.find_truth(self._op, self.case, self._inputs[0])

    def poison(self) -> None:
        for output in self._outputs:
            output.fill_(float("nan"))
