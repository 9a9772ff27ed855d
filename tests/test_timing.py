"""The clock, on arms whose times are known."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import time

import pytest
import torch

from benchmarks import timing
from benchmarks.ceilings import CPU_WORKING_SET, LEAST_SETS, copy_arm, copy_calls, set_count
from benchmarks.codesize import ROOT
from benchmarks.device import Clocks
from benchmarks.timing import Settings, host_seconds, make_arm, measure

CPU = torch.device("cpu")


class Scripted:
    """An arm that reads its samples off a list, for ever, and notes when it was asked."""

    def __init__(self, name: str, samples: list[float], log: list[str]) -> None:
        self.outputs: list[object] = []
        self.rest = 0.0
        self._name = name
        self._samples = itertools.cycle(samples)
        self._log = log

    def sample(self) -> float:
        self._log.append(self._name)
        return next(self._samples)

    def run(self) -> None:
        pass


QUICK = Settings(least_rounds=4, least_seconds=0.0, limit_seconds=5.0)


def test_rounds_are_palindromes_in_every_order() -> None:
    log: list[str] = []
    arms = {name: Scripted(name, [1.0], log) for name in "ABC"}
    samples = measure(arms, QUICK, Clocks())
    assert "".join(log) == "ABCCBA" + "ACBBCA" + "BACCAB" + "BCAACB"
    assert samples.stop == "noise"
    assert samples.seconds == {name: [1.0] * 8 for name in "ABC"}


def test_a_cost_that_an_arm_leaves_to_the_next_falls_on_both_alike() -> None:
    class Aftermath(Scripted):
        """10 % slower after arm C."""

        def sample(self) -> float:
            hot = bool(self._log) and self._log[-1] == "C"
            return super().sample() * (1.1 if hot else 1.0)

    log: list[str] = []
    arms = {name: Aftermath(name, [1.0], log) for name in "ABC"}
    settings = Settings(least_rounds=12, least_seconds=0.0, limit_seconds=5.0, target=1.0)
    seconds = measure(arms, settings, Clocks()).seconds
    assert sum(seconds["A"]) == pytest.approx(sum(seconds["B"]), rel=0.01)


def test_samples_stay_in_time_order() -> None:
    values = [float(n) for n in range(1, 9)]
    samples = measure({"A": Scripted("A", values, [])}, QUICK, Clocks())
    assert samples.seconds["A"][:8] == values


def test_noise_goes_on_until_the_limit_and_says_so() -> None:
    arms = {"A": Scripted("A", [1.0, 1.0, 2.0, 2.0], []), "B": Scripted("B", [1.0], [])}
    settings = Settings(least_rounds=4, least_seconds=0.0, limit_seconds=0.05)
    samples = measure(arms, settings, Clocks())
    assert samples.stop == "time limit"
    assert len(samples.seconds["A"]) > 8


@pytest.mark.parametrize(("fair", "rounds"), [(math.inf, 10), (0.01, 20)])
def test_what_is_not_even_fair_gets_twice_the_time(
    fair: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    arms = {"A": Scripted("A", [1.0, 1.0, 2.0, 2.0], log), "B": Scripted("B", [1.0], log)}
    # Every sample takes a second by this clock: a round of two arms four, of a limit of 2 x 20.
    monkeypatch.setattr(timing.time, "monotonic", lambda: float(len(log)))
    settings = Settings(least_rounds=4, least_seconds=0.0, limit_seconds=20.0, fair=fair)
    samples = measure(arms, settings, Clocks())
    assert (samples.stop, len(samples.seconds["A"]) // 2) == ("time limit", rounds)


def test_drift_that_both_arms_share_is_not_noise() -> None:
    drifting = [1.0 + n / 100 for n in range(1000) for _ in range(2)]
    arms = {name: Scripted(name, drifting, []) for name in "AB"}
    assert measure(arms, QUICK, Clocks()).stop == "noise"


def test_even_the_slowest_arm_gets_three_rounds() -> None:
    arms = {"A": Scripted("A", [1.0, 9.0, 5.0], [])}
    settings = Settings(least_rounds=4, least_seconds=0.0, limit_seconds=1e-9)
    assert len(measure(arms, settings, Clocks()).seconds["A"]) == 6


@pytest.mark.parametrize("reading", [0.0, -1.0, math.nan, math.inf])
def test_a_broken_clock_is_an_error(reading: float) -> None:
    with pytest.raises(ValueError, match=r"the clock read .* s for A"):
        measure({"A": Scripted("A", [reading], [])}, QUICK, Clocks())


def test_the_device_rests_before_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    arms = {name: Scripted(name, [1.0], log) for name in "AB"}
    arms["A"].rest, arms["B"].rest = 0.25, 0.5
    monkeypatch.setattr(timing.time, "sleep", lambda seconds: log.append(str(seconds)))
    measure(arms, Settings(least_rounds=1, least_seconds=0.0, limit_seconds=1e-9), Clocks())
    assert log[:8] == ["0.25", "A", "0.5", "B", "0.5", "B", "0.25", "A"]


def test_a_gpu_rests_as_long_as_it_works(device: torch.device) -> None:
    x = torch.ones(2**27, device=device)
    for issue in ("graph", "stream"):
        arm = make_arm([lambda: x.add_(1.0)], device, issue, 0.004)
        if device.type == "cpu":
            assert arm.rest == 0
        else:
            assert 0.003 < arm.rest < 0.02


@pytest.mark.gpu
def test_a_gpu_that_waits_for_its_host_needs_no_rest(device: torch.device) -> None:
    x = torch.ones(2**10, device=device)
    assert make_arm([lambda: x.add_(1.0)] * 20, device, "stream", 0.004).rest == 0


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="limit_seconds must be positive, got 0"):
        Settings(limit_seconds=0)


def test_time_grows_with_the_work() -> None:
    """Twenty times the sleep, more than ten times the time."""
    arms = [make_arm([lambda s=s: time.sleep(s)], CPU, "graph", 0.01) for s in (2e-4, 4e-3)]
    # The least of several: the machine may be busy with other work.
    short, long = (min(arm.sample() for _ in range(5)) for arm in arms)
    assert long > 10 * short


def test_host_time_of_a_sleep_is_the_sleep() -> None:
    host, stream = host_seconds(lambda: time.sleep(1e-3), CPU, 1e-3)
    assert 1e-3 <= host <= stream < 1e-2


def test_a_working_set_is_three_caches() -> None:
    gpu = torch.device("cuda")
    assert set_count(60 * 2**20, gpu, 60 * 2**20) == 3
    assert set_count(2**20, gpu, 60 * 2**20) == 180
    assert set_count(2**40, gpu, 60 * 2**20) == LEAST_SETS
    assert set_count(2**20, CPU, 2**40) == CPU_WORKING_SET // 2**20
    with pytest.raises(ValueError, match="too small to be measured cold"):
        set_count(2**10, gpu, 60 * 2**20)


def test_the_copy_moves_as_many_bytes_as_asked() -> None:
    calls = copy_calls(2**20, CPU, 2**20)["driver"]
    assert len(calls) == 3
    results = [call() for call in calls]
    assert all(isinstance(r, torch.Tensor) and 2 * r.nbytes == 2**20 for r in results)


@pytest.mark.gpu
def test_a_graph_s_time_grows_with_the_work_and_follows_its_inputs() -> None:
    device = torch.device("cuda")
    x = torch.randn(2**24, device=device)
    out = torch.empty_like(x)

    def many() -> torch.Tensor:
        for _ in range(20):
            torch.exp(x, out=out)
        return out

    once = make_arm([lambda: torch.exp(x, out=out)], device, "graph", 0.01)
    twenty = make_arm([many], device, "graph", 0.01)
    # The least of several: other tests may run on the same card.
    least_once, least_twenty = (min(arm.sample() for _ in range(5)) for arm in (once, twenty))
    assert 10 < least_twenty / least_once < 40
    x.fill_(0.0)
    once.run()
    assert torch.equal(out, torch.ones_like(out))


@pytest.mark.gpu
def test_an_arm_keeps_what_its_graph_works_on() -> None:
    device = torch.device("cuda")
    arm = copy_arm(2**26, device, 2**26, 0.01)
    # What nobody holds goes back to the driver here, and replaying would read unmapped memory.
    torch.cuda.empty_cache()
    assert arm.sample() > 0
    torch.cuda.synchronize()


HIDES = """
import torch
from benchmarks.timing import make_arm

x = torch.randn(2**24, device="cuda")
side = torch.cuda.Stream()

def hides():
    with torch.cuda.stream(side):
        return x.exp()

try:
    make_arm([hides], torch.device("cuda"), "graph", 0.01).sample()
except RuntimeError:
    print("refused")
"""


@pytest.mark.gpu
def test_work_on_another_stream_can_not_hide_from_the_clock() -> None:
    """Inside a capture it must be joined, or capturing fails; either way there is no short time."""
    # In a process of its own: a capture that failed leaves torch's generator unusable.
    done = subprocess.run([sys.executable, "-c", HIDES], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "refused\n", done.stderr
