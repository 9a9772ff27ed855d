"""The Triton matrix product: every kernel, both layouts of b, every plan, edges and neighbours."""

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton_spy import spy_on

from benchmarks.check import error_of, verify
from reference.ops import OPS
from reference.spec import Case
from triton_impl import matmul as tier
from triton_impl import matmul_streamk as streamk
from triton_impl.matmul_streamk import tiles_of

OP = OPS["matmul"]
NAN = math.nan
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# One rounding of the result, and float32 accumulation over the few hundred terms used here.
BOUND = {torch.float32: 2e-6, torch.float16: 1.1 * 2**-11, torch.bfloat16: 1.1 * 2**-8}


def check(a: Tensor, b: Tensor) -> Tensor:
    """Judge matmul(a, b) by the float64 oracle and return it."""
    got = tier.matmul(a, b)
    expected = OP.oracle(a, b)
    assert got.shape == expected.shape
    assert got.dtype == a.dtype
    error = error_of(got, expected, OP.error_scale(expected, a, b))
    assert error is not None, "NaN or inf where the oracle has none, or the reverse"
    assert error <= BOUND[a.dtype]
    return got


def draw(device, dtype, m: int, k: int, n: int, layout: str = "nk") -> tuple[Tensor, Tensor]:
    return OP.make_inputs(Case((m, k, n), dtype, layout), device, torch.Generator(device))


@pytest.fixture
def spies(monkeypatch):
    """(descriptor kernel, pointer kernel), each noting its launches."""
    return tuple(
        spy_on(monkeypatch, tier, f"matmul_{name}_kernel") for name in ("descriptor", "pointer")
    )


@pytest.mark.parametrize("case", OP.test_cases, ids=lambda case: case.name)
def test_gate(case: Case, device) -> None:
    verdict = verify(OP, case, tier.matmul, device)
    assert verdict.ok, verdict.reason


@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize(
    ("m", "n", "processors", "plan"),
    [
        (1, 72, 132, tier.DECODE_PLANS[0][1]),
        (17, 72, 132, tier.DECODE_PLANS[1][1]),
        (64, 72, 132, tier.DECODE_PLANS[2][1]),
        (136, 264, 4, tier.LARGE),
        (136, 264, 6, tier.MEDIUM),
        (136, 136, 4, tier.MEDIUM),
        (136, 264, 7, tier.SMALL),
        (136, 16, 1, tier.SMALL),
    ],
)
def test_every_plan_with_tiles_over_every_edge(
    monkeypatch, spies, device, layout: str, m: int, n: int, processors: int, plan: tier.Plan
) -> None:
    monkeypatch.setattr(tier, "processors", lambda x: processors)
    if device.type == "cuda" and torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs a GPU with a tensor memory accelerator, compute capability 9.0")
    check(*draw(device, torch.bfloat16, m, 136, n, layout))
    descriptor, pointer = spies
    ((_, arguments, options),) = descriptor.launches
    assert not pointer.launches
    assert [arguments[f"BLOCK_{axis}"] for axis in "MNK"] == [
        plan.block_m,
        plan.block_n,
        plan.block_k,
    ]
    assert arguments["HALVES"] == plan.halves
    assert arguments["B_IS_NK"] == (layout == "nk")
    assert options == {"num_warps": plan.num_warps, "num_stages": plan.num_stages}


def test_few_programs_do_many_tiles(monkeypatch, spies, device) -> None:
    monkeypatch.setattr(tier, "processors", lambda x: 2)
    # 11 x 3 tiles of SMALL in bands of 8 rows of tiles, the last of them 3 high, for 4 programs.
    monkeypatch.setattr(tier, "_choose", lambda *sizes: tier.SMALL)
    check(*draw(device, torch.float16, 700, 72, 264))
    ((grid, _, _),) = spies[0].launches
    assert grid == (4,)


