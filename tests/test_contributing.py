"""CONTRIBUTING.md's recipe for an op, followed in a copy of the tree, by its own code blocks."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import record
from benchmarks.codesize import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
# (language, path, code), in order
BLOCKS = re.findall(r"^```(python|diff) (\S+)\n(.*?)^```$", GUIDE, re.M | re.S)
COPIED = ("reference", "triton_impl", "cuda_impl", "csrc", "benchmarks", "tests")


def apply(block: str, path: Path) -> None:
    """Replace a diff's lines that begin with - or a space by those that begin with + or a space,
    hunk by hunk; a hunk ends where removed or kept lines follow added ones."""
    text = path.read_text()
    for hunk in re.findall(r"(?:^[- ].*\n)*(?:^\+.*\n?)+(?:^ .*\n?)*", block, re.MULTILINE):
        lines = hunk.splitlines()
        old, new = ("\n".join(ln[1:] for ln in lines if ln[0] in signs) for signs in ("- ", "+ "))
        assert text.count(old) == 1, f"{path.name} holds {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    path.write_text(text)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree in which every block of the guide is done, in order."""
    tree = tmp_path_factory.mktemp("tree")
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in ("conftest.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tree)
    assert len(BLOCKS) >= 5
    for language, path, block in BLOCKS:
        if language == "diff":
            apply(block, tree / path)
        else:
            assert not (tree / path).exists()
            (tree / path).write_text(block)
    return tree


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=tree,
        # Before the tree that this one was copied from.
        env={**environment, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
    )


def test_the_op_passes_the_tests_that_every_op_has(tree: Path) -> None:
    tests = [f"tests/test_{name}.py" for name in ("reference", "contract", "layering", "codesize")]
    done = run(tree, "pytest", "-q", "-k", "scale2", *tests)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) > 50


def test_the_tree_says_which_tiers_lack_it(tree: Path) -> None:
    done = run(tree, "pytest", "-q", "-k", "lacks_no_op", "tests/test_layering.py")
    assert done.returncode == 1
    assert set(re.findall(r"AssertionError: (tier \w+ has no row for scale2)", done.stdout)) == {
        "tier cuda has no row for scale2",
        "tier cupy has no row for scale2",
    }


def test_the_op_is_measured_and_reported(tree: Path, tmp_path: Path) -> None:
    done = run(tree, "pytest", "--benchmark", "-k", "scale2", f"--results={tmp_path}")
    rows = record.read(tmp_path / "records.jsonl").rows
    assert {(row["tier"], row["variant"]) for row in rows} == {
        ("library", "eager"),
        ("library", "stream"),
        ("triton", "tuned"),
    }, done.stdout + done.stderr
    for row in rows:
        assert row["status"] == "ok", row["reason"]
        assert row["max_error"] == 0
    assert "scale2" in (tmp_path / "report.md").read_text()


def test_the_blocks_are_as_tidy_as_the_tree(tree: Path) -> None:
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("needs ruff: pip install .[dev]")
    for check in (["check"], ["format", "--check"]):
        done = run(tree, "ruff", *check, "--no-cache", *{path for _, path, _ in BLOCKS})
        assert done.returncode == 0, done.stdout


def test_the_guide_is_short() -> None:
    assert len(GUIDE.splitlines()) < 100
