"""The one benchmark: every op x case x implementation. Collected only by `pytest --benchmark`."""

from __future__ import annotations

import pytest

from benchmarks.plugin import RUN, ReplayClock
from benchmarks.suite import Item, items

CLOCK = ReplayClock()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    run = metafunc.config.stash[RUN]
    rows = list(items(has_gpu=run.has_gpu, hot=run.hot))
    metafunc.parametrize("item", rows, ids=[row.name for row in rows])


@pytest.mark.benchmark(timer=CLOCK.read, warmup=False)
def test_benchmark(item: Item, request: pytest.FixtureRequest) -> None:
    row = request.config.stash[RUN].measure(request.node, item)
    if row["status"] == "skipped":
        pytest.skip(row["reason"])
    if row["status"] != "ok":
        pytest.fail(f"{row['status']}: {row['reason']}", pytrace=False)
    if not row["seconds"]:
        return
    # Only a right result reaches pytest-benchmark, which keeps the times of failed tests too.
    benchmark = request.getfixturevalue("benchmark")
    benchmark.group = f"{item.op.name} {item.case.name} {item.regime}"
    benchmark.extra_info |= {
        name: row[name] for name in ("bytes_moved", "flops", "max_error", "error_limit", "code")
    }
    CLOCK.load(row["seconds"])
    benchmark.pedantic(CLOCK.advance, rounds=len(row["seconds"]), iterations=1)
