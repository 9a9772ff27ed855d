"""The pictures: each declared once in Altair, shown live in the page and as SVG elsewhere."""

from __future__ import annotations

import statistics
from typing import Any

import altair as alt

from benchmarks.record import Run
from benchmarks.statistics import CaseView, Figures, cases_of
from benchmarks.winners import group_of

__all__ = ["CAPTIONS", "charts", "vega_lite"]

CAPTIONS = {
    "roofline": "What each implementation reaches against what the machine allows "
    "(a kernel that computes special functions as polynomials may pass their roof)",
    "row-length": "Softmax: bandwidth against row length, beside a copy of as many bytes",
    "code-size": "Part of the measured ceiling against code size, in one large case of each op and "
    "kind of product",
    "chain-times": "The chains: time of each implementation in the largest case",
}

TIERS = ("library", "triton", "cuda", "cupy")
# Told apart in grey and by the common colour blindnesses, on white and on black.
COLORS = ("#8a8f98", "#3f8fd2", "#e08a1e", "#2fa36b")

WIDTH = 380
HEIGHT = 260

Rows = list[dict[str, Any]]
# altair has no one type for what its functions give and take.
Chart = Any


def charts(run: Run) -> dict[str, Chart]:
    """Name -> chart, of those that the run has rows for."""
    cases = [case for case in cases_of(run) if case.regime == "cold"]
    made = {
        "roofline": _roofline(cases, run.environment["ceilings"]),
        "row-length": _row_length(cases),
        "code-size": _code_size(cases),
        "chain-times": _chain_times(cases),
    }
    return {name: chart for name, chart in made.items() if chart is not None}


def _timed(case: CaseView) -> list[Figures]:
    return [figures for figures in case.rows if figures.state == "ok"]


def _datum(figures: Figures) -> dict[str, Any]:
    """What every picture shows of a row when asked (a tooltip)."""
    row = figures.row
    return {
        "op": row["op"],
        "case": row["case"],
        "tier": row["tier"],
        "implementation": figures.name,
        "effort": row["effort"],
        "microseconds": _rounded((figures.seconds or 0) * 1e6),
    }


def _rounded(value: float) -> float:
    """Four digits: what a picture can show, and the same bytes on every machine."""
    return float(f"{value:.4g}")


def _tier_color() -> alt.Color:
    return alt.Color("tier:N", scale=alt.Scale(domain=TIERS, range=COLORS), title="tier")


# ---------------------------------------------------------------------------- roofline


def _roofline(cases: list[CaseView], ceilings: dict[str, Any]) -> Chart | None:
    """Two roofs: results of the special-function units for pointwise ops, flop/s for products."""
    memory = max((rate for _, rate in ceilings.get("copy", [])), default=0.0)
    panels: list[Chart | None] = []
    special = ceilings.get("special_functions")
    if memory and special:
        rows = _roof_points(cases, "special_functions", "copy")
        roof = {"special functions": special}
        panels.append(_roof_panel(rows, memory, roof, "special functions", "per byte moved", 1e9))
    products = {
        dtype: rate
        for dtype, rate in ceilings.get("matmul", {}).items()
        if any(row["dtype"] == dtype for case in cases for row in (f.row for f in case.rows))
    }
    if memory and products:
        rows = _roof_points(cases, "flops", "")
        panels.append(_roof_panel(rows, memory, products, "flop", "per byte moved", 1e12))
    drawn = [panel for panel in panels if panel is not None]
    return alt.hconcat(*drawn) if drawn else None


def _roof_points(cases: list[CaseView], work: str, only: str) -> Rows:
    points = []
    for case in cases:
        for figures in _timed(case):
            row = figures.row
            if row[work] <= 0 or row["bytes_moved"] <= 0 or (only and figures.ceiling != only):
                continue
            points.append(
                {
                    **_datum(figures),
                    "intensity": _rounded(row[work] / row["bytes_moved"]),
                    "reached": row[work] / (figures.seconds or 1),
                }
            )
    return points


