"""The ruler: comments and docstrings weigh nothing, in any language of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.codesize import CodeSize, SourceError, digest, measure
from benchmarks.implementations import IMPLEMENTATIONS

PYTHON = '''
"""A module."""

@decorate
def f(x):
    """What it does.

    At length.
    """
    # why
    y = x + 1  # so
    return y


def g():
    return "a string"
'''
CUDA = """
// why
#include "part.cuh"
/* at
   length */
__global__ void f(float* x) {
  x[0] += 1.0f;  // so
}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(PYTHON)
    (tmp_path / "csrc" / "kernels").mkdir(parents=True)
    (tmp_path / "csrc" / "kernels" / "f.cuh").write_text(CUDA)
    (tmp_path / "csrc" / "kernels" / "part.cuh").write_text("#pragma once\nint part;\n")
    return tmp_path


def test_known_counts(tree: Path) -> None:
    # @decorate | def f(x): | y = x + 1 | return y
    assert measure(("a.py:f",), tree) == CodeSize(lines=4, tokens=1 + 6 + 5 + 2)
    assert measure(("a.py:g",), tree) == CodeSize(lines=2, tokens=5 + 2)
    # f.cuh: # include "part.cuh" | __global__ void f(float* x) { | x[0] += 1.0f; | }
    # part.cuh: # pragma once | int part;
    f_cuh, part_cuh = 3 + 9 + 7 + 1, 3 + 3
    assert measure(("csrc/kernels/f.cuh",), tree) == CodeSize(lines=6, tokens=f_cuh + part_cuh)


def test_a_file_counts_once(tree: Path) -> None:
    twice = ("csrc/kernels/f.cuh", "csrc/kernels/part.cuh")
    assert measure(twice, tree) == measure(twice[:1], tree)


def test_a_comment_changes_no_digest_and_code_does(tree: Path) -> None:
    sources = ("a.py:f", "csrc/kernels/f.cuh")
    before = digest(sources, tree)
    (tree / "a.py").write_text(PYTHON.replace("# why", "# another reason").replace("At", "Not at"))
    (tree / "csrc" / "kernels" / "f.cuh").write_text(CUDA.replace("// why", "// because"))
    assert digest(sources, tree) == before
    (tree / "csrc" / "kernels" / "part.cuh").write_text("#pragma once\nint part2;\n")
    assert digest(sources, tree) != before


def test_another_function_of_the_file_changes_no_digest(tree: Path) -> None:
    before = digest(("a.py:f",), tree)
    (tree / "a.py").write_text(PYTHON.replace("a string", "another"))
    assert digest(("a.py:f",), tree) == before


def test_a_table_of_constants_counts_where_it_is_named(tree: Path) -> None:
    (tree / "plans.py").write_text("# why\nPLANS = (\n    (1, 2),\n)\nOTHER = 3\n")
    assert measure(("plans.py:PLANS",), tree) == CodeSize(lines=3, tokens=10)


def test_missing_sources_are_sentences(tree: Path) -> None:
    with pytest.raises(SourceError, match=r"a\.py does not define h"):
        measure(("a.py:h",), tree)
    with pytest.raises(SourceError, match=r"b\.py: No such file"):
        measure(("b.py",), tree)


def test_every_implementation_has_code_and_a_digest_of_its_own() -> None:
    for row in IMPLEMENTATIONS:
        assert measure(row.sources).tokens > 0, row
        assert len(digest(row.sources)) == 12
