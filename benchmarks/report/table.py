"""The comparison at the end of `pytest --benchmark`, for a terminal."""

from __future__ import annotations

from tabulate import tabulate

from benchmarks.record import Run
from benchmarks.report.content import Table, case_table, summary_table
from benchmarks.statistics import cases_of, ops_of

__all__ = ["terminal"]


def terminal(run: Run) -> str:
    """A table for each case, then who won each op."""
    cases = cases_of(run)
    blocks = [
        f"{table.title}\n{_text(table)}"
        for case in cases
        if (table := case_table(case, narrow=True)).rows
    ]
    summary = summary_table(ops_of(cases))
    if summary.rows:
        blocks.append(_text(summary))
    verified = [row for row in run.rows if row["mode"] == "interpreter" and row["status"] == "ok"]
    if verified:
        blocks.append(f"{len(verified)} cases verified in Triton's interpreter (never timed)")
    skipped = sum(row["status"] == "skipped" for row in run.rows)
    if skipped:
        blocks.append(f"{skipped} rows skipped; the report says why")
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
