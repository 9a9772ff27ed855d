"""The clock: several arms, sampled in turn in one process, until the noise is small.

An arm is one way to do the work of a case, over enough buffer sets that what it reads is no
longer in the cache. On a GPU one pass over the sets is a CUDA graph, so launch cost is outside;
a sample is as many replays as last `Settings.sample_seconds`, timed by events. Arms are sampled
in palindromic rounds (A B C C B A, then A C B B C A, ...), so that a drift of the clocks falls on
all alike, and a ratio is taken within a round, never between two medians.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from benchmarks.device import Clocks

__all__ = [
    "FEWEST_ROUNDS",
    "GRAPH_CALLS",
    "Arm",
    "Samples",
    "Settings",
    "host_seconds",
    "make_arm",
    "measure",
]

Call = Callable[[], object]

# A graph shorter than this shows the gap of about 1.5 us between two replays as more than 0.1 %.
GRAPH_SECONDS = 2e-3

# Nodes in one graph: beyond it, capturing costs more than the gap between replays does.
GRAPH_CALLS = 2000

# After each call that is captured so many blocks of so many bytes are kept, where the call's own
# temporaries lay: those of the next lie elsewhere, and a time is a mean over places as it is over
# buffers. At one place softmax of 1x131072 by torch.compile, two kernels that meet in a few bytes,
# takes 9.57 us in one graph and 9.82 us in another.
PADS = 8
PAD = 512

# A GPU rests as long as it works, up to this.
LONGEST_REST = 20e-3

# Of the time that calls sent one by one take: where the host needs more, it is what they wait for.
HOST_PART = 0.8

# That the time limit leaves: six samples of each arm.
FEWEST_ROUNDS = 3


@dataclass(frozen=True)
class Settings:
    """When to stop.

    sample_seconds: least length of one sample
    least_rounds: a round gives two samples of each arm
    least_seconds: of sampling, all arms together
    limit_seconds: of sampling, for each arm; reaching it is noted in the record
    target: half-width of the 95 % interval of each median ratio, relative to it
    fair: half-width that is good enough at the time limit; twice the time beyond it
    """

    sample_seconds: float = 5e-3
    least_rounds: int = 10
    least_seconds: float = 0.3
    limit_seconds: float = 0.3
    target: float = 2e-3
    fair: float = 5e-3

    def __post_init__(self) -> None:
        for name in ("sample_seconds", "least_rounds", "limit_seconds", "target", "fair"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")


class Arm(Protocol):
    """Something that can be sampled.

    outputs: what one pass over the sets writes or returns, a result a set
    rest: seconds that the device is to idle before each sample
    """

    outputs: list[object]
    rest: float

    def sample(self) -> float:
        """Seconds for one call, as the mean over one sample."""

    def run(self) -> None:
        """One pass, as it is timed, into `outputs`; on return the device is done."""


@dataclass(frozen=True)
class Samples:
    """seconds: per arm, in time order; entries 2i and 2i + 1 are of round i. stop: why then."""

    seconds: dict[str, list[float]]
    stop: str


class _GraphArm:
    """One pass over the sets as a CUDA graph, replayed."""

    def __init__(self, calls: Sequence[Call], sample_seconds: float) -> None:
        self.outputs: list[object] = []
        # A graph knows addresses only: without the calls, what they work on would be freed, and
        # the next capture gives freed memory back to the driver.
        self._calls = calls
        self._pads: list[Tensor] = []
        self._capture(passes=1)
        self._pass_seconds = 0.0
        self._pass_seconds = pass_seconds = self._time(replays=1)
        passes = math.ceil(GRAPH_SECONDS / pass_seconds)
        passes = max(1, min(passes, GRAPH_CALLS // len(calls)))
        if passes > 1:
            self._capture(passes)
        self._replays = math.ceil(sample_seconds / (pass_seconds * passes))
        self.rest = min(pass_seconds * passes * self._replays, LONGEST_REST)

    def _capture(self, passes: int) -> None:
        # Results that a call allocates itself are kept, else the graph's allocator would hand
        # the same block, warm in the cache, to every call.
        self.outputs.clear()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for repeat in range(passes):
                results = []
                for call in self._calls:
                    results.append(call())
                    self._pads.extend(
                        torch.empty(PAD, dtype=torch.uint8, device="cuda") for _ in range(PADS)
                    )
                if repeat == 0:
                    self.outputs = results
        self._call_count = len(self._calls) * passes

    def _time(self, replays: int) -> float:
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        # One replay ahead of the clock: while it runs, the host gets the timed ones queued, so
        # that no launch is waited for, and the caches are as this arm leaves them. Beside a replay
        # of 30 ms, which is far more than the caches hold, both are nothing.
        if self._pass_seconds < 0.03:
            self._graph.replay()
        start.record()
        for _ in range(replays):
            self._graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / replays

    def sample(self) -> float:
        return self._time(self._replays) / self._call_count

    def run(self) -> None:
        self._graph.replay()
        torch.cuda.synchronize()


class _StreamArm:
    """Calls sent one by one, as a program without CUDA graphs sends them: launch gaps count."""

    def __init__(self, calls: Sequence[Call], sample_seconds: float) -> None:
        self.outputs: list[object] = []
        self._calls = calls
        self._passes = 1
        pass_seconds = self.sample() * len(calls)
        self._passes = math.ceil(sample_seconds / pass_seconds)
        self.rest = min(pass_seconds * self._passes, LONGEST_REST)
        if self._waits_for_host():
            self.rest = 0.0

    def _waits_for_host(self) -> bool:
        """A device that is done as soon as the last call is sent has idled between the calls.

        Asked of few, since the launch queue, when it is full, makes a fast host wait as well.
        """
        torch.cuda.synchronize()
        start = time.perf_counter()
        for call in self._calls[:10]:
            call()
        sent = time.perf_counter()
        torch.cuda.synchronize()
        return sent - start > HOST_PART * (time.perf_counter() - start)

    def sample(self) -> float:
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        self._calls[-1]()
        start.record()
        for _ in range(self._passes):
            for call in self._calls:
                call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / (self._passes * len(self._calls))

    def run(self) -> None:
        self.outputs = [call() for call in self._calls]
        torch.cuda.synchronize()


class _HostArm:
    """Calls on the CPU, by the host's clock."""

    def __init__(self, calls: Sequence[Call], sample_seconds: float) -> None:
        self.outputs: list[object] = []
        self.rest = 0.0
        self._calls = calls
        self._passes = 1
        pass_seconds = self.sample() * len(calls)
        self._passes = math.ceil(sample_seconds / pass_seconds)

    def sample(self) -> float:
        start = time.perf_counter()
        for _ in range(self._passes):
            for call in self._calls:
                call()
        return (time.perf_counter() - start) / (self._passes * len(self._calls))

    def run(self) -> None:
        self.outputs = [call() for call in self._calls]


