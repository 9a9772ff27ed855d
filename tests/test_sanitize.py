"""What compute-sanitizer printed, by call. The tool itself needs a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import sanitize
from benchmarks.__main__ import main
from reference.ops import OPS

OUTPUT = """========= COMPUTE-SANITIZER
sanitize: softmax cuda/registers 4x2-float32
sanitize: softmax cuda/online 24x262144-bfloat16
========= Invalid __global__ read of size 16 bytes
=========     at softmax_online_kernel+0x40
========= Invalid __global__ read of size 16 bytes
sanitize: matmul cuda/wgmma 264x200x520-bfloat16-nk
========= ERROR SUMMARY: 2 errors
"""


def test_errors_are_those_of_the_call_before_them() -> None:
    assert sanitize.errors_of(OUTPUT.splitlines(keepends=True)) == {
        "softmax cuda/registers 4x2-float32": 0,
        "softmax cuda/online 24x262144-bfloat16": 2,
        "matmul cuda/wgmma 264x200x520-bfloat16-nk": 0,
    }


def test_errors_that_no_line_names_are_not_lost() -> None:
    with pytest.raises(ValueError, match="counts 3 errors, of which none was read"):
        sanitize.errors_of(["sanitize: chain cuda/naive 1x1\n", "===== ERROR SUMMARY: 3 errors\n"])


def test_a_summary_names_what_was_found() -> None:
    page = sanitize.summary({"memcheck": {"a": 0, "b": 2}, "racecheck": {"a": 0}})
    assert "| memcheck | 2 | b (2) |" in page
    assert "| racecheck | 1 | none |" in page


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_cases_are_small(op) -> None:
    assert max(op.bytes_moved(case) for case in sanitize.cases_of(op)) <= 2**26


def test_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sanitize.shutil, "which", lambda _: None)
    monkeypatch.setattr(sanitize.Path, "exists", lambda _: False)
    assert main(["sanitize", str(tmp_path)]) == 1
    assert "compute-sanitizer" in capsys.readouterr().err
