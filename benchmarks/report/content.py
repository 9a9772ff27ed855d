"""What a report says, as plain values: the one source of the page, the Markdown and the terminal.

Every figure comes from `benchmarks.statistics`. Nothing here knows an output format.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from benchmarks.record import Run
from benchmarks.report import format as write
from benchmarks.statistics import CaseView, Figures, OpView, cases_of, interpreted_of, ops_of

__all__ = ["Page", "Section", "Table", "case_table", "machine_line", "page", "summary_table"]


@dataclass(frozen=True)
class Table:
    """rows: cells as text, as many as header. numbers: the columns that align right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Section:
    """figures: names of pictures (see `benchmarks.report.figures`). folded: closed at first."""

    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[str, ...] = ()
    folded: bool = False


@dataclass(frozen=True)
class Page:
    title: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...] = field(default=())


def page(run: Run, beside: Run | None, figures: dict[str, str], beside_figures: list[str]) -> Page:
    """figures: what pictures there are, name -> caption. beside_figures: those of the other run."""
    cases = cases_of(run)
    sections = [_winners(run, cases)]
    if figures:
        sections.append(Section("In pictures", figures=tuple(figures)))
    if beside is not None:
        sections.append(_beside(beside, beside_figures))
    sections += _cases(cases)
    sections += [
        section
        for section in (
            _interpreted(interpreted_of(run)),
            _self_ratios(cases),
            _ceilings(run.environment),
            _not_measured(cases),
            _stale(cases),
            _method(run.environment),
        )
        if section is not None
    ]
    return Page("When to write a GPU kernel", tuple(_lead(run, cases)), tuple(sections))


# ---------------------------------------------------------------------------- first screen


def machine_line(run: Run) -> str:
    """What was run on what: machine, versions, commit, date."""
    environment = run.environment
    versions = ", ".join(f"{name} {value}" for name, value in environment["versions"].items())
    commit = environment["commit"] + (" with changes" if environment.get("dirty") else "")
    parts = [environment["machine"]["name"], versions]
    if environment["machine"].get("driver"):
        parts.append(f"driver {environment['machine']['driver']}")
    parts += [f"commit {commit}", environment["date"][:10]]
    return write.clean("; ".join(parts))


def _lead(run: Run, cases: tuple[CaseView, ...]) -> list[str]:
    on_gpu = run.environment["machine"]["device"] == "cuda"
    lead = [f"Measured on {machine_line(run)}."]
    if not on_gpu:
        lead.append(
            "This machine has no GPU: the library's calls were timed on its CPU, and Triton's "
            "kernels were verified in the interpreter, which has no meaningful time."
        )
    if any(figures.throttled for case in cases for figures in case.rows):
        lead.append("† marks rows that were taken while the card held its clocks back.")
    return lead


def summary_table(ops: tuple[OpView, ...]) -> Table:
    """Per op and tier the best variant: how much faster than the best library call."""
    rows = []
    for op in ops:
        for tier in op.tiers:
            percents = "" if math.isnan(tier.percent[0]) else write.span(*tier.percent, digits=0)
            against = "eager" if tier.tier == "library" else "library"
            rows.append(
                (
                    op.op,
                    f"{tier.name} ({tier.effort})",
                    f"{tier.speedup:.2f} x {against}",
                    write.span(tier.least, tier.most),
                    percents,
                    str(tier.lines),
                    str(tier.tokens),
                    "fastest" if tier.tier == op.winner else "",
                )
            )
    header = ("op", "best variant", "speed", "from case to case", "% of ceiling", "lines", "tokens")
    return Table((*header, ""), tuple(rows), numbers=(2, 3, 4, 5, 6))


def _winners(run: Run, cases: tuple[CaseView, ...]) -> Section:
    ops = ops_of(cases)
    if not any(op.tiers for op in ops):
        return Section("Who won", ("No row of this run has a time.",))
    sentences = [sentence for op in ops if (sentence := _verdict(op))]
    note = (
        "Speed is the geometric mean over the cases of an op, each case a median ratio of samples "
        "taken in turn; library rows are held against eager, all others against the fastest "
        "library call of their case. Lines and tokens are without comments and docstrings."
    )
    return Section("Who won", (*sentences, note), (summary_table(ops),))


