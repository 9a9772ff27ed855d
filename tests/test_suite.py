"""A run: every kind of failure costs its own row and nothing else."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import device, record, suite
from benchmarks.ceilings import set_count
from benchmarks.implementation import EAGER, TIERS, Implementation
from benchmarks.implementations import find, of_op
from benchmarks.skips import Skip
from benchmarks.suite import Item, Suite
from benchmarks.supervisor import Supervisor, WorkerError
from benchmarks.timing import Settings
from reference.ops import OPS
from reference.spec import Case, Op, dtype_name

SETTINGS = Settings(least_rounds=2, least_seconds=0.0, limit_seconds=0.2)

FAKES = """
import os, signal, time
import torch

calls = 0

def right(x, *, out=None):
    return torch.softmax(x, -1, out=out)

def wrong(x, *, out=None):
    return torch.zeros_like(x) if out is None else out.zero_()

def wrong_later(x, *, out=None):
    global calls
    calls += 1
    value = torch.softmax(x, -1, out=out)
    return value.mul_(2) if calls > 6 else value

def raises(x, *, out=None):
    raise ValueError("no such thing")

def hangs(x, *, out=None):
    time.sleep(60)

def exits(x, *, out=None):
    os._exit(3)

def is_killed(x, *, out=None):
    os.kill(os.getpid(), signal.SIGSEGV)

def is_slow(x, *, out=None):
    time.sleep(0.6)
    return right(x, out=out)

def dies_when_timed(x, *, out=None):
    global calls
    calls += 1
    if calls > 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return right(x, out=out)

places = []

def works_at_two_places(x, *, out=None):
    if out is None:
        return right(x)
    if out.data_ptr() not in places:
        places.append(out.data_ptr())
    return right(x, out=out) if out.data_ptr() in places[:2] else out

def prints(x, *, out=None):
    print("{}")
    return right(x, out=out)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results" / "records.jsonl"


