"""The Triton softmax: every row length, every layout, and values that break naive kernels."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from triton_spy import spy_on

from benchmarks.check import error_of, verify
from reference.ops import OPS
from reference.spec import Case
from triton_impl import softmax as tier
from triton_impl import softmax_few as few
from triton_impl import softmax_meeting as meeting
from triton_impl import softmax_online as online
from triton_impl import softmax_short as short

OP = OPS["softmax"]
INF, NAN = math.inf, math.nan
FUNCTIONS = (tier.softmax, tier.sketch)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# One rounding of the result, and what float32 arithmetic adds to it.
ROUNDING = {torch.float32: 2e-6, torch.float16: 1.05 * 2**-11, torch.bfloat16: 1.05 * 2**-8}

# In the interpreter numpy warns of NaN and overflow that these rows rightly meet on their way.
numpy_warns = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def assert_close(got: Tensor, x: Tensor) -> None:
    """Judge a softmax of x by the float64 oracle."""
    expected = OP.oracle(x)
    error = error_of(got, expected, OP.error_scale(expected, x))
    assert error is not None, "NaN or inf where the oracle has none, or the reverse"
    assert error <= ROUNDING[x.dtype]


def check(function, x: Tensor) -> Tensor:
    """Judge function(x) by the float64 oracle and return it."""
    got = function(x)
    assert got.shape == x.shape
    assert got.dtype == x.dtype
    assert_close(got, x)
    return got


def poisoned(values: Tensor, offset: int) -> tuple[Tensor, Tensor, Tensor]:
    """values, `offset` elements into NaN; an output of NaN 8 elements into NaN; and all of that."""
    buffer = values.new_full((values.numel() + 16,), NAN)
    room = torch.full_like(buffer, NAN)
    x = buffer[offset : offset + values.numel()].view(values.shape).copy_(values)
    return x, room[8 : 8 + values.numel()].view(values.shape), room


def assert_poisoned_around(out: Tensor, room: Tensor) -> None:
    """Nothing beside `out` was written. (A neighbour's value read would have made `out` NaN.)"""
    assert room[:8].isnan().all()
    assert room[8 + out.numel() :].isnan().all()


@pytest.mark.parametrize("case", OP.test_cases, ids=lambda case: case.name)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gate(function, case: Case, device: torch.device) -> None:
    verdict = verify(OP, case, function, device)
    assert verdict.ok, verdict.reason


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n_cols", "num_warps"),
    [(1, 1), (3, 1), (2048, 1), (2049, 4), (4096, 4), (4097, 8), (8192, 8)],
)
def test_rows_up_to_8192_are_read_once(
    monkeypatch, device, dtype: torch.dtype, n_cols: int, num_warps: int
) -> None:
    spy = spy_on(monkeypatch, short, "softmax_rows_kernel")
    check(tier.softmax, torch.randn(3, n_cols, device=device).to(dtype))
    assert [options["num_warps"] for *_, options in spy.launches] == [num_warps]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("n_cols", [8192, 8193, 8200, 16384, 16385, 16392, 32767, 32768, 32769])
def test_rows_of_two_byte_types_are_packed_from_8193_to_32768(
    monkeypatch, device, dtype: torch.dtype, n_cols: int, offset: int
) -> None:
    """offset: of the tensor itself, in elements"""
    monkeypatch.setattr(tier, "processors", lambda x: 8)
    spies = {
        name: spy_on(monkeypatch, module, f"softmax_{name}_kernel")
        for name, module in (
            *(("rows", short), ("packed", short), ("meeting", meeting), ("online", online)),
        )
    }
    x, out, room = poisoned(torch.randn(9, n_cols, device=device).to(dtype), offset)
    assert tier.softmax(x, out=out) is out
    assert_close(out, x)
    assert_poisoned_around(out, room)
    packed = dtype.itemsize == 2 and 8192 < n_cols <= 32768 and not offset
    fits = n_cols <= (32768 if dtype is torch.float32 else 16384)
    shared = n_cols == 32769 and dtype.itemsize == 2 and not offset
    expected = "packed" if packed else "rows" if fits else "meeting" if shared else "online"
    assert [name for name, spy in spies.items() if spy.launches] == [expected]
    if packed:
        ((grid, arguments, options),) = spies["packed"].launches
        assert grid == (9,)
        assert arguments["WHOLE"] == (n_cols % 8 == 0)
        assert options["num_warps"] == (16 if n_cols <= 16384 else 32)