@pytest.fixture
def stream_spies(monkeypatch):
    """(parts kernel, sum kernel) on a device of 3 multiprocessors, what they start with all NaN."""
    for module in (tier, streamk):
        monkeypatch.setattr(module, "processors", lambda x: 3)
    if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs a GPU with a tensor memory accelerator, compute capability 9.0")
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **how: empty(*size, **how).fill_(NAN))
    return tuple(spy_on(monkeypatch, streamk, f"matmul_{name}_kernel") for name in ("parts", "sum"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("m", "k", "n", "share", "programs"),
    [
        # 16 steps a tile, in 6 programs: one tile, in shares that don't come out even.
        (1, 2048, 64, 3, 6),
        # Two, the second with 8 columns. A program in the middle has steps of both.
        (16, 2048, 72, 6, 6),
        # Rows and steps that hang over an edge.
        (17, 1928, 128, 6, 6),
        (33, 2040, 8, 3, 6),
        # 17 steps for shares of 3: the last is short.
        (64, 2176, 40, 3, 6),
        # 19 for shares of 4: the last program would have none, and isn't there.
        (63, 2432, 16, 4, 5),
    ],
)
def test_few_rows_are_shared_out(
    stream_spies, spies, device, dtype, m: int, k: int, n: int, share: int, programs: int
) -> None:
    a, b = draw(device, dtype, m, k, n)
    # An unaligned place between two that aren't out's.
    around = torch.full((m * n + 2,), NAN, dtype=dtype, device=device)
    out = around[1:-1].view(m, n)
    assert tier.matmul(a, b, out=out) is out
    assert around[[0, -1]].isnan().all()
    assert torch.equal(check(a, b), out), "another order of summation"
    parts, sums = stream_spies
    assert not spies[0].launches
    assert not spies[1].launches
    plan = next(plan for plan in streamk.STREAM_PLANS if m <= plan.block_m)
    for grid, arguments, options in parts.launches:
        assert grid == (programs,)
        assert (arguments["share"], arguments["BLOCK_M"]) == (share, plan.block_m)
        assert arguments["SWAP"] == plan.swap
        assert options == {"num_warps": 4, "num_stages": plan.num_stages}
    assert [grid for grid, _, _ in sums.launches] == [(-(-n // 64), -(-m * 64 // 512))] * 2


def test_a_tile_in_more_parts_than_are_read_at_one_time(monkeypatch, stream_spies, device) -> None:
    for processors in (5, 64):
        for module in (tier, streamk):
            monkeypatch.setattr(module, "processors", lambda x, count=processors: count)
        check(*draw(device, torch.float16, 2, 2048, 72))
    # With 64 multiprocessors a step each.
    assert [grid for grid, _, _ in stream_spies[0].launches] == [(8,), (32,)]


# numpy warns of inf - inf and of 0 inf, which is right.
@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul:RuntimeWarning")
def test_shares_pass_on_nan_and_inf_of_their_own_alone(stream_spies, device) -> None:
    around_a = torch.full((26, 2064), NAN, dtype=torch.bfloat16, device=device)
    around_b = torch.full((74, 2064), NAN, dtype=torch.bfloat16, device=device)
    a, b = around_a[1:25, 8:2048], around_b[1:73, 8:2048].t()
    for operand in (a, b):
        operand.copy_(torch.randn(operand.shape))
    check(a, b)
    a[3, 5], a[4, 2000], b[1027, 70] = NAN, math.inf, -math.inf
    got, expected = tier.matmul(a, b).double(), OP.oracle(a, b)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.isinf(), expected.isinf())
    assert torch.equal(got.sign()[got.isinf()], expected.sign()[expected.isinf()])
    assert len(stream_spies[1].launches) == 2


@pytest.mark.parametrize(
    ("m", "k", "n", "processors", "block_m"),
    [
        (1, 4096, 4096, 132, 16),
        (17, 14336, 4096, 132, 32),
        (64, 14336, 131 * 64, 132, 64),
        # Tiles enough, too many rows, too short a K.
        (16, 4096, 131 * 64 + 1, 132, None),
        (16, 4096, 14336, 132, None),
        (65, 14336, 4096, 132, None),
        (16, 15 * 128, 4096, 132, None),
        (16, 15 * 128 + 1, 4096, 132, 16),
    ],
)
def test_what_is_shared_out(m: int, k: int, n: int, processors: int, block_m: int | None) -> None:
    plan = streamk.streamk_plan(m, n, k, processors)
    assert (plan.block_m if plan else None) == block_m


def test_what_is_shared_out_comes_in_one_layout(stream_spies, spies, device) -> None:
    check(*draw(device, torch.float16, 2, 2048, 64, "kn"))
    assert not stream_spies[0].launches
    assert spies[0].launches


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 128), (17, 1, 3), (1, 257, 1), (511, 33, 257), (3, 7, 64), (65, 64, 1), (600, 40, 72)],
)
def test_odd_sizes(device, dtype: torch.dtype, m: int, k: int, n: int) -> None:
    for layout in ("kn", "nk"):
        check(*draw(device, dtype, m, k, n, layout))


