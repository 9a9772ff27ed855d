"""Who won an op: the library's fastest calls and each tier's best variant, over the same cases."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass

from benchmarks.implementation import KIT, TIERS
from benchmarks.implementations import IMPLEMENTATIONS
from benchmarks.skips import FEW_ROWS
from benchmarks.statistics import CaseView, Figures, Ratio, mean_ratio

__all__ = ["BEST_CALL", "OpView", "TierView", "group_of", "ops_of"]

# A product measured against itself may differ by 1 %: nobody wins by less.
DRAW = 1.01

BEST_CALL = "best library call"

# The tier that runs another's kernels, and is measured where that says something new.
TWIN = "cupy"

# What doesn't decide which cases are compared.
ASIDE = (TWIN, KIT)


@dataclass(frozen=True)
class TierView:
    """A tier's best variant in an op; of the library the fastest call of each case, under the name
    of the one that it most often is. A library's kit stands by itself: its `tier` is `KIT`.

    cases: how many it is judged over
    speedup: geometric mean over the op's cases; least, most: from case to case
    against: what `speedup` is over: `BEST_CALL`, the fastest of each case, where several were
        measured and that one was sampled beside; else the calls that were
    percents: (ceiling, least, largest) for each ceiling that binds in some of the cases
    """

    tier: str
    name: str
    effort: str
    cases: int
    speedup: Ratio
    least: float
    most: float
    against: str
    percents: tuple[tuple[str, float, float], ...]
    lines: int | None
    tokens: int | None
    throttled: bool


@dataclass(frozen=True)
class OpView:
    """Who won an op.

    cases: how many all tiers have a time for, which is what they are compared over; 0 where they
        share none, and each tier stands for itself. A twin and a kit may have fewer: they are
        shown over their own. The twin is then not compared, a kit never is
    measured: how many any tier has a time for
    tiers: the library, where it was measured, then the others, fastest first
    unfair: further cases, where a library call that may be the fastest has no time
    """

    op: str
    cases: int
    measured: int
    tiers: tuple[TierView, ...]
    unfair: int = 0

    @property
    def _compared(self) -> list[TierView]:
        """The tiers but the library that have a time for all of the cases."""
        return [
            tier
            for tier in self.tiers
            if tier.tier not in ("library", KIT) and (tier.cases == self.cases or not self.cases)
        ]

    @property
    def best_kernel(self) -> TierView | None:
        """The fastest tier but the library."""
        return next(iter(self._compared), None)

    @property
    def winner(self) -> str:
        """A tier or "library"; "" for a draw, or where there is nothing to compare."""
        best = self.best_kernel
        if best is None or not self.cases:
            return ""
        if best.speedup.low > 1 and best.speedup.value > DRAW:
            return best.tier
        return "library" if best.speedup.high < 1 and best.speedup.value < 1 / DRAW else ""

    @property
    def level(self) -> tuple[str, ...]:
        """The tiers that nothing separates from the fastest."""
        best = self.best_kernel
        if best is None or not self.cases or self.winner == "library":
            return ()
        beside = [
            tier.tier
            for tier in self._compared
            if tier.tier != self.winner and tier.speedup.value * DRAW >= best.speedup.value
        ]
        return tuple(beside) if self.winner else ("library", *beside)


# Of one implementation, by case.
_Timed = dict[str, Figures]


def ops_of(cases: tuple[CaseView, ...]) -> tuple[OpView, ...]:
    """Who won each op, from its cold cases."""
    ran = {(case.op, f.name) for case in cases for f in case.rows if f.seconds is not None}
    groups: dict[str, list[CaseView]] = {}
    unfair: Counter[str] = Counter()
    for case in cases:
        if case.regime == "cold":
            group = groups.setdefault(group_of(case), [])
            if _lacks_a_call(case, ran):
                unfair[group_of(case)] += 1
            else:
                group.append(case)
    return tuple(_op_view(op, group, unfair[op]) for op, group in groups.items())


def _lacks_a_call(case: CaseView, ran: set[tuple[str, str]]) -> bool:
    """Whether a library call that runs on this machine was skipped in the case, though
    benchmarks/skips.py has no reason for it."""
    rows = {(row.op, row.name): row for row in IMPLEMENTATIONS}
    for figures in case.rows:
        key = (case.op, figures.name)
        if figures.is_call and figures.state == "skipped" and key in ran:
            row = rows.get(key)
            if row and not row.left_out(figures.row["sizes"], figures.row["dtype"]):
                return True
    return False


def group_of(case: CaseView) -> str:
    """The op; float32 products by themselves, since other units compute them than all others, and
    those of few rows, since it's memory that they wait for."""
    row = case.rows[0].row
    if row["sizes"].get("m", math.inf) <= FEW_ROWS:
        return f"{case.op} few rows"
    return f"{case.op} float32" if row["flops"] and row["dtype"] == "float32" else case.op


