"""README.md's results table, written between its markers from a recorded run."""

from __future__ import annotations

from pathlib import Path

from benchmarks.codesize import ROOT
from benchmarks.record import read
from benchmarks.report.markdown import escape, table_text
from benchmarks.report.summary import machine_line, summary_table
from benchmarks.statistics import cases_of
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
    run = read(directory / "records.jsonl")
    table = table_text(summary_table(ops_of(cases_of(run))))
    return f"{before}{BEGIN}\n{table}\n\n{escape(machine_line(run))}.\n{END}{after}"
