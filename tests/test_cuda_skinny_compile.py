"""The kernel for up to 64 rows compiles with NVRTC for old and new cards, and what Hopper gets is
read off: two blocks fit a multiprocessor, and nothing waits for the whole device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from test_cuda_compile import BY_NAME, assert_nothing_spilled, cubin_of, dump, instructions

from cuda_impl import rawmodule, skinny

nvrtc = pytest.importorskip(
    "cuda.bindings.nvrtc", reason="needs NVRTC's Python bindings: pip install cuda-bindings"
)

HALVES = (torch.float16, torch.bfloat16)
PLANS = tuple(plan for _, _, plan in skinny.SKINNY_PLANS)
# Of no table, but within what the kernel's own checks allow.
FURTHER = (
    skinny.SkinnyPlan(64, 64, stages=5, splits=4),
    skinny.SkinnyPlan(64, 32, stages=7, splits=4),
    skinny.SkinnyPlan(192, 64, stages=2, splits=1),
    skinny.SkinnyPlan(256, 32, stages=2, splits=2),
    skinny.SkinnyPlan(256, 64, stages=3, splits=8),
)
EACH_PLAN = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "x".join(map(str, plan)))


@BY_NAME
def test_skinny(capability: tuple[int, int], tmp_path: Path) -> None:
    expressions = tuple(plan.expression(dtype) for plan in PLANS + FURTHER for dtype in HALVES)
    cubin = cubin_of("matmul_skinny.cuh", expressions, capability)
    assert_nothing_spilled(dump(cubin, tmp_path, "--dump-resource-usage"), len(expressions))


@EACH_PLAN
def test_two_blocks_fit_a_multiprocessor(plan: skinny.SkinnyPlan, tmp_path: Path) -> None:
    cubin = cubin_of("matmul_skinny.cuh", (plan.expression(torch.bfloat16),), (9, 0))
    (registers,) = re.findall(r"REG:(\d+)", dump(cubin, tmp_path, "--dump-resource-usage"))
    # A warp gets them by the 256, so a thread by the eight.
    assert 2 * plan.threads * -(-int(registers) // 8) * 8 <= 65536
    # 228 KB, of which each block loses one.
    assert 2 * (plan.shared_bytes + 1024) <= 228 * 1024


@EACH_PLAN
def test_the_first_loads_wait_for_nobody(plan: skinny.SkinnyPlan, tmp_path: Path) -> None:
    cubin = cubin_of("matmul_skinny.cuh", (plan.expression(torch.bfloat16),), (9, 0))
    listing = dump(cubin, tmp_path, "-sass")
    found = instructions(listing)
    assert found[f"HGMMA.64x{plan.batch}x16.F32.BF16"] == 4
    # One wait a stage, which is given back after it.
    assert found["WARPGROUP.DEPBAR.LE"] == 1
    # The weight and a, before the block's barrier and in the loop.
    assert found["UTMALDG.2D"] == 4
    order = re.findall(r"\b(UTMALDG|BAR\.SYNC|UCGABAR_ARV|UCGABAR_WAIT|HGMMA)", listing)
    started = ["UCGABAR_ARV", "UCGABAR_WAIT"] if plan.splits > 1 else []
    assert order[: 3 + len(started)] == ["UTMALDG", "UTMALDG", "BAR.SYNC", *started]
    # No fence for the whole device, nor another barrier of the cluster: sums are sent, 16 bytes at
    # a time, and counted.
    assert order.count("UCGABAR_ARV") == len(started) // 2
    assert "MEMBAR.ALL.GPU" not in found
    assert found["STAS.128"] == (plan.batch // 8 if plan.splits > 1 else 0)
    assert not [name for name in found if name.startswith(("LDL", "STL"))]


@pytest.mark.parametrize("plan", PLANS + FURTHER, ids=lambda plan: "x".join(map(str, plan)))
def test_python_and_cuda_agree_on_shared_memory(
    plan: skinny.SkinnyPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_with(shared_bytes: int) -> None:
        shared = f"SkinnyShared<{', '.join(map(str, plan))}>"
        source = (
            '#include "matmul_skinny.cuh"\n'
            f"static_assert({shared}::kBytes == {shared_bytes});\n"
            f"static_assert({shared}::kThreads == {plan.threads});\n"
        )
        monkeypatch.setattr(rawmodule, "source_of", lambda _: source)
        cubin_of("", (), (9, 0))

    compile_with(plan.shared_bytes)
    with pytest.raises(AssertionError, match="static assertion failed"):
        compile_with(plan.shared_bytes + 1)


def test_the_extension_compiles_the_plans_of_the_table() -> None:
    text = (rawmodule.KERNELS.parent / "matmul_skinny.cu").read_text()
    compiled = re.findall(r"\bPlan<(\d+), (\d+), (\d+), (\d+)>", text)
    assert sorted(tuple(map(int, plan)) for plan in compiled) == sorted(PLANS)
