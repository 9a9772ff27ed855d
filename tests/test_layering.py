"""The shape of the tree: imports point one way, and every op is complete in every tier."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import codesize
from benchmarks.codesize import ROOT
from benchmarks.implementation import TIERS, Implementation
from benchmarks.implementations import IMPLEMENTATIONS
from reference import chain, chain_sfu
from reference.ops import OPS

# What a package may import beside itself and Python's own library.
MAY_IMPORT = {
    "reference": {"torch"},
    "triton_impl": {"torch", "triton", "reference"},
    "cuda_impl": {"torch", "numpy", "cupy", "cuda", "reference"},
}
TIER_PACKAGES = {row.module.partition(".")[0] for row in IMPLEMENTATIONS} - {"reference"}
MODULES = sorted(
    path
    for name in {"reference", "benchmarks", *TIER_PACKAGES}
    for path in (ROOT / name).rglob("*.py")
)
CHAINS = {"chain": chain.STEPS, "chain_sfu": chain_sfu.STEPS}

by_module = pytest.mark.parametrize(
    "path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix()
)
by_row = pytest.mark.parametrize(
    "row", IMPLEMENTATIONS, ids=lambda row: f"{row.op}-{row.tier}-{row.variant}"
)


def imported(path: Path) -> set[str]:
    """The top-level packages that a file imports anywhere, in functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found.add(str(node.module).partition(".")[0])
    return found


@by_module
def test_imports_point_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    others = imported(path) - set(sys.stdlib_module_names) - {package}
    if package in MAY_IMPORT:
        assert others <= MAY_IMPORT[package]
    if package in TIER_PACKAGES:
        assert not others & {"benchmarks", *TIER_PACKAGES}
    if package == "benchmarks":
        assert not others & TIER_PACKAGES, "a tier is found by the name in its row"


def test_report_and_records_need_no_torch() -> None:
    """They work from records alone, on a machine that has neither torch nor a tier."""
    package = sorted((ROOT / "benchmarks" / "report").glob("*.py"))
    names = [f"benchmarks.report.{path.stem}" for path in package if path.stem != "__init__"]
    names += ["benchmarks.record", "benchmarks.__main__"]
    names += ["benchmarks.rule"] if importlib.util.find_spec("benchmarks.rule") else []
    blocked = "import sys; sys.modules |= dict.fromkeys(('torch', 'triton', 'cupy'))"
    program = f"{blocked}; import {', '.join(names)}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@by_module
def test_a_module_lists_its_public_names(path: Path) -> None:
    defined = [node for node in ast.parse(path.read_text()).body if hasattr(node, "name")]
    # pytest calls what it finds by these names.
    ours = [node.name for node in defined if not node.name.startswith(("_", "pytest_", "test_"))]
    assert not ours or "\n__all__ = [" in path.read_text()


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_lacks_no_op(tier: str) -> None:
    lacking = set(OPS) - {row.op for row in IMPLEMENTATIONS if row.tier == tier}
    assert not lacking, f"tier {tier} has no row for {', '.join(sorted(lacking))}"


def test_every_row_is_of_an_op_and_has_a_name_of_its_own() -> None:
    assert {row.op for row in IMPLEMENTATIONS} == set(OPS)
    names = [(row.op, row.name) for row in IMPLEMENTATIONS]
    assert len(set(names)) == len(names)


@by_row
def test_a_row_counts_the_kernels_that_it_names(row: Implementation) -> None:
    counted = [text for _, text in codesize._texts(row.sources, ROOT)]
    for kernel in row.kernels:
        defined = rf"def {kernel}\(|__global__[^;{{]*\b{kernel}\("
        assert any(re.search(defined, text) for text in counted), f"{kernel} is not counted"


@pytest.mark.parametrize(
    "row",
    [row for row in IMPLEMENTATIONS if row.op in CHAINS],
    ids=lambda row: f"{row.op}-{row.tier}-{row.variant}",
)
def test_every_tier_s_source_names_the_steps_in_order(row: Implementation) -> None:
    names = [step.name for step in CHAINS[row.op]]
    texts = [(ROOT / source.partition(":")[0]).read_text() for source in row.sources]
    # The row's other sources choose its launches.
    (arithmetic,) = (text for text in texts if re.search(rf"(//|#) {names[0]}\b", text))
    comments = re.findall(
        r"^ +(?:[uv] = |float |return ).*?\s+(?://|#) ([\w, ]+)$", arithmetic, re.MULTILINE
    )
    assert re.split(r",? ", " ".join(comments)) == names


def committed_text() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("a copy without its history doesn't say which files are committed")
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            yield name, (ROOT / name).read_text(encoding="utf-8")


def test_no_file_holds_a_path_of_somebody_s_machine() -> None:
    # Joined, so that this file is no exception.
    folders = ["/".join(("", name, "")) for name in ("home", "root", "work", "Users")]
    for name, text in committed_text():
        for folder in folders:
            assert folder not in text, f"{name} holds {folder}"
