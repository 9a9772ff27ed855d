"""The gate catches every way of being wrong that it exists for, each planted here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from benchmarks import check
from reference import chain, chain_sfu, steps
from reference.ops import OPS
from reference.spec import Case

CPU = torch.device("cpu")
OP = OPS["softmax"]
CASE = Case((8, 1000), torch.float32)


def put(out: Tensor | None, value: Tensor) -> Tensor:
    return value.clone() if out is None else out.copy_(value)


def right(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    return put(out, torch.softmax(x, -1))


def leaves_the_tail(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    out = torch.full_like(x, math.nan) if out is None else out
    out[:, :-1] = torch.softmax(x, -1)[:, :-1]
    return out


def returns_zeros(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    return put(out, torch.zeros_like(x))


def returns_the_input(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    return put(out, x)


def rolls_by_one(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    return put(out, torch.softmax(x, -1).roll(1, -1))


def one_per_cent_off(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    return put(out, torch.softmax(x, -1) * 0.99)


def nan_in_one_element(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    value = torch.softmax(x, -1)
    value[-1, -1] = math.nan
    return put(out, value)


def writes_past_the_end(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    value = put(out, torch.softmax(x, -1))
    if out is not None:
        value.as_strided((x.numel() + 1,), (1,))[-1] = 0.0
    return value


def changes_its_input(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    value = put(out, torch.softmax(x, -1))
    x[0, 0] = 0.0
    return value


def wrong_dtype(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    return torch.softmax(x, -1).double()


def wrong_shape(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    return torch.softmax(x, -1)[:-1]


def not_a_tensor(x: Tensor, *, out: Tensor | None = None) -> object:
    return torch.softmax(x, -1).tolist()


def ignores_out(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    return torch.softmax(x, -1)


def recycled_memory(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    return torch.empty_like(x) if out is None else out


class FirstCallOnly:
    """Keeps its first result and hands it out for ever."""

    def __init__(self) -> None:
        self._kept: Tensor | None = None

    def __call__(self, x: Tensor, *, out: Tensor | None = None) -> Tensor:
        if self._kept is None:
            self._kept = torch.softmax(x, -1)
        return put(out, self._kept)


class CachesByPointer:
    """Takes an address for a value."""

    def __init__(self) -> None:
        self._kept: dict[int, Tensor] = {}

    def __call__(self, x: Tensor, *, out: Tensor | None = None) -> Tensor:
        if x.data_ptr() not in self._kept:
            self._kept[x.data_ptr()] = torch.softmax(x, -1)
        return put(out, self._kept[x.data_ptr()])


FAULTS: list[tuple[Callable[..., object], str]] = [
    (leaves_the_tail, "NaN or inf where the oracle's differ"),
    (returns_zeros, "above the limit"),
    (returns_the_input, "above the limit"),
    (rolls_by_one, "above the limit"),
    (one_per_cent_off, "above the limit"),
    (nan_in_one_element, r"1 of 8000 elements .* first is at \(7, 999\): got nan"),
    (writes_past_the_end, "memory outside `out` was written"),
    (changes_its_input, "the input x was changed"),
    (wrong_dtype, "dtype float64, not float32"),
    (wrong_shape, r"shape \(7, 1000\), not \(8, 1000\)"),
    (not_a_tensor, "a list, not a torch.Tensor"),
    (ignores_out, "not the `out` that was given"),
    (recycled_memory, "NaN or inf where the oracle's differ"),
    (FirstCallOnly(), "above the limit"),
    (CachesByPointer(), "above the limit"),
]


def test_a_right_result_passes() -> None:
    verdict = check.verify(OP, CASE, right, CPU)
    assert verdict.ok
    assert verdict.max_error is not None
    assert 0 < verdict.max_error <= verdict.error_limit


@pytest.mark.parametrize(
    ("fault", "reason"), FAULTS, ids=lambda v: getattr(v, "__name__", type(v).__name__)
)
def test_a_fault_is_caught_with_its_reason(fault: Callable[..., Tensor], reason: str) -> None:
    verdict = check.verify(OP, CASE, fault, CPU)
    assert not verdict.ok
    assert re.search(reason, verdict.reason), verdict.reason


@pytest.mark.parametrize(
    ("got", "expected", "agrees"),
    [
        (math.nan, 1.0, False),
        (1.0, math.nan, False),
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (math.inf, 1.0, False),
        (1.0, math.inf, False),
    ],
)
def test_special_values_agree_by_class(got: float, expected: float, agrees: bool) -> None:
    one = torch.ones(3, dtype=torch.float64)
    left, right_ = one.clone(), one.clone()
    left[1], right_[1] = got, expected
    assert check.error_of(left, right_, one) == (0.0 if agrees else None)


def test_the_error_is_divided_by_the_scale() -> None:
    got = torch.tensor([1.5, 10.0])
    expected = torch.tensor([1.0, 12.0], dtype=torch.float64)
    scale = torch.tensor([1.0, 8.0], dtype=torch.float64)
    assert check.error_of(got, expected, scale) == 0.5


def test_the_error_of_nothing_is_zero() -> None:
    empty = torch.empty(0, 3, dtype=torch.float64)
    assert check.error_of(empty.float(), empty, empty) == 0.0


@pytest.mark.parametrize("columns", [1025, 4096, 65537])
def test_zeros_do_not_pass_for_long_rows(columns: int) -> None:
    """An absolute tolerance of 1e-2 would let them: no entry of such a row is that large."""
    verdict = check.verify(OP, Case((2, columns), torch.float32), returns_zeros, CPU)
    assert not verdict.ok


def test_a_case_that_zeros_pass_is_reported() -> None:
    truth = check.find_truth(OP, CASE, check.draw(OP, CASE, CPU, seed=0))
    loose = check.Truth(
        truth.op, truth.case, truth.inputs, truth.expected, truth.scale, 0.0, error_limit=1e9
    )
    found = check.inadequate(loose, check.draw(OP, CASE, CPU, seed=1))
    assert found == ["zeros", "a copy of x", "the library's result of other inputs"]


def test_inputs_are_the_same_for_the_same_seed() -> None:
    first, again, other = (check.draw(OP, CASE, CPU, seed)[0] for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


STEPS = [
    pytest.param(op, number, id=f"{op}-{step.name}")
    for op, chain_steps in (("chain", chain.STEPS), ("chain_sfu", chain_sfu.STEPS))
    for number, step in enumerate(chain_steps)
    # Nothing stands in u before its first step, and a chain without that one can't be run.
    if number not in (0, next((i for i, s in enumerate(chain_steps) if s.into == "u"), 0))
]


@pytest.mark.parametrize(("op", "left_out"), STEPS)
def test_a_chain_without_a_step_is_wrong(op: str, left_out: int) -> None:
    """In bfloat16, where eager's forty roundings alone would let some of them pass."""
    module = {"chain": chain, "chain_sfu": chain_sfu}[op]
    steps_left = tuple(s for number, s in enumerate(module.STEPS) if number != left_out)

    def fused(*inputs: Tensor, out: Tensor | None = None) -> Tensor:
        return put(out, steps.run(steps_left, *inputs).to(torch.bfloat16))

    case = Case((64, 4096), torch.bfloat16)
    truth = check.find_truth(OPS[op], case, check.draw(OPS[op], case, CPU, seed=5))
    whole = module.oracle(*truth.inputs).to(torch.bfloat16)
    assert check.compare(truth, whole, rounds_once=True).ok
    assert not check.verify_call(truth, fused, rounds_once=True).ok