def _verdict(op: OpView) -> str:
    best = op.best_kernel
    if best is None:
        library = next(iter(op.tiers), None)
        if library is None:
            return ""
        return f"{op.op}: the best library call is {library.name}, {library.speedup:.2f} x eager."
    kernel = f"{best.name} at {best.speedup:.2f} x the best library call, {best.tokens} tokens"
    if op.winner == "library":
        return f"{op.op}: the library wins; the best kernel is {kernel}."
    if not op.winner:
        return f"{op.op}: a draw between the library and {kernel}."
    rest = [
        f"{tier.name} {tier.speedup:.2f} x, {tier.tokens} tokens"
        for tier in op.tiers
        if tier.tier not in ("library", best.tier)
    ]
    return "; ".join([f"{op.op}: {kernel}, wins", *rest]) + "."


def _beside(run: Run, figures: list[str]) -> Section:
    return Section(
        f"Recorded on {write.clean(run.environment['machine']['name'])}",
        (
            f"Not this machine's figures: {machine_line(run)}. The whole record is in "
            f"results/{write.clean(run.environment['machine']['slug'])}/report.md.",
        ),
        (summary_table(ops_of(cases_of(run))),),
        figures=tuple(figures),
    )


# ---------------------------------------------------------------------------- tables


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
            write.clean(figures.name),
            figures.row["effort"],
            f"{write.seconds(figures.seconds)}{mark}" if timed else figures.state,
            write.rate(figures) if timed else "",
            write.percent(figures) if timed else "",
            write.ratio(figures.speedup) if timed else "",
            write.clean(against) if timed else "",
            str(code.get("lines", "")),
            str(code.get("tokens", "")),
        ]
        if not narrow:
            cells += [
                write.seconds(figures.row["host_seconds"]) if timed else "",
                write.seconds(figures.row["first_call_seconds"]) if timed else "",
                _error(figures.row),
                *(_number(code.get(key)) for key in ("registers", "shared_bytes", "spill_bytes")),
            ]
        rows.append(tuple(cells))
    header = ["implementation", "effort", "time", "rate", "of ceiling", "x library", "which"]
    header += ["lines", "tokens"]
    if not narrow:
        header += ["host", "first call", "error / limit", "registers", "shared B", "spill B"]
    hot = " (hot)" if case.regime == "hot" else ""
    return Table(
        tuple(header),
        tuple(rows),
        numbers=tuple(index for index in range(2, len(header)) if index != 6),
        title=write.clean(f"{case.op} {case.case}{hot}"),
    )


def _error(row: dict[str, Any]) -> str:
    if row["max_error"] is None or row["error_limit"] is None:
        return ""
    return f"{row['max_error']:.1e} / {row['error_limit']:.1e}"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _cases(cases: tuple[CaseView, ...]) -> list[Section]:
    sections = []
    for op in dict.fromkeys(case.op for case in cases):
        tables = tuple(
            table for case in cases if case.op == op and (table := case_table(case)).rows
        )
        if tables:
            sections.append(Section(f"{op}: every case", tables=tables, folded=True))
    return sections


def _interpreted(rows: tuple[Figures, ...]) -> Section | None:
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
            cells.append((op, write.clean(name), f"{right} of {len(mine)}", worst))
    header = ("op", "implementation", "cases verified", "largest error / limit")
    return Section(
        "Verified in Triton's interpreter",
        ("Correctness only: the interpreter runs on numpy, and its time says nothing.",),
        (Table(header, tuple(cells), numbers=(2, 3)),),
    )


def _self_ratios(cases: tuple[CaseView, ...]) -> Section | None:
    rows = tuple(
        (case.op, case.case, write.ratio(figures.speedup))
        for case in cases
        for figures in case.rows
        if figures.state == "ok" and figures.name == figures.against
    )
    if not rows:
        return None
    note = "The same call as both arms, which is what the clock can't tell apart: 1 if it is fair."
    table = Table(("op", "case", "ratio"), rows, numbers=(2,))
    return Section("The clock against itself", (note,), (table,), folded=True)


