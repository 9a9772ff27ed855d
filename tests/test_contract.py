"""What bad input gets: the same sentence from every tier, before any launch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from benchmarks.device import best_device, unmet
from benchmarks.implementation import Implementation
from benchmarks.implementations import IMPLEMENTATIONS
from reference.contract import check_softmax, landing
from reference.ops import OPS

DEVICE = best_device()
RUNNABLE = [row for row in IMPLEMENTATIONS if not unmet(row, DEVICE)]

rows = pytest.mark.parametrize(
    "row", RUNNABLE, ids=lambda row: f"{row.op}-{row.tier}-{row.variant}"
)


def make(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype, device=DEVICE)


def good_inputs(op: str) -> tuple[Tensor, ...]:
    if OPS[op].parameters == ("x",):
        return (make(3, 8),)
    if op == "matmul":
        return make(3, 8), make(8, 5)
    return make(3, 8), make(3, 8), make(8)


def expect(
    row: Implementation, error: type[Exception], text: str, *inputs: object, **more: object
) -> None:
    with pytest.raises(error, match=text):
        row.resolve()(*inputs, **more)
    # The device still works, and so does the function.
    assert row.resolve()(*good_inputs(row.op)).isfinite().all()


@rows
def test_every_tier_has_the_op_s_signature(row: Implementation) -> None:
    parameters = inspect.signature(row.resolve()).parameters
    assert tuple(parameters) == (*OPS[row.op].parameters, "out")
    assert parameters["out"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["out"].default is None


@rows
def test_not_a_tensor(row: Implementation) -> None:
    first, *others = good_inputs(row.op)
    name = OPS[row.op].parameters[0]
    expect(row, TypeError, f"{name} must be a torch.Tensor, got list", first.tolist(), *others)
    expect(row, TypeError, "out must be a torch.Tensor, got int", first, *others, out=3)


@rows
@pytest.mark.parametrize(
    "dtype", [torch.int32, torch.bool, torch.complex64, torch.float64], ids=str
)
def test_dtypes_that_no_tier_takes(row: Implementation, dtype: torch.dtype) -> None:
    name = OPS[row.op].parameters[0]
    inputs = [value.to(dtype) for value in good_inputs(row.op)]
    accepted = "float32, float16, bfloat16"
    text = f"{name} must have one of the dtypes {accepted}, got {str(dtype)[6:]}"
    expect(row, TypeError, text, *inputs)


@rows
def test_dtypes_that_differ(row: Implementation) -> None:
    first, *others = good_inputs(row.op)
    if others:
        others[-1] = others[-1].half()
        name = OPS[row.op].parameters[-1]
        expect(row, TypeError, f"{name} must have the dtype of", first, *others)


@rows
def test_a_0_d_tensor(row: Implementation) -> None:
    _, *others = good_inputs(row.op)
    name = OPS[row.op].parameters[0]
    expect(row, ValueError, f"{name} must .*one or more dimensions, got a 0-d", make(), *others)


@rows
def test_shapes_that_do_not_go_together(row: Implementation) -> None:
    first, *others = good_inputs(row.op)
    if row.op == "matmul":
        expect(row, ValueError, r"K = 8.* got shape \(7, 5\)", first, make(7, 5))
        expect(row, ValueError, r"two dimensions, got shape \(8,\)", first, make(8))
    elif others:
        text = r"residual must have shape \(3, 8\) .* got \(3, 9\)"
        expect(row, ValueError, text, first, make(3, 9), others[1])
        text = r"bias must have shape \(8,\) .* got \(9,\)"
        expect(row, ValueError, text, first, others[0], make(9))


@rows
def test_a_bad_out(row: Implementation) -> None:
    inputs = good_inputs(row.op)
    right = row.resolve()(*inputs)
    name = OPS[row.op].parameters[0]
    expect(row, ValueError, r"out must have shape .* got \(1,\)", *inputs, out=make(1))
    text = f"out must have the dtype of {name}, float32, got float16"
    expect(row, TypeError, text, *inputs, out=right.half())
    twice = torch.empty(1, device=DEVICE).expand(right.shape)
    expect(row, ValueError, "out must not hold one element at two places", *inputs, out=twice)
    if row.op != "matmul":
        expect(row, ValueError, f"out must not share memory with {name}", *inputs, out=inputs[0])


@rows
def test_an_input_that_requires_grad(row: Implementation) -> None:
    first, *others = good_inputs(row.op)
    name = OPS[row.op].parameters[0]
    text = f"{name} requires grad, and these ops are forward only"
    expect(row, ValueError, text, first.requires_grad_(), *others)
    with torch.no_grad():
        assert not row.resolve()(first, *others).requires_grad


@rows
def test_sparse_tensors(row: Implementation) -> None:
    first, *others = good_inputs(row.op)
    expect(row, TypeError, "must be a dense", first.to_sparse(), *others)


@pytest.mark.gpu
@rows
def test_a_tensor_on_another_device(row: Implementation) -> None:
    first, *others = (value.cpu() for value in good_inputs(row.op))
    if row.tier != "library":
        expect(row, ValueError, "on a device of type cuda, got cpu", first, *others)
    if others:
        on_gpu = good_inputs(row.op)
        expect(row, ValueError, "must be on the device of", on_gpu[0], *others)


@rows
def test_zero_sizes_give_what_torch_gives(row: Implementation) -> None:
    function = row.resolve()
    if row.op == "matmul":
        for m, k, n in ((0, 8, 5), (3, 8, 0), (3, 0, 5), (0, 0, 0)):
            got = function(make(m, k), make(k, n))
            assert torch.equal(got, torch.zeros(m, n, device=DEVICE))
    else:
        for shape in ((0,), (0, 5), (5, 0), (2, 0, 3), (3, 2, 0)):
            inputs = [make(*shape), make(*shape), make(shape[-1])][: len(good_inputs(row.op))]
            got = function(*inputs)
            assert got.shape == shape
            assert got.dtype == torch.float32
    assert function(*good_inputs(row.op)).isfinite().all()


@rows
@pytest.mark.parametrize("leading", [(), (1,), (2, 1, 3)], ids=str)
def test_any_leading_dimensions(row: Implementation, leading: tuple[int, ...]) -> None:
    first, *others = (make(*leading, 8) for _ in range(2))
    if OPS[row.op].parameters == ("x",):
        inputs: tuple[Tensor, ...] = (first,)
    elif row.op == "matmul":
        inputs = (first, make(8, 5))
    else:
        inputs = (first, others[0], make(8))
    expected = OPS[row.op].oracle(*inputs)
    got = row.resolve()(*inputs)
    assert got.shape == expected.shape
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.t().contiguous().t(),
    "every other column": lambda x: torch.stack((x, x), -1).flatten(-2)[:, ::2],
    "padded rows": lambda x: torch.nn.functional.pad(x, (3, 5), value=math.nan)[:, 3:-5],
    "offset by one element": lambda x: torch.cat((x.new_full((1,), math.nan), x.flatten()))[
        1:
    ].view(x.shape),
}


@rows
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_that_users_have(row: Implementation, layout: str) -> None:
    inputs = good_inputs(row.op)
    views = [LAYOUTS[layout](value) if value.dim() == 2 else value for value in inputs]
    expected = OPS[row.op].oracle(*inputs)
    torch.testing.assert_close(row.resolve()(*views).double(), expected, rtol=1e-5, atol=1e-5)
    # And where the result goes: every element around it stays as it was.
    wide = torch.full((expected.shape[0], expected.shape[1] + 2), math.nan, device=DEVICE)
    window = wide[:, 1:-1]
    assert row.resolve()(*inputs, out=window) is window
    torch.testing.assert_close(window.double(), expected, rtol=1e-5, atol=1e-5)
    assert wide[:, 0].isnan().all()
    assert wide[:, -1].isnan().all()


@rows
def test_an_expanded_input(row: Implementation) -> None:
    inputs = list(good_inputs(row.op))
    inputs[0] = make(1, 8).expand(3, 8)
    expected = OPS[row.op].oracle(*inputs)
    torch.testing.assert_close(row.resolve()(*inputs).double(), expected, rtol=1e-5, atol=1e-5)


@rows
def test_two_results_do_not_share_memory(row: Implementation) -> None:
    first = row.resolve()(*good_inputs(row.op))
    kept = first.clone()
    second = row.resolve()(*good_inputs(row.op))
    assert first.data_ptr() != second.data_ptr()
    assert torch.equal(first, kept)


def test_interleaved_views_share_memory_and_disjoint_ones_do_not() -> None:
    x = torch.randn(4, 8)
    with pytest.raises(ValueError, match="share memory"):
        check_softmax(x[:, :4], torch.empty(0).set_(x)[:, 4:], ("cpu",))
    check_softmax(x[:2], x[2:], ("cpu",))


def test_a_result_lands_in_out_only_where_a_kernel_can_write_linearly() -> None:
    x = torch.empty(4, 6)
    assert landing(x, x.shape, x) is x
    assert landing(x.t(), x.t().shape, x).is_contiguous()
    assert landing(None, (2, 3), x).shape == (2, 3)
