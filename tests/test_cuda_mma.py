"""matmul on the tensor cores of any GPU: its plans on any machine, its numbers on a GPU.

As in test_cuda_matmul.py the operands are small integers, so that a result is right to the bit or
wrong; the tests there run this variant too.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from test_cuda_matmul import assert_exact, function_of, inside_nan, integers, operands
from torch import Tensor

from benchmarks.check import Bordered
from benchmarks.implementations import IMPLEMENTATIONS, Implementation
from cuda_impl import matmul, matrices, mma
from cuda_impl.mma import MMA_PLANS, MmaPlan

ROWS = [row for row in IMPLEMENTATIONS if row.op == "matmul" and row.variant == "mma"]
HALVES = (torch.float16, torch.bfloat16)
# The extension has those of the table alone, CuPy all.
BY_HAND = (
    MmaPlan(128, 256, depth=64, stages=4, warps_m=2, warps_n=4, resident=1),
    MmaPlan(256, 128, depth=32, stages=6, warps_m=4, warps_n=2, resident=1),
    MmaPlan(128, 64, depth=32, stages=3, warps_m=2, warps_n=2, resident=2),
)
H200 = 132

each = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.tier}-{row.variant}")
each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)
each_layout = pytest.mark.parametrize("weight", [True, False], ids=["nk", "kn"])


# ---------------------------------------------------------------------------- plans


def test_the_plans_of_the_benchmarked_shapes() -> None:
    large, medium, small = MMA_PLANS
    for m, n in ((4096, 4096), (8192, 8192), (4096, 14336), (2048, 2048)):
        assert mma.mma_plan(m, n, H200) == large
    assert mma.mma_plan(1024, 1024, H200) == small
    # 112 columns of tiles: a large one would be half empty.
    assert mma.mma_plan(128, 14336, H200) == medium
    assert mma.mma_plan(16, 14336, H200) == small


def test_the_plan_is_the_one_with_the_least_to_move() -> None:
    assert len(set(MMA_PLANS)) == len(MMA_PLANS)
    for m, n, processors in itertools.product(
        (1, 64, 65, 500, 4096, 200000), (1, 128, 129, 3000), (1, 78, 108, 132)
    ):
        found = mma.mma_plan(m, n, processors)
        assert m * n <= found.tiles(m, n) * found.rows * found.cols
        most = {plan: -(-plan.tiles(m, n) // processors) * plan.lines for plan in MMA_PLANS}
        assert most[found] == min(most.values())


def test_tiles_fit_a_multiprocessor() -> None:
    for plan in MMA_PLANS:
        # One block where shared memory is least, 100 KB on sm_86 and sm_89, of which it loses one;
        # as many as the plan says on sm_80, with 164 KB, unless they were three.
        assert plan.shared_bytes <= 99 * 1024
        assert min(plan.resident, 2) * (plan.shared_bytes + 1024) <= 164 * 1024
        assert plan.resident * (plan.shared_bytes + 1024) <= 228 * 1024


def test_what_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # The device's type is all that a CPU tensor lacks here.
    monkeypatch.setattr(matrices, "DEVICES", ("cpu",))
    monkeypatch.setattr(mma, "processors", lambda device: H200)
    taken: list[str] = []

    class Compiled:
        def matmul_landing(self, *_: object) -> None:
            return None

        def matmul_mma(self, *_: object) -> None:
            taken.append("mma")

    monkeypatch.setattr(mma, "compiled", Compiled)
    monkeypatch.setattr(matmul, "tiled_extension", lambda *_, out: taken.append("tiled"))

    def way(a: Tensor, b: Tensor) -> str:
        mma.mma_extension(a, b)
        return taken.pop()

    weight = torch.zeros(40, 24, dtype=torch.float16)
    assert way(weight.new_zeros(5, 24), weight.t()) == "mma"
    assert way(weight.new_zeros(5, 24), weight.t().contiguous()) == "mma"
    assert way(weight.new_zeros(2, 3, 24), weight.t()) == "mma"
    assert way(torch.zeros(5, 24), torch.zeros(40, 24).t()) == "tiled"
    # Rows of any length, but none that start between multiples of 16 bytes.
    assert way(weight.new_zeros(5, 24)[:, :23], weight[:, :23].t()) == "mma"
    assert way(weight.new_zeros(5, 23), weight[:, :23].t()) == "tiled"
    assert way(weight.new_zeros(5, 24)[:, :23], weight.new_zeros(40, 23).t()) == "tiled"
    assert way(weight.new_zeros(5, 16), weight[:, 1:17].t()) == "tiled"
    assert way(weight.new_zeros(5, 24), weight.new_zeros(24, 41)) == "tiled"
    # Expanded, all its rows are one.
    assert way(weight.new_zeros(24).expand(5, 24), weight.t()) == "tiled"


# ---------------------------------------------------------------------------- numbers


def padded(rows: int, cols: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[rows, cols] in rows that start at multiples of 16 bytes, NaN between them."""
    return inside_nan(integers(rows, cols, dtype=dtype, device=device), 8, 8 + -cols % 8)


