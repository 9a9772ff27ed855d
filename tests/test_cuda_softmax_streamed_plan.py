"""Which rows of softmax are streamed, and what the compiler makes of them. No GPU needed."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import torch
from test_cuda_compile import DTYPES, assert_nothing_spilled, cubin_of, dump, instructions

from cuda_impl import rawmodule
from cuda_impl import softmax_plan as plans

# An H200.
PROCESSORS = 132
MANY = 2**20
EDGES = {threads * elements * blocks for threads, elements, blocks in plans.STREAMED_BY}
LENGTHS = sorted(
    {edge + step for edge in EDGES for step in (-64, -63, -32, -31, -8, -1, 0, 1)}
    | {1, 1024, 50257, 128256}
    | {plans.STREAMED_FROM, plans.STREAMED_ANYWHERE_FROM}
)


BOUNDARIES = (2, 16, 128)


def plan_of(
    cols: int, itemsize: int = 2, boundary: int = 128, rows: int = MANY
) -> plans.StreamedPlan | None:
    return plans.streamed_plan(rows, cols, itemsize, boundary, processors=PROCESSORS)


def every_plan(itemsize: int) -> list[plans.StreamedPlan]:
    found = {plan_of(cols, itemsize, boundary) for cols in LENGTHS for boundary in BOUNDARIES}
    return sorted(plan for plan in found if plan)


@pytest.mark.parametrize("itemsize", [2, 4])
def test_every_plan_holds_its_row_wherever_it_starts(itemsize: int) -> None:
    for cols, boundary in itertools.product(LENGTHS, BOUNDARIES):
        plan = plan_of(cols, itemsize, boundary)
        if plan is None:
            continue
        starts = range(0, plans.LINE, max(boundary, itemsize))
        packs = max(-(-(start + cols * itemsize) // 16) for start in starts)
        assert packs * 16 // itemsize <= plan.threads * plan.elements * plan.cluster
        assert plan.whole == (boundary == plans.LINE)
        # A row's own packs have room in the ring, and a warp a chunk.
        share = plan.elements * itemsize // 16
        assert share < plan.slots
        assert share <= plan.threads // 32


@pytest.mark.parametrize("itemsize", [2, 4])
def test_every_row_of_the_table_is_taken_and_fits_a_multiprocessor(itemsize: int) -> None:
    found = every_plan(itemsize)
    assert {plan[:3] for plan in found} == set(plans.STREAMED_BY)
    for plan in found:
        at_once = plans.STREAMED_THREADS // plan.threads
        # Partials of two rows, a barrier a slot, and what the system keeps for itself.
        exchange = 2 * (plan.cluster * plan.threads // 32 * 8 + 8)
        block = plan.shared_bytes + exchange + 8 * plan.slots + 1024
        assert at_once * block <= 228 * 1024


def test_who_computes_what() -> None:
    # (threads, elements a thread, blocks)
    def shape(*arguments: int) -> tuple[int, ...] | None:
        plan = plan_of(*arguments)
        return plan and plan[:3]

    assert shape(16391, 2, 2) == (1024, 24, 1)
    assert shape(50257, 2, 2) == (1024, 32, 2)
    assert shape(128257, 4, 4) == (1024, 32, 4)
    assert shape(262144) == shape(262144, 4) == (1024, 32, 8)


def test_what_is_handed_on() -> None:
    # Short, as far as registers are faster, and longer than they reach.
    assert plan_of(16300, 2, 2) is None
    assert plan_of(131072) is plan_of(131072, 4) is plan_of(50264, 2, 16) is None
    assert plan_of(262144 + 8) is plan_of(262144, 2, 2) is None
    # As many rows as fit at once, and one more.
    assert plan_of(262144, rows=16) is None
    assert plan_of(262144, rows=17) is not None
    assert plan_of(16391, 2, 2, rows=132) is None
    assert plan_of(16391, 2, 2, rows=133) is not None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("capability", [(9, 0), (10, 0)], ids=["sm_90", "sm_100"])
def test_nothing_spills(dtype: torch.dtype, capability: tuple[int, int], tmp_path: Path) -> None:
    expressions = tuple(plan.expression(dtype) for plan in every_plan(dtype.itemsize))
    cubin = cubin_of("softmax_streamed.cuh", expressions, capability)
    assert_nothing_spilled(dump(cubin, tmp_path, "--dump-resource-usage"), len(expressions))


def test_a_row_comes_by_bulk_copies_and_leaves_in_packs(tmp_path: Path) -> None:
    plan = plan_of(262144)
    assert plan
    cubin = cubin_of("softmax_streamed.cuh", (plan.expression(torch.bfloat16),), (9, 0))
    listing = dump(cubin, tmp_path, "-sass")
    found = instructions(listing)
    packs = plan.elements // 8
    # One place for what the ring holds at first, one for what a row's slots take next.
    assert sum(n for name, n in found.items() if name.startswith("UBLKCP")) == 2
    assert not [name for name in found if name.startswith("LDG")]
    stores = {name: n for name, n in found.items() if name.startswith("STG")}
    assert sum(stores.values()) == packs
    assert all(".128" in name for name in stores), stores
    # One exponential an element, and those of the 256 partials that a warp combines.
    assert found["MUFU.EX2"] <= plan.elements + 12
    # No fence for the whole device once rows are on their way: it would wait for their stores.
    start = re.search(r"\b(UCGABAR_WAIT|BAR\.SYNC)", listing)
    assert start
    assert not re.search(r"\bMEMBAR", listing[start.end() :])


@pytest.mark.parametrize("threads", [512, 1024])
def test_python_and_cuda_agree_on_shared_memory(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plans.StreamedPlan(threads, 32, 8, plans.RING * 8 // 32, True)
    lines = [
        '#include "softmax_streamed.cuh"',
        f"static_assert(kRingBytes<{threads}, {plan.slots}> == {plan.shared_bytes});",
        f"static_assert(kLine == {plans.LINE});",
    ]
    monkeypatch.setattr(rawmodule, "source_of", lambda _: "\n".join(lines))
    cubin_of("", (), (9, 0))
    lines.append(f"static_assert(kRingBytes<{threads}, 1> == 1);")
    with pytest.raises(AssertionError, match="static assertion failed"):
        cubin_of("", (), (9, 0))