def _op_view(op: str, cases: list[CaseView], unfair: int) -> OpView:
    timed: dict[str, dict[str, _Timed]] = {tier: {} for tier in (*TIERS, KIT)}
    for case in cases:
        for figures in case.rows:
            if figures.state == "ok" and figures.speedup is not None:
                row = figures.row
                variants = timed[KIT if row["effort"] == KIT else row["tier"]]
                variants.setdefault(figures.name, {})[case.case] = figures
    best = {
        tier: _fastest_calls(variants) if tier == "library" else _best(variants)
        for tier, variants in timed.items()
        if variants
    }
    measured = set().union(*(rows for tier, rows in best.items() if tier != KIT))
    whole = [set(rows) for tier, rows in best.items() if tier not in ASIDE]
    if len(whole) < 2:  # there is nothing else to compare with the library
        whole = [set(rows) for tier, rows in best.items() if tier != KIT]
    shared = measured.intersection(*whole)
    libraries = {case.case: case.library for case in cases}
    several = len(timed["library"]) > 1
    tiers = []
    for tier, rows in best.items():
        chosen = [rows[case] for case in rows if case in shared]
        tiers.append(_tier_view(tier, chosen or list(rows.values()), libraries if several else {}))
    tiers.sort(key=lambda view: (view.tier != "library", -view.speedup.value))
    return OpView(op, len(shared), len(measured), tuple(tiers), unfair)


def _fastest_calls(variants: dict[str, _Timed]) -> _Timed:
    """The library's calls need no choice: a user takes the fastest for the case."""
    fastest: _Timed = {}
    for rows in variants.values():
        for case, figures in rows.items():
            if case not in fastest or (figures.seconds or 0) < (fastest[case].seconds or 0):
                fastest[case] = figures
    return fastest


def _best(variants: dict[str, _Timed]) -> _Timed:
    """The fastest variant over the cases that all have; the one with the most cases if none is.

    Else a variant that was skipped where it is slow would win by the cases that it is left with.
    One with at most half as many cases as another is made for those alone and stands for no tier.
    """
    most = max(map(len, variants.values()))
    wide = [rows for rows in variants.values() if 2 * len(rows) > most]
    shared = set.intersection(*map(set, wide))
    if not shared:
        return max(wide, key=len)
    return max(wide, key=lambda rows: _mean([rows[case] for case in sorted(shared)]))


def _mean(rows: list[Figures]) -> float:
    """Geometric, as ratios ask for."""
    return statistics.geometric_mean(
        figures.speedup.value for figures in rows if figures.speedup is not None
    )


def _tier_view(tier: str, rows: list[Figures], libraries: dict[str, str]) -> TierView:
    """libraries: the fastest call of each case, where there are several to choose from"""
    ratios = [figures.speedup.value for figures in rows if figures.speedup is not None]
    percents: dict[str, list[float]] = {}
    for figures in rows:
        if figures.percent is not None:
            percents.setdefault(figures.ceiling, []).append(figures.percent)
    is_best = tier != "library" and all(
        figures.against == libraries.get(figures.row["case"]) for figures in rows
    )
    name = Counter(figures.name for figures in rows).most_common(1)[0][0]
    shown = next(figures for figures in rows if figures.name == name)
    return TierView(
        tier=tier,
        name=name,
        effort=shown.row["effort"],
        cases=len(rows),
        speedup=mean_ratio([(f.row["seconds"], f.row["paired"][f.against]) for f in rows]),
        least=min(ratios),
        most=max(ratios),
        against=BEST_CALL
        if is_best
        else " and ".join(sorted({figures.against for figures in rows})),
        percents=tuple((name, min(found), max(found)) for name, found in percents.items()),
        lines=shown.row["code"].get("lines"),
        tokens=shown.row["code"].get("tokens"),
        throttled=any(figures.throttled for figures in rows),
    )