def test_what_has_no_descriptor_goes_through_pointers(spies, device) -> None:
    descriptor, pointer = spies
    a, b = draw(device, torch.float16, 24, 64, 48)
    flat = torch.randn(24 * 64 + 1, device=device).half()
    wide = torch.randn(48, 65, device=device).half()
    lone = torch.empty_strided((1, 48), (2**40, 1), dtype=a.dtype, device=device)
    for left, right in (
        (a.float(), b.float()),
        (flat[1:].view(24, 64), b),
        (a, wide[:, 1:].t()),
        (a, wide[:, :64].t()),
        (a.t().contiguous().t(), b),
        (a[:1].expand(24, 64), b),
        (a, b.contiguous()[:, ::2]),
        (a, b[:, :47]),
        # One row of b as [K, N], whose stride no tensor map could take.
        (a[:, :1], lone.copy_(b[:1])),
    ):
        before = len(pointer.launches)
        check(left, right)
        assert len(pointer.launches) == before + 1
    assert not descriptor.launches


def test_layouts_that_need_no_copy_get_none(spies, device) -> None:
    a, b = draw(device, torch.float16, 24, 64, 48)
    wide = torch.randn(24, 128, device=device).half()
    pairs = (
        (a, b),
        (a, b.contiguous()),
        (wide[:, 64:], b),
        (a[::2], b[:, 8:40:2]),
        # An odd K in rows that lie far enough apart.
        (a[:, :63], b[:63]),
    )
    for left, right in pairs:
        check(left, right)
    for argument, operands in zip(("a_desc", "b_desc"), zip(*pairs, strict=True), strict=True):
        passed = [arguments[argument].base.data_ptr() for _, arguments, _ in spies[0].launches]
        assert passed == [operand.data_ptr() for operand in operands]


@pytest.mark.parametrize("dtype", DTYPES)
def test_leading_dimensions(device, dtype: torch.dtype) -> None:
    a, b = draw(device, dtype, 24, 40, 16)
    lone = torch.empty_strided((1, 40), (2**40, 1), dtype=dtype, device=device).copy_(a[:1])
    for left in (a.view(2, 3, 4, 40), a[0], a.view(4, 6, 40).transpose(0, 1), lone):
        check(left, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_to_add_is_zero_and_nothing_to_write_is_empty(device, dtype: torch.dtype) -> None:
    for m, k, n in ((2, 0, 3), (0, 4, 3), (2, 4, 0), (0, 0, 0)):
        a, b = draw(device, dtype, m, k, n)
        out = torch.full((m, n), NAN, dtype=dtype, device=device)
        assert tier.matmul(a, b, out=out) is out
        assert torch.equal(out, torch.zeros_like(out))
        assert tier.matmul(a.view(1, m, k), b).shape == (1, m, n)
    assert torch.equal(tier.matmul(a.new_ones(0), a.new_ones(0, 3)), a.new_zeros(3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 17, 32, 33, 96])
def test_neighbours_do_not_leak_in(device, dtype: torch.dtype, k: int) -> None:
    for m, n in ((17, 24), (24, 17)):
        around_a = torch.full((m + 2, 128), NAN, dtype=dtype, device=device)
        around_b = torch.full((n + 2, 128), NAN, dtype=dtype, device=device)
        a, b = around_a[1 : m + 1, 8 : k + 8], around_b[1 : n + 1, 8 : k + 8].t()
        a.copy_(torch.randn(a.shape))
        b.copy_(torch.randn(b.shape))
        check(a, b)
        # b stored the other way round, in the middle of NaN.
        around_b = torch.full((k + 2, 64), NAN, dtype=dtype, device=device)
        check(a, around_b[1 : k + 1, 8 : n + 8].copy_(b))


def test_float32_is_not_tf32(device) -> None:
    a = torch.zeros(16, 16, device=device)
    a[:, 0] = 1 + 2**-11
    got = tier.matmul(a, torch.eye(16, device=device))
    assert got[0, 0].item() == 1 + 2**-11


# numpy warns of the last one's overflow, which is right.
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_float16_is_accumulated_in_float32(device) -> None:
    def product(a: Tensor, b: Tensor) -> float:
        return tier.matmul(a.half().to(device), b.half().to(device)).item()

    assert product(torch.tensor([[6e4, 6e4, -6e4, -6e4]]), torch.ones(4, 1)) == 0
    assert product(torch.ones(1, 4096), torch.ones(4096, 1)) == 4096
    assert product(torch.ones(1, 4096), torch.ones(1, 4096).t()) == 4096
    assert product(torch.tensor([[300.0, 300]]), torch.tensor([[300.0], [300]])) == math.inf


# numpy warns of inf - inf, which is right.
@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul:RuntimeWarning")
def test_nan_and_inf_as_pytorch(device) -> None:
    a, b = draw(device, torch.bfloat16, 24, 64, 48)
    a[3, 5], a[4, 6], b[7, 9] = NAN, math.inf, -math.inf
    got, expected = tier.matmul(a, b).double(), OP.oracle(a, b)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.isinf(), expected.isinf())
    assert torch.equal(got.sign()[got.isinf()], expected.sign()[expected.isinf()])


