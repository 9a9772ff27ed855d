"""The comparison at the end of `pytest --benchmark`, for a terminal."""

from __future__ import annotations

from collections import Counter
from textwrap import fill

from tabulate import tabulate

from benchmarks.record import Run
from benchmarks.report.content import Table
from benchmarks.report.format import cleaned
from benchmarks.report.rows import case_table, failures
from benchmarks.report.summary import summary_table
from benchmarks.statistics import cases_of, interpreted_of
from benchmarks.winners import ops_of

__all__ = ["terminal"]

WIDTH = 118


def terminal(run: Run) -> str:
    """A table for each case, who won each op, and the reasons of what has no time."""
    run = cleaned(run)
    cases = cases_of(run)
    blocks = [
        f"{table.title}\n{_text(table)}"
        for case in cases
        if (table := case_table(case, narrow=True)).rows
    ]
    summary = summary_table(ops_of(cases), narrow=True)
    if summary.rows:
        blocks.append(_text(summary))
    timed = tuple(figures for case in cases for figures in case.rows)
    blocks += [
        fill(f"{op} {name}, {state}: {reason} ({where})", WIDTH, subsequent_indent="  ")
        for op, name, state, where, reason in failures((*timed, *interpreted_of(run))).rows
    ]
    verified = [row for row in run.rows if row["mode"] == "interpreter" and row["status"] == "ok"]
    if verified:
        blocks.append(f"{len(verified)} cases verified in Triton's interpreter (never timed)")
    skipped = Counter(row["reason"] for row in run.rows if row["status"] == "skipped")
    blocks += [fill(f"{count} rows skipped: {reason}", WIDTH) for reason, count in skipped.items()]
    return "\n\n".join(blocks)


def _text(table: Table) -> str:
    align = ["right" if i in table.numbers else "left" for i in range(len(table.header))]
    # Numbers come as text with units: tabulate must not read them as its own.
    return str(
        tabulate(
            table.rows,
            headers=table.header,
            tablefmt="simple",
            colalign=align,
            disable_numparse=True,
        )
    )
