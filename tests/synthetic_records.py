"""A records file as an H200 would write it, made up: every op, every status, hostile texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.codesize import digest, measure
from benchmarks.implementation import Implementation
from benchmarks.implementations import IMPLEMENTATIONS, of_op
from reference.ops import OPS
from reference.spec import Case, Op, dtype_name

__all__ = ["HOSTILE", "environment", "line", "write"]

HOSTILE = "</script><img src=x onerror=alert(1)> a|b `c` [x](javascript:1)\n\x1b[31mred\x1b[0m"

# Seconds as a multiple of what bounds the case, in a made-up but plausible order.
_PARTS = {
    "library/eager": 4.0,
    "library/graph": 3.0,
    "library/compile": 2.0,
    "library/compile-max": 2.0,
    "library/cutlass": 2.5,
    "triton/sketch": 1.5,
    "triton/tuned": 1.1,
    "cuda/naive": 3.0,
    "cupy/naive": 3.0,
    "cuda/block": 2.5,
    "cupy/block": 2.5,
    "cuda/streamed": 1.2,
    "cupy/streamed": 1.2,
    "cuda/online": 1.5,
    "cupy/online": 1.5,
    "cuda/tiled": 1.8,
    "cupy/tiled": 1.8,
}
_BEST_PARTS = {"cuda": 1.05, "cupy": 1.055}
_BASELINE = "library/compile"


def environment(device: str = "cuda") -> dict[str, Any]:
    name = "NVIDIA H200" if device == "cuda" else "Some CPU"
    return {
        "date": "2026-12-01T12:00:00+00:00",
        "commit": "0123456789ab",
        "dirty": False,
        "machine": {"name": name, "slug": name.lower().replace(" ", "-"), "device": device},
        "versions": {"torch": "2.11.0"},
        "ceilings": {
            "copy": [[2**21, 1.1e12], [2**31, 4.25e12]],
            "read": 4.3e12,
            "write": 4.6e12,
            "matmul": {"bfloat16": 8e14, "float16": 8e14, "float32": 5e13},
            "special_functions": 4.1e12,
            "launch_seconds": 1e-6,
        },
        "datasheet": {"memory": 4.8e12, "matmul": {"bfloat16": 989e12}},
        "timing": {"sample_seconds": 0.01},
    }


def line(op: Op, case: Case, row: Implementation, **changed: Any) -> dict[str, Any]:
    """A row that is ok, but for what is changed."""
    bound = max(op.bytes_moved(case) / 4.2e12, op.flops(case) / 7.5e14)
    rate = {"float32": 16} if op.flops(case) else {}
    bound *= rate.get(dtype_name(case.dtype), 1)
    part = _PARTS.get(row.name) or _BEST_PARTS[row.tier]
    samples = [part * bound * (1 + 0.001 * (i % 3)) for i in range(20)]
    arm = "library/eager" if row.is_call else _BASELINE
    paired = {arm: [_PARTS[arm] * bound * (1 + 0.001 * (i * 3 % 7)) for i in range(20)]}
    if not op.flops(case):
        paired["ceiling/copy"] = [bound] * 20
    return {
        "kind": "row",
        "op": op.name,
        "case": case.name,
        "sizes": op.sizes(case),
        "dtype": dtype_name(case.dtype),
        "layout": case.layout,
        "tier": row.tier,
        "variant": row.variant,
        "effort": row.effort,
        "regime": "cold",
        "mode": "device",
        "issue": row.issue,
        "status": "ok",
        "reason": "",
        "max_error": 1e-3,
        "error_limit": 4e-3,
        "library_error": 1e-3,
        "seconds": samples,
        "paired": paired,
        "host_seconds": 1e-5,
        "stream_seconds": 1e-5,
        "first_call_seconds": 0.5,
        "bytes_moved": op.bytes_moved(case),
        "flops": op.flops(case),
        "special_functions": op.special_functions(case),
        "code": {
            "lines": measure(row.sources).lines,
            "tokens": measure(row.sources).tokens,
            "registers": 64,
            "shared_bytes": 0,
            "spill_bytes": 0,
        },
        "source_digest": digest(row.sources),
        "clocks": {"sm_mhz": [1900, 1980], "throttle": []},
        **changed,
    }


def untimed(status: str, reason: str = "") -> dict[str, Any]:
    return {"status": status, "reason": reason, "seconds": [], "paired": {}}


def write(path: Path, *, device: str = "cuda") -> Path:
    """Every benchmark case and implementation, and one row of each kind that needs care."""
    writer = record.Writer(path, environment(device))
    special = {
        ("softmax", "triton", "sketch"): untimed("wrong", f"error {HOSTILE}"),
        ("softmax", "cuda", "naive"): untimed("error", HOSTILE),
        ("softmax", "cupy", "naive"): untimed("skipped", "cupy is not there: pip install x"),
        ("chain", "cuda", "naive"): {"source_digest": "000000000000"},
        ("chain", "cuda", "packed"): {"clocks": {"throttle": ["software power cap"]}},
    }
    for op in OPS.values():
        for case in op.benchmark_cases:
            for row in of_op(op.name):
                changed = special.get((row.op, row.tier, row.variant), {})
                writer.write(line(op, case, row, **changed))
    softmax = OPS["softmax"]
    for case in softmax.test_cases:
        row = next(r for r in IMPLEMENTATIONS if r.op == "softmax" and r.tier == "triton")
        writer.write(line(softmax, case, row, mode="interpreter", **untimed("ok")))
    writer.close()
    return path


def change(path: Path, number: int, **fields: Any) -> None:
    """Replace fields of one line of a records file, counted from 1."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), **fields})
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
