"""Records: what is written comes back, and a bad file is a sentence with a line number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.record import RecordError, Writer, read

ENVIRONMENT: dict[str, Any] = {
    "date": "2026-12-01T00:00:00+00:00",
    "commit": "unknown",
    "machine": {"name": "X", "slug": "x", "device": "cpu"},
    "versions": {},
    "ceilings": {},
}
ROW: dict[str, Any] = {
    "kind": "row",
    "op": "softmax",
    "case": "4x8-float32",
    "sizes": {"rows": 4, "cols": 8},
    "dtype": "float32",
    "layout": "",
    "tier": "library",
    "variant": "eager",
    "effort": "call",
    "regime": "cold",
    "mode": "device",
    "issue": "graph",
    "status": "ok",
    "reason": "",
    "max_error": 1e-7,
    "error_limit": 1e-6,
    "library_error": 1e-7,
    "seconds": [1e-6, 2e-6],
    "paired": {"ceiling/copy": [1e-6, 1e-6]},
    "host_seconds": None,
    "first_call_seconds": 0.5,
    "bytes_moved": 256,
    "flops": 0,
    "special_functions": 32,
    "code": {},
    "source_digest": "0",
    "clocks": {},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.jsonl"


def write(path: Path, *rows: dict[str, Any], environment: dict[str, Any] | None = None) -> None:
    writer = Writer(path, ENVIRONMENT if environment is None else environment)
    for row in rows:
        writer.write(row)
    writer.close()


def test_what_is_written_comes_back(path: Path) -> None:
    write(path, ROW)
    run = read(path)
    assert run.rows == [ROW]
    assert run.environment["machine"] == ENVIRONMENT["machine"]


def test_each_line_is_on_disk_before_the_next_is_measured(path: Path) -> None:
    writer = Writer(path, ENVIRONMENT)
    writer.write(ROW)
    assert len(read(path).rows) == 1
    writer.close()


def test_the_later_of_two_rows_counts(path: Path) -> None:
    write(path, {**ROW, "status": "error", "seconds": [], "paired": {}}, ROW)
    assert [row["status"] for row in read(path).rows] == ["ok"]


def test_an_old_file_is_never_overwritten(path: Path) -> None:
    write(path, ROW)
    with pytest.raises(FileExistsError):
        Writer(path, ENVIRONMENT)
    assert len(read(path).rows) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()], ids=["nan", "inf", "obj"])
def test_what_json_has_no_form_for_is_refused_when_written(path: Path, value: object) -> None:
    writer = Writer(path, ENVIRONMENT)
    with pytest.raises((ValueError, TypeError)):
        writer.write({**ROW, "max_error": value})
    writer.close()
    assert read(path).rows == []


BAD_FIELDS = [
    ({"status": "fine"}, "status must be one of ok, wrong, error, skipped, got 'fine'"),
    ({"status": "wrong"}, "only a row that is ok may carry seconds"),
    ({"seconds": [0.0, 1.0]}, "'seconds' must be positive numbers, got 0.0"),
    ({"seconds": [-1.0, 1.0]}, "'seconds' must be positive numbers, got -1.0"),
    ({"seconds": ["1", 1.0]}, "'seconds' must be positive numbers, got \"1\""),
    ({"seconds": [1.0]}, "'paired' of 'ceiling/copy' has 2 samples, 'seconds' has 1"),
    ({"paired": {"ceiling/copy": 3}}, "'paired' of 'ceiling/copy' must be a list"),
    ({"op": 3}, "the field 'op' must be str, got 3"),
    ({"flops": True}, "the field 'flops' must be int, got true"),
    ({"kind": "note"}, 'must be a row, got kind "note"'),
]


@pytest.mark.parametrize(("change", "reason"), BAD_FIELDS, ids=lambda v: str(v)[:40])
def test_a_bad_row_is_named_by_its_line(path: Path, change: dict[str, Any], reason: str) -> None:
    write(path, ROW, {**ROW, **change})
    with pytest.raises(RecordError) as caught:
        read(path)
    assert f"{path}:3: " in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("field", [name for name in ROW if name != "kind"])
def test_a_missing_field_is_named(path: Path, field: str) -> None:
    write(path, {name: value for name, value in ROW.items() if name != field})
    with pytest.raises(RecordError, match=f":2: the field '{field}' is missing"):
        read(path)


@pytest.mark.parametrize("schema", [0, 999, "1", None, True])
def test_another_schema_is_refused(path: Path, schema: object) -> None:
    path.write_text(json.dumps({"kind": "environment", **ENVIRONMENT, "schema": schema}) + "\n")
    with pytest.raises(RecordError, match=r":1: the schema is .*, this version reads 1"):
        read(path)


BAD_FILES = {
    "empty": (b"", ":1: the file is empty"),
    "null bytes": (b"\0" * 64 + b"\n", ":1: not valid JSON"),
    "a list": (b"[]\n", ":1: must be a JSON object, got list"),
    "a byte order mark": (b'\xef\xbb\xbf{"kind": "environment"}\n', ":1: not valid JSON"),
    "not UTF-8": (b'{"kind": "\xff"}\n', ":1: not UTF-8"),
    "rows first": (json.dumps(ROW).encode() + b"\n", ":1: the first line must describe"),
    "a key twice": (b'{"kind": 1, "kind": 2}\n', ":1: .*the key 'kind' comes twice"),
    "a bare NaN": (b'{"kind": NaN}\n', ":1: .*NaN is not JSON"),
    "a huge number": (b'{"kind": 1e999}\n', ":1: .*too large"),
    "nested too deep": (b"[" * 100_000 + b"\n", ":1: not valid JSON"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_a_sentence(path: Path, name: str) -> None:
    content, reason = BAD_FILES[name]
    path.write_bytes(content)
    with pytest.raises(RecordError, match=reason):
        read(path)


def test_a_missing_file_and_a_directory_are_sentences(path: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        read(path)
    with pytest.raises(RecordError, match="Is a directory"):
        read(tmp_path)


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, 10_000), junk=st.binary(max_size=20), at=st.integers(0, 10_000))
def test_a_damaged_file_is_an_error_or_reads_clean(
    cut: int, junk: bytes, at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "records.jsonl"
    write(path, ROW, {**ROW, "variant": "compile"})
    whole = path.read_bytes()
    at %= len(whole)
    path.write_bytes((whole[:at] + junk + whole[at:])[: len(whole) + len(junk) - cut % 50])
    try:
        run = read(path)
    except RecordError as error:
        text = str(error)
    else:
        text = f"{path}:"
        assert all(second > 0 for row in run.rows for second in row["seconds"])
    assert text.startswith(f"{path}:")
