"""Who computes a row of softmax, and what the compiler makes of streamed rows. No GPU needed."""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path

import pytest
import test_cuda_softmax as on_device
import torch
from test_cuda_compile import DTYPES, assert_nothing_spilled, cubin_of, dump, instructions

from cuda_impl import rawmodule
from cuda_impl import softmax_plan as plans

# An H200.
DEVICE = dict(processors=132, clusters=True, shared_bytes=227 * 1024)

# On both sides of where a table's next row is taken, and of where a table ends.
EDGES = sorted(
    {threads * blocks * elements for threads, blocks, elements in plans.STREAMED_SHORT}
    | {threads * blocks * elements for threads, blocks, elements in plans.STREAMED_LONG}
    | {threads * blocks * elements for threads, blocks, elements in plans.FEW_SHARED_BY}
    | {64, 256, 16384}
)
LENGTHS = sorted({edge + step for edge in EDGES for step in (-16, -8, -1, 0, 1, 8)} | {1, 1000})
ROWS = (1, 8, 64, 100, 1000, 2**12, 2**22)


@functools.cache
def every_plan(itemsize: int) -> tuple[plans.RowPlan | plans.StreamPlan, ...]:
    """All that `streamed_plan` can answer, but for how many rows a block takes in turn."""
    found = set()
    for rows, cols, whole in itertools.product(ROWS, LENGTHS, (True, False)):
        plan = plans.streamed_plan(rows, cols, itemsize, whole, **DEVICE)
        found.add(plan._replace(turns=1) if isinstance(plan, plans.StreamPlan) else plan)
    return tuple(found)


