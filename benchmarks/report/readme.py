"""README.md's results table, written between its markers from a recorded run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.codesize import ROOT
from benchmarks.implementation import KIT, TIERS
from benchmarks.record import read
from benchmarks.report import format as write
from benchmarks.report.content import Table
from benchmarks.report.markdown import escape, table_text
from benchmarks.report.summary import THROTTLED, machine_line, summary_table
from benchmarks.statistics import CaseView, cases_of
from benchmarks.winners import ops_of

__all__ = ["BEGIN", "END", "is_current", "update"]

BEGIN = "<!-- results:begin -->"
END = "<!-- results:end -->"


def update(directory: Path, readme: Path = ROOT / "README.md") -> None:
    """Write the table of `directory`'s run into `readme`.

    Raises ValueError where the markers are not there, once each and in order.
    """
    readme.write_text(_with_table(directory, readme), encoding="utf-8", newline="\n")


def is_current(directory: Path, readme: Path = ROOT / "README.md") -> bool:
    """Whether `update` would change nothing."""
    return readme.read_text(encoding="utf-8") == _with_table(directory, readme)


def _with_table(directory: Path, readme: Path) -> str:
    text = readme.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        raise ValueError(f"{readme} must hold the lines {BEGIN} and {END}, once each, in order")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    run = write.cleaned(read(directory / "records.jsonl"))
    cases = cases_of(run)
    blocks = [
        table_text(summary_table(ops_of(cases), narrow=True)),
        "The fastest variant of each tier in a small and a large case:",
        table_text(_cases_table(cases)),
        f"Measured on {escape(machine_line(run))}.",
    ]
    if "†" in "".join(blocks):
        blocks.append(THROTTLED)
    # Not inside the braces: Python 3.11 takes no backslash there.
    results = "\n\n".join(blocks)
    return f"{before}{BEGIN}\n{results}\n{END}{after}"


def _cases_table(cases: tuple[CaseView, ...]) -> Table:
    """A small and a large case of each op: every tier's fastest variant in it."""
    rows = []
    for op in dict.fromkeys(case.op for case in cases):
        group = [case for case in cases if case.op == op and case.regime == "cold"]
        if not group:
            continue
        # Of one dtype, the most used, so that the two differ by their size alone.
        dtypes = Counter(case.rows[0].row["dtype"] for case in group).most_common(1)
        group = [case for case in group if case.rows[0].row["dtype"] == dtypes[0][0]]
        group.sort(key=_work)
        for case in (*group[:1], *group[1:][-1:]):
            rows.append((op, case.case, *(_fastest(case, tier) for tier in TIERS)))
    return Table(("op", "case", *TIERS), tuple(rows))


def _work(case: CaseView) -> int:
    row = case.rows[0].row
    return int(row["bytes_moved"] + row["flops"])


def _fastest(case: CaseView, tier: str) -> str:
    """For instance 254 us, 1.91 x compile, 95 % of copy."""
    timed = [
        figures
        for figures in case.rows
        if figures.row["tier"] == tier
        and figures.row["effort"] != KIT
        and figures.state == "ok"
        and figures.seconds
    ]
    if not timed:
        return ""
    best = min(timed, key=lambda figures: figures.seconds or 0)
    parts = [write.seconds(best.seconds)]
    if tier == "library":
        parts.append(best.row["variant"])
    elif best.speedup is not None:
        against = best.against.removeprefix("library/")
        parts.append(f"{best.speedup.value:.2f} x {against}")
    if best.percent is not None:
        parts.append(f"{best.percent:.0f} % of {best.ceiling}")
    return ", ".join(parts) + (" †" if best.throttled else "")
