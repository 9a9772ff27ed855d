"""The parent's side of a worker: ask with a time limit, and replace a process that is lost."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.codesize import ROOT

__all__ = ["Supervisor", "WorkerError"]


class WorkerError(RuntimeError):
    """A request failed; the text says how. The next request gets a process that works."""


class Supervisor:
    """Owns one worker process at a time.

    environment: variables that the worker gets besides this process's own; None takes one away
    """

    def __init__(self, environment: dict[str, str | None]) -> None:
        merged = {**os.environ, **environment}
        self._environment = {name: value for name, value in merged.items() if value is not None}
        self._process: subprocess.Popen[str] | None = None
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")

    def ask(self, request: dict[str, Any], limit_seconds: float) -> dict[str, Any]:
        """The worker's answer. Raises WorkerError where there is none in time or it is an error."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError:
            pass  # it died before it was asked: the missing answer below says how
        line = self._wait(process, limit_seconds)
        if line is None:
            self.stop()
            raise WorkerError(f"no answer within {limit_seconds:.0f} s: the process was ended")
        if not line:
            raise WorkerError(self._describe_death(process))
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            if answer["fatal"]:
                self.stop()
            raise WorkerError(answer["error"])
        value: dict[str, Any] = answer["value"]
        return value

    def close(self) -> None:
        """End the worker for good."""
        self.stop()
        self._log.close()

    def stop(self) -> None:
        """End the worker, with whatever it started. The next request starts another."""
        if self._process is None:
            return
        process, self._process = self._process, None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # already gone
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:
                pass  # a request that nobody read is still in the pipe
        self._log.seek(0)
        self._log.truncate()

    def _start(self) -> subprocess.Popen[str]:
        # A session of its own: Ctrl-C reaches the parent alone, which then ends the worker.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker"],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="utf-8",
            start_new_session=True,
        )
        return self._process

    @staticmethod
    def _wait(process: subprocess.Popen[str], limit_seconds: float) -> str | None:
        """One line; "" at the end of the stream; None when the time is up."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(limit_seconds):
                return None
        # Answers are written whole, so a readable pipe holds a line or its end.
        return process.stdout.readline()

    def _describe_death(self, process: subprocess.Popen[str]) -> str:
        code = process.wait()
        if code < 0:
            how = f"by {signal.Signals(-code).name}"
        else:
            how = f"with exit code {code}"
        self._log.seek(0)
        last = [line.strip() for line in self._log.read().splitlines() if line.strip()][-1:]
        self.stop()
        return f"the process ended {how}" + (f" ({last[0][:200]})" if last else "")
