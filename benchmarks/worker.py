"""The process that touches the device: `python -m benchmarks.worker`.

It reads requests from standard input and answers on the descriptor it inherited as standard
output, one JSON object a line each. Whatever an implementation prints goes to standard error. A
row that raises costs one answer; one that hangs, crashes or ruins the CUDA context costs this
process, and `benchmarks.supervisor` starts another.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from benchmarks import device
from benchmarks.bench import Bench
from benchmarks.buffers import Machine
from benchmarks.ceilings import measure_ceilings
from benchmarks.codesize import ROOT
from benchmarks.implementations import find
from benchmarks.timing import Settings
from reference.ops import OPS

__all__ = ["main"]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    # A crash is told by its signal. On an H200 a worker that died by SIGSEGV took more than 20 s to
    # end; a core file of all that it had mapped is the likely reason.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worker = _Worker()
    for line in sys.stdin:
        answers.write(json.dumps(worker.answer(json.loads(line)), allow_nan=False) + "\n")


class _Worker:
    def __init__(self) -> None:
        interpreted = os.environ.get("TRITON_INTERPRET") == "1"
        self._device = torch.device("cpu") if interpreted else device.best_device()
        self._interpreted = interpreted
        self._bench: Bench | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """{"value": ...}, or {"error": text, "fatal": whether this process is of no more use}."""
        try:
            return {"value": self._do(request)}
        except Exception as error:
            traceback.print_exc()
            text = " ".join(f"{type(error).__name__}: {error}".split())
            return {"error": f"{text} (at {_place(error)})", "fatal": self._ruined()}

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "environment":
            return device.environment()
        if request["do"] == "ceilings":
            return measure_ceilings(self._device, self._cache_bytes())
        if request["do"] not in ("check", "time"):
            raise ValueError(
                f"do must be environment, ceilings, check or time, got {request['do']!r}"
            )
        if self._bench is None:
            machine = Machine(self._device, self._cache_bytes(), request["ceilings"])
            settings = Settings(**request["settings"])
            self._bench = Bench(machine, settings, interpreted=self._interpreted)
        op = OPS[request["op"]]
        cases = (*op.benchmark_cases, *op.cpu_cases, *op.test_cases)
        case = next(case for case in cases if case.name == request["case"])
        if request["do"] == "check":
            return self._bench.check(op, case, find(op.name, request["name"]), request["regime"])
        rows, beside = (
            [find(op.name, name) for name in request[names]] for names in ("names", "beside")
        )
        return self._bench.time(op, case, rows, beside, request["regime"])

    def _cache_bytes(self) -> int:
        if self._interpreted:
            return 0  # nothing is timed, so one buffer set is enough, however small
        if self._device.type == "cpu":
            return device.last_level_cache_bytes()
        return torch.cuda.get_device_properties(self._device).L2_cache_size

    def _ruined(self) -> bool:
        """After an illegal access every CUDA call of this process fails."""
        if self._device.type == "cpu":
            return False
        try:
            torch.cuda.synchronize(self._device)
            torch.zeros(1, device=self._device).add_(1).item()
        except Exception as error:  # torch raises RuntimeError, its own and plain
            print(f"the CUDA context is lost: {error}", file=sys.stderr)
            return True
        return False


def _place(error: Exception) -> str:
    """The last line of the project's own that the error came through, as file:line."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(ROOT)
        and "site-packages" not in Path(frame.filename).parts
    ]
    return f"{Path(frames[-1].filename).relative_to(ROOT)}:{frames[-1].lineno}"


if __name__ == "__main__":
    main()
