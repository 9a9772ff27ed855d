"""Who computes a row of softmax, and what the compiler makes of packed rows. No GPU needed."""

from __future__ import annotations

import functools
import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from test_cuda_compile import DTYPES, assert_nothing_spilled, cubin_of, dump, instructions

from cuda_impl import rawmodule
from cuda_impl import softmax_plan as plans

# An H200.
DEVICE = dict(processors=132, most_blocks=16)

# On both sides of where a table's next row is taken, and of where a table ends.
TABLES = {size: (*plans.SHARED_BY[size], *plans.FEW_SHARED_BY) for size in (2, 4)}
EDGES = sorted({math.prod(row) for rows in TABLES.values() for row in rows})
# A row that starts anywhere has up to a line before it: 31 or 63 elements.
STEPS = (-64, -63, -32, -31, -8, -7, -1, 0, 1, 8)
LENGTHS = sorted({max(edge + step, 1) for edge in EDGES for step in STEPS} | {1000})
ROWS = (1, 8, 64, 100, 1000, 2**12, 2**22)


@functools.cache
def every_plan(itemsize: int) -> tuple[plans.RowPlan, ...]:
    """All that `registers_plan` can answer."""
    found = {
        plans.registers_plan(rows, cols, itemsize, whole, **DEVICE)
        for rows, cols, whole in itertools.product(ROWS, LENGTHS, (True, False))
    }
    return tuple(sorted(found))


