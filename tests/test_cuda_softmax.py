"""Long rows of softmax and few on the device: every plan, special values, alignment, both ways in.

Inputs lie in NaN-filled buffers, outputs start as NaN, and the truth is the float64 oracle.
Short rows of many are in test_cuda_pointwise.py.
"""

from __future__ import annotations

import math

import pytest
import torch
from test_cuda_pointwise import assert_close, each_dtype, guarded

from benchmarks.check import Bordered
from benchmarks.implementations import find
from cuda_impl import softmax
from cuda_impl import softmax_plan as plans

pytestmark = pytest.mark.gpu

# On both sides of where a plan ends. Odd ones have ragged rows, each with another alignment.
HELD = {math.prod(row) for rows in plans.SHARED_BY.values() for row in rows if row[0] >= 32}
LONG = sorted(
    {held + step for held in HELD for step in (-63, -31, -8, -3, 0, 1, 8)}
    | {16392, 50257, 100001, 128256}
)
FEW = sorted(
    {math.prod(row) + step for row in plans.FEW_SHARED_BY for step in (-5, 0, 8)}
    | {257, 1000, 32000}
)
# Too many to count as few.
MANY = 300


@pytest.fixture(params=["cuda/registers", "cupy/registers"])
def registers(request: pytest.FixtureRequest) -> object:
    return find("softmax", request.param).resolve()


def cases() -> list[tuple[int, int]]:
    return [(MANY, cols) for cols in LONG] + [(rows, cols) for cols in FEW for rows in (1, 19, 64)]


@each_dtype
@pytest.mark.parametrize(("rows", "cols"), cases())
def test_every_length(rows: int, cols: int, dtype: torch.dtype, device: torch.device) -> None:
    x = guarded(torch.randn(rows, cols, device=device).to(dtype))
    out = Bordered(x.shape, x)
    softmax.registers_extension(x, out=out.tensor)
    assert_close("softmax", out.tensor, x)
    assert not out.violated()


@each_dtype
@pytest.mark.parametrize("rows", [5, MANY])
@pytest.mark.parametrize("cols", [1001, 5001, 20001, 40000, 65530, 100001, 262081])
def test_misaligned_memory(rows: int, cols: int, dtype: torch.dtype, device: torch.device) -> None:
    values = torch.randn(rows, cols, device=device).to(dtype)
    for offset_in in (0, 1, 3):
        for offset_out in (0, 1, 2):
            out = guarded(torch.full_like(values, math.nan), offset_out)
            softmax.registers_extension(guarded(values, offset_in), out=out)
            assert_close("softmax", out, values)


@each_dtype
@pytest.mark.parametrize("rows", [19, MANY])
@pytest.mark.parametrize("cols", [1001, 5001, 8192, 20001, 32768, 65536, 131072, 262144])
def test_special_values(
    rows: int, cols: int, dtype: torch.dtype, registers, device: torch.device
) -> None:
    inf, nan = math.inf, math.nan
    x = torch.randn(rows, cols, device=device).to(dtype)
    # Rows between them stay as they are: what goes from row to row would show there.
    x[0] = -inf
    x[2, :-1] = -inf
    x[4, : cols // 2] = -inf
    x[6, 0] = nan
    x[8, cols // 2] = nan
    x[10, -1] = inf
    x[12] = inf
    x[14] = torch.finfo(dtype).min
    x[16, 1] = torch.finfo(dtype).max
    x[17] = nan
    x[rows - 1] = -inf
    got = registers(x)
    assert torch.equal(got.isnan(), torch.softmax(x.float(), -1).isnan())
    assert_close("softmax", got, x)


@each_dtype
@pytest.mark.parametrize("rows", [5, MANY])
def test_extension_and_cupy_agree_bit_for_bit(
    rows: int, dtype: torch.dtype, device: torch.device
) -> None:
    one, two = (find("softmax", f"{tier}/registers").resolve() for tier in ("cuda", "cupy"))
    for cols in (1000, 4096, 5001, 8192, 20001, 32768, 65536, 100001, 131072, 262144):
        x = torch.randn(rows, cols, device=device).to(dtype)
        width = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
        assert torch.equal(one(x).view(width), two(x).view(width))


def test_a_result_does_not_depend_on_when_it_is_computed(device: torch.device) -> None:
    """Many waves of blocks, and the same row at all places: a race would show as a difference."""
    for rows, cols in ((200000, 1024), (6000, 32768), (3000, 65536), (1500, 131072), (700, 262144)):
        x = torch.randn(1, cols, device=device).bfloat16().expand(rows, cols).contiguous()
        got = softmax.registers_extension(x)
        assert_close("softmax", got[:1], x[:1])
        assert torch.equal(got, got[:1].expand_as(got))


@pytest.mark.parametrize("cols", [1024, 65536])
def test_more_than_two_to_the_31_elements(cols: int, device: torch.device) -> None:
    if torch.cuda.mem_get_info(device)[0] < 24 * 2**30:
        pytest.skip("needs 24 GB of free device memory")
    x = torch.zeros(2**31 // cols + 3, cols, dtype=torch.bfloat16, device=device)
    x[-1] = torch.randn(cols, device=device)
    out = torch.full_like(x, math.nan)
    softmax.registers_extension(x, out=out)
    assert_close("softmax", out[-2:], x[-2:])
    assert_close("softmax", out[:2], x[:2])
    assert not out.isnan().any()


def test_the_extension_refuses_what_it_has_no_instance_for(device: torch.device) -> None:
    x = torch.randn(4, 32768, device=device).bfloat16()
    launch = softmax.compiled().softmax_registers
    good = (128, 64, 4, True)
    launch(x, torch.empty_like(x), *good)
    for place, wrong in ((0, 512), (1, 20), (2, 3)):
        plan = [*good[:place], wrong, *good[place + 1 :]]
        with pytest.raises(ValueError, match="no compiled instance"):
            launch(x, torch.empty_like(x), *plan)
    with pytest.raises(ValueError, match="no compiled instance"):
        launch(x.float(), torch.empty_like(x.float()), *good)