def compute(row: Implementation, a: Tensor, b: Tensor) -> None:
    out = Bordered(torch.Size((a.shape[0], b.shape[1])), a)
    function_of(row)(a, b, out=out.tensor)
    assert_exact(out.tensor, a, b)
    assert not out.violated()


@pytest.mark.gpu
@each
@each_half
@each_layout
@pytest.mark.parametrize("plan", MMA_PLANS + BY_HAND, ids=lambda plan: "x".join(map(str, plan)))
def test_each_plan(
    row: Implementation,
    dtype: torch.dtype,
    weight: bool,
    plan: MmaPlan,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if plan in BY_HAND and row.tier == "cuda":
        pytest.skip("the extension has the plans of the table alone")
    limit = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    if plan.shared_bytes > limit:
        pytest.skip(f"needs {plan.shared_bytes} bytes of shared memory")
    monkeypatch.setattr(mma, "mma_plan", lambda *_: plan)
    # A part of a tile, one, more of both than one; more rows of tiles than a band has.
    sizes = ((1, 8), (plan.rows, plan.cols), (2 * plan.rows + 3, plan.cols + 24))
    # Fewer steps than stages, as many, one more, many more; a part of a step, of 16, of a pack.
    for steps in (1, 2, plan.stages - 1, plan.stages, plan.stages + 1, 3 * plan.stages):
        for (m, n), less in itertools.product(sizes, (0, 8, 24)):
            compute(row, *operands(m, steps * plan.depth - less, n, dtype, weight, device))
    compute(row, *operands(18 * plan.rows + 1, 40, 3 * plan.cols - 8, dtype, weight, device))


@pytest.mark.gpu
@each
@each_half
@each_layout
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (3, 5, 7), (65, 17, 63), (129, 130, 257), (200, 31, 1001), (2049, 77, 2305)],
)
def test_odd_sizes_in_padded_rows(
    row: Implementation,
    dtype: torch.dtype,
    weight: bool,
    m: int,
    k: int,
    n: int,
    device: torch.device,
) -> None:
    """None of which is handed on: packs are cut at the edges, and the output's rows start anywhere.
    What is beside them is NaN."""
    a = padded(m, k, dtype, device)
    b = padded(n, k, dtype, device).t() if weight else padded(k, n, dtype, device)
    given = matrices.operands(a, b, None)
    assert mma._suits_mma(given, given.stored()[0])
    compute(row, a, b)


@pytest.mark.gpu
@each
@each_half
@each_layout
def test_an_output_that_starts_anywhere(
    row: Implementation, dtype: torch.dtype, weight: bool, device: torch.device
) -> None:
    a, b = operands(300, 72, 520, dtype, weight, device)
    shifted = torch.full((300 * 520 + 9,), math.nan, dtype=dtype, device=device)
    out = shifted[1 : 1 + 300 * 520].view(300, 520)
    function_of(row)(a, b, out=out)
    assert_exact(out, a, b)
    assert shifted[0].isnan()
    assert shifted[1 + 300 * 520 :].isnan().all()


@pytest.mark.gpu
@each
@each_half
@each_layout
def test_a_hundred_runs_give_the_same_bits(
    row: Implementation, dtype: torch.dtype, weight: bool, device: torch.device
) -> None:
    """A stage read too early, or written too early, would show now and then."""
    function = function_of(row)
    for m, k, n in ((4096, 64, 4096), (4096, 1024, 4096), (512, 1024, 1024)):
        a, b = operands(m, k, n, dtype, weight, device)
        first = function(a, b)
        assert_exact(first, a, b)
        out = torch.empty_like(first)
        for _ in range(100):
            out.fill_(math.nan)
            assert torch.equal(function(a, b, out=out), first)


@pytest.mark.gpu
@each
def test_beyond_32_bits(row: Implementation, device: torch.device) -> None:
    if torch.cuda.mem_get_info()[0] < 16 * 2**30:
        pytest.skip("needs 16 GB of memory")
    function = function_of(row)
    # The last row starts past 2^32 bytes and 2^31 elements: of a, then of the weight, then of out.
    long = torch.zeros(2**17 + 3, 2**14 + 8, dtype=torch.bfloat16, device=device)
    long[-1, ::8], long[-2, -1] = 1, 3
    few = torch.ones(8, long.shape[1], dtype=torch.bfloat16, device=device)
    by_rows, by_cols = function(long, few.t()), function(few, long.t())
    assert by_rows[-1].eq(long.shape[1] // 8).all()
    assert by_rows[-2].eq(3).all()
    assert not by_rows[:-2].any()
    assert torch.equal(by_cols, by_rows.t())
    tall = integers(long.shape[0], 8, dtype=torch.bfloat16, device=device)
    wide = integers(8, long.shape[1], dtype=torch.bfloat16, device=device)
    assert_exact(function(tall, wide, out=long)[-300:], tall[-300:], wide)
