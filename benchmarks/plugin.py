"""pytest --benchmark: measures the suite, shows progress, prints the comparison, writes the report.

Loaded by the root conftest. Without --benchmark it changes nothing, and pytest runs the tests.
"""

from __future__ import annotations

import os
import re
import shlex
import statistics
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import record
from benchmarks.codesize import ROOT

if TYPE_CHECKING:
    from benchmarks.suite import Item, Suite

__all__ = ["RUN", "BenchmarkRun", "ReplayClock"]

LOCAL = ROOT / "results" / "local"
RECORDED = ROOT / "results" / "nvidia-h200"


class ReplayClock:
    """A timer for pytest-benchmark that shows it samples which were taken before.

    pytest-benchmark reads its timer, calls the function, reads again; `advance` is the function
    and moves the clock by the next sample.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._samples: list[float] = []

    def load(self, samples: list[float]) -> None:
        # From zero each time: a sum that grows over the run would lose the small samples' digits.
        self._now = 0.0
        self._samples = list(samples)

    def read(self) -> float:
        return self._now

    def advance(self) -> None:
        if self._samples:
            self._now += self._samples.pop(0)


class BenchmarkRun:
    """The state of `pytest --benchmark`, made at configuration; measures from the first item on.

    has_gpu, hot: what is collected depends on them
    """

    def __init__(self, config: pytest.Config) -> None:
        import torch

        self.has_gpu = torch.cuda.is_available()
        self.hot: bool = config.option.benchmark_hot
        self._config = config
        self._suite: Suite | None = None
        self._shown = 0
        self._cases: dict[tuple[str, ...], list[Item]] = {}
        directory = config.option.results
        if directory is None:
            # The newest run of this machine, where one is to be resumed; else a new one.
            old = sorted(LOCAL.glob("run-*")) if config.option.resume else []
            stamp = datetime.now(UTC).strftime("run-%Y%m%d-%H%M%S")
            directory = old[-1] if old else LOCAL / stamp
        self.directory = Path(directory)

    @property
    def path(self) -> Path:
        return self.directory / "records.jsonl"

    def measure(self, node: pytest.Item, item: Item) -> dict[str, Any]:
        from benchmarks.suite import Suite
        from benchmarks.timing import Settings

        if self._suite is None:
            _say(self._config, "measuring this machine's ceilings ...")
            try:
                self._suite = Suite(
                    self.path,
                    resume=self._config.option.resume,
                    command=_command(self._config.invocation_params.args),
                    settings=Settings(),
                )
            except (record.RecordError, OSError) as error:
                pytest.exit(str(error), returncode=1)
        case_items = self._case_of(node.session, item)
        if item is case_items[0]:
            _say(self._config, f"{item.op.name} {item.case.name}: {len(case_items)} in turn ...")
        row = self._suite.measure(item, case_items)
        self._shown += 1
        _say(self._config, f"[{self._shown:>3}/{node.session.testscollected}] {_line(row)}")
        return row

    def _case_of(self, session: pytest.Session, item: Item) -> list[Item]:
        """What pytest selected of the item's case."""
        if not self._cases:
            for node in session.items:
                selected = node.callspec.params["item"]  # type: ignore[attr-defined]
                self._cases.setdefault(selected.case_key, []).append(selected)
        return self._cases[item.case_key]

    def close(self) -> None:
        if self._suite is not None:
            self._suite.close()


RUN = pytest.StashKey[BenchmarkRun]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kernel tiers")
    group.addoption(
        "--benchmark",
        action="store_true",
        help="measure every op x case x implementation on this machine's best device "
        "instead of running the tests; -k narrows it",
    )
    group.addoption(
        "--results",
        metavar="DIR",
        help="where --benchmark writes records.jsonl and the report "
        "(default: results/local/run-<date>); older records there are kept under another name",
    )
    group.addoption(
        "--resume",
        action="store_true",
        help="continue the records of --results (default: of the newest run in results/local): "
        "measure only rows that are missing, failed, or whose source has changed",
    )
    group.addoption(
        "--hot",
        action="store_true",
        dest="benchmark_hot",
        help="measure each row a second time with its data in the cache (labelled hot)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.option.benchmark:
        for option, name in (("results", "--results"), ("resume", "--resume")):
            if getattr(config.option, option):
                raise pytest.UsageError(f"{name} goes with --benchmark")
        return
    if getattr(config.option, "numprocesses", None):
        raise pytest.UsageError(
            "--benchmark can't run with -n: rows measured side by side would disturb each other"
        )
    config.stash[RUN] = BenchmarkRun(config)
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(ROOT / "benchmarks" / "bench_suite.py")]
    # Its tables repeat what the comparison shows, in 400 lines; asked for, they come.
    if config.option.verbose <= 0 and not config.option.benchmark_json:
        config.option.benchmark_quiet = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    run = session.config.stash.get(RUN, None)
    if run is not None:
        run.close()


# ---------------------------------------------------------------------------- what is shown


def _command(arguments: Sequence[str | os.PathLike[str]]) -> str:
    """What the user ran. Where it wrote is no reader's business: an absolute path is PATH."""
    shown = ["pytest"]
    for argument in map(str, arguments):
        name, equals, value = argument.rpartition("=")
        shown.append(f"{name}{equals}PATH" if os.path.isabs(value) else argument)
    return shlex.join(shown)


def _say(config: pytest.Config, text: str) -> None:
    """A line of its own on the terminal, now, though pytest captures what tests print."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if reporter is None or capture is None:
        return
    with capture.global_and_fixture_disabled():
        reporter.showfspath = False  # else the file's name stands before each line
        reporter.ensure_newline()
        reporter.write_line(text)
        reporter.flush()


def pytest_report_teststatus(
    report: pytest.TestReport, config: pytest.Config
) -> tuple[str, str, str] | None:
    """No dots: each row has a line of its own."""
    if RUN not in config.stash or report.when != "call":
        return None
    return report.outcome, "", ""


def _line(row: dict[str, Any]) -> str:
    name = f"{row['op']} {row['case']} {row['tier']}/{row['variant']}"
    hot = " (hot)" if row["regime"] == "hot" else ""
    if row["seconds"]:
        return f"{name}{hot}: {statistics.median(row['seconds']) * 1e6:.1f} us"
    reason = re.sub(r"\s+", " ", row["reason"])[:160]
    return f"{name}{hot}: {row['status']}: {reason}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = config.stash.get(RUN, None)
    if run is None or not run.path.exists():
        return
    from benchmarks.report.build import build
    from benchmarks.report.table import terminal

    try:
        records = record.read(run.path)
    except record.RecordError as error:
        terminalreporter.write_line(str(error), red=True)
        return
    terminalreporter.section("comparison")
    terminalreporter.write_line(terminal(records))
    if not records.rows:
        return
    beside = RECORDED if RECORDED.exists() and RECORDED != run.directory.resolve() else None
    page = build(run.directory, beside)
    terminalreporter.write_line(f"records: {run.path}")
    terminalreporter.write_line(f"report:  {page}")
    sys.stdout.flush()