def make_arm(calls: Sequence[Call], device: torch.device, issue: str, sample_seconds: float) -> Arm:
    """An arm over `calls`, one for each buffer set. Each has run once when this returns.

    issue: "graph" or "stream"; makes no difference on the CPU
    """
    for call in calls:
        call()
    if device.type == "cpu":
        return _HostArm(calls, sample_seconds)
    torch.cuda.synchronize(device)
    return (_GraphArm if issue == "graph" else _StreamArm)(calls, sample_seconds)


def measure(
    arms: dict[str, Arm], settings: Settings, clocks: Clocks, *, fewest_rounds: int = FEWEST_ROUNDS
) -> Samples:
    """Sample the arms in palindromic rounds. Noise is that of the ratios to the first arm.

    From round to round the order changes: under a power limit what runs after a hot arm is slower,
    and with one order for all it would always be the same arm (1 % between two arms of the same
    call, seen on an H200).

    Before each sample the device rests. Without it softmax kept an H200 at its power limit: its
    clocks fell from 1980 to 1455 MHz and rose again every few samples, and those of one call of
    eager lay between 395 and 545 us. With rests they lie within 0.5 %, and the ratio of eager to
    itself moved from 1 by 0.0002, not by 0.01.

    fewest_rounds: that the time limit leaves

    Raises ValueError where a sample is not a positive time: the clock is broken, not the arm.
    """
    names = list(arms)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    orders = _orders(names)
    started = time.monotonic()
    rounds = 0
    while True:
        order = next(orders)
        for name in (*order, *reversed(order)):
            time.sleep(arms[name].rest)
            sample = arms[name].sample()
            if not 0 < sample < math.inf:
                raise ValueError(f"the clock read {sample} s for {name}")
            seconds[name].append(sample)
        clocks.sample()
        rounds += 1
        spent = time.monotonic() - started
        enough = rounds >= settings.least_rounds and spent >= settings.least_seconds
        noise = _noise(seconds, names)
        if enough and noise <= settings.target:
            return Samples(seconds, "noise")
        limit = settings.limit_seconds * len(names) * (1 if noise <= settings.fair else 2)
        if spent >= limit and rounds >= fewest_rounds:
            return Samples(seconds, "time limit")


def _orders(names: list[str]) -> Iterator[tuple[str, ...]]:
    """Orders in which every arm follows every other equally often: all there are, again and again,
    or for many arms, drawn from a fixed seed."""
    if len(names) <= 3:
        yield from itertools.cycle(itertools.permutations(names))
    draw = random.Random(0)
    while True:
        yield tuple(draw.sample(names, len(names)))


def _noise(seconds: dict[str, list[float]], names: list[str]) -> float:
    """The widest relative half-width of the ratios' intervals (of the samples' for one arm)."""
    rounds = {name: np.asarray(times).reshape(-1, 2).sum(axis=1) for name, times in seconds.items()}
    first = rounds[names[0]]
    if len(names) == 1:
        return _half_width(first)
    return max(_half_width(rounds[name] / first) for name in names[1:])


def _half_width(values: np.ndarray) -> float:
    """Of the distribution-free 95 % interval of the median, relative to the median."""
    ordered = np.sort(values)
    reach = 0.98 * math.sqrt(len(ordered))
    low = ordered[max(0, math.floor(len(ordered) / 2 - reach))]
    high = ordered[min(len(ordered) - 1, math.ceil(len(ordered) / 2 + reach))]
    return float((high - low) / 2 / np.median(ordered))


def host_seconds(call: Call, device: torch.device, call_seconds: float) -> tuple[float, float]:
    """(host, stream): seconds of host time to issue one call, and seconds a call takes when
    calls are issued one after another without a graph. On the CPU both are the call's time.

    call_seconds: the call's device time; few enough are issued that the launch queue of about
        a thousand kernels never fills, which would make the host wait.
    """
    count = max(1, min(20, int(0.05 / call_seconds)))
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    best_host = best_stream = math.inf
    for _ in range(3):
        synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        issued = time.perf_counter()
        synchronize()
        done = time.perf_counter()
        best_host = min(best_host, (issued - start) / count)
        best_stream = min(best_stream, (done - start) / count)
    return best_host, best_stream
