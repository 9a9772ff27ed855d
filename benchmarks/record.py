"""Records: JSON lines, the one thing that flows from the clock to the tables.

The first line describes the environment, every further line is one row: op x case x
implementation x regime. Lines are appended and flushed one by one, so an interrupted run keeps
what it had. Nothing that can be computed from a record (rates, percentages, ratios) is stored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["SCHEMA", "STATUSES", "RecordError", "Run", "Writer", "key", "read"]

SCHEMA = 1

STATUSES = ("ok", "wrong", "error", "skipped")

# Field -> accepted types. A row may carry more; these are what every reader may rely on.
_NUMBER = (int, float)
_ENVIRONMENT: dict[str, tuple[type, ...]] = {
    "date": (str,),
    "commit": (str,),
    "machine": (dict,),
    "versions": (dict,),
    "ceilings": (dict,),
}
_ROW: dict[str, tuple[type, ...]] = {
    "op": (str,),
    "case": (str,),
    "sizes": (dict,),
    "dtype": (str,),
    "layout": (str,),
    "tier": (str,),
    "variant": (str,),
    "effort": (str,),
    "regime": (str,),
    "mode": (str,),
    "issue": (str,),
    "status": (str,),
    "reason": (str,),
    "max_error": (*_NUMBER, type(None)),
    "error_limit": (*_NUMBER, type(None)),
    "library_error": (*_NUMBER, type(None)),
    "seconds": (list,),
    "paired": (dict,),
    "host_seconds": (*_NUMBER, type(None)),
    "first_call_seconds": (*_NUMBER, type(None)),
    "bytes_moved": (int,),
    "flops": (int,),
    "special_functions": (int,),
    "code": (dict,),
    "source_digest": (str,),
    "clocks": (dict,),
}


class RecordError(ValueError):
    """A records file that can't be used; the text has the path, the line and what is wrong."""


@dataclass(frozen=True)
class Run:
    """What one records file holds."""

    environment: dict[str, Any]
    rows: list[dict[str, Any]]


def key(row: dict[str, Any]) -> tuple[str, ...]:
    """What makes a row unique in its run."""
    return tuple(str(row[field]) for field in ("op", "case", "tier", "variant", "regime"))


def read(path: Path) -> Run:
    """Read a records file. Of two rows with one key the later counts: a run was resumed.

    Raises RecordError where a line is not valid JSON, not of this schema, or cut off.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise RecordError(f"{path}:{line}: not UTF-8 text") from error
    if not text:
        raise RecordError(f"{path}:1: the file is empty")
    environment: dict[str, Any] = {}
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for number, value in _lines(path, text):
        where = f"{path}:{number}"
        if number == 1:
            environment = _environment(where, value)
        else:
            row = _row(where, value)
            rows[key(row)] = row
    return Run(environment, list(rows.values()))


def _lines(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    # Not splitlines(): it also breaks at characters that JSON allows inside a string.
    lines = text.split("\n")
    if lines[-1]:
        raise RecordError(f"{path}:{len(lines)}: the line is cut off (no line break at its end)")
    for number, line in enumerate(lines[:-1], 1):
        try:
            value = json.loads(
                line, object_pairs_hook=_no_twins, parse_constant=_no_constant, parse_float=_finite
            )
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path}:{number}: not valid JSON ({error})") from error
        if not isinstance(value, dict):
            raise RecordError(f"{path}:{number}: must be a JSON object, got {type(value).__name__}")
        yield number, value


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} comes twice")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large for a number")
    return value


def _expect(where: str, value: dict[str, Any], fields: dict[str, tuple[type, ...]]) -> None:
    for name, types in fields.items():
        if name not in value:
            raise RecordError(f"{where}: the field {name!r} is missing")
        # bool is an int to Python, and never a number in a record.
        if not isinstance(value[name], types) or isinstance(value[name], bool):
            accepted = " or ".join("null" if t is type(None) else t.__name__ for t in types)
            got = json.dumps(value[name])[:60]
            raise RecordError(f"{where}: the field {name!r} must be {accepted}, got {got}")


def _environment(where: str, value: dict[str, Any]) -> dict[str, Any]:
    if value.get("kind") != "environment":
        raise RecordError(f"{where}: the first line must describe the environment")
    if value.get("schema") != SCHEMA or isinstance(value.get("schema"), bool):
        raise RecordError(
            f"{where}: the schema is {json.dumps(value.get('schema'))}, this version reads {SCHEMA}"
        )
    _expect(where, value, _ENVIRONMENT)
    _expect(where, value["machine"], {"name": (str,), "slug": (str,), "device": (str,)})
    return value


def _row(where: str, value: dict[str, Any]) -> dict[str, Any]:
    if value.get("kind") != "row":
        raise RecordError(f"{where}: must be a row, got kind {json.dumps(value.get('kind'))[:60]}")
    _expect(where, value, _ROW)
    if value["status"] not in STATUSES:
        raise RecordError(
            f"{where}: the status must be one of {', '.join(STATUSES)}, "
            f"got {value['status'][:60]!r}"
        )
    if value["status"] != "ok" and (value["seconds"] or value["paired"]):
        raise RecordError(f"{where}: only a row that is ok may carry seconds")
    _expect_times(f"{where}: 'seconds'", value["seconds"])
    for arm, times in value["paired"].items():
        _expect_times(f"{where}: 'paired' of {arm[:60]!r}", times)
        if len(times) != len(value["seconds"]):
            raise RecordError(
                f"{where}: 'paired' of {arm[:60]!r} has {len(times)} samples, "
                f"'seconds' has {len(value['seconds'])}"
            )
    return value


def _expect_times(where: str, times: Any) -> None:
    if not isinstance(times, list):
        raise RecordError(f"{where} must be a list")
    for time in times:
        if isinstance(time, bool) or not isinstance(time, _NUMBER) or not time > 0:
            raise RecordError(f"{where} must be positive numbers, got {json.dumps(time)[:60]}")


class Writer:
    """Appends lines to a records file, each whole and on disk before the next is measured."""

    def __init__(self, path: Path, environment: dict[str, Any] | None = None) -> None:
        """environment: written as the first line of a new file; None continues an old one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a" if environment is None else "x", encoding="utf-8", newline="\n")
        self.path = path
        if environment is not None:
            self.write({"kind": "environment", "schema": SCHEMA, **environment})

    def write(self, line: dict[str, Any]) -> None:
        """Append one line. A value that JSON has no form for is an error here, not in a reader."""
        self._file.write(json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
