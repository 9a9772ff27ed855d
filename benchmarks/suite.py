"""A run of the suite: which rows there are, who measures them, and what is written down."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks import codesize, device, record
from benchmarks.binary import FIELDS
from benchmarks.implementation import EAGER, Implementation
from benchmarks.implementations import of_op
from benchmarks.supervisor import Supervisor, WorkerError
from benchmarks.timing import Settings
from reference.ops import OPS
from reference.spec import Case, Op, dtype_name

__all__ = ["Item", "Suite", "items"]

# A row's first call may compile (max-autotune takes up to a minute), and a case samples for
# seconds. Longer than this, it hangs.
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

    @property
    def case_key(self) -> tuple[str, ...]:
        """The same for all items that are measured together."""
        return (self.op.name, self.case.name, self.regime, self.mode)


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
        self._measured: set[tuple[str, ...]] = set()
        # Of library calls whose records are not written yet: their seconds.
        self._timed: dict[tuple[str, ...], list[float]] = {}
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

    def measure(self, item: Item, case_items: Sequence[Item] = ()) -> dict[str, Any]:
        """The item's record, measured now or before.

        case_items: what is wanted of the item's case, in the order of the records. All of them are
            measured at once, in the same rounds.
        """
        if self._known(item) is None:
            wanted = [*case_items] if item in case_items else [item]
            self._measure_case([other for other in wanted if self._known(other) is None])
        return self._rows[_key(item)]

    def _known(self, item: Item) -> dict[str, Any] | None:
        """The item's record, if it needs no other: measured in this run, or before and current."""
        known = self._rows.get(_key(item))
        if known is None or _key(item) in self._measured:
            return known
        current = known["source_digest"] == codesize.digest(item.implementation.sources)
        return known if current and known["status"] in ("ok", "skipped") else None

    def _measure_case(self, items: list[Item]) -> None:
        """items: of one case, regime and mode. A record for each, in their order."""
        fields = {item.name: self._check(item) for item in items}
        # Only what was right and is to be timed carries the seconds of its first call.
        timed = [item for item in items if "first_call_seconds" in fields[item.name]]
        for name, more in self._time(timed).items():
            fields[name] |= more
        for item in items:
            self._write(item, fields[item.name])

    def _check(self, item: Item) -> dict[str, Any]:
        target = torch.device("cpu") if item.mode == "interpreter" else device.best_device()
        row, case = item.implementation, item.case
        reason = device.unmet(row, target)
        if case in item.op.benchmark_cases:
            sizes, dtype = item.op.sizes(case), dtype_name(case.dtype)
            reason = reason or row.left_out(sizes, dtype, device.is_hopper())
        if reason:
            return {"status": "skipped", "reason": reason}
        try:
            return self._ask(item, do="check", name=row.name)
        except WorkerError as error:
            return {"status": "error", "reason": str(error)}

    def _time(self, items: list[Item]) -> dict[str, dict[str, Any]]:
        """By item's name. One that fails with all others is tried by itself, so that only what is
        at fault has no time."""
        if not items:
            return {}
        names = [item.implementation.name for item in items]
        try:
            found = self._ask(items[0], do="time", names=names, beside=self._beside(items))
        except WorkerError as error:
            if len(items) == 1:
                return {items[0].name: {"status": "error", "reason": str(error)}}
            return self._time_singly(items)
        return {item.name: found[item.implementation.name] for item in items}

    def _time_singly(self, items: list[Item]) -> dict[str, dict[str, Any]]:
        """The library's calls first, so that the others are paired with the fastest of them."""
        found: dict[str, dict[str, Any]] = {}
        for item in sorted(items, key=lambda item: not item.implementation.is_call):
            found |= self._time([item])
            self._timed[_key(item)] = found[item.name].get("seconds", [])
        return found

    def _ask(self, item: Item, **request: Any) -> dict[str, Any]:
        request |= {
            "op": item.op.name,
            "case": item.case.name,
            "regime": item.regime,
            "ceilings": self._ceilings,
            "settings": asdict(self._settings),
        }
        return self._workers[item.mode].ask(request, ROW_LIMIT_SECONDS)

    def _beside(self, items: list[Item]) -> list[str]:
        """Library calls to sample beside the items, which are not among them: eager, and where no
        library call is to be measured, the fastest that is known."""
        wanted = {item.implementation.name for item in items}
        beside = {EAGER}
        if not any(item.implementation.is_call for item in items):
            medians = {}
            for row in of_op(items[0].op.name):
                key = _key(replace(items[0], implementation=row))
                seconds = self._timed.get(key) or self._rows.get(key, {}).get("seconds")
                if row.is_call and seconds:
                    medians[row.name] = statistics.median(seconds)
            if medians:
                beside.add(min(medians, key=lambda name: medians[name]))
        return sorted(beside - wanted)

    def _write(self, item: Item, fields: dict[str, Any]) -> None:
        row = item.implementation
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
            "source_digest": codesize.digest(row.sources),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._writer.write(line)
        self._rows[_key(item)] = line
        self._measured.add(_key(item))

    def close(self) -> None:
        """End the workers. Records are on disk already."""
        for worker in self._workers.values():
            worker.close()
        self._writer.close()
        self._scratch.cleanup()


def _key(item: Item) -> tuple[str, ...]:
    """The item's record's, see `benchmarks.record.key`."""
    row = item.implementation
    return (item.op.name, item.case.name, row.tier, row.variant, item.regime)


def _keep_aside(path: Path) -> None:
    """Rename an older records file after its last change, so that nothing is overwritten."""
    if path.exists():
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y%m%d-%H%M%S")
        path.rename(path.with_name(f"{path.stem}-{changed}{path.suffix}"))
