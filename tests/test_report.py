"""The report: complete, escaped, the same every time, and nothing overwritten by a bad record."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic_records

from benchmarks import codesize, record
from benchmarks.__main__ import main
from benchmarks.codesize import ROOT
from benchmarks.implementations import find
from benchmarks.report import readme
from benchmarks.report.build import build
from benchmarks.report.format import clean, seconds
from benchmarks.report.page import page
from benchmarks.report.table import terminal

FIGURES = {"roofline", "row-length", "code-size", "chain-times"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    synthetic_records.write(directory / "records.jsonl")
    assert build(directory) == directory / "index.html"
    return directory


def test_everything_is_there(built: Path) -> None:
    assert {path.stem for path in (built / "figures").glob("*.svg")} == FIGURES
    markdown = (built / "report.md").read_text()
    html = (built / "index.html").read_text()
    assert len(html) < 3_000_000
    for text in (markdown, html):
        for title in (
            "Who won",
            "Failed",
            "Skipped",
            "Stale rows",
            "Ceilings",
            "How it was measured",
        ):
            assert title in text
    lines = codesize.measure(find("softmax", "cuda/registers").sources).lines
    won = "softmax: won by cuda/registers, 1.909 [1.908, 1.909] x the best library call"
    assert f"{won}, {lines} lines" in html
    assert "commit 0123456789ab" in html
    # † by the throttled variant, in its cases' tables and the summary, nowhere by the others.
    throttled = len(synthetic_records.OPS["chain"].benchmark_cases) + 1
    assert len(re.findall(r" †</td>", html)) == throttled


def test_a_kit_stands_beside_the_others_and_the_report_says_what_it_is(built: Path) -> None:
    markdown = (built / "report.md").read_text()
    assert "is no library call" in markdown
    assert re.search(r"\| matmul +\| library/cutlass \(kit\) .*\| best library call ", markdown)
    assert "matmul: won by cuda/" in markdown


def test_a_stale_row_shows_no_current_figure(built: Path) -> None:
    tables = {
        table.title: table
        for section in page(record.read(built / "records.jsonl"), None, {}, []).sections
        for table in section.tables
    }
    rows = [
        row for title, table in tables.items() if title.startswith("chain ") for row in table.rows
    ]
    stale = [row for row in rows if row[0] == "cuda/naive"]
    assert stale
    assert all(row[2] == "stale" and not any(row[3:7]) for row in stale)


def test_hostile_texts_are_shown_and_do_nothing(built: Path) -> None:
    html = (built / "index.html").read_text()
    assert "<img src=x" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    # Three scripts of the page's own, and none that a text closed early.
    assert html.count("</script>") == html.count("<script") == 3
    markdown = (built / "report.md").read_text()
    assert "\x1b" not in markdown + html
    assert "a\\|b \\`c\\` [x\\](javascript:1) red" in markdown
    rows = [text for text in markdown.splitlines() if text.startswith("| softmax | ")]
    assert rows
    # A pipe that isn't escaped would add a cell.
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows if "error" in row} == {6}


@pytest.mark.parametrize("field", ["op", "case", "tier", "variant", "effort", "regime", "dtype"])
def test_no_text_of_a_row_ends_the_build(tmp_path: Path, field: str) -> None:
    """A control character in a picture ends the process; one in a terminal rewrites its screen."""
    op = synthetic_records.OPS["chain"]
    hostile = f"{synthetic_records.HOSTILE}\x00\ufffe"
    writer = record.Writer(tmp_path / "records.jsonl", synthetic_records.environment())
    for row in synthetic_records.of_op("chain")[:2]:
        line = synthetic_records.line(op, op.benchmark_cases[0], row)
        writer.write({**line, field: hostile})
    writer.close()
    # A process of its own: what this is about could not be caught here.
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "report", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "index.html").read_text()
    shown = [terminal(record.read(tmp_path / "records.jsonl")), html]
    shown.append((tmp_path / "report.md").read_text())
    assert not any(character in text for text in shown for character in "\x00\x1b\ufffe")
    assert "<img src=x" not in html


def test_another_run_s_slug_is_no_path(built: Path, tmp_path: Path) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "records.jsonl").write_bytes((built / "records.jsonl").read_bytes())
    machine = {"name": "x", "slug": "../../up", "device": "cuda"}
    synthetic_records.change(tmp_path / "other" / "records.jsonl", 1, machine=machine)
    build(tmp_path / "own", beside=tmp_path / "other")
    assert {path.parent for path in tmp_path.rglob("*.svg")} == {tmp_path / "own" / "figures"}


def test_long_and_odd_texts_are_cut_and_cleaned() -> None:
    assert len(clean("x" * 10_000)) < 400
    assert clean("a\nb\tc\u202ed\x00e") == "a b c d e"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.234e-6, "1.23 us"),
        (45.67e-6, "45.7 us"),
        (999.6e-6, "1000 us"),
        (0.0123, "12.3 ms"),
        (2.5, "2.50 s"),
        (None, ""),
    ],
)
def test_seconds_are_written_in_the_unit_that_suits(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_building_twice_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_bytes((built / "records.jsonl").read_bytes())
    build(tmp_path)
    for name in ("report.md", "index.html", "figures/roofline.svg"):
        assert (tmp_path / name).read_bytes() == (built / name).read_bytes(), name


def test_another_run_stands_in_a_section_of_its_own(built: Path, tmp_path: Path) -> None:
    synthetic_records.write(tmp_path / "records.jsonl", device="cpu")
    build(tmp_path, beside=built)
    markdown = (tmp_path / "report.md").read_text()
    before, section, after = markdown.partition("## Recorded on NVIDIA H200")
    assert section
    assert "Measured on Some CPU" in before
    assert "Not this machine's figures: NVIDIA H200" in after
    assert "figures/nvidia-h200-roofline.svg" in after
    assert "figures/nvidia-h200-roofline.svg" not in before


@pytest.mark.parametrize("missing", ["altair", "vl_convert", "jinja2"])
def test_without_the_drawing_packages_there_is_still_a_report(
    built: Path, tmp_path: Path, missing: str
) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "records.jsonl").write_bytes((built / "records.jsonl").read_bytes())
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from pathlib import Path\nfrom benchmarks.report.build import build\n"
        f"print(build(Path({str(directory)!r})).name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "report.md\n"
    text = (directory / "report.md").read_text()
    assert f"because {missing} is not installed: pip install" in text
    assert "then python -m benchmarks report DIR" in text
    assert "softmax: won by cuda/registers, 1.909 [" in text


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: "", "records.jsonl:1: the file is empty"),
        (lambda text: text[:-10], "the line is cut off"),
        (lambda text: text.replace('"schema": 1', '"schema": 999', 1), "schema is 999"),
    ],
)
def test_unusable_records_leave_the_old_report(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil, message: str
) -> None:
    text = (built / "records.jsonl").read_text()
    (tmp_path / "records.jsonl").write_text(spoil(text))
    (tmp_path / "report.md").write_text("old")
    assert main(["report", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"records.jsonl", "report.md"}
    assert (tmp_path / "report.md").read_text() == "old"


def test_the_bytes_do_not_depend_on_the_locale(built: Path, tmp_path: Path) -> None:
    directory = tmp_path / "отчёт-größe"
    directory.mkdir()
    (directory / "records.jsonl").write_bytes((built / "records.jsonl").read_bytes())
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run(
        [sys.executable, "-m", "benchmarks", "report", str(directory)],
        cwd=ROOT,
        env={**os.environ, **plain},
        capture_output=True,
        check=True,
    )
    for name in ("report.md", "index.html"):
        assert (directory / name).read_bytes() == (built / name).read_bytes(), name


def test_the_terminal_shows_each_case_and_who_won(built: Path) -> None:
    text = terminal(record.read(built / "records.jsonl"))
    for op in synthetic_records.OPS.values():
        for case in op.benchmark_cases:
            assert f"{op.name} {case.name}" in text
    assert re.search(
        r"softmax +cuda/registers \(good\) +1\.909 .* best library call .* fastest", text
    )
    assert max(map(len, text.splitlines())) <= 120


def test_the_readme_s_table_is_written_and_compared(built: Path, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n\n{readme.BEGIN}\nold\n{readme.END}\n\nafter\n")
    assert not readme.is_current(built, page)
    readme.update(built, page)
    assert readme.is_current(built, page)
    text = page.read_text()
    assert text.startswith("before\n\n")
    assert text.endswith(f"{readme.END}\n\nafter\n")
    assert "cuda/registers" in text
    assert re.search(r"\| chain +\| 65536x4096-bfloat16 +\| \S+ us, compile", text)
    assert "1.90 x compile, 95 % of copy" in text
    assert "Measured on NVIDIA H200" in text
    synthetic_records.change(built / "records.jsonl", 1, date="2027-01-01T00:00:00+00:00")
    assert not readme.is_current(built, page)
    page.write_text("no markers")
    with pytest.raises(ValueError, match="must hold the lines"):
        readme.update(built, page)


def test_what_fails_in_the_interpreter_is_shown_with_its_reason(tmp_path: Path) -> None:
    writer = record.Writer(tmp_path / "records.jsonl", synthetic_records.environment("cpu"))
    op = synthetic_records.OPS["softmax"]
    row = next(row for row in synthetic_records.of_op("softmax") if row.tier == "triton")
    for case in op.test_cases[:2]:
        failed = synthetic_records.untimed("error", "the interpreter gave up")
        writer.write(synthetic_records.line(op, case, row, mode="interpreter", **failed))
    writer.close()
    build(tmp_path)
    (shown,) = re.findall(r"\| .*gave up.*", (tmp_path / "report.md").read_text())
    assert "error (interpreter)" in shown
    assert all(case.name in shown for case in op.test_cases[:2])
    assert "the interpreter gave up" in terminal(record.read(tmp_path / "records.jsonl"))


def test_a_run_of_nothing_but_failures_has_a_report(tmp_path: Path) -> None:
    writer = record.Writer(tmp_path / "records.jsonl", synthetic_records.environment())
    op = synthetic_records.OPS["softmax"]
    row = synthetic_records.of_op("softmax")[0]
    failed = synthetic_records.untimed("error", "no")
    writer.write(synthetic_records.line(op, op.benchmark_cases[0], row, **failed))
    writer.close()
    build(tmp_path)
    assert "No cold row of this run has a time" in (tmp_path / "report.md").read_text()
