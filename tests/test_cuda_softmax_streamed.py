"""Streamed rows of softmax on the device: every plan, special values, alignment, both ways in.

Inputs lie in NaN-filled buffers, outputs start as NaN, and the truth is the float64 oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from test_cuda_pointwise import assert_close, each_dtype, guarded
from torch import Tensor

from benchmarks.check import Bordered
from benchmarks.device import is_hopper
from benchmarks.implementations import find
from cuda_impl import softmax
from cuda_impl import softmax_plan as plans

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not is_hopper(), reason="needs a Hopper GPU"),
]

Launch = Callable[[Tensor, Tensor, plans.StreamedPlan], None]

COLUMNS = (1, 7, 1024, 16384, 16391, 50257, 65536, 128256, 131072, 262080, 262144)
EDGES = sorted(
    {
        threads * elements * blocks + step
        for threads, elements, blocks in plans.STREAMED_BY
        for step in (-65, -8, 0)
    }
)
# More than fit at once, so that clusters have one row after another, some one more than others.
MANY = 300


def extension(x: Tensor, out: Tensor, plan: plans.StreamedPlan) -> None:
    softmax.compiled().softmax_streamed(x, out, *plan)


EACH_LAUNCH = pytest.mark.parametrize(
    "launch", [extension, softmax._launch_streamed], ids=["cuda", "cupy"]
)


def plan_of(x: Tensor, out: Tensor) -> plans.StreamedPlan:
    """As of many rows, so that few, and short ones, are streamed as well."""
    size = x.element_size()
    ends = x.data_ptr() | out.data_ptr() | x.shape[1] * size
    boundary = math.gcd(ends, plans.LINE)
    least = plans.STREAMED_ANYWHERE_FROM if boundary < 16 else plans.STREAMED_FROM
    plan = plans.streamed_plan(2**30, max(x.shape[1], least), size, boundary, processors=132)
    assert plan
    return plan


def draw(rows: int, cols: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randn(rows, cols, device=device).to(dtype)


@each_dtype
@pytest.mark.parametrize("rows", [1, 3, MANY])
@pytest.mark.parametrize("cols", sorted({*COLUMNS, *EDGES}))
def test_every_length(rows: int, cols: int, dtype: torch.dtype, device: torch.device) -> None:
    x = guarded(draw(rows, cols, dtype, device))
    out = Bordered(x.shape, x)
    softmax.streamed_extension(x, out=out.tensor)
    assert_close("softmax", out.tensor, x)
    assert not out.violated()


@each_dtype
@EACH_LAUNCH
@pytest.mark.parametrize("rows", [1, 3, MANY])
@pytest.mark.parametrize("cols", COLUMNS[:-1])
def test_views_that_start_anywhere(
    rows: int, cols: int, launch: Launch, dtype: torch.dtype, device: torch.device
) -> None:
    """The kernel itself, with rows too few or too short for it as well."""
    values = draw(rows, cols, dtype, device)
    for offset in (0, 1, 3, 7, 8, 40):
        x = guarded(values, offset)
        buffer = torch.full((values.numel() + 256,), math.nan, dtype=dtype, device=device)
        inside = slice(64 + offset, 64 + offset + values.numel())
        out = buffer[inside].view(values.shape)
        launch(x, out, plan_of(x, out))
        assert_close("softmax", out, values)
        assert buffer[: inside.start].isnan().all()
        assert buffer[inside.stop :].isnan().all()


@each_dtype
def test_x_and_out_at_different_places_of_a_line(dtype: torch.dtype, device: torch.device) -> None:
    """16 bytes apart they are streamed; else they are handed on."""
    values = draw(MANY, 20001, dtype, device)
    for offset_in, offset_out in ((0, 16 // dtype.itemsize), (1, 0), (3, 3 + 32)):
        out = guarded(torch.full_like(values, math.nan), offset_out)
        softmax.streamed_extension(guarded(values, offset_in), out=out)
        assert_close("softmax", out, values)


@each_dtype
@EACH_LAUNCH
@pytest.mark.parametrize("rows", [19, MANY])
@pytest.mark.parametrize("cols", [16384, 20001, 32768, 50257, 65536, 131072, 262144])
def test_special_values(
    rows: int, cols: int, launch: Launch, dtype: torch.dtype, device: torch.device
) -> None:
    inf, nan = math.inf, math.nan
    x = draw(rows, cols, dtype, device)
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
    got = torch.full_like(x, nan)
    launch(x, got, plan_of(x, got))
    assert torch.equal(got.isnan(), torch.softmax(x.float(), -1).isnan())
    assert_close("softmax", got, x)


@each_dtype
@pytest.mark.parametrize("rows", [5, MANY])
def test_extension_and_cupy_agree_bit_for_bit(
    rows: int, dtype: torch.dtype, device: torch.device
) -> None:
    one, two = (find("softmax", f"{tier}/streamed").resolve() for tier in ("cuda", "cupy"))
    for cols in (1000, 16384, 20001, 32768, 50257, 65536, 128256, 131072, 262144):
        x = draw(rows, cols, dtype, device)
        width = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
        assert torch.equal(one(x).view(width), two(x).view(width))


def test_a_result_does_not_depend_on_when_it_is_computed(device: torch.device) -> None:
    """Many rounds of the ring, and the same row at all places: a race would show. Rows are whole
    lines: what thread adds what depends on where in a line a row starts."""
    for rows, cols in ((16000, 16384), (6000, 50304), (3000, 65536), (1500, 131072), (700, 262144)):
        x = draw(1, cols, torch.bfloat16, device).expand(rows, cols).contiguous()
        got = softmax.streamed_extension(x)
        assert_close("softmax", got[:1], x[:1])
        assert torch.equal(got, got[:1].expand_as(got))


@pytest.mark.parametrize("cols", [16384, 50257])
def test_more_than_two_to_the_31_elements(cols: int, device: torch.device) -> None:
    if torch.cuda.mem_get_info(device)[0] < 24 * 2**30:
        pytest.skip("needs 24 GB of free device memory")
    x = torch.zeros(2**31 // cols + 3, cols, dtype=torch.bfloat16, device=device)
    x[-1] = torch.randn(cols, device=device)
    out = torch.full_like(x, math.nan)
    softmax.streamed_extension(x, out=out)
    assert_close("softmax", out[-2:], x[-2:])
    assert_close("softmax", out[:2], x[:2])
    assert not out.isnan().any()


def test_the_extension_refuses_what_it_has_no_instance_for(device: torch.device) -> None:
    x = draw(4, 65536, torch.bfloat16, device)
    out = torch.empty_like(x)
    good = plans.StreamedPlan(1024, 32, 2, plans.RING * 8 // 32, True)
    for wrong in ({"threads": 256}, {"elements": 24}, {"cluster": 3}, {"slots": 12}):
        with pytest.raises(ValueError, match="no compiled instance"):
            extension(x, out, good._replace(**wrong))
    shifted = guarded(x, 1)
    with pytest.raises(ValueError, match="at different places"):
        extension(shifted, out, good._replace(whole=False))
    with pytest.raises(ValueError, match="lines of 128 bytes"):
        extension(x[:, :-8].contiguous(), out[:, :-8].contiguous(), good)


def test_what_the_ring_cannot_hold_is_refused(device: torch.device) -> None:
    x = guarded(draw(4, 65536, torch.bfloat16, device), 1)
    out = guarded(torch.empty_like(x), 1)
    plan = plans.StreamedPlan(1024, 32, 2, plans.RING * 8 // 32, False)
    with pytest.raises(ValueError, match="no compiled instance"):
        extension(x, out, plan)
