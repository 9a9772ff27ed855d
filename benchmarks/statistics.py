"""Figures derived from records: medians, paired ratios, rates, percentages. None is ever stored."""

from __future__ import annotations

import functools
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.codesize import digest
from benchmarks.implementation import KIT
from benchmarks.implementations import IMPLEMENTATIONS
from benchmarks.record import Run

__all__ = [
    "CaseView",
    "Figures",
    "Ratio",
    "cases_of",
    "figures_of",
    "interpreted_of",
    "mean_ratio",
    "paired_ratio",
]

COPY = "ceiling/copy"

# Of the bootstrap: enough for two digits of an interval's ends, and the same ends every time.
RESAMPLES = 1000
SEED = 0


@dataclass(frozen=True)
class Ratio:
    """A median ratio and its 95 % interval."""

    value: float
    low: float
    high: float


def paired_ratio(candidate: list[float], baseline: list[float]) -> Ratio:
    """How many times as fast as the baseline the candidate is: baseline time / candidate time.

    Both in time order, entries 2i and 2i + 1 of round i. One ratio a round, of the sums, so that a
    drift of the clocks cancels; the interval is a percentile bootstrap of their median.
    """
    return mean_ratio([(candidate, baseline)])


def mean_ratio(pairs: list[tuple[list[float], list[float]]]) -> Ratio:
    """The geometric mean of the paired ratios of several cases.

    pairs: (candidate, baseline) of each case, see `paired_ratio`
    """
    medians, draws = [], []
    for case, pair in enumerate(pairs):
        rounds = _rounds(*pair)
        # Each case is drawn by itself: what disturbed one did not disturb the others.
        random = np.random.default_rng((SEED, case))
        picks = random.integers(len(rounds), size=(RESAMPLES, len(rounds)))
        medians.append(np.log(np.median(rounds)))
        draws.append(np.log(np.median(rounds[picks], axis=1)))
    low, high = np.percentile(np.mean(draws, axis=0), [2.5, 97.5])
    return Ratio(*(float(np.exp(value)) for value in (np.mean(medians), low, high)))


def _rounds(candidate: list[float], baseline: list[float]) -> np.ndarray:
    """One ratio a round."""
    if len(candidate) != len(baseline) or len(candidate) < 2:
        raise ValueError(
            "candidate and baseline must have two or more samples each, and as many, "
            f"got {len(candidate)} and {len(baseline)}"
        )
    whole = len(candidate) // 2 * 2
    ours, theirs = (
        np.asarray(times[:whole]).reshape(-1, 2).sum(axis=1) for times in (candidate, baseline)
    )
    return np.asarray(theirs / ours)


@dataclass(frozen=True)
class Figures:
    """One row as a reader sees it.

    state: "ok", "verified" (right, not timed), "stale" (its source has changed since), or the
        record's "wrong", "error", "skipped"
    seconds: median; None unless "ok" or "stale"
    rate: bytes/s (`unit` "GB/s") or flop/s ("TFLOP/s")
    percent: of `ceiling`, which names what was measured in the same run
    speedup: over `against`, the library call that was sampled in the same rounds
    itself: the same call as both arms, which would be 1 on a perfect clock (A/A)
    """

    row: dict[str, Any]
    state: str
    seconds: float | None = None
    rate: float | None = None
    unit: str = ""
    percent: float | None = None
    ceiling: str = ""
    speedup: Ratio | None = None
    against: str = ""
    itself: Ratio | None = None

    @property
    def name(self) -> str:
        return f"{self.row['tier']}/{self.row['variant']}"

    @property
    def is_call(self) -> bool:
        """As Implementation.is_call."""
        return bool(self.row["tier"] == "library" and self.row["effort"] != KIT)

    @property
    def throttled(self) -> bool:
        return bool(self.row["clocks"].get("throttle"))


@dataclass(frozen=True)
class CaseView:
    """The rows of one case and regime, in the order they were measured."""

    op: str
    case: str
    regime: str
    rows: tuple[Figures, ...]

    @property
    def library(self) -> str:
        """The fastest library call of the case in this run; "" where none has a current time."""
        calls = [figures for figures in self.rows if figures.is_call and figures.state == "ok"]
        timed = [(figures.seconds, figures.name) for figures in calls]
        return min(timed)[1] if timed else ""


def cases_of(run: Run) -> tuple[CaseView, ...]:
    """Every case of the run that was measured on the device, in its order."""
    groups: dict[tuple[str, str, str], list[Figures]] = {}
    for row in run.rows:
        if row["mode"] != "interpreter":
            key = (row["op"], row["case"], row["regime"])
            groups.setdefault(key, []).append(figures_of(row, run.environment))
    return tuple(CaseView(*key, tuple(rows)) for key, rows in groups.items())


def interpreted_of(run: Run) -> tuple[Figures, ...]:
    """The rows that were verified in Triton's interpreter, where nothing is timed."""
    return tuple(
        figures_of(row, run.environment) for row in run.rows if row["mode"] == "interpreter"
    )


def figures_of(row: dict[str, Any], environment: dict[str, Any]) -> Figures:
    state = row["status"]
    if state == "ok" and not row["seconds"]:
        state = "verified"
    if state in ("ok", "verified") and _is_stale(row):
        state = "stale"
    if not row["seconds"]:
        return Figures(row, state)
    seconds = statistics.median(row["seconds"])
    percent, ceiling = _of_ceiling(row, seconds, environment["ceilings"])
    by_flops = row["flops"] and ceiling == "matmul"
    name = f"{row['tier']}/{row['variant']}"
    others = [arm for arm in row["paired"] if arm not in (COPY, name)]
    library = next(iter(others), name if name in row["paired"] else "")
    return Figures(
        row,
        state,
        seconds=seconds,
        rate=(row["flops"] if by_flops else row["bytes_moved"]) / seconds,
        unit="TFLOP/s" if by_flops else "GB/s",
        percent=percent,
        ceiling=ceiling,
        speedup=_ratio_to(row, library),
        against=library,
        itself=_ratio_to(row, name),
    )


def _ratio_to(row: dict[str, Any], arm: str) -> Ratio | None:
    """None where the arm was not sampled, or a single time that has no round."""
    times = row["paired"].get(arm, [])
    return paired_ratio(row["seconds"], times) if len(times) > 1 else None


def _is_stale(row: dict[str, Any]) -> bool:
    current = _digests().get((row["op"], row["tier"], row["variant"]))
    return current != str(row["source_digest"])


@functools.cache
def _digests() -> dict[tuple[str, str, str], str]:
    return {(row.op, row.tier, row.variant): digest(row.sources) for row in IMPLEMENTATIONS}


def _of_ceiling(
    row: dict[str, Any], seconds: float, ceilings: dict[str, Any]
) -> tuple[float | None, str]:
    """Percent of what binds: the copy of as many bytes, sampled in the same rounds; for products
    the measured matmul rate or, where bytes take longer, the measured read rate."""
    copy = _ratio_to(row, COPY)
    if copy is not None:
        return 100 * copy.value, "copy"
    rate = ceilings.get("matmul", {}).get(row["dtype"])
    read = ceilings.get("read")
    if not row["flops"] or not rate or not read:
        return None, ""
    by_flops, by_bytes = row["flops"] / rate, row["bytes_moved"] / read
    if by_flops >= by_bytes:
        return 100 * by_flops / seconds, "matmul"
    return 100 * by_bytes / seconds, "read"
