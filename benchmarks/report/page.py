"""The whole report in order, as values that the page and the Markdown render alike."""

from __future__ import annotations

from benchmarks.record import Run
from benchmarks.report import method, rows, summary
from benchmarks.report.content import Page, Section
from benchmarks.statistics import cases_of, interpreted_of
from benchmarks.winners import ops_of

__all__ = ["page"]


def page(run: Run, beside: Run | None, figures: dict[str, str], beside_figures: list[str]) -> Page:
    """figures: what pictures there are, name -> caption. beside_figures: those of the other run."""
    cases = cases_of(run)
    timed = tuple(figures for case in cases for figures in case.rows)
    interpreted = interpreted_of(run)
    sections = [
        summary.winners(ops_of(cases)),
        Section("In pictures", figures=tuple(figures)) if figures else None,
        summary.recorded(beside, beside_figures) if beside is not None else None,
        *rows.every_case(cases),
        rows.verified(interpreted),
        rows.failed((*timed, *interpreted)),
        rows.skipped((*timed, *interpreted)),
        rows.stale((*timed, *interpreted)),
        rows.self_ratios(cases),
        method.ceilings(run.environment),
        method.method(run.environment),
    ]
    return Page(
        title="When to write a GPU kernel",
        lead=tuple(summary.lead(run, cases, beside)),
        sections=tuple(section for section in sections if section is not None),
    )