def _roof_panel(
    points: Rows, memory: float, roofs: dict[str, float], work: str, per: str, scale: float
) -> Chart | None:
    if not points:
        return None
    unit = {1e9: "G", 1e12: "T"}[scale] + (" results/s" if scale == 1e9 else "FLOP/s")
    points = [{**point, "reached": _rounded(point["reached"] / scale)} for point in points]
    low = min(point["intensity"] for point in points) / 2
    high = max(point["intensity"] for point in points) * 4
    lines = []
    for name, rate in roofs.items():
        ridge = rate / memory
        for x in sorted({low, min(max(ridge, low), high), high}):
            lines.append(
                {
                    "intensity": _rounded(x),
                    "reached": _rounded(min(memory * x, rate) / scale),
                    "roof": name,
                }
            )
    x = alt.X("intensity:Q", scale=alt.Scale(type="log"), title=f"{work} {per}")
    y = alt.Y("reached:Q", scale=alt.Scale(type="log"), title=unit)
    roof = (
        alt.Chart(alt.Data(values=lines))
        .mark_line(color="#8a8f98", strokeDash=[5, 3])
        .encode(x=x, y=y, detail="roof:N", tooltip=["roof:N", "reached:Q"])
    )
    dots = (
        alt.Chart(alt.Data(values=points))
        .mark_point(filled=True, size=45, opacity=0.75)
        .encode(
            x=x,
            y=y,
            color=_tier_color(),
            shape=alt.Shape("op:N", title="op"),
            tooltip=["op:N", "case:N", "implementation:N", "effort:N", "reached:Q"],
        )
    )
    title = "memory and special functions" if scale == 1e9 else "memory and matrix units"
    return alt.layer(roof, dots).properties(width=WIDTH, height=HEIGHT, title=title)


# ---------------------------------------------------------------------------- softmax


def _row_length(cases: list[CaseView]) -> Chart | None:
    """The rows of the dtype and the number of bytes that most lengths were measured at."""
    groups: dict[tuple[str, int], list[CaseView]] = {}
    for case in cases:
        if case.op == "softmax" and _timed(case):
            row = case.rows[0].row
            # 268435 rows of 1000 move nearly as much as 262144 of 1024.
            groups.setdefault((row["dtype"], round(row["bytes_moved"] / 2**24)), []).append(case)
    if not groups:
        return None
    (dtype, _), group = max(groups.items(), key=lambda item: (len(item[1]), item[0]))
    if len(group) < 2:
        return None
    points = [
        {
            **_datum(figures),
            "columns": figures.row["sizes"].get("cols"),
            "GB/s": _rounded(figures.row["bytes_moved"] / (figures.seconds or 1) / 1e9),
        }
        for case in group
        for figures in _timed(case)
    ]
    copies = [
        {
            "columns": figures.row["sizes"].get("cols"),
            "GB/s": _rounded(figures.row["bytes_moved"] / copy / 1e9),
        }
        for case in group
        if (timed := [f for f in _timed(case) if "ceiling/copy" in f.row["paired"]])
        for figures in timed[:1]
        for copy in [statistics.median(figures.row["paired"]["ceiling/copy"])]
    ]
    names = sorted({point["implementation"]: point["tier"] for point in points}.items())
    colors = alt.Scale(
        domain=[name for name, _ in names],
        range=[COLORS[TIERS.index(tier)] for _, tier in names],
    )
    dashes = alt.Scale(domain=[name for name, _ in names])
    legend = alt.Legend(title="implementation", symbolType="stroke", symbolStrokeWidth=2)
    x = alt.X("columns:Q", scale=alt.Scale(type="log", base=2), title="columns a row")
    y = alt.Y("GB/s:Q", title=f"GB/s, {dtype}", scale=alt.Scale(zero=True))
    lines = (
        alt.Chart(alt.Data(values=points))
        .mark_line(point=True)
        .encode(
            x=x,
            y=y,
            # Both of one field, domain and legend, or there are two: one with no dashes, one empty.
            color=alt.Color("implementation:N", scale=colors, legend=legend),
            strokeDash=alt.StrokeDash("implementation:N", scale=dashes, legend=legend),
            tooltip=["implementation:N", "effort:N", "case:N", "GB/s:Q", "microseconds:Q"],
        )
    )
    if not copies:
        return lines.properties(width=2 * WIDTH, height=HEIGHT)
    copy = (
        alt.Chart(alt.Data(values=copies))
        .mark_line(color="#8a8f98", strokeWidth=1)
        .encode(x=x, y=y, tooltip=["GB/s:Q"])
    )
    name = (
        alt.Chart(alt.Data(values=copies[-1:]))
        .mark_text(text="copy", align="right", dy=-7, color="#8a8f98")
        .encode(x=x, y=y)
    )
    return alt.layer(copy, name, lines).properties(width=2 * WIDTH, height=HEIGHT)