def slots(cols: int, itemsize: int, whole: bool, threads: int) -> int:
    """Elements of all the packs that a row may touch, wherever it starts, and of those before it
    that its threads count from."""
    if whole:
        return cols
    pack = 16 // itemsize
    starts = range((128 if threads > 32 else 16) // itemsize)
    return max(-(-(start + cols) // pack) for start in starts) * pack


@pytest.mark.parametrize("itemsize", [2, 4])
def test_every_plan_holds_its_row(itemsize: int) -> None:
    for rows, cols, whole in itertools.product(ROWS, LENGTHS, (True, False)):
        plan = plans.registers_plan(rows, cols, itemsize, whole, **DEVICE)
        if plan.elements:
            held = plan.threads * plan.cluster * plan.elements
            assert slots(cols, itemsize, whole, plan.threads) <= held
        assert plan.whole == whole or not plan.elements
        blocks = plan.blocks(rows)
        assert blocks % plan.cluster == 0
        # All rows, and no block without one.
        at_once = plan.block // plan.threads if plan.elements else 1
        assert 0 <= blocks // plan.cluster * at_once - rows < at_once


def test_who_computes_what() -> None:
    def plan(rows: int, cols: int, itemsize: int = 2) -> tuple[int, ...]:
        return plans.registers_plan(rows, cols, itemsize, True, **DEVICE)[:3]

    # (threads, elements a thread, blocks). A warp a row, a block, a cluster.
    assert plan(2**21, 128) == (16, 8, 1)
    assert plan(2**18, 1000) == plan(2**18, 1024) == (32, 32, 1)
    assert plan(2**17, 2048) == (32, 64, 1)
    assert plan(2**16, 4096) == (128, 32, 1)
    assert plan(2**15, 8192) == (128, 32, 2)
    assert plan(2**14, 16384) == (512, 32, 1)
    assert plan(2**13, 32768) == (128, 64, 4)
    assert plan(5341, 50257) == (256, 40, 5)
    assert plan(2**12, 65536) == (256, 64, 4)
    assert plan(2092, 128256) == plan(2**11, 131072) == (256, 64, 8)
    assert plan(2**10, 262144) == (256, 64, 16)
    assert plan(2**12, 32768, 4) == (512, 32, 2)
    assert plan(2670, 50257, 4) == (256, 28, 8)
    assert plan(2**9, 262144, 4) == (512, 32, 16)
    assert plan(2**10, 262144 + 8) == (512, 0, 1)
    # All rows at once, on as many multiprocessors as there are.
    assert plan(1, 4096) == (512, 8, 1)
    assert plan(32, 32000) == (512, 8, 8)
    assert plan(64, 32000) == (512, 16, 4)
    assert plan(1, 131072) == plan(32, 131072) == (512, 32, 8)
    assert plan(64, 128256) == (256, 64, 8)


@pytest.mark.parametrize("itemsize", [2, 4])
def test_a_longer_row_gets_a_larger_share(itemsize: int) -> None:
    """The tables are in the order of what they hold, so the first that can is the fullest."""
    table = plans.SHARED_BY[itemsize]
    held = [math.prod(row) for row in table]
    # What stands behind the longest is for devices without clusters.
    last = held.index(max(held))
    assert held[: last + 1] == sorted(held[: last + 1])
    assert {row[1] for row in table[last + 1 :]} == {1}
    assert len(set(table)) == len(table)


def test_the_extension_compiles_the_rows_of_the_tables() -> None:
    text = (rawmodule.KERNELS.parent / "softmax_registers.h").read_text()
    for itemsize, name in ((2, "Of16Bit"), (4, "OfFloat")):
        listed = re.search(rf"using {name} =\s+OneOf<(.*?)>;", text, re.S)
        assert listed
        found = re.findall(r"Sharing<(\d+), (\d+), (\d+)>?", listed[1])
        assert {tuple(map(int, row)) for row in found} == set(TABLES[itemsize])


def test_a_cluster_has_no_more_blocks_than_its_device_grants() -> None:
    for rows, cols, itemsize in itertools.product(ROWS, LENGTHS, (2, 4)):
        found = plans.registers_plan(rows, cols, itemsize, True, processors=132, most_blocks=8)
        assert found.cluster <= 8


def test_other_devices_get_the_plans_without_clusters() -> None:
    for rows, cols, itemsize in itertools.product(ROWS, LENGTHS, (2, 4)):
        found = plans.registers_plan(rows, cols, itemsize, True, processors=108, most_blocks=1)
        assert found.cluster == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("capability", [(9, 0), (10, 0)], ids=["sm_90", "sm_100"])
def test_nothing_spills(dtype: torch.dtype, capability: tuple[int, int], tmp_path: Path) -> None:
    expressions = tuple(plan.expression(dtype) for plan in every_plan(dtype.itemsize))
    cubin = cubin_of("softmax_registers.cuh", expressions, capability)
    # Blackwell's instructions want a few registers more for the longest packed rows.
    allowed = 16 if capability == (10, 0) else 0
    assert_nothing_spilled(
        dump(cubin, tmp_path, "--dump-resource-usage"), len(expressions), allowed
    )


def test_a_packed_row_waits_in_half_the_registers(tmp_path: Path) -> None:
    plan = plans.registers_plan(2**11, 131072, 2, True, **DEVICE)
    cubin = cubin_of("softmax_registers.cuh", (plan.expression(torch.bfloat16),), (9, 0))
    found = instructions(dump(cubin, tmp_path, "-sass"))
    packs = plan.elements // 8
    for access in ("LDG", "STG"):
        widths = {name: n for name, n in found.items() if name.startswith(access)}
        assert sum(widths.values()) == packs
        assert all(".128" in name for name in widths), widths
    # A maximum of four values an instruction, two exponentials an element.
    assert found["VHMNMX.BF16_V2"] == plan.elements // 4
    assert found["MUFU.EX2"] <= 2 * plan.elements + 4
    # The issue slots of an SM at the copy's rate: 26 an element.
    assert sum(found.values()) <= 26 * plan.elements


@pytest.mark.parametrize("itemsize", [2, 4])
def test_python_and_cuda_agree_on_blocks(itemsize: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ['#include "softmax_registers.cuh"', "static_assert(kMostFloats == 32);"]
    lines += [
        f"static_assert(kBlockOf<{plan.threads}, {plan.elements}> == {plan.block});"
        for plan in every_plan(itemsize)
        if plan.elements
    ]
    monkeypatch.setattr(rawmodule, "source_of", lambda _: "\n".join(lines))
    cubin_of("", (), (9, 0))
    lines.append("static_assert(kResident<8> == 1);")
    with pytest.raises(AssertionError, match="static assertion failed"):
        cubin_of("", (), (9, 0))