def slots(cols: int, itemsize: int, whole: bool) -> int:
    """Elements of all the packs that a row may touch, wherever it starts."""
    pack = 16 // itemsize
    return cols if whole else max(-(-(start + cols) // pack) for start in range(pack)) * pack


@pytest.mark.parametrize("itemsize", [2, 4])
def test_every_plan_holds_its_row(itemsize: int) -> None:
    for rows, cols, whole in itertools.product(ROWS, LENGTHS, (True, False)):
        plan = plans.streamed_plan(rows, cols, itemsize, whole, **DEVICE)
        if plan.elements:
            held = plan.threads * plan.cluster * plan.elements
            assert slots(cols, itemsize, whole) <= held
        assert plan.whole == whole or not plan.elements
        if isinstance(plan, plans.StreamPlan):
            assert 1 <= plan.turns <= plans.TURNS
            assert plan.resident * plan.shared_bytes(itemsize) <= plans.RING
            blocks = plan.blocks(rows)
            assert blocks % plan.cluster == 0
            # All rows, and no block without one.
            at_once = plan.block // plan.threads * plan.turns
            assert 0 <= blocks // plan.cluster * at_once - rows < at_once


def test_which_rows_are_streamed() -> None:
    def plan(rows: int, cols: int, itemsize: int = 2) -> tuple[int, ...]:
        found = plans.streamed_plan(rows, cols, itemsize, True, **DEVICE)
        return found[:4] if isinstance(found, plans.StreamPlan) else (found[0], *found[1:3])

    # (threads, floats, rows on their way, blocks)
    assert plan(2**21, 128) == (8, 16, 4, 1)
    assert plan(2**18, 1024) == (32, 32, 3, 1)
    assert plan(2**13, 32768) == (512, 64, 3, 1)
    assert plan(2**12, 65536) == (512, 64, 3, 2)
    assert plan(2**10, 262144) == (512, 64, 3, 8)
    assert plan(2**9, 262144, 4) == (512, 64, 1, 8)
    assert plan(64, 128256) == (512, 64, 3, 4)
    # (threads, floats, blocks): several blocks an SM as it is, and rows that fit all at once.
    assert plan(2**17, 2048) == (64, 32, 1)
    assert plan(2**14, 16384) == (512, 32, 1)
    assert plan(2**17, 1024, 4) == (32, 32, 1)
    assert plan(1, 4096) == (512, 8, 1)
    assert plan(64, 32000) == (512, 8, 8)
    assert plan(1, 131072) == plan(32, 131072) == (512, 32, 8)
    assert plan(2**10, 262144 + 8) == (512, 0, 1)


def test_blocks_come_in_waves_of_one_length() -> None:
    def turns(rows: int, cols: int) -> int:
        found = plans.streamed_plan(rows, cols, 2, True, **DEVICE)
        assert isinstance(found, plans.StreamPlan)
        return found.turns

    # 66 clusters of 2 at once, 32 of 4: fewer rows than that, and up to two, eight, nine for each.
    assert [turns(66 * n, 65536) for n in (1, 2, 8, 9, 16, 17)] == [1, 2, 8, 5, 8, 6]
    assert [turns(32 * n, 131072) for n in (2, 3, 8, 64)] == [2, 3, 8, 8]


def test_other_devices_get_the_plans_without() -> None:
    for cols in (128, 1024, 65536, 262144):
        for lacking in ({"clusters": False}, {"shared_bytes": 99 * 1024}):
            device = {**DEVICE, **lacking}
            found = plans.streamed_plan(2**12, cols, 2, True, **device)
            assert found == plans.registers_plan(cols, 2, True, device["clusters"])


@pytest.mark.parametrize("itemsize", [2, 4])
def test_the_tests_on_the_device_meet_every_plan_with_rows_to_wait_for(itemsize: int) -> None:
    device = {**DEVICE, "processors": on_device.PROCESSORS}
    met = set()
    for cols in (*on_device.SHORT, *on_device.LONG):
        rows, whole = on_device.rows_for(cols)[-1], cols * itemsize % 16 == 0
        plan = plans.streamed_plan(rows, cols, itemsize, whole, **device)
        if isinstance(plan, plans.StreamPlan) and plan.turns > 1:
            met.add(plan._replace(turns=1))
    assert met == {plan for plan in every_plan(itemsize) if isinstance(plan, plans.StreamPlan)}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("capability", [(9, 0), (10, 0)], ids=["sm_90", "sm_100"])
def test_nothing_spills(dtype: torch.dtype, capability: tuple[int, int], tmp_path: Path) -> None:
    found = every_plan(dtype.itemsize)
    for header, kind in (
        ("softmax_streamed.cuh", plans.StreamPlan),
        ("softmax_registers.cuh", plans.RowPlan),
    ):
        expressions = tuple(plan.expression(dtype) for plan in found if isinstance(plan, kind))
        assert len(expressions) > 8
        cubin = cubin_of(header, expressions, capability)
        usage = dump(cubin, tmp_path, "--dump-resource-usage")
        assert_nothing_spilled(usage, len(expressions))


@pytest.mark.parametrize(
    ("rows", "cols"), [(2**20, 256), (2**18, 1024), (2**13, 32768), (2**12, 65536), (2**10, 262144)]
)
def test_rows_are_on_their_way_while_others_are_computed(
    rows: int, cols: int, tmp_path: Path
) -> None:
    plan = plans.streamed_plan(rows, cols, 2, True, **DEVICE)
    assert isinstance(plan, plans.StreamPlan)
    cubin = cubin_of("softmax_streamed.cuh", (plan.expression(torch.bfloat16),), (9, 0))
    listing = dump(cubin, tmp_path, "-sass")
    found = instructions(listing)
    packs = plan.elements // 8
    # Once before the loop, once in it, and past the registers.
    copies = {name: n for name, n in found.items() if name.startswith("LDGSTS")}
    assert copies == {"LDGSTS.E.BYPASS.128": 2 * packs}
    assert found["LDS.128"] == packs
    stores = {name: n for name, n in found.items() if name.startswith("STG")}
    assert stores == {"STG.E.EF.128": packs}
    # A row is waited for while all later ones may be on their way.
    assert set(re.findall(r"DEPBAR\.LE SB0, (\w+)", listing)) == {hex(plan.depth - 1)}
    # One exponential an element, and few for the exchange.
    assert found["MUFU.EX2"] <= plan.elements + 8
    # The issue slots of an SM at the copy's rate: 26 an element.
    assert sum(found.values()) <= 17 * plan.elements
    # No fence for the whole device, which would wait for the last row's results.
    assert not [name for name in found if name.startswith(("MEMBAR", "LDL", "STL"))]
    assert found["STAS.64"] == (plan.cluster > 1)
    # Slots are filled again after their values went into the sum that is sent or shuffled.
    order = re.findall(r"\b(LDS\.128|SHFL|STAS|LDGSTS)", listing)
    order = [name for name, _ in itertools.groupby(order)]
    expected = ["LDGSTS", "LDS.128", "SHFL", *["STAS"] * (plan.cluster > 1), "LDGSTS"]
    assert order[: len(expected)] == expected


@pytest.mark.parametrize("itemsize", [2, 4])
def test_python_and_cuda_agree_on_blocks_and_shared_memory(
    itemsize: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctype = {2: "__half", 4: "float"}[itemsize]
    lines = ['#include "softmax_streamed.cuh"', '#include "softmax_registers.cuh"']
    for plan in every_plan(itemsize):
        if isinstance(plan, plans.StreamPlan):
            bytes_of = f"kStreamBytes<{ctype}, {plan.threads}, {plan.elements}, {plan.depth}>"
            lines += [
                f"static_assert({bytes_of} == {plan.shared_bytes(itemsize)});",
                f"static_assert(kStreamBlockOf<{plan.threads}> == {plan.block});",
                f"static_assert(kStreamResident<{plan.threads}> == {plan.resident});",
            ]
        elif plan.elements:
            lines.append(f"static_assert(kBlockOf<{plan.threads}> == {plan.block});")
    lines += [
        f"static_assert(kResident<{elements}> == {threads});"
        for elements, threads in plans.RESIDENT.items()
    ]
    monkeypatch.setattr(rawmodule, "source_of", lambda _: "\n".join(lines))
    cubin_of("", (), (9, 0))
    lines.append("static_assert(kResident<8> == 1);")
    with pytest.raises(AssertionError, match="static assertion failed"):
        cubin_of("", (), (9, 0))