@pytest.fixture
def run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Suite]:
    """A suite whose worker can also find the fakes: as rows of softmax, tier cuda."""
    (tmp_path / "fakes.py").write_text(FAKES)
    # sitecustomize runs in the worker before anything else there.
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import sys
            if sys.argv[0] == "-m":
                from benchmarks import implementations as i
                from benchmarks.implementation import Implementation
                names = [n for n in open(__file__.replace("sitecustomize", "fakes"))
                         if n.startswith("def ")]
                i.IMPLEMENTATIONS += tuple(
                    Implementation("softmax", "cuda", n[4:].split("(")[0], "fakes",
                                   n[4:].split("(")[0], (), "naive", patience=0.5)
                    for n in names)
            """
        )
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.getcwd()}")
    monkeypatch.setattr(suite, "ROW_LIMIT_SECONDS", 60.0)
    made = Suite(path, resume=False, command="test", settings=SETTINGS)
    yield made
    made.close()


# Large enough that a working set of three caches is a few buffer sets.
CASE = Case((4096, 1024), torch.float32)


def fake(name: str) -> Item:
    row = Implementation("softmax", "cuda", name, "fakes", name, (), "naive")
    return Item(OPS["softmax"], CASE, row, "cold", "device")


def test_each_failure_costs_its_own_row(
    run: Suite, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {
        "right": ("ok", ""),
        "wrong": ("wrong", "above the limit"),
        "raises": ("error", "ValueError: no such thing"),
        "exits": ("error", "the process ended with exit code 3"),
        "is_killed": ("error", "the process ended by SIGSEGV"),
        "hangs": ("error", "no answer within 20 s"),
        "wrong_later": ("wrong", "after timing, with new inputs in place"),
        "prints": ("ok", ""),
    }
    for name, (status, reason) in expected.items():
        with monkeypatch.context() as patch:
            if name == "hangs":
                # The others answer however late: on a busy GPU a right row took longer than this.
                patch.setattr(suite, "ROW_LIMIT_SECONDS", 20.0)
            row = run.measure(fake(name))
        assert row["status"] == status, row["reason"]
        assert reason in row["reason"]
        assert bool(row["seconds"]) == (status == "ok")
        # On disk before the next row is measured.
        assert record.read(path).rows[-1]["variant"] == name
    # Whatever came before it, a right row is measured as ever.
    assert run.measure(fake("prints"))["status"] == "ok"


def test_a_right_row_has_all_its_figures(run: Suite) -> None:
    row = run.measure(fake("right"))
    assert len(row["seconds"]) == len(row["paired"]["library/eager"]) >= 4
    assert len(row["paired"]["ceiling/copy"]) == len(row["seconds"])
    assert 0 < row["max_error"] <= row["error_limit"]
    assert row["host_seconds"] > 0
    assert row["first_call_seconds"] > 0


def test_resuming_measures_what_is_missing_or_failed(run: Suite, path: Path) -> None:
    run.measure(fake("right"))
    run.measure(fake("raises"))
    run.close()
    before = path.read_text(encoding="utf-8")
    again = Suite(path, resume=True, command="test", settings=SETTINGS)
    assert again.measure(fake("right"))["status"] == "ok"
    assert path.read_text(encoding="utf-8") == before
    again.measure(fake("raises"))
    assert path.read_text(encoding="utf-8") != before
    assert len(record.read(path).rows) == 2
    again.close()


def test_starting_anew_keeps_the_old_records_aside(run: Suite, path: Path) -> None:
    run.measure(fake("right"))
    run.close()
    old = path.read_bytes()
    Suite(path, resume=False, command="test", settings=SETTINGS).close()
    kept = [other for other in path.parent.iterdir() if other != path]
    assert [other.read_bytes() for other in kept] == [old]


def test_another_machine_s_records_are_not_resumed(run: Suite, path: Path) -> None:
    run.close()
    text = path.read_text(encoding="utf-8").replace('"device": "', '"device": "not ')
    path.write_text(text, encoding="utf-8")
    with pytest.raises(record.RecordError, match="can't be resumed here: its machine was"):
        Suite(path, resume=True, command="test", settings=SETTINGS)


def test_an_unmet_need_is_a_skipped_row_with_the_remedy(run: Suite) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU, which is the need that is asked for")
    row = Implementation("softmax", "cuda", "naive", "x", "x", (), "naive", needs=("gpu",))
    item = Item(OPS["softmax"], CASE, row, "cold", "device")
    measured = run.measure(item)
    assert measured["status"] == "skipped"
    assert measured["reason"] == "needs a CUDA device, and there is none"


def test_a_missing_package_is_unmet_and_a_broken_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "pip install" in device._unimportable("no_such_package", "pip install it")
    (tmp_path / "broken_package.py").write_text("raise ImportError('half installed')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert device._unimportable("broken_package", "") == ""


def test_the_worker_goes_when_its_parent_is_killed() -> None:
    code = textwrap.dedent(
        """
        import sys, time
        from benchmarks.supervisor import Supervisor
        worker = Supervisor({})
        worker.ask({"do": "environment"}, 60)
        print(worker._process.pid, flush=True)
        time.sleep(60)
        """
    )
    import subprocess

    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while not has_ended(pid):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def has_ended(pid: int) -> bool:
    """Also of a zombie, which nobody may be there to collect."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_request_that_makes_no_sense_is_an_answer() -> None:
    worker = Supervisor({})
    with pytest.raises(WorkerError, match="ceilings, check or time, got 'dance'"):
        worker.ask({"do": "dance"}, 60)
    assert worker.ask({"do": "environment"}, 60)["machine"]["name"]
    worker.close()


def test_a_variant_is_skipped_where_a_call_outlasts_its_patience(run: Suite) -> None:
    row = run.measure(fake("is_slow"))
    assert (row["status"], row["seconds"]) == ("skipped", [])
    found = re.fullmatch(r"a call takes (\S+) s, (.*)", row["reason"])
    assert found, row["reason"]
    assert float(found[1]) > 0.5
    assert found[2] == "and the variant is measured up to 0.5 s"