# ---------------------------------------------------------------------------- code size


def _code_size(cases: list[CaseView]) -> Chart | None:
    """A case of each group: what every implementation reaches of the ceiling, for how much code.

    Of the ceiling, not of a library call: that way all of a picture is held against one thing.
    """
    points: Rows = []
    titles = []
    for group in dict.fromkeys(group_of(case) for case in cases):
        shown = max((case for case in cases if group_of(case) == group), key=_weight)
        titles.append(f"{shown.op} {shown.case}")
        points += [
            {
                **_datum(figures),
                "title": titles[-1],
                "tokens": figures.row["code"]["tokens"],
                "percent": _rounded(figures.percent),
                "ceiling": figures.ceiling,
            }
            for figures in _timed(shown)
            if figures.percent is not None and figures.row["code"].get("tokens")
        ]
    if not points:
        return None
    return (
        alt.Chart(alt.Data(values=points))
        .mark_point(filled=True, size=70, opacity=0.85)
        .encode(
            x=alt.X("tokens:Q", scale=alt.Scale(type="log"), title="tokens of code").axis(
                values=[10, 100, 1000, 10_000]
            ),
            y=alt.Y("percent:Q", scale=alt.Scale(zero=True), title="% of the measured ceiling"),
            color=_tier_color(),
            shape=alt.Shape("effort:N", title="effort"),
            tooltip=[
                *("implementation:N", "effort:N", "tokens:Q", "percent:Q", "ceiling:N"),
                "microseconds:Q",
            ],
        )
        .properties(width=WIDTH, height=HEIGHT)
        .facet(facet=alt.Facet("title:N", title=None, sort=titles), columns=2)
    )


def _weight(case: CaseView) -> tuple[int, int]:
    """Cases with the most implementations first, of those the one with the most work."""
    row = case.rows[0].row
    return len(_timed(case)), row["bytes_moved"] + row["flops"]


# ---------------------------------------------------------------------------- chains


def _chain_times(cases: list[CaseView]) -> Chart | None:
    """The largest case of each chain, in the dtype that has the most elements."""
    panels = []
    for op in ("chain", "chain_sfu"):
        group = [case for case in cases if case.op == op and _timed(case)]
        if not group:
            continue
        largest = max(group, key=lambda case: case.rows[0].row["bytes_moved"])
        points = [_datum(figures) for figures in _timed(largest)]
        order = [point["implementation"] for point in sorted(points, key=_microseconds)]
        # Points, not bars: a bar on a logarithmic scale has no honest length.
        base = alt.Chart(alt.Data(values=points)).encode(
            x=alt.X("microseconds:Q", scale=alt.Scale(type="log"), title="microseconds").axis(
                labelOverlap="greedy"
            ),
            y=alt.Y("implementation:N", sort=order, title=None),
        )
        dots = base.mark_point(filled=True, size=80).encode(
            color=_tier_color(), tooltip=["implementation:N", "effort:N", "microseconds:Q"]
        )
        figures_text = base.mark_text(align="left", dx=9, color="#8a8f98").encode(
            text=alt.Text("microseconds:Q", format=",.4~r")
        )
        title = f"{op} {largest.case}"
        layers = alt.layer(dots, figures_text)
        panels.append(layers.properties(width=WIDTH, height=HEIGHT, title=title))
    return alt.hconcat(*panels) if panels else None


def _microseconds(point: dict[str, Any]) -> float:
    return float(point["microseconds"])


def vega_lite() -> str:
    """The version of Vega-Lite that the charts are written in, as vl_convert names it."""
    major, minor, _ = alt.SCHEMA_VERSION.removeprefix("v").split(".")
    return f"{major}.{minor}"