def test_few_rows_are_packed_where_they_are_not_shared_out(monkeypatch, device) -> None:
    packed = spy_on(monkeypatch, short, "softmax_packed_kernel")
    shares = spy_on(monkeypatch, few, "softmax_shares_kernel")
    check(tier.softmax, torch.randn(3, 16384, device=device).half())
    assert (len(packed.launches), len(shares.launches)) == (1, 0)
    check(tier.softmax, torch.randn(3, 16392, device=device).half())
    assert (len(packed.launches), len(shares.launches)) == (1, 1)


def test_devices_without_maxima_of_pairs_keep_to_the_other_kernels(monkeypatch, device) -> None:
    monkeypatch.setattr(tier, "has_pairs", lambda x: False)
    spy = spy_on(monkeypatch, short, "softmax_rows_kernel")
    check(tier.softmax, torch.randn(2, 16384, device=device).half())
    assert len(spy.launches) == 1


@numpy_warns
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_cols", [8193, 16384, 32761, 32768])
def test_odd_values_anywhere_in_a_packed_row(
    monkeypatch, device, dtype: torch.dtype, n_cols: int
) -> None:
    monkeypatch.setattr(tier, "processors", lambda x: 2)
    x = torch.randn(12, n_cols, device=device).to(dtype)
    # In either half of a word, at both ends, and where they are all there is.
    x[0, 0], x[1, 1], x[2, n_cols - 1], x[3, 4097] = NAN, NAN, NAN, NAN
    x[4, 0], x[5, n_cols - 1], x[6, 4096] = INF, INF, INF
    x[7], x[8] = -INF, NAN
    x[9, 1:] = -INF
    x[10, :-1] = -INF
    got = check(tier.softmax, x)
    assert got[:9].isnan().all()
    assert got[9, 0] == got[10, -1] == 1
    assert not got[11].isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n_cols", "shares"),
    [
        # Of 32 KB, or of 16 or 8 KB where those would be far from full.
        (65536, {2: 4, 4: 8}),
        (65541, {2: 4, 4: 17}),
        (50257, {2: 13, 4: 13}),
        (34824, {2: 9, 4: 9}),
    ],
)
def test_programs_of_a_long_row_meet(
    monkeypatch, device, dtype: torch.dtype, n_cols: int, shares: dict[int, int]
) -> None:
    monkeypatch.setattr(tier, "processors", lambda x: 4 * 17)
    spy = spy_on(monkeypatch, meeting, "softmax_meeting_kernel")
    x, out, room = poisoned(torch.randn(70, n_cols, device=device).to(dtype), 0)
    assert tier.softmax(x, out=out) is out
    assert_close(out, x)
    assert_poisoned_around(out, room)
    for grid, arguments, _ in spy.launches:
        assert grid == (70 * shares[dtype.itemsize],)
        assert arguments["WHOLE"] == (n_cols % (16 // dtype.itemsize) == 0)
    assert spy.launches


@numpy_warns
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_cols", [49152, 50257])
def test_odd_values_in_any_share(monkeypatch, device, dtype: torch.dtype, n_cols: int) -> None:
    monkeypatch.setattr(tier, "processors", lambda x: 4 * 13)
    spy = spy_on(monkeypatch, meeting, "softmax_meeting_kernel")
    x = torch.randn(52, n_cols, device=device).to(dtype)
    x[0, 0], x[1, 20000], x[2, n_cols - 1] = NAN, NAN, NAN
    x[3, 0], x[4, 30000], x[5, n_cols - 1] = INF, INF, INF
    x[6], x[7] = -INF, NAN
    # Whole shares of nothing but -inf, before and behind the only number, and a row of zeros.
    x[8, 1:], x[9, :-1], x[10] = -INF, -INF, 0
    got = check(tier.softmax, x)
    assert spy.launches
    assert got[:8].isnan().all()
    assert got[8, 0] == got[9, -1] == 1
    assert not got[10:].isnan().any()


def test_the_same_bits_each_time(monkeypatch, device) -> None:
    monkeypatch.setattr(tier, "processors", lambda x: 4 * 13)
    x = torch.randn(64, 50257, device=device).bfloat16()
    first = tier.softmax(x)
    assert all(torch.equal(tier.softmax(x), first) for _ in range(1 if device.type == "cpu" else 9))


def test_shares_are_nearly_full_or_as_full_as_can_be() -> None:
    plan = meeting.meeting_plan(2048, 131072 // 8, 132)
    assert (plan.shares, plan.packs, plan.room, plan.num_warps) == (8, 2048, 2048, 16)
    plan = meeting.meeting_plan(5341, 50257 // 8, 132)
    assert (plan.shares, plan.packs, plan.room, plan.num_warps) == (13, 484, 512, 4)
    # 4608 packs: 3 x 1536 of 2048, 5 x 922 of 1024, 9 x 512.
    assert meeting.meeting_plan(300, 4608, 132).shares == 9
    # All that can meet are 32, or one for four multiprocessors.
    assert meeting.meeting_plan(300, 32 * 2048, 132).shares == 32
    assert meeting.meeting_plan(300, 32 * 2048 + 1, 132) is None
    assert meeting.meeting_plan(300, 32 * 2048, 127) is None
    assert meeting.meeting_plan(2**28, 131072 // 8, 132) is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_cols", [32776, 65536, 131072])
def test_rows_of_too_many_shares_are_each_read_by_one_program(
    monkeypatch, device, dtype: torch.dtype, n_cols: int
) -> None:
    monkeypatch.setattr(tier, "processors", lambda x: 1)
    spy = spy_on(monkeypatch, online, "softmax_online_kernel")
    check(tier.softmax, torch.randn(2, n_cols, device=device).to(dtype))
    ((grid, arguments, options),) = spy.launches
    assert options["num_warps"] == (16 if n_cols * dtype.itemsize <= 2**17 else 32)
    assert grid == (2,)
    assert arguments["WHOLE"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("n_cols", [32769, 50257, 65541])
def test_long_rows_that_start_anywhere(
    monkeypatch, device, dtype: torch.dtype, n_cols: int, offset: int
) -> None:
    """offset: of the tensor itself, in elements"""
    monkeypatch.setattr(tier, "processors", lambda x: 1)
    spy = spy_on(monkeypatch, online, "softmax_online_kernel")
    x, out, room = poisoned(torch.randn(5, n_cols, device=device).to(dtype), offset)
    assert tier.softmax(x, out=out) is out
    assert_close(out, x)
    assert_poisoned_around(out, room)
    ((_, arguments, _),) = spy.launches
    assert arguments["PACK"] == (1 if offset else 16 // dtype.itemsize)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_cols", [32776, 50257, 131072, 131077])
@pytest.mark.parametrize("n_rows", [1, 3])
def test_few_long_rows_are_shared_out(
    monkeypatch, device, dtype: torch.dtype, n_rows: int, n_cols: int
) -> None:
    spies = [spy_on(monkeypatch, few, f"softmax_{name}_kernel") for name in ("partials", "shares")]
    x = torch.randn(n_rows, n_cols, device=device).to(dtype)
    out = torch.full_like(x, NAN)
    assert tier.softmax(x, out=out) is out
    assert_close(out, x)
    block = few.shares_block(n_rows, n_cols, few.processors(x))
    for spy in spies:
        ((grid, _, _),) = spy.launches
        assert grid[0] == n_rows
        assert 0 <= grid[1] * block - n_cols < block + 8


def test_many_shares_are_combined_first(monkeypatch, device) -> None:
    monkeypatch.setattr(few, "MOST_PARTIALS", 16)
    spy = spy_on(monkeypatch, few, "softmax_combine_kernel")
    x = torch.randn(3, 50257, device=device).bfloat16()
    x[1, :30000] = -INF
    check(tier.softmax, x)
    ((grid, _, _),) = spy.launches
    assert grid == (3,)


def test_shares_of_a_row_fill_the_device() -> None:
    assert few.shares_block(1, 131072, 132) == 1024
    assert few.shares_block(8, 131072, 132) == 4096
    assert few.shares_block(64, 128256, 132) == 8192


def test_short_rows_share_a_program(monkeypatch, device) -> None:
    spy = spy_on(monkeypatch, short, "softmax_rows_kernel")
    check(tier.softmax, torch.randn(33, 128, device=device))
    ((grid, arguments, _),) = spy.launches
    assert arguments["BLOCK_ROWS"] == 16
    assert grid == (3,)


@numpy_warns
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("n", [3, 1025, 65537])
def test_a_row_of_minus_inf_is_nan_and_stays_alone(function, n: int, device) -> None:
    ramp = torch.arange(n, dtype=torch.float32).remainder(11)
    last = torch.full((n,), -INF)
    last[-1] = 5
    x = torch.stack([torch.full((n,), -INF), ramp, last]).to(device)
    got = check(function, x)
    assert got[0].isnan().all()
    assert got[2, -1] == 1


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("n", [33, 2049, 65537, 131072])
@pytest.mark.parametrize("at", [-2, "middle"])
def test_tiles_of_minus_inf_before_the_first_number(function, n: int, at, device) -> None:
    x = torch.full((2, n), -INF)
    first = n // 2 if at == "middle" else n - 2
    x[:, first], x[:, first + 1] = 0.0, 1.0
    got = check(function, x.to(device))
    assert got[0, first].item() == pytest.approx(0.26894142, rel=1e-6)


@numpy_warns
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    "rows",
    [
        [[0, NAN, 1], [0, 0, 0]],
        [[NAN, -INF]],
        [[0, INF, -INF]],
        [[INF, INF]],
        [[NAN, NAN], [1, 1]],
    ],
)
def test_nan_and_inf_fill_their_own_row(function, rows: list[list[float]], device) -> None:
    for dtype in DTYPES:
        x = torch.tensor(rows, device=device).to(dtype)
        assert torch.equal(check(function, x).isnan(), torch.softmax(x, -1).isnan())


@numpy_warns
@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("at", [0, 40000, 65536])
def test_one_odd_value_in_any_tile_of_a_long_row(value: float, at: int, device) -> None:
    x = torch.randn(2, 65537, device=device).bfloat16()
    x[0, at] = value
    got = check(tier.softmax, x)
    assert got[0].isnan().all()
    assert not got[1].isnan().any()


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("shape", "value"), [((4, 3), -200.0), ((4, 3), -5.0), ((4, 1025), -5.0)])
def test_padding_is_neutral_for_negative_rows(function, shape, value: float, device) -> None:
    got = check(function, torch.full(shape, value, device=device))
    torch.testing.assert_close(got.sum(-1).cpu(), torch.ones(4))


@numpy_warns
@pytest.mark.parametrize("function", FUNCTIONS)
def test_large_common_offsets(function, device) -> None:
    for values in (
        torch.tensor([0.0, 1, 2]) - 1e7,
        torch.tensor([1e38, 1e38, 0.0]),
        torch.full((1025,), 16777216.0),
        torch.full((40000,), 3e38),
    ):
        check(function, values.to(device))
    # Where a factor folded into the subtraction would have lost the difference.
    check(function, torch.tensor([2.0**20, 2.0**20 + 2**13], device=device).bfloat16())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_float16_spans_wider_than_float16(function, device) -> None:
    wide = torch.tensor([[65504.0, -65504.0]], device=device).half()
    assert check(function, wide).tolist() == [[1.0, 0.0]]
    for x in (torch.zeros(1, 70000), torch.full((1, 4096), -65504.0)):
        got = function(x.half().to(device))
        assert torch.equal(got.cpu(), torch.full_like(x, 1 / x.shape[1]).half())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_layout(function, device) -> None:
    x = torch.randn(64, 48, device=device)
    flat = torch.randn(1025, device=device).bfloat16()
    for view in (
        x.t(),
        x[:, ::2],
        x[5:20, 3:40],
        torch.randn(1, 8, device=device).expand(5, 8),
        torch.randn(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last),
        torch.empty_strided((1, 8), (2**40, 1), device=device).copy_(x[:1, :8]),
        flat[1:].view(4, 256),
        flat[1:],
        x[0],
    ):
        check(function, view)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_rows_further_apart_than_32_bits_reach(function, device) -> None:
    if device.type == "cuda" and torch.cuda.mem_get_info()[0] < 2**33:
        pytest.skip("needs 8 GB of free GPU memory")
    # Pages that nobody touches cost no memory on the CPU.
    far = torch.empty(2 * 1_200_000_000 + 8, dtype=torch.float16, device=device)
    x = far.as_strided((3, 8), (1_200_000_000, 1))
    x.copy_(torch.arange(24.0).view(3, 8))
    check(function, x)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
def test_empty(function, shape: tuple[int, ...], device) -> None:
    got = function(torch.empty(shape, device=device))
    assert got.shape == shape
    check(function, torch.ones(2, 2, device=device))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_out_of_any_layout_is_filled_and_returned(function, dtype: torch.dtype, device) -> None:
    x = torch.randn(5, 7, device=device).to(dtype)
    expected = function(x)
    for out in (torch.empty_like(x), torch.empty(7, 5, dtype=dtype, device=device).t()):
        assert function(x, out=out.fill_(NAN)) is out
        assert torch.equal(out, expected)


def test_two_calls_give_two_tensors(device) -> None:
    x = torch.randn(5, 7, device=device)
    first = tier.softmax(x)
    kept = first.clone()
    second = tier.softmax(-x)
    assert first.data_ptr() != second.data_ptr()
    assert torch.equal(first, kept)


def test_the_sketch_says_where_it_ends(device) -> None:
    with pytest.raises(ValueError, match="at most 1048576 columns, the largest Triton tile"):
        tier.sketch(torch.empty(1, 2**20 + 1, device=device))
