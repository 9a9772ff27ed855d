"""matmul of up to 64 rows on Hopper's tensor cores: its plans on any machine, its numbers on a GPU.

As in test_cuda_matmul.py the operands are small integers, so that a result is right to the bit or
wrong; the tests there run this variant too, mostly with more rows, which it hands on.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from test_cuda_matmul import assert_exact, function_of, inside_nan, integers, operands
from torch import Tensor

from benchmarks.check import Bordered, verify
from benchmarks.implementation import Implementation
from benchmarks.implementations import IMPLEMENTATIONS
from cuda_impl import matrices, skinny
from cuda_impl.skinny import SkinnyPlan
from reference.ops import OPS
from reference.spec import Case

ROWS = [row for row in IMPLEMENTATIONS if row.op == "matmul" and row.variant == "skinny"]
HALVES = (torch.float16, torch.bfloat16)
PLANS = tuple(plan for _, _, plan in skinny.SKINNY_PLANS)
# The extension has those of the table alone, CuPy all.
BY_HAND = (
    SkinnyPlan(64, 64, stages=5, splits=4),
    SkinnyPlan(64, 16, stages=3, splits=8),
    SkinnyPlan(192, 32, stages=4, splits=1),
    SkinnyPlan(256, 64, stages=3, splits=8),
)
H200 = 132

each = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.tier}-{row.variant}")
each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)


# ---------------------------------------------------------------------------- plans


def test_the_plans_of_the_benchmarked_shapes() -> None:
    def plan(m: int, k: int, n: int) -> tuple[tuple[int, ...], int]:
        found = skinny.skinny_plan(m, n, k, H200)
        assert found is not None
        return tuple(found), found.blocks(n)

    assert plan(64, 4096, 4096) == ((64, 64, 5, 2), 128)
    assert plan(64, 14336, 4096) == ((64, 64, 5, 2), 128)
    assert plan(33, 4096, 8192) == ((64, 64, 5, 2), 256)
    assert plan(64, 4096, 14336) == ((128, 64, 4, 1), 112)
    assert plan(64, 8192, 28672) == ((128, 64, 4, 1), 224)
    assert plan(32, 14336, 4096) == ((64, 32, 7, 2), 128)
    assert plan(17, 4096, 128256) == ((128, 32, 5, 1), 1002)
    assert plan(16, 4096, 4096) == ((64, 16, 6, 2), 128)
    assert plan(1, 4096, 128256) == ((128, 16, 6, 1), 1002)
    # Short k: no block has less than four steps where splits can be fewer.
    assert plan(64, 512, 4096) == ((64, 64, 5, 2), 128)
    assert plan(64, 448, 4096) == ((128, 64, 4, 1), 32)
    assert skinny.skinny_plan(65, 4096, 4096, H200) is None


def test_every_plan_of_the_table_is_asked_for() -> None:
    plans = {
        skinny.skinny_plan(m, n, 4096, H200) for m in (1, 16, 17, 32, 33, 64) for n in (64, 14336)
    }
    assert plans == set(PLANS)
    assert len(set(PLANS)) == len(PLANS)


def test_every_row_of_both_operands_has_a_place() -> None:
    for m, n, k, processors in itertools.product(
        (1, 16, 17, 32, 33, 64), (1, 127, 129, 5000, 200000), (1, 65, 4096), (1, 78, 132)
    ):
        plan = skinny.skinny_plan(m, n, k, processors)
        assert plan is not None
        assert m <= plan.batch
        assert plan.blocks(n) % plan.splits == 0
        assert n <= plan.blocks(n) // plan.splits * plan.rows < n + plan.rows
        assert plan.splits == 1 or -(-k // 64) >= 4 * plan.splits


def test_two_blocks_keep_memory_at_work() -> None:
    for plan in PLANS:
        # 228 KB on Hopper, of which a block loses one.
        assert 2 * (plan.shared_bytes + 1024) <= 228 * 1024
        # Half more than the 26 KB that 4.25 TB/s ask of each of 132 multiprocessors in 0.8 us.
        assert plan.stages * plan.rows * 128 >= 40 * 1024


def test_what_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skinny, "processors", lambda device: H200)
    monkeypatch.setattr(skinny, "is_hopper", lambda device: True)
    # The device's type is all that a CPU tensor lacks here.
    monkeypatch.setattr(matrices, "DEVICES", ("cpu",))

    def taken(a: Tensor, b: Tensor) -> bool:
        return skinny._plan(matrices.operands(a, b, None)) is not None

    weight = torch.zeros(40, 24, dtype=torch.float16)
    assert taken(weight.new_zeros(64, 24), weight.t())
    assert taken(weight.new_zeros(2, 2, 24), weight.t())
    assert taken(weight.new_zeros(24), weight.t())
    # Any a, since it is copied where it has to be.
    assert taken(weight.new_zeros(4, 25)[:, 1:], weight.t())
    assert not taken(weight.new_zeros(65, 24), weight.t())
    assert not taken(weight.new_zeros(4, 24), weight.t().contiguous())
    assert not taken(torch.zeros(4, 24), torch.zeros(40, 24).t())
    # Padded rows of any length, but none that start between multiples of 16 bytes.
    assert taken(weight.new_zeros(4, 23), weight[:, :23].t())
    assert not taken(weight.new_zeros(4, 23), weight.new_zeros(40, 23).t())
    assert not taken(weight.new_zeros(4, 16), weight[:, 1:17].t())


def test_needs_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skinny, "is_hopper", lambda device: False)
    monkeypatch.setattr(matrices, "DEVICES", ("cpu",))
    a, weight = torch.zeros(4, 24).half(), torch.zeros(40, 24).half()
    with pytest.raises(ValueError, match="Hopper"):
        skinny.skinny_extension(a, weight.t())


# ---------------------------------------------------------------------------- numbers


def padded(n: int, k: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A weight [n, k] in rows that the tensor memory accelerator can address, NaN between them."""
    wide = torch.full((n, -(-k // 8) * 8 + 8), math.nan, dtype=dtype, device=device)
    return wide[:, :k].copy_(integers(n, k, dtype=dtype, device=device))


def compute(row: Implementation, a: Tensor, b: Tensor) -> None:
    out = Bordered(torch.Size((a.shape[0], b.shape[1])), a)
    function_of(row)(a, b, out=out.tensor)
    assert_exact(out.tensor, a, b)
    assert not out.violated()


@pytest.fixture
def filled_with_nan(device: torch.device) -> None:
    """All multiprocessors' shared memory: what is read before it is written shows."""
    cupy = pytest.importorskip("cupy")
    fill = cupy.RawKernel(
        'extern "C" __global__ void fill(int words) { extern __shared__ volatile unsigned ring[];'
        "for (int i = threadIdx.x; i < words; i += blockDim.x) ring[i] = 0xffffffffu; }",
        "fill",
    )
    shared_bytes = 227 * 1024
    fill.max_dynamic_shared_size_bytes = shared_bytes
    blocks = 4 * torch.cuda.get_device_properties(device).multi_processor_count
    with cupy.cuda.Device(device.index or 0):
        fill((blocks,), (256,), (cupy.int32(shared_bytes // 4),), shared_mem=shared_bytes)
        cupy.cuda.runtime.deviceSynchronize()


@pytest.mark.gpu
@each
@each_half
@pytest.mark.parametrize("plan", PLANS + BY_HAND, ids=lambda plan: "x".join(map(str, plan)))
def test_each_plan(
    row: Implementation,
    dtype: torch.dtype,
    plan: SkinnyPlan,
    device: torch.device,
    filled_with_nan: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if row.tier == "cuda" and plan not in PLANS:
        pytest.skip("not compiled")
    monkeypatch.setattr(skinny, "skinny_plan", lambda *_: plan)
    # Fewer steps than blocks share them, fewer than stages, as many, more, many more.
    counts = {1, plan.splits - 1, plan.splits + 1, *(plan.splits * i for i in (1, 2))}
    counts |= {plan.splits * (plan.stages + i) for i in (-1, 0, 1)} | {
        3 * plan.stages * plan.splits
    }
    for steps in sorted(counts - {0}):
        for m, n in ((1, 1), (plan.batch - 1, plan.rows + 3), (plan.batch, 3 * plan.rows + 4)):
            for k in (steps * 64, steps * 64 - 8, steps * 64 - 3):
                a = integers(m, k, dtype=dtype, device=device)
                compute(row, a, padded(n, k, dtype, device).t())


@pytest.mark.gpu
@each
@each_half
@pytest.mark.parametrize("processors", [132, 4, 1])
@pytest.mark.parametrize("m", [1, 2, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64])
def test_few_rows(
    row: Implementation,
    dtype: torch.dtype,
    processors: int,
    m: int,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(skinny, "processors", lambda device: processors)
    for k, n in ((8, 8), (64, 264), (1024, 33), (1032, 1), (4096, 520), (2056, 1000), (14336, 130)):
        compute(row, *operands(m, k, n, dtype, True, device))


@pytest.mark.gpu
@each
@each_half
@pytest.mark.parametrize("m", [1, 7, 16, 30, 61, 64])
def test_odd_sizes_and_misaligned_rows(
    row: Implementation, dtype: torch.dtype, m: int, device: torch.device
) -> None:
    for k, n in ((1, 1), (2, 3), (7, 129), (129, 65), (1001, 77), (2049, 131), (4099, 257)):
        # Weights that go on to `decode`, and such as needn't.
        compute(row, *operands(m, k, n, dtype, True, device))
        compute(row, integers(m, k, dtype=dtype, device=device), padded(n, k, dtype, device).t())


@pytest.mark.gpu
@each
@each_half
@pytest.mark.parametrize(("left", "right"), [(8, 8), (1, 7), (3, 3), (8, 1)])
def test_nothing_beside_a_slice_is_read(
    row: Implementation, dtype: torch.dtype, left: int, right: int, device: torch.device
) -> None:
    function = function_of(row)
    for m, k, n in itertools.product((1, 17, 30, 64), (72, 77, 1031), (80, 301)):
        a, b = operands(m, k, n, dtype, True, device)
        # Of a weight that is addressable, with an a that is and with one that isn't.
        b_inside = inside_nan(b.t(), 8, -k % 8 + 8).t()
        assert_exact(function(inside_nan(a, left, right), b_inside), a, b)
        b_inside = inside_nan(b.t(), left, right).t()
        assert_exact(function(inside_nan(a, left, right), b_inside), a, b)


@pytest.mark.gpu
@each
@each_half
def test_an_output_that_starts_anywhere(
    row: Implementation, dtype: torch.dtype, device: torch.device
) -> None:
    function = function_of(row)
    for m, n, offset in itertools.product((1, 33, 64), (128, 130, 1004), (0, 1, 2, 4)):
        a, b = operands(m, 512, n, dtype, True, device)
        memory = torch.full((m * n + 16,), math.nan, dtype=dtype, device=device)
        out = memory[offset : offset + m * n].view(m, n)
        assert function(a, b, out=out) is out
        assert_exact(out, a, b)
        assert memory[:offset].isnan().all()
        assert memory[offset + m * n :].isnan().all()


@pytest.mark.gpu
@each
def test_nan_and_inf_stay_in_their_rows_and_columns(
    row: Implementation, device: torch.device
) -> None:
    function = function_of(row)
    for m in (2, 16, 32, 64):
        a = torch.ones(m, 1024, dtype=torch.bfloat16, device=device)
        weight = torch.ones(300, 1024, dtype=torch.bfloat16, device=device)
        a[1, 700], weight[299, 3], weight[17, 1023] = math.nan, math.inf, -math.inf
        got = function(a, weight.t())
        expected = torch.full((m, 300), 1024.0, device=device)
        expected[:, 299], expected[:, 17], expected[1] = math.inf, -math.inf, math.nan
        assert torch.equal(got.float().nan_to_num(7.0), expected.nan_to_num(7.0)), m


@pytest.mark.gpu
@each
@each_half
@pytest.mark.parametrize("m", [1, 16, 17, 32, 33, 64, 65])
def test_the_gate_passes(
    row: Implementation, dtype: torch.dtype, m: int, device: torch.device
) -> None:
    for size in ((m, 4096, 4096), (m, 4096, 14336), (m, 14336, 4096), (m, 1000, 999)):
        for layout in ("nk", "kn"):
            verdict = verify(OPS["matmul"], Case(size, dtype, layout), function_of(row), device)
            assert verdict.ok, (size, layout, verdict.reason)


@pytest.mark.gpu
@each_half
@pytest.mark.parametrize("m", [1, 16, 30, 32, 64])
def test_extension_and_cupy_agree_bit_for_bit(
    dtype: torch.dtype, m: int, device: torch.device
) -> None:
    functions = [function_of(row) for row in ROWS]
    for k, n in ((4096, 4096), (1000, 14336), (4096, 28672), (512, 51300)):
        a, weight = (torch.randn(*s, device=device).to(dtype) for s in ((m, k), (n, k)))
        one, two = (function(a, weight.t()) for function in functions)
        assert torch.equal(one.view(torch.int16), two.view(torch.int16))


@pytest.mark.gpu
@each
@pytest.mark.parametrize("m", [1, 16, 32, 64])
def test_a_hundred_runs_give_the_same_bits(
    row: Implementation, m: int, device: torch.device
) -> None:
    """A stage read too early, or sums added up before all have come, would show now and then."""
    function = function_of(row)
    for k, n in ((4096, 4096), (4096, 14336), (2048, 28672), (512, 60000)):
        a = integers(m, k, dtype=torch.bfloat16, device=device)
        weight = integers(n, k, dtype=torch.bfloat16, device=device)
        first = function(a, weight.t())
        assert_exact(first, a, weight.t())
        # Sums that are not exact, whose bits tell the order in which they were added up.
        a, weight = torch.randn_like(a), torch.randn_like(weight)
        first = function(a, weight.t())
        out = torch.empty_like(first)
        for _ in range(100):
            out.fill_(math.nan)
            assert torch.equal(function(a, weight.t(), out=out), first)


@pytest.mark.gpu
@each
@each_half
def test_beyond_32_bits(row: Implementation, dtype: torch.dtype, device: torch.device) -> None:
    if torch.cuda.mem_get_info()[0] < 12 * 2**30:
        pytest.skip("needs 12 GB of memory")
    # The last row starts past 2^32 bytes and 2^31 elements.
    weight = torch.zeros(2**17 + 3, 2**14 + 8, dtype=dtype, device=device)
    weight[-1, ::8], weight[-2, -1] = 1, 3
    ones = weight.shape[1] // 8
    for m in (1, 32, 64):
        a = torch.ones(m, weight.shape[1], dtype=dtype, device=device)
        got = function_of(row)(a, weight.t())
        assert got[:, -1].eq(torch.tensor(ones, dtype=dtype)).all()
        assert got[:, -2].eq(3).all()
        assert not got[:, :-2].any()


@pytest.mark.gpu
@each
def test_in_a_captured_graph(row: Implementation, device: torch.device) -> None:
    function = function_of(row)
    for m in (1, 32, 64):
        a, b = operands(m, 1024, 1000, torch.bfloat16, True, device)
        out = torch.empty(m, 1000, dtype=torch.bfloat16, device=device)
        function(a, b, out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function(a, b, out=out)
        a.copy_(integers(m, 1024, dtype=torch.bfloat16, device=device))
        out.fill_(math.nan)
        graph.replay()
        assert_exact(out, a, b)