@triton.jit
def count_kernel(count_ptr, size):
    tl.store(count_ptr, tiles_of(size, 128))


def test_tiles_of_sizes_up_to_the_last_of_32_bits(device) -> None:
    for size, tiles in ((1, 1), (128, 1), (129, 2), (2**31 - 1, 2**24)):
        count = torch.zeros(1, dtype=torch.int32, device=device)
        count_kernel[(1,)](count, size)
        assert count.item() == tiles


@pytest.mark.gpu
def test_k_up_to_the_last_of_32_bits(stream_spies, device) -> None:
    if torch.cuda.mem_get_info()[0] < 2**34:
        pytest.skip("needs 16 GB of free GPU memory")
    k = 2**31 - 8
    a, weight = (torch.zeros(1, k, dtype=torch.float16, device=device) for _ in range(2))
    a[0, 0], weight[0, 0], a[0, -1], weight[0, -1] = 1, 3, 2, 4
    assert tier.matmul(a, weight.t()).item() == 11
    assert stream_spies[0].launches


def test_rows_further_apart_than_32_bits_reach(device) -> None:
    if device.type == "cuda" and torch.cuda.mem_get_info()[0] < 2**33:
        pytest.skip("needs 8 GB of free GPU memory")
    # Pages that nobody touches cost no memory on the CPU. The stride goes into the kernels.
    far = torch.empty(2 * 1_200_000_000 + 8, dtype=torch.float16, device=device)
    for stride in (1_200_000_000, 1_199_999_999):
        a = far.as_strided((3, 8), (stride, 1))
        a.copy_(torch.arange(24.0).view(3, 8))
        b = torch.randn(8, 16, device=device).half()
        check(a, b)
        check(b.t().contiguous(), a.t())


@pytest.mark.parametrize("dtype", DTYPES)
def test_out_of_any_layout_is_filled_and_returned(device, dtype: torch.dtype) -> None:
    a, b = draw(device, dtype, 5, 64, 16)
    expected = tier.matmul(a, b)
    buffer = torch.empty(5 * 16 + 1, dtype=dtype, device=device)
    for out in (
        torch.empty(5, 16, dtype=dtype, device=device),
        torch.empty(16, 5, dtype=dtype, device=device).t(),
        # Contiguous, and not aligned for a tensor map.
        buffer[1:].view(5, 16),
    ):
        assert tier.matmul(a, b, out=out.fill_(NAN)) is out
        torch.testing.assert_close(out, expected, rtol=2**-8, atol=1e-3)
