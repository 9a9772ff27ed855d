"""What the documents name is there: targets, options, files; and one version of each tool."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest

from benchmarks.codesize import ROOT
from benchmarks.report.readme import BEGIN, END, is_current
from reference.ops import OPS

README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_results_come_first() -> None:
    assert README.count(BEGIN) == README.count(END) == 1
    assert README.index(BEGIN) < README.index("make report") < README.index("\n## ")


def test_the_results_are_the_recorded_ones() -> None:
    recorded = ROOT / "results" / "nvidia-h200"
    if not recorded.exists():
        # No run, no figures.
        assert README.partition(BEGIN)[2].partition(END)[0].strip() == ""
        return
    assert is_current(recorded), "python -m benchmarks readme results/nvidia-h200"


def test_every_make_target_is_one() -> None:
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)`|^make ([a-z]+)", README + GUIDE, re.MULTILINE))
    assert {"report", "test", "check"} <= {name for pair in named for name in pair if name}
    assert {name for pair in named for name in pair if name} <= targets


def test_every_option_of_pytest_is_one() -> None:
    command = [sys.executable, "-m", "pytest", "--help"]
    known = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    section = README.partition("## pytest --benchmark")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(--[a-z][a-z-]+)", section))
    assert {"--results", "--resume", "--hot"} <= named
    for option in named:
        assert re.search(rf"{option}\b", known), option


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_file_that_is_named_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    named = re.findall(r"`([\w.-]+(?:/[\w.*-]*)+)`|\]\(([\w./-]+)\)", text)
    paths = {path for pair in named for path in pair if path}
    # Made by runs, or the guide's own example.
    paths = {path for path in paths if not re.search(r"^results/|scale2|jax", path)}
    assert len(paths) > 3
    for path in paths:
        # The guide's table names what is inside a folder.
        places = (ROOT, ROOT / "csrc", ROOT / "benchmarks")
        assert any((place / path).exists() for place in places), path


def test_extras_that_are_named_are_declared() -> None:
    extras = set(PYPROJECT["project"]["optional-dependencies"])
    assert set(re.findall(r"pip install '?\.\[(\w+)\]", README)) <= extras
    assert set(re.findall(r"'\.\[(\w+)\]'", MAKEFILE)) <= extras


def test_every_op_is_described() -> None:
    for op in OPS.values():
        assert re.search(rf"`{op.name}\(({', '.join(op.parameters)}|\.\.\.)\)`", README), op.name


def test_hooks_and_make_check_run_the_same_pinned_tools() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    hooked = re.findall(r"entry: \.venv/bin/([\w-]+(?: check| format)?)", hooks)
    recipe = MAKEFILE.partition("\ncheck: ")[2].partition("\n\n")[0]
    checked = re.findall(r"\$\(BIN\)/([\w-]+(?: check| format)?)", recipe)
    assert sorted(hooked) == sorted(checked)
    pinned = {
        requirement.partition("==")[0]
        for requirement in PYPROJECT["project"]["optional-dependencies"]["dev"]
        if "==" in requirement
    }
    assert {tool.split()[0] for tool in checked} == pinned
