"""The first screen: what was run on what, and who won each op by how much for how much code."""

from __future__ import annotations

from benchmarks.implementation import KIT
from benchmarks.record import Run
from benchmarks.report import format as write
from benchmarks.report.content import Section, Table
from benchmarks.statistics import CaseView, cases_of
from benchmarks.winners import BEST_CALL, OpView, ops_of

__all__ = ["THROTTLED", "lead", "machine_line", "recorded", "summary_table", "winners"]

THROTTLED = "† marks what was measured while the card held its clocks back."

KITS = (
    "A kit is a kernel that its user makes of a library's templates. That takes C++ and a "
    "compiler, so it is no library call: nothing is held against it, and it wins for no tier."
)


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


def lead(run: Run, cases: tuple[CaseView, ...], beside: Run | None) -> list[str]:
    lead = [f"Measured on {machine_line(run)}."]
    if run.environment["machine"]["device"] != "cuda":
        lead.append(
            "This machine has no GPU: the library's calls were timed on its CPU, and Triton's "
            "kernels were verified in the interpreter, which has no meaningful time."
        )
    if beside is not None:
        lead.append(
            "All figures are this machine's, but for those of the section "
            f'"{recorded_title(beside)}".'
        )
    if noise := _noise(cases):
        lead.append(f"The same call as both arms (A/A) differs from itself by at most {noise}.")
    if any(figures.throttled for case in cases for figures in case.rows):
        lead.append(THROTTLED)
    return lead


def _noise(cases: tuple[CaseView, ...]) -> str:
    """The most that a call differs from itself; apart where the host sends calls one by one, since
    its speed counts there."""
    found: dict[str, list[float]] = {}
    for case in cases:
        for figures in case.rows:
            if figures.state == "ok" and figures.itself:
                off = abs(figures.itself.value - 1)
                found.setdefault(figures.row["issue"], []).append(off)
    ways = {"graph": "", "stream": " of calls sent one by one"}
    return " and ".join(
        f"{100 * max(found[issue]):.2g} % in {len(found[issue])} rows{way}"
        for issue, way in ways.items()
        if issue in found
    )


def summary_table(ops: tuple[OpView, ...], *, narrow: bool = False) -> Table:
    """Per op and tier the best variant: how fast, beside what, by how much code.

    narrow: what a terminal has room for
    """
    header = (
        *("op", "best variant", "speed", "over", "cases", "lines", "tokens", "place"),
        *("% of ceiling", "from case to case"),
    )
    rows = [
        (
            op.op,
            f"{tier.name} ({tier.effort})",
            write.ratio(tier.speedup) + (" †" if tier.throttled else ""),
            tier.against,
            write.count(tier.cases),
            write.count(tier.lines),
            write.count(tier.tokens),
            {op.winner: "fastest", **dict.fromkeys(op.level, "level")}.get(tier.tier, ""),
            ", ".join(
                f"{write.span(least, most, digits=0)} {ceiling}"
                for ceiling, least, most in tier.percents
            ),
            write.span(tier.least, tier.most),
        )
        for op in ops
        for tier in op.tiers
    ]
    width = len(header) - 2 * narrow
    return Table(header[:width], tuple(row[:width] for row in rows), numbers=(2, 4, 5, 6))


def winners(ops: tuple[OpView, ...]) -> Section:
    if not any(op.tiers for op in ops):
        return Section("Who won", ("No cold row of this run has a time.",))
    note = (
        "Speed is a median ratio of samples taken in turn, as the geometric mean over the cases "
        "that all tiers of an op have a time for, with its 95 % interval. A difference of less "
        "than 1 % is a draw. Of the library it is the fastest call of each case, under the name of "
        "the one that it most often is. The interval is of the clock: torch.compile compiled anew "
        "may choose other kernels. Lines and tokens are without comments and docstrings."
    )
    sentences = [sentence for op in ops if (sentence := _verdict(op))]
    notes = [note, KITS] if any(tier.tier == KIT for op in ops for tier in op.tiers) else [note]
    return Section("Who won", (*sentences, *notes), (summary_table(ops),))


def _verdict(op: OpView) -> str:
    tiers = (tier for tier in op.tiers if tier.tier != KIT)
    best = op.best_kernel or next(tiers, None)
    if best is None:
        return ""
    over = f"the {best.against}" if best.against == BEST_CALL else best.against
    # Eager beside itself is no speed-up but the clock's noise.
    speed = f"{write.ratio(best.speedup)} x {over}, " if best.name != best.against else ""
    what = f"{best.name}, {speed}{write.count(best.lines)} lines, {write.count(best.tokens)} tokens"
    if best.tier == "library":
        start = f"no kernel has a time; the fastest library call is {what}"
    elif not op.cases:
        start = f"the tiers have no case in common; the fastest kernel is {what}"
    else:
        verdict = {"library": "the library wins, the best kernel is", "": "a draw with"}
        start = f"{verdict.get(op.winner, 'won by')} {what}"
    if 0 < op.cases < op.measured:
        start += f" (over the {op.cases} of {op.measured} cases that all tiers have a time for)"
    if op.unfair:
        start += f"; not counted: {op.unfair} cases without a library call that may be the fastest"
    return f"{op.op}: {start}."


def recorded_title(run: Run) -> str:
    return f"Recorded on {run.environment['machine']['name']}"


def recorded(run: Run, figures: list[str]) -> Section:
    return Section(
        recorded_title(run),
        (
            f"Not this machine's figures: {machine_line(run)}. The whole record is in "
            f"results/{run.environment['machine']['slug']}/report.md.",
        ),
        (summary_table(ops_of(cases_of(run))),),
        figures=tuple(figures),
    )
