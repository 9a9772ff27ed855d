"""The tensor cores' kernel for any GPU compiles with NVRTC for old and new cards, without spills,
and its loop is read off: copies that pass the registers by, and no wait between the products."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from test_cuda_compile import BY_NAME, assert_nothing_spilled, cubin_of, dump, instructions

from cuda_impl import mma, rawmodule

nvrtc = pytest.importorskip(
    "cuda.bindings.nvrtc", reason="needs NVRTC's Python bindings: pip install cuda-bindings"
)

HALVES = (torch.float16, torch.bfloat16)
# Of no table, but within what the kernel's own checks allow.
FURTHER = (
    mma.MmaPlan(128, 256, depth=64, stages=4, warps_m=2, warps_n=4, resident=1),
    mma.MmaPlan(256, 128, depth=32, stages=6, warps_m=4, warps_n=2, resident=1),
    mma.MmaPlan(128, 128, depth=64, stages=3, warps_m=2, warps_n=2, resident=2),
    mma.MmaPlan(128, 64, depth=32, stages=5, warps_m=2, warps_n=2, resident=2),
)
EACH_PLAN = pytest.mark.parametrize(
    "plan", mma.MMA_PLANS, ids=lambda plan: "x".join(map(str, plan))
)


@BY_NAME
def test_mma(capability: tuple[int, int], tmp_path: Path) -> None:
    expressions = tuple(
        plan.expression(dtype, weight)
        for plan in mma.MMA_PLANS + FURTHER
        for dtype in HALVES
        for weight in (True, False)
    )
    cubin = cubin_of("matmul_mma.cuh", expressions, capability)
    assert_nothing_spilled(dump(cubin, tmp_path, "--dump-resource-usage"), len(expressions))


@EACH_PLAN
@pytest.mark.parametrize("weight", [True, False], ids=["nk", "kn"])
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
def test_the_tensor_cores_are_kept_busy(
    plan: mma.MmaPlan, weight: bool, capability: tuple[int, int], tmp_path: Path
) -> None:
    cubin = cubin_of("matmul_mma.cuh", (plan.expression(torch.bfloat16, weight),), capability)
    listing = dump(cubin, tmp_path, "-sass")
    found = instructions(listing)
    rows, cols = plan.rows // plan.warps_m, plan.cols // plan.warps_n
    inner = plan.depth // 16
    assert found["HMMA.16816.F32.BF16"] == inner * rows // 16 * cols // 8
    # A stage's, and the first of all, before the loop.
    left, right = ((inner + 1) * lines // 16 for lines in (rows, cols))
    plain, transposed = found["LDSM.16.M88.4"], found["LDSM.16.MT88.4"]
    assert (plain, transposed) == ((left + right, 0) if weight else (left, right))
    # Before the loop and in it, each once.
    copies = (plan.rows + plan.cols) * plan.depth // 8 // plan.threads
    assert found["LDGSTS.E.BYPASS.LTC128B.128.ZFILL"] == 2 * copies
    # The loop goes on while all but the two oldest stages are on their way.
    assert set(re.findall(r"DEPBAR\.LE SB0, (\w+)", listing)) == {
        hex(plan.stages - 2),
        hex(plan.stages - 3),
    }
    # Nothing is waited for in between the products, and fragments come among them: none but the
    # first 16 steps' have to be there before the first product.
    order = re.findall(r"\b(HMMA|LDSM|BAR\.SYNC)", listing)
    loop = order[order.index("HMMA") : len(order) - order[::-1].index("HMMA")]
    barriers = [at for at, name in enumerate(loop) if name == "BAR.SYNC"]
    assert barriers in ([], [1], [2])
    assert loop.count("LDSM") >= (inner - 1) * (rows + cols) // 16
    assert not [name for name in found if name.startswith(("LDL", "STL"))]
    # Of the output, 16 bytes at a time where rows are aligned.
    assert any(name.startswith("STG") and ".128" in name for name in found)


@EACH_PLAN
def test_as_many_blocks_as_the_plan_says_fit_a_multiprocessor(
    plan: mma.MmaPlan, tmp_path: Path
) -> None:
    expressions = tuple(plan.expression(torch.bfloat16, weight) for weight in (True, False))
    cubin = cubin_of("matmul_mma.cuh", expressions, (8, 0))
    for registers in re.findall(r"REG:(\d+)", dump(cubin, tmp_path, "--dump-resource-usage")):
        # A warp gets them by the 256, so a thread by the eight.
        assert plan.resident * plan.threads * -(-int(registers) // 8) * 8 <= 65536


@pytest.mark.parametrize("plan", mma.MMA_PLANS + FURTHER, ids=lambda plan: "x".join(map(str, plan)))
def test_python_and_cuda_agree_on_shared_memory(
    plan: mma.MmaPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_with(shared_bytes: int) -> None:
        shared = f"MmaShared<{', '.join(map(str, plan[:-1]))}>"
        source = (
            '#include "matmul_mma.cuh"\n'
            f"static_assert({shared}::kBytes == {shared_bytes});\n"
            f"static_assert({shared}::kThreads == {plan.threads});\n"
        )
        monkeypatch.setattr(rawmodule, "source_of", lambda _: source)
        cubin_of("", (), (9, 0))

    compile_with(plan.shared_bytes)
    with pytest.raises(AssertionError, match="static assertion failed"):
        compile_with(plan.shared_bytes + 1)


def test_the_extension_compiles_the_plans_of_the_table() -> None:
    text = (rawmodule.KERNELS.parent / "matmul_mma.cu").read_text()
    compiled = re.findall(r"\bPlan<(\d+(?:, \d+){6})>", text)
    plans = [mma.MmaPlan(*map(int, plan.split(", "))) for plan in compiled]
    assert sorted(plans) == sorted(mma.MMA_PLANS)
