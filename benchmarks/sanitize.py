"""compute-sanitizer over small cases of every hand-written kernel, summed up beside the records.

One process a tool, since loading torch under it takes longer than the kernels. It names each call
before it makes it and waits for it, so that what the tool prints in between is that call's.

    python -m benchmarks sanitize DIR
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from benchmarks import check, device
from benchmarks.implementation import Implementation
from benchmarks.implementations import IMPLEMENTATIONS
from reference.ops import OPS
from reference.spec import Case, Op

__all__ = ["TOOLS", "cases_of", "errors_of", "main", "summary"]

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

BF16, FP32 = torch.bfloat16, torch.float32

# Beside an op's small test cases: what reaches the kernels that those are too small for.
MORE = {
    # A row a cluster, of sixteen blocks too, and rows that start anywhere.
    "softmax": (
        *(Case((3, 131072), BF16), Case((200, 16391), BF16), Case((24, 262144), BF16)),
        *(Case((140, 32768), BF16), Case((17, 262144), FP32)),
        # More rows than multiprocessors, whose programs meet.
        *(Case((140, 65536), BF16), Case((140, 50257), BF16)),
    ),
    "chain": (Case((70, 4096), BF16), Case((9, 2056), FP32)),
    "chain_sfu": (Case((70, 4096), BF16), Case((9, 2056), FP32)),
    # A tile and more, in both layouts, and few rows with more K than a stage.
    "matmul": tuple(
        Case(size, BF16, layout)
        for size in ((1, 1032, 264), (64, 1032, 264), (264, 200, 520))
        for layout in ("kn", "nk")
    ),
}

MARK = "sanitize: "

_SUMMARY = re.compile(r"=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
_FOUND = re.compile(
    r"=+ (Invalid|Error|Warning: Race|Uninitialized|Barrier|Program hit|Misaligned)"
)


def main(directory: Path) -> int:
    """Runs every tool, writes sanitizer.md in `directory`; 1 if any found something.

    Raises ValueError where compute-sanitizer or a CUDA device is missing.
    """
    program = _program()
    if device.best_device().type != "cuda":
        raise ValueError("compute-sanitizer watches kernels on a CUDA device, and there is none")
    found = {}
    for tool in TOOLS:
        lines = _run(program, tool)
        (directory / f"sanitizer-{tool}.log").write_text("".join(lines))
        found[tool] = errors_of(lines)
    text = summary(found)
    (directory / "sanitizer.md").write_text(text)
    print(text)
    return int(any(errors for of_tool in found.values() for errors in of_tool.values()))


def _program() -> str:
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(program).exists():
        raise ValueError("compute-sanitizer, which comes with the CUDA toolkit, is not on PATH")
    return program


def _run(program: str, tool: str) -> list[str]:
    kernels = sorted({name for row in IMPLEMENTATIONS for name in row.kernels})
    command = [program, "--tool", tool, "--print-limit", "1000"]
    # Only ours: under racecheck, torch's would take minutes.
    command += [part for name in kernels for part in ("--kernel-regex", f"kns={name}")]
    command += [sys.executable, "-m", "benchmarks.sanitize"]
    # A block that torch's allocator hands out again is neither out of bounds nor fresh.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines = done.stdout.splitlines(keepends=True)
    if not any(_SUMMARY.match(line) for line in lines):
        raise ValueError(f"{tool} did not come to its summary: {done.stdout[-2000:]}")
    return lines


def errors_of(lines: Iterable[str]) -> dict[str, int]:
    """What a tool found, by call; "" for what it said before the first.

    lines: the tool's output around the calls that this file's process names
    Raises ValueError where the calls' sum is not the tool's own: some of it went unseen.
    """
    found = {"": 0}
    call, total = "", 0
    for line in lines:
        if line.startswith(MARK):
            call = line.removeprefix(MARK).strip()
            found[call] = 0
        elif match := _SUMMARY.match(line):
            total += int(match[1])
        elif _FOUND.match(line):
            found[call] += 1
    if total and not any(found.values()):
        raise ValueError(f"the tool counts {total} errors, of which none was read")
    if not found[""]:
        del found[""]
    return found


def summary(found: dict[str, dict[str, int]]) -> str:
    """A page of Markdown: how many calls each tool watched, and what it found.

    found: by tool, what `errors_of` returns
    """
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    machine = device.environment()["machine"]["name"]
    lines = [
        f"compute-sanitizer on {machine}, {today}, small cases of every kernel.",
        "",
        "| tool | calls | with findings |",
        "|:--|--:|:--|",
    ]
    for tool, calls in found.items():
        bad = [f"{call} ({errors})" for call, errors in calls.items() if errors]
        lines.append(f"| {tool} | {len(calls)} | {', '.join(bad) or 'none'} |")
    return "\n".join(lines) + "\n"


def cases_of(op: Op) -> tuple[Case, ...]:
    """Small ones that together reach every kernel of the op."""
    return (*op.test_cases, *MORE[op.name])


def _calls() -> Iterator[tuple[Op, Case, Implementation]]:
    for row in IMPLEMENTATIONS:
        if row.tier == "library" or device.unmet(row, device.best_device()):
            continue
        for case in cases_of(OPS[row.op]):
            yield OPS[row.op], case, row


def watched() -> None:
    """Makes each call, under whatever tool this process runs."""
    for op, case, row in _calls():
        print(f"{MARK}{row.op} {row.name} {case.name}", flush=True)
        with torch.no_grad():
            row.resolve()(*check.draw(op, case, device.best_device(), seed=1))
        torch.cuda.synchronize()


if __name__ == "__main__":
    watched()
