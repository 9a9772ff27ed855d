"""A run of the suite: which rows there are, who measures them, and what is written down."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks import codesize, device, record
from benchmarks.binary import FIELDS
from benchmarks.implementations import Implementation, find, of_op
from benchmarks.supervisor import Supervisor, WorkerError
from benchmarks.timing import Settings
from reference.ops import OPS
from reference.spec import Case, Op, dtype_name

__all__ = ["Item", "Suite", "items"]

# One row may compile (max-autotune takes up to a minute) and then samples for seconds. Longer
# than this, it hangs.
ROW_LIMIT_SECONDS = 300.0


@dataclass(frozen=True)
class Item:
    """One row to be measured."""

    op: Op
    case: Case
    implementation: Implementation
    regime: str
    mode: str

    @property
    def name(self) -> str:
        """As pytest shows it and `-k` selects it."""
        row = self.implementation
        hot = "-hot" if self.regime == "hot" else ""
        return f"{self.op.name}-{self.case.name}-{row.tier}-{row.variant}{hot}"


def items(*, has_gpu: bool, hot: bool) -> Iterator[Item]:
    """Every op x case x implementation for this kind of machine, a case's library calls first.

    Without a GPU the library is timed on the CPU's cases, and Triton is checked in its
    interpreter on the small ones.
    """
    for op in OPS.values():
        for case in op.benchmark_cases if has_gpu else op.cpu_cases:
            for row in of_op(op.name):
                if has_gpu or row.tier != "triton":
                    yield Item(op, case, row, "cold", "device")
                    if hot:
                        yield Item(op, case, row, "hot", "device")
        if not has_gpu:
            for case in op.test_cases:
                for row in of_op(op.name):
                    if row.tier == "triton":
                        yield Item(op, case, row, "cold", "interpreter")


class Suite:
    """Measures items and writes a record for each, whatever becomes of it.

    path: the records file
    resume: keep the rows that the file has and measure the others
    command: what the user ran, for the record
    """

    def __init__(self, path: Path, *, resume: bool, command: str, settings: Settings) -> None:
        self._settings = settings
        self._scratch = tempfile.TemporaryDirectory(prefix="kernel-tiers-")
        # Caches of this run's own: a first call's seconds are those of a user's first call.
        caches = {
            "TRITON_CACHE_DIR": f"{self._scratch.name}/triton",
            "TORCHINDUCTOR_CACHE_DIR": f"{self._scratch.name}/inductor",
            "CUPY_CACHE_DIR": f"{self._scratch.name}/cupy",
        }
        self._workers = {
            "device": Supervisor({**caches, "TRITON_INTERPRET": None}),
            "interpreter": Supervisor({**caches, "TRITON_INTERPRET": "1"}),
        }
        self._rows: dict[tuple[str, ...], dict[str, Any]] = {}
        self.path = path
        if resume and path.exists():
            run = record.read(path)
            self._ceilings = run.environment["ceilings"]
            self._rows = {record.key(row): row for row in run.rows}
            self._writer = record.Writer(path)
            try:
                self._refuse_other_machine(run.environment)
            except record.RecordError:
                self.close()
                raise
        else:
            worker = self._workers["device"]
            environment = worker.ask({"do": "environment"}, ROW_LIMIT_SECONDS)
            self._ceilings = worker.ask({"do": "ceilings"}, ROW_LIMIT_SECONDS)
            _keep_aside(path)
            self._writer = record.Writer(
                path,
                {
                    **environment,
                    "command": command,
                    "ceilings": self._ceilings,
                    "timing": asdict(settings),
                },
            )

    def _refuse_other_machine(self, before: dict[str, Any]) -> None:
        now = self._workers["device"].ask({"do": "environment"}, ROW_LIMIT_SECONDS)
        for name in ("machine", "versions"):
            if before[name] != now[name]:
                raise record.RecordError(
                    f"{self.path}: can't be resumed here: its {name} was {before[name]}, "
                    f"now it is {now[name]}"
                )

    def measure(self, item: Item) -> dict[str, Any]:
        """The item's record, measured now or, in a resumed run, before."""
        row = item.implementation
        digest = codesize.digest(row.sources)
        known = self._rows.get(
            (item.op.name, item.case.name, row.tier, row.variant, item.regime), None
        )
        if known and known["status"] in ("ok", "skipped") and known["source_digest"] == digest:
            return known
        fields = self._fields(item)
        resources = fields.pop("resources", dict.fromkeys(FIELDS))
        line = {
            "kind": "row",
            "op": item.op.name,
            "case": item.case.name,
            "sizes": item.op.sizes(item.case),
            "dtype": dtype_name(item.case.dtype),
            "layout": item.case.layout,
            "tier": row.tier,
            "variant": row.variant,
            "effort": row.effort,
            "regime": item.regime,
            "mode": item.mode,
            "issue": row.issue,
            "reason": "",
            "max_error": None,
            "error_limit": None,
            "library_error": None,
            "seconds": [],
            "paired": {},
            "host_seconds": None,
            "stream_seconds": None,
            "first_call_seconds": None,
            "bytes_moved": item.op.bytes_moved(item.case),
            "flops": item.op.flops(item.case),
            "special_functions": item.op.special_functions(item.case),
            "clocks": {},
            **fields,
            "code": {**asdict(codesize.measure(row.sources)), **resources},
            "source_digest": digest,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._writer.write(line)
        self._rows[record.key(line)] = line
        return line

    def _fields(self, item: Item) -> dict[str, Any]:
        row = item.implementation
        target = torch.device("cpu") if item.mode == "interpreter" else device.best_device()
        missing = device.unmet(row, target)
        if missing:
            return {"status": "skipped", "reason": missing}
        request = {
            "do": "row",
            "op": item.op.name,
            "case": item.case.name,
            "name": row.name,
            "baseline": self._baseline(item).name,
            "regime": item.regime,
            "ceilings": self._ceilings,
            "settings": asdict(self._settings),
        }
        try:
            return self._workers[item.mode].ask(request, ROW_LIMIT_SECONDS)
        except WorkerError as error:
            return {"status": "error", "reason": str(error)}

    def _baseline(self, item: Item) -> Implementation:
        """The library call to sample beside the item: eager for the library's own rows, for the
        others the fastest that this run has measured in the case."""
        best, best_seconds = find(item.op.name, "library/eager"), float("inf")
        if item.implementation.tier == "library":
            return best
        for row in of_op(item.op.name):
            key = (item.op.name, item.case.name, row.tier, row.variant, item.regime)
            found = self._rows.get(key)
            if row.tier == "library" and found and found["seconds"]:
                seconds = statistics.median(found["seconds"])
                if seconds < best_seconds:
                    best, best_seconds = row, seconds
        return best

    def close(self) -> None:
        """End the workers. Records are on disk already."""
        for worker in self._workers.values():
            worker.close()
        self._writer.close()
        self._scratch.cleanup()


def _keep_aside(path: Path) -> None:
    """Rename an older records file after its last change, so that nothing is overwritten."""
    if path.exists():
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y%m%d-%H%M%S")
        path.rename(path.with_name(f"{path.stem}-{changed}{path.suffix}"))