def test_what_is_wanted_of_a_case_is_sampled_in_the_same_rounds(run: Suite) -> None:
    eager = Item(OPS["softmax"], CASE, find("softmax", "library/eager"), "cold", "device")
    wanted = [eager, fake("right"), fake("prints")]
    rows = [run.measure(item, wanted) for item in wanted]
    assert [(row["status"], row["reason"]) for row in rows] == [("ok", "")] * 3
    for row in rows[1:]:
        assert row["paired"]["library/eager"] == rows[0]["seconds"]
        assert row["paired"]["ceiling/copy"] == rows[0]["paired"]["ceiling/copy"]
    # Eager is its own pair by a second arm.
    assert rows[0]["paired"]["library/eager"] != rows[0]["seconds"]
    assert [row["variant"] for row in record.read(run.path).rows] == ["eager", "right", "prints"]


def test_one_that_dies_when_timed_costs_the_others_nothing(run: Suite) -> None:
    wanted = [fake("dies_when_timed"), fake("right")]
    died, right = (run.measure(item, wanted) for item in wanted)
    assert (died["status"], died["seconds"]) == ("error", [])
    assert "SIGKILL" in died["reason"]
    assert right["status"] == "ok"
    assert right["seconds"]


def test_doing_the_work_of_one_buffer_set_alone_is_wrong(run: Suite) -> None:
    row = run.measure(fake("works_at_two_places"))
    assert (row["status"], row["seconds"]) == ("wrong", [])
    assert "after timing" in row["reason"]


def test_a_case_that_a_variant_leaves_out_is_skipped(run: Suite) -> None:
    row = dataclasses.replace(fake("right").implementation, skips=(Skip("says so", "rows", 4096),))
    op = dataclasses.replace(OPS["softmax"], benchmark_cases=(CASE,))
    skipped = run.measure(Item(op, CASE, row, "cold", "device"))
    assert (skipped["status"], skipped["reason"]) == ("skipped", "says so")
    # Under the same name, so that the suite doesn't take it for measured.
    run._rows.clear()
    run._measured.clear()
    # A machine without a GPU has cases of its own, all of which are measured.
    assert run.measure(Item(OPS["softmax"], CASE, row, "cold", "device"))["status"] == "ok"


def test_what_a_skip_covers() -> None:
    sizes = {"m": 16, "k": 4096}
    for skip, covers in (
        (Skip(""), True),
        (Skip("", "m"), True),
        (Skip("", "m", least=17), False),
        (Skip("", "m", most=15), False),
        (Skip("", "m", least=16, most=16), True),
        (Skip("", "m", but=(1, 16)), False),
        (Skip("", "k", but=(1, 16)), True),
        (Skip("", dtypes=("float16",)), False),
        (Skip("", "m", dtypes=("float16", "float32")), True),
        (Skip("", "m", least=17, dtypes=("float32",)), False),
    ):
        assert skip.covers(sizes, "float32") == covers, skip


@pytest.mark.parametrize("hopper", [True, False])
@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_case_has_eager_and_a_kernel_of_every_tier(op: Op, hopper: bool) -> None:
    for case in op.benchmark_cases:
        left = [
            row
            for row in of_op(op.name)
            if not row.left_out(op.sizes(case), dtype_name(case.dtype), hopper)
            and (hopper or "sm_90" not in row.needs)
        ]
        assert left[0].name == EAGER
        # Of CuPy, which launches cuda's kernels, twins may be left out.
        assert {row.tier for row in left} >= {*TIERS} - {"cupy"}, case.name


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_no_row_leaves_all_cases_out(op: Op) -> None:
    for row in of_op(op.name):
        assert not all(
            row.left_out(op.sizes(case), dtype_name(case.dtype)) for case in op.benchmark_cases
        ), row.name


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_case_is_large_enough_to_be_cold_on_an_h200(op: Op) -> None:
    for case in op.benchmark_cases:
        assert set_count(op.bytes_moved(case), torch.device("cuda"), 60 * 2**20)


def test_an_extension_older_than_its_sources_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "built_from_csrc.py"
    library.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "csrc" / "kernels" / "softmax.cuh"
    source.parent.mkdir(parents=True)
    source.write_text("")
    monkeypatch.setattr(device, "ROOT", tmp_path)
    os.utime(source, (1, 1))
    assert device._outdated("built_from_csrc", "build it") == ""
    os.utime(library, (0, 0))
    assert device._outdated("built_from_csrc", "build it") == (
        "built_from_csrc is older than csrc/kernels/softmax.cuh: build it"
    )
