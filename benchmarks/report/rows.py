"""Every row: a table for each case, and what has no time or no current one, with the reason."""

from __future__ import annotations

from typing import Any

from benchmarks.report import format as write
from benchmarks.report.content import Section, Table
from benchmarks.statistics import CaseView, Figures

__all__ = [
    "case_table",
    "every_case",
    "failed",
    "failures",
    "self_ratios",
    "skipped",
    "stale",
    "verified",
]


def case_table(case: CaseView, *, narrow: bool = False) -> Table:
    """One case: an implementation a row. narrow: what a terminal has room for."""
    rows = []
    for figures in case.rows:
        if figures.state == "skipped":
            continue
        code = figures.row["code"]
        mark = " †" if figures.throttled else ""
        timed = figures.state == "ok"
        against = figures.against.removeprefix("library/")
        cells = [
            figures.name,
            figures.row["effort"],
            f"{write.seconds(figures.seconds)}{mark}" if timed else figures.state,
            write.rate(figures) if timed else "",
            write.percent(figures) if timed else "",
            write.ratio(figures.speedup) if timed else "",
            against if timed else "",
            write.count(code.get("lines")),
            write.count(code.get("tokens")),
        ]
        if not narrow:
            cells += [
                write.seconds(figures.row["host_seconds"]) if timed else "",
                write.seconds(figures.row["first_call_seconds"]) if timed else "",
                _error(figures.row),
                *(
                    write.count(code.get(key))
                    for key in ("registers", "shared_bytes", "spill_bytes")
                ),
            ]
        rows.append(tuple(cells))
    header = ["implementation", "effort", "time", "rate", "of ceiling", "x library", "which"]
    header += ["lines", "tokens"]
    if not narrow:
        header += ["host", "first call", "error / limit", "registers", "shared B", "spill B"]
    return Table(
        tuple(header),
        tuple(rows),
        numbers=tuple(index for index in range(2, len(header)) if index != 6),
        title=f"{case.op} {_hot(case.case, case.regime)}",
    )


def _error(row: dict[str, Any]) -> str:
    if row["max_error"] is None or row["error_limit"] is None:
        return ""
    return f"{row['max_error']:.1e} / {row['error_limit']:.1e}"


def every_case(cases: tuple[CaseView, ...]) -> list[Section]:
    sections = []
    for op in dict.fromkeys(case.op for case in cases):
        tables = tuple(
            table for case in cases if case.op == op and (table := case_table(case)).rows
        )
        if tables:
            sections.append(Section(f"{op}: every case", tables=tables, folded=True))
    return sections


def verified(rows: tuple[Figures, ...]) -> Section | None:
    if not rows:
        return None
    cells = []
    for op in dict.fromkeys(figures.row["op"] for figures in rows):
        for name in dict.fromkeys(f.name for f in rows if f.row["op"] == op):
            mine = [f for f in rows if f.row["op"] == op and f.name == name]
            right = sum(f.state == "verified" for f in mine)
            parts = [
                f.row["max_error"] / f.row["error_limit"]
                for f in mine
                if f.row["max_error"] is not None and f.row["error_limit"]
            ]
            worst = f"{max(parts):.2f}" if parts else ""
            cells.append((op, name, f"{right} of {len(mine)}", worst))
    header = ("op", "implementation", "cases verified", "largest error / limit")
    return Section(
        "Verified in Triton's interpreter",
        ("Correctness only: the interpreter runs on numpy, and its time says nothing.",),
        (Table(header, tuple(cells), numbers=(2, 3)),),
    )


def self_ratios(cases: tuple[CaseView, ...]) -> Section | None:
    rows = tuple(
        (case.op, case.case, figures.name, write.ratio(figures.itself))
        for case in cases
        for figures in case.rows
        if figures.state == "ok" and figures.itself
    )
    if not rows:
        return None
    note = "The same call as both arms, which is what the clock can't tell apart: 1 if it is fair."
    table = Table(("op", "case", "call", "ratio"), rows, numbers=(3,))
    return Section("The clock against itself", (note,), (table,), folded=True)


def failures(rows: tuple[Figures, ...]) -> Table:
    """Rows that are wrong or ended in an error; those of one reason in one line."""
    found: dict[tuple[str, ...], list[str]] = {}
    for figures in rows:
        if figures.state in ("wrong", "error"):
            row = figures.row
            where = " (interpreter)" if row["mode"] == "interpreter" else ""
            state, reason = figures.state + where, row["reason"]
            key = (row["op"], figures.name, state, reason)
            found.setdefault(key, []).append(_hot(row["case"], row["regime"]))
    return Table(
        ("op", "implementation", "status", "cases", "reason"),
        tuple(
            (op, name, state, write.clean(", ".join(cases)), reason)
            for (op, name, state, reason), cases in found.items()
        ),
    )


def failed(rows: tuple[Figures, ...]) -> Section | None:
    table = failures(rows)
    note = "What is wrong or ended in an error has no time."
    return Section("Failed", (note,), (table,)) if table.rows else None


def skipped(rows: tuple[Figures, ...]) -> Section | None:
    reasons: dict[tuple[str, str], list[str]] = {}
    for figures in rows:
        if figures.state == "skipped":
            key = figures.row["op"], figures.row["reason"]
            reasons.setdefault(key, []).append(figures.name)
    if not reasons:
        return None
    cells = tuple(
        (op, str(len(names)), reason, write.clean(", ".join(dict.fromkeys(names))))
        for (op, reason), names in reasons.items()
    )
    table = Table(("op", "rows", "skipped because", "implementations"), cells, numbers=(1,))
    count = sum(map(len, reasons.values()))
    note = f"{count} rows, each an implementation in a case, with the reason of each."
    return Section("Skipped", (note,), (table,), folded=True)


def stale(rows: tuple[Figures, ...]) -> Section | None:
    cells = tuple(
        (
            row["op"],
            _hot(row["case"], row["regime"]),
            figures.name,
            write.seconds(figures.seconds),
        )
        for figures in rows
        if figures.state == "stale"
        for row in [figures.row]
    )
    if not cells:
        return None
    note = "The source of these has changed since they were measured: no current figures."
    table = Table(("op", "case", "implementation", "time then"), cells, numbers=(3,))
    return Section("Stale rows", (note,), (table,), folded=True)


def _hot(case: str, regime: str) -> str:
    return f"{case} (hot)" if regime == "hot" else case