def _ceilings(environment: dict[str, Any]) -> Section | None:
    ceilings = environment["ceilings"]
    if not ceilings:
        return None
    rows = [
        (f"copy, {size / 2**20:.0f} MiB moved", f"{rate / 1e9:.0f} GB/s", "")
        for size, rate in ceilings.get("copy", [])
    ]
    sheet = environment.get("datasheet") or {}
    memory = f"{sheet['memory'] / 1e9:.0f} GB/s" if sheet.get("memory") else ""
    rows += [
        (name, f"{ceilings[name] / 1e9:.0f} GB/s", memory)
        for name in ("read", "write")
        if ceilings.get(name)
    ]
    for dtype, rate in ceilings.get("matmul", {}).items():
        stated = (sheet.get("matmul") or {}).get(dtype)
        rows.append(
            (
                f"matmul {dtype}",
                f"{rate / 1e12:.3g} TFLOP/s",
                f"{stated / 1e12:.0f} TFLOP/s" if stated else "",
            )
        )
    if ceilings.get("special_functions"):
        rows.append(
            ("special functions (tanh)", f"{ceilings['special_functions'] / 1e9:.0f} G/s", "")
        )
    if ceilings.get("launch_seconds"):
        rows.append(("smallest call", write.seconds(ceilings["launch_seconds"]), ""))
    table = Table(("what", "measured in this run", "data sheet"), tuple(rows), numbers=(1, 2))
    return Section("Ceilings", tables=(table,), folded=True)


def _not_measured(cases: tuple[CaseView, ...]) -> Section | None:
    failed = tuple(
        (case.op, case.case, write.clean(f.name), f.state, write.clean(f.row["reason"]))
        for case in cases
        for f in case.rows
        if f.state in ("wrong", "error")
    )
    reasons: dict[str, list[str]] = {}
    for case in cases:
        for f in case.rows:
            if f.state == "skipped":
                reasons.setdefault(write.clean(f.row["reason"]), []).append(f"{case.op} {f.name}")
    skipped = tuple(
        (reason, str(len(names)), write.clean(", ".join(dict.fromkeys(names))))
        for reason, names in reasons.items()
    )
    tables = []
    if failed:
        tables.append(Table(("op", "case", "implementation", "status", "reason"), failed))
    if skipped:
        tables.append(Table(("skipped because", "rows", "implementations"), skipped, numbers=(1,)))
    return Section("Not measured", tables=tuple(tables)) if tables else None


def _stale(cases: tuple[CaseView, ...]) -> Section | None:
    rows = tuple(
        (case.op, case.case, write.clean(f.name), write.seconds(f.seconds))
        for case in cases
        for f in case.rows
        if f.state == "stale"
    )
    if not rows:
        return None
    note = "The source of these has changed since they were measured: no current figures."
    table = Table(("op", "case", "implementation", "time then"), rows, numbers=(3,))
    return Section("Stale rows", (note,), (table,), folded=True)


def _method(environment: dict[str, Any]) -> Section:
    timing = environment.get("timing") or {}
    settings = ", ".join(f"{name} {value:g}" for name, value in timing.items())
    paragraphs = [
        "Every result is compared with a float64 oracle before it is timed and again after, with "
        "poisoned outputs and new inputs at the same addresses; a wrong result has no time. It "
        "passes at twice the library's own error in the same dtype, plus a small floor.",
        "Time is device time, the median over samples. On a GPU, calls rotate over buffer sets "
        "that are three times the L2 cache together and are replayed from a CUDA graph, except "
        "eager chains, which are sent one by one as their users do. Samples of all arms of a case "
        "are taken in turn (A B C, C B A) until the interval of each ratio is narrow.",
        "Ratios are medians of ratios within a round, with 95 % bootstrap intervals. Percentages "
        "are of ceilings that were measured in the same run: for products the fastest of large "
        "products or, where bytes bind, reading memory; for all others a copy of as many bytes, "
        "sampled in the same rounds.",
        "Host time is what issuing a call takes, the tier's checks of its arguments included; "
        "first call is compilation, loading and whatever else happens once.",
    ]
    if settings:
        paragraphs.append(f"Settings of the clock, in seconds where a time: {settings}.")
    return Section("How it was measured", tuple(paragraphs), folded=True)
