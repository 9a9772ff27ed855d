"""A case, measured: each implementation checked, all timed in turn, each checked again.

Runs inside a worker process.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.binary import resources
from benchmarks.buffers import Buffers, Machine
from benchmarks.check import Truth, verify_call
from benchmarks.device import Clocks
from benchmarks.implementation import EAGER, Implementation
from benchmarks.timing import FEWEST_ROUNDS, Arm, Samples, Settings, host_seconds, measure
from reference.spec import Case, Op, dtype_name

__all__ = ["COPY", "Bench"]

# The copy's arm among a row's pairs.
COPY = "ceiling/copy"

# Ends the name of a row's second arm, which is its own pair: the A/A test.
AGAIN = " (pair)"

# An arm this many times slower than the fastest library call is sampled apart: the others would
# wait for it, and it leaves a card at its power limit cool, so that whichever arm comes next runs
# at higher clocks. With two such arms in the rounds, samples of one cuBLAS call at 4096^3 were
# either 172 or 200 us on an H200, and its ratio to itself 0.95.
SLOW_FACTOR = 3

# The part of the time limit that slow arms get: by how much they lose is plain after few samples.
SLOW_TIME = 1 / 3

# As much of it eager's own rounds may take: the host's noise of 5 % a sample needs many.
HOST_TIME = 2

# A call that takes longer needs no rotation to be cold: all that the cache may hold for it, 60 MB
# on an H200, is 14 us of reading.
LONG_SECONDS = 0.01

# A time below this part of what bytes and flops allow on the measured ceilings is a mistake. Not
# 1: ceilings are measured too, and a kernel may beat cuBLAS or the copy by a few per cent.
IMPOSSIBLE = 0.85

Fields = dict[str, Any]


class Bench:
    """Measures one case after another, keeping a case's buffers until the next.

    interpreted: check in Triton's interpreter, on the CPU; nothing is timed
    """

    def __init__(self, machine: Machine, settings: Settings, *, interpreted: bool = False) -> None:
        self._machine = machine
        self._settings = settings
        self._interpreted = interpreted
        self._buffers: Buffers | None = None

    def check(self, op: Op, case: Case, row: Implementation, regime: str) -> Fields:
        """Fields of the row's record from its first calls. Whatever it raises comes out of here.

        regime: "cold" (what is read has left the cache) or "hot" (one buffer set)
        """
        buffers = self._for_case(op, case, regime)
        call = buffers.calls(row)[0]
        first_call_seconds = self._call_seconds(call)
        too_slow = self._outlasts_patience(row, call, first_call_seconds)
        if too_slow and not self._interpreted:
            return {"status": "skipped", "reason": too_slow}
        verdict = verify_call(
            buffers.truth,
            row.resolve(),
            own_output=row.own_output,
            rounds_once=row.rounds_once,
        )
        fields = {
            "status": verdict.status,
            "reason": verdict.reason,
            "max_error": verdict.max_error,
            "error_limit": verdict.error_limit,
            "library_error": buffers.truth.library_error,
        }
        if verdict.ok and self._interpreted:
            reason = "verified in Triton's interpreter, which has no meaningful time"
            return {**fields, "reason": reason}
        if not verdict.ok:
            return fields
        # Eager has run before on these shapes: it made the truth's library error.
        first = None if row.is_call and not row.own_output else first_call_seconds
        return {**fields, "first_call_seconds": first}

    def time(
        self,
        op: Op,
        case: Case,
        rows: Sequence[Implementation],
        beside: Sequence[Implementation],
        regime: str,
    ) -> dict[str, Fields]:
        """By name, the other fields of rows that were checked. All are sampled in the same rounds,
        so that none has a cooler card or a quieter neighbour than another.

        beside: library calls that are sampled too, to be paired with, and have no fields
        """
        buffers = self._for_case(op, case, regime)
        with torch.no_grad():
            arms = self._arms(op, case, rows, beside, buffers)
            sampled = self._sample(rows, arms)
        # The same new values for all that are checked again.
        truth = buffers.redraw()
        return {
            row.name: self._finish(op, case, row, arms[row.name], sampled[row.name], buffers, truth)
            for row in rows
        }

    def _arms(
        self,
        op: Op,
        case: Case,
        rows: Sequence[Implementation],
        beside: Sequence[Implementation],
        buffers: Buffers,
    ) -> dict[str, Arm]:
        """By name, with the one that noise is judged against first: the copy, or a library call.

        Eager and the fastest library call, which ratios are taken against, have a second arm.
        """
        length = self._settings.sample_seconds
        arms: dict[str, Arm] = {}
        if op.flops(case) == 0:
            arms[COPY] = buffers.copy_arm(length)
        library_first = sorted((*rows, *beside), key=lambda row: not row.is_call)
        for row in library_first:
            # After its check a call has run once, and compiles no more.
            rotate = row.is_call or self._call_seconds(buffers.calls(row)[0]) < LONG_SECONDS
            arms[row.name] = buffers.arm(row, length, rotate=rotate)
        glance = {row.name: arms[row.name].sample() for row in library_first if row.is_call}
        twice = (EAGER, min(glance, key=lambda name: glance[name]))
        for row in rows:
            if row.name in twice:
                arms[row.name + AGAIN] = buffers.arm(row, length)
        return arms

    def _sample(self, rows: Sequence[Implementation], arms: dict[str, Arm]) -> dict[str, Fields]:
        """By row: its seconds, those of its pairs, why sampling stopped, the card's state."""
        glance = {name: arm.sample() for name, arm in arms.items()}
        others = {COPY, *(row.name for row in rows if not row.is_call)}
        library = [name for name in arms if name not in others and not name.endswith(AGAIN)]
        bar = min(glance[name] for name in library)
        # Others are held against the library's calls, so those stay. Of eager the second arm goes:
        # calls sent one by one take the host's time, whose speed drifts by a third within a second,
        # and in rounds of their own the two arms are close in time.
        slow = {
            row.name
            for row in rows
            if glance[row.name] > SLOW_FACTOR * bar and (row.name == EAGER or not row.is_call)
        }
        gone = {name + AGAIN if name == EAGER else name for name in slow}
        together = {name: arm for name, arm in arms.items() if name not in gone}
        found = self._measure(together, self._settings, self._settings.least_rounds)
        best = min(library, key=lambda name: statistics.median(found[0].seconds[name]))
        limit = self._settings.limit_seconds
        brief = dataclasses.replace(self._settings, limit_seconds=SLOW_TIME * limit, fair=math.inf)
        patient = dataclasses.replace(self._settings, limit_seconds=HOST_TIME * limit)
        sampled: dict[str, Fields] = {}
        for row in rows:
            partner = EAGER if row.is_call else best
            own = found
            if row.name in slow:
                beside = EAGER + AGAIN if row.name == EAGER else best
                apart = {n: arms[n] for n in (COPY, beside, row.name) if n in arms}
                if row.name == EAGER:
                    own = self._measure(apart, patient, self._settings.least_rounds)
                else:
                    own = self._measure(apart, brief, FEWEST_ROUNDS)
            sampled[row.name] = _fields_of(row, partner, *own)
        return sampled

    def _measure(
        self, arms: dict[str, Arm], settings: Settings, fewest_rounds: int
    ) -> tuple[Samples, Clocks]:
        clocks = Clocks()
        return measure(arms, settings, clocks, fewest_rounds=fewest_rounds), clocks

    def _finish(
        self,
        op: Op,
        case: Case,
        row: Implementation,
        arm: Arm,
        sampled: Fields,
        buffers: Buffers,
        truth: Truth,
    ) -> Fields:
        """Checks once more, and measures what needs no pair."""
        after = buffers.run_again(row, arm, truth)
        if not after.ok:
            return {
                "status": "wrong",
                "reason": f"after timing, with new inputs in place: {after.reason}",
                "max_error": after.max_error,
            }
        impossible = self._impossible(op, case, buffers.key[2], sampled)
        if impossible:
            return {"status": "error", "reason": impossible}
        call = buffers.calls(row)[0]
        median = statistics.median(sampled["seconds"])
        with torch.no_grad():
            host, stream = host_seconds(call, self._machine.device, median)
        return {
            **sampled,
            "host_seconds": host,
            "stream_seconds": stream,
            "resources": resources(row),
        }

    def _for_case(self, op: Op, case: Case, regime: str) -> Buffers:
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
            self._buffers = Buffers(op, case, regime, self._machine)
        return self._buffers

    def _outlasts_patience(
        self, row: Implementation, call: Callable[[], Any], first_call_seconds: float
    ) -> str:
        """Why the row is skipped, or "". The first call is no measure: it may have compiled."""
        if first_call_seconds <= row.patience:
            return ""
        seconds = self._call_seconds(call)
        if seconds <= row.patience:
            return ""
        return f"a call takes {seconds:.2g} s, and the variant is measured up to {row.patience:g} s"

    def _call_seconds(self, call: Callable[[], Any]) -> float:
        """One call, from before it is issued to after it is done. The first one compiles, loads
        a module, and does whatever else happens once."""
        self._synchronize()
        start = time.perf_counter()
        with torch.no_grad():
            call()
        self._synchronize()
        return time.perf_counter() - start

    def _impossible(self, op: Op, case: Case, regime: str, timed: Fields) -> str:
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
            # a copy that was sampled in the same rounds counts, and then with room to spare.
            return {"bytes": min(copies) / 4} if copies else {}
        bandwidth = max([ceilings["read"], ceilings["write"], *(r for _, r in ceilings["copy"])])
        floors = {"bytes": op.bytes_moved(case) / bandwidth}
        rate = ceilings["matmul"].get(dtype_name(case.dtype))
        if rate:
            floors["flops"] = op.flops(case) / rate
        return floors

    def _synchronize(self) -> None:
        if self._machine.device.type == "cuda":
            torch.cuda.synchronize(self._machine.device)


def _fields_of(row: Implementation, partner: str, samples: Samples, clocks: Clocks) -> Fields:
    """partner: the library call that the row is paired with; besides it with its second arm, under
    its own name in the record"""
    again = row.name + AGAIN
    pairs = {partner: samples.seconds[partner]} if partner != row.name else {}
    if again in samples.seconds:
        pairs[row.name] = samples.seconds[again]
    if COPY in samples.seconds:
        pairs[COPY] = samples.seconds[COPY]
    return {
        "seconds": samples.seconds[row.name],
        "paired": pairs,
        "stop": samples.stop,
        "clocks": clocks.record(),
    }
