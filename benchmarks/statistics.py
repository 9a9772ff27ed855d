"""Figures derived from records: medians, paired ratios, rates, percentages. None is ever stored."""

from __future__ import annotations

import functools
import math
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.codesize import digest
from benchmarks.implementations import IMPLEMENTATIONS, TIERS
from benchmarks.record import Run

__all__ = [
    "CaseView",
    "Figures",
    "OpView",
    "Ratio",
    "TierView",
    "cases_of",
    "ops_of",
    "paired_ratio",
]

COPY = "ceiling/copy"

# A product measured against itself may differ by 1 %.
DRAW = 1.01

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
    if len(candidate) != len(baseline) or len(candidate) < 2:
        raise ValueError(
            "candidate and baseline must have two or more samples each, and as many, "
            f"got {len(candidate)} and {len(baseline)}"
        )
    pairs = len(candidate) // 2 * 2
    rounds = np.asarray(baseline[:pairs]).reshape(-1, 2).sum(1) / np.asarray(
        candidate[:pairs]
    ).reshape(-1, 2).sum(1)
    draws = np.random.default_rng(SEED).integers(len(rounds), size=(RESAMPLES, len(rounds)))
    low, high = np.percentile(np.median(rounds[draws], axis=1), [2.5, 97.5])
    return Ratio(float(np.median(rounds)), float(low), float(high))


@dataclass(frozen=True)
class Figures:
    """One row as a reader sees it.

    state: "ok", "verified" (right, not timed), "stale" (its source has changed since), or the
        record's "wrong", "error", "skipped"
    seconds: median; None unless "ok" or "stale"
    rate: bytes/s (`unit` "GB/s") or flop/s ("TFLOP/s")
    percent: of `ceiling`, which names what was measured in the same run
    speedup: over `against`, the library call that was sampled in the same rounds
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

    @property
    def name(self) -> str:
        return f"{self.row['tier']}/{self.row['variant']}"

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


@dataclass(frozen=True)
class TierView:
    """A tier's best variant in an op: the one with the highest geometric mean of its speed-ups.

    speedup, least, most: over the best library call (library: over eager), across `cases` cases
    percent: least and largest, of the ceiling
    """

    tier: str
    name: str
    effort: str
    speedup: float
    least: float
    most: float
    cases: int
    percent: tuple[float, float]
    lines: int
    tokens: int


@dataclass(frozen=True)
class OpView:
    """Who won an op. tiers: the library, where it was measured, then the others, fastest first."""

    op: str
    cases: int
    tiers: tuple[TierView, ...]

    @property
    def best_kernel(self) -> TierView | None:
        """The fastest tier but the library."""
        return next((tier for tier in self.tiers if tier.tier != "library"), None)

    @property
    def winner(self) -> str:
        """A tier, "library", or "" for a draw: a difference that the clock could not defend."""
        best = self.best_kernel
        if best is None or best.speedup < 1 / DRAW:
            return "library"
        return best.tier if best.speedup > DRAW else ""


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
    library = next((arm for arm in row["paired"] if arm != COPY), "")
    return Figures(
        row,
        state,
        seconds=seconds,
        rate=(row["flops"] if by_flops else row["bytes_moved"]) / seconds,
        unit="TFLOP/s" if by_flops else "GB/s",
        percent=percent,
        ceiling=ceiling,
        speedup=paired_ratio(row["seconds"], row["paired"][library]) if library else None,
        against=library,
    )


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
    if COPY in row["paired"]:
        return 100 * paired_ratio(row["seconds"], row["paired"][COPY]).value, "copy"
    rate = ceilings.get("matmul", {}).get(row["dtype"])
    read = ceilings.get("read")
    if not row["flops"] or not rate or not read:
        return None, ""
    by_flops, by_bytes = row["flops"] / rate, row["bytes_moved"] / read
    if by_flops >= by_bytes:
        return 100 * by_flops / seconds, "matmul"
    return 100 * by_bytes / seconds, "read"


def ops_of(cases: tuple[CaseView, ...]) -> tuple[OpView, ...]:
    """Who won each op, from its cold cases."""
    groups: dict[str, list[CaseView]] = {}
    for case in cases:
        if case.regime == "cold":
            groups.setdefault(_group(case), []).append(case)
    return tuple(_op_view(op, group) for op, group in groups.items())


def _group(case: CaseView) -> str:
    """The op; float32 products by themselves, since other units compute them than all others."""
    row = case.rows[0].row
    return f"{case.op} float32" if row["flops"] and row["dtype"] == "float32" else case.op


def _op_view(op: str, cases: list[CaseView]) -> OpView:
    tiers = [view for tier in TIERS if (view := _tier_view(tier, cases)) is not None]
    tiers.sort(key=lambda view: (view.tier != "library", -view.speedup))
    return OpView(op, len(cases), tuple(tiers))


def _tier_view(tier: str, cases: list[CaseView]) -> TierView | None:
    variants: dict[str, list[Figures]] = {}
    for figures in (figures for case in cases for figures in case.rows):
        if figures.row["tier"] == tier and figures.state == "ok" and figures.speedup is not None:
            variants.setdefault(figures.name, []).append(figures)
    if not variants:
        return None
    # A variant that was skipped in some cases must not win by the others alone.
    most = max(map(len, variants.values()))
    complete = {name: rows for name, rows in variants.items() if len(rows) == most}
    name, rows = max(complete.items(), key=lambda item: _mean(item[1]))
    ratios = [figures.speedup.value for figures in rows if figures.speedup is not None]
    percents = [figures.percent for figures in rows if figures.percent is not None] or [math.nan]
    return TierView(
        tier=tier,
        name=name,
        effort=rows[0].row["effort"],
        speedup=_mean(rows),
        least=min(ratios),
        most=max(ratios),
        cases=len(rows),
        percent=(min(percents), max(percents)),
        lines=rows[0].row["code"]["lines"],
        tokens=rows[0].row["code"]["tokens"],
    )


def _mean(rows: list[Figures]) -> float:
    """Geometric, as ratios ask for."""
    return statistics.geometric_mean(
        figures.speedup.value for figures in rows if figures.speedup is not None
    )
