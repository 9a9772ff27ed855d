"""pytest --benchmark, run as its user runs it."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks import record
from benchmarks.plugin import ReplayClock

ROOT = Path(__file__).parent.parent
# One op, one small case, the library's plain call: seconds on any machine.
NARROW = "softmax and library and eager and 131072-float32"


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    # Nor what `pytest -n` tells its workers: pytest-benchmark would stand aside here too.
    foreign = ("TRITON_INTERPRET", "PYTEST_XDIST")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A narrow run's folder and output."""
    folder = tmp_path_factory.mktemp("narrow")
    json_path = folder / "benchmark.json"
    done = run("--benchmark", "-k", NARROW, f"--results={folder}", f"--benchmark-json={json_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_it_writes_records_and_a_report(narrow: tuple[Path, str]) -> None:
    folder, output = narrow
    written = record.read(folder / "records.jsonl")
    # A path of the machine's is no reader's business.
    shown = f"-k '{NARROW}' --results=PATH --benchmark-json=PATH"
    assert written.environment["command"].endswith(shown)
    rows = written.rows
    assert {(row["op"], row["tier"], row["variant"]) for row in rows} == {
        ("softmax", "library", "eager")
    }
    assert all(row["status"] == "ok" and row["seconds"] for row in rows)
    assert (folder / "report.md").exists()
    assert (folder / "index.html").exists()
    assert f"report:  {folder}" in output


def test_it_shows_progress_and_a_comparison(narrow: tuple[Path, str]) -> None:
    _, output = narrow
    assert "[  1/" in output
    assert "comparison" in output
    assert "library/eager" in output


def test_pytest_benchmark_has_the_same_samples(narrow: tuple[Path, str]) -> None:
    folder, _ = narrow
    row = record.read(folder / "records.jsonl").rows[0]
    saved = json.loads((folder / "benchmark.json").read_text())["benchmarks"]
    data = next(b["stats"]["data"] for b in saved if row["case"] in b["name"])
    assert data == pytest.approx(row["seconds"], rel=1e-9)


def test_pytest_benchmark_compare_reads_its_output(narrow: tuple[Path, str]) -> None:
    folder, _ = narrow
    command = [sys.executable, "-m", "pytest_benchmark", "compare", str(folder / "benchmark.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "library-eager" in done.stdout


def test_interrupting_keeps_what_was_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--benchmark"]
    command += ["-k", "softmax and library", f"--results={tmp_path}"]
    # A shell's background job ignores Ctrl-C, and so would all that it starts.
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    path = tmp_path / "records.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().count("\n") >= 2:
            break
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2, output
    assert record.read(path).rows
    assert (tmp_path / "report.md").exists()


def test_without_the_option_pytest_is_the_test_suite() -> None:
    done = run("--collect-only", "-q", "tests/test_check.py")
    assert done.returncode == 0
    assert "bench_suite" not in done.stdout


def test_options_in_the_wrong_place_are_said(tmp_path: Path) -> None:
    for option in ([f"--results={tmp_path}"], ["--resume"]):
        done = run(*option, "tests/test_codesize.py")
        assert done.returncode == 4
        assert "goes with --benchmark" in done.stderr + done.stdout


def test_a_damaged_records_file_is_not_resumed_or_touched(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"kind": "environment", "schema": 99}\n')
    done = run("--benchmark", "-k", NARROW, f"--results={tmp_path}", "--resume")
    assert done.returncode == 1
    assert f"{path}:1: the schema is 99, this version reads 1" in done.stdout + done.stderr
    assert path.read_text() == '{"kind": "environment", "schema": 99}\n'


def test_the_replay_clock_gives_its_samples_once() -> None:
    clock = ReplayClock()
    clock.load([0.5, 0.25])
    stamps = [clock.read()]
    for _ in range(3):
        clock.advance()
        stamps.append(clock.read())
    assert stamps == [0.0, 0.5, 0.75, 0.75]


def test_without_a_gpu_nothing_is_called_a_gpu_time(narrow: tuple[Path, str]) -> None:
    folder, _ = narrow
    run_ = record.read(folder / "records.jsonl")
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert run_.environment["machine"]["device"] == expected
