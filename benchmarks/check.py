"""The gate: a result that is not right has no time.

A result is compared with the float64 oracle on the very inputs that are timed. The output starts
as NaN inside a NaN border, so that an element left unwritten and one written past the end both
show; the inputs are compared bit by bit with a private copy afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from benchmarks.implementations import find
from reference.spec import Case, Op, dtype_name

__all__ = [
    "Bordered",
    "Truth",
    "Verdict",
    "compare",
    "error_of",
    "find_truth",
    "inadequate",
    "verify",
    "verify_call",
]

Function = Callable[..., Tensor]

# Elements of NaN before and after a buffer. 64 keep a 16-byte aligned start for every dtype.
BORDER = 64

# Elements compared at a time: a float64 temporary of 2^25 elements is 268 MB.
CHUNK = 2**25


@dataclass(frozen=True)
class Verdict:
    """What the gate says of one result.

    max_error: the largest error in the op's measure; None where none could be computed
    error_limit: the largest error that passes
    """

    status: Literal["ok", "wrong"]
    reason: str
    max_error: float | None
    error_limit: float

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True)
class Truth:
    """A case's inputs and what must come out of them.

    expected, scale: float64, of the output's shape
    library_error: the error of library/eager on these inputs
    error_limit: what that earns everybody
    """

    op: Op
    case: Case
    inputs: tuple[Tensor, ...]
    expected: Tensor
    scale: Tensor
    library_error: float
    error_limit: float

    def limit(self, rounds_once: bool) -> float:
        """For an implementation that rounds its result once, or like eager after every step."""
        tolerance = self.op.tolerances[self.inputs[0].dtype]
        return min(self.error_limit, tolerance.once) if rounds_once else self.error_limit


def draw(op: Op, case: Case, device: torch.device, seed: int) -> tuple[Tensor, ...]:
    """Inputs from N(0, 1): the same for the same seed, case and kind of device."""
    generator = torch.Generator(device).manual_seed(seed)
    return op.make_inputs(case, device, generator)


def find_truth(op: Op, case: Case, inputs: tuple[Tensor, ...]) -> Truth:
    """The oracle's answer for `inputs`, and the error limit that the library's own error earns."""
    expected = op.oracle(*inputs)
    scale = op.error_scale(expected, *inputs)
    library = find(op.name, "library/eager").resolve()
    with torch.no_grad():
        library_error = error_of(library(*inputs), expected, scale)
    if library_error is None:
        raise ValueError(
            f"{op.name} {case.name}: the library's result differs from the oracle in NaN or inf, "
            "so the case can't judge anybody"
        )
    limit = op.tolerances[case.dtype].limit(library_error)
    return Truth(op, case, inputs, expected, scale, library_error, limit)


def error_of(got: Tensor, expected: Tensor, scale: Tensor) -> float | None:
    """max |got - expected| / scale; None where NaN or inf stand at different places.

    got: any dtype; expected, scale: float64; all of one shape. 0.0 for empty tensors.
    """
    worst = 0.0
    parts = zip(
        torch.split(got.reshape(-1), CHUNK),
        torch.split(expected.reshape(-1), CHUNK),
        torch.split(scale.reshape(-1), CHUNK),
        strict=True,
    )
    for got_part, expected_part, scale_part in parts:
        if not got_part.numel():
            continue
        wide = got_part.double()
        error = (wide - expected_part).abs_().div_(scale_part)
        # Equal infinities and NaN against NaN agree; their difference is NaN.
        agree = (wide == expected_part) | (wide.isnan() & expected_part.isnan())
        error.masked_fill_(agree, 0.0)
        # NaN, unlike a comparison with a limit, survives max.
        largest = float(error.max())
        if not largest < float("inf"):
            return None
        worst = max(worst, largest)
    return worst


def compare(truth: Truth, got: object, *, rounds_once: bool = False) -> Verdict:
    """Judge one result. Never raises for a wrong result: the reason says what is wrong."""
    limit = truth.limit(rounds_once)

    def wrong(reason: str, error: float | None = None) -> Verdict:
        return Verdict("wrong", reason, error, limit)

    if not isinstance(got, Tensor):
        return wrong(f"the result is a {type(got).__name__}, not a torch.Tensor")
    like = truth.inputs[0]
    if got.shape != truth.expected.shape:
        return wrong(f"the result has shape {tuple(got.shape)}, not {tuple(truth.expected.shape)}")
    if got.dtype != like.dtype:
        return wrong(f"the result has dtype {dtype_name(got.dtype)}, not {dtype_name(like.dtype)}")
    if got.device != like.device:
        return wrong(f"the result is on {got.device}, not {like.device}")
    error = error_of(got, truth.expected, truth.scale)
    if error is None:
        return wrong(_describe_odd(got, truth.expected))
    if error > limit:
        return wrong(f"error {error:.3g} is above the limit {limit:.3g}", error)
    return Verdict("ok", "", error, limit)


def _describe_odd(got: Tensor, expected: Tensor) -> str:
    wide = got.double()
    agree = (wide == expected) | (wide.isnan() & expected.isnan())
    odd = ~agree & ~(wide.isfinite() & expected.isfinite())
    count = int(odd.sum())
    if not count:
        return "an element is too far off for its error to be a number"
    first = tuple(int(i) for i in odd.nonzero()[0])
    return (
        f"{count} of {odd.numel()} elements are NaN or inf where the oracle's differ; the first is "
        f"at {first}: got {float(wide[first])}, expected {float(expected[first]):.6g}"
    )


class Bordered:
    """A contiguous tensor filled with NaN inside a NaN border that nobody may touch.

    tensor: what to hand out as `out`
    """

    def __init__(self, shape: torch.Size, like: Tensor) -> None:
        self._buffer = torch.full(
            (shape.numel() + 2 * BORDER,), float("nan"), dtype=like.dtype, device=like.device
        )
        self.tensor = self._buffer[BORDER : BORDER + shape.numel()].view(shape)

    def poison(self) -> None:
        """NaN again, everywhere."""
        self._buffer.fill_(float("nan"))

    def violated(self) -> bool:
        """Whether something outside the tensor was written."""
        border = torch.cat((self._buffer[:BORDER], self._buffer[-BORDER:]))
        return not bool(border.isnan().all())


def verify_call(
    truth: Truth, function: Function, *, own_output: bool = False, rounds_once: bool = False
) -> Verdict:
    """Run `function` once on the truth's inputs and judge everything about it.

    own_output: call without `out`; freed memory of the output's size is poisoned first, so that
        handing out recycled memory that holds the answer does not pass.
    """
    like = truth.inputs[0]
    kept = [tensor.clone() for tensor in truth.inputs]
    bordered = Bordered(truth.expected.shape, like)
    if own_output:
        # Freed at once: the next allocation of this size is likely to be this block.
        torch.full_like(bordered.tensor, float("nan"))
    with torch.no_grad():
        got = function(*truth.inputs, **({} if own_output else {"out": bordered.tensor}))
    verdict = compare(truth, got, rounds_once=rounds_once)
    if not verdict.ok:
        return verdict

    def wrong(reason: str) -> Verdict:
        return Verdict("wrong", reason, verdict.max_error, verdict.error_limit)

    if not own_output:
        if got.data_ptr() != bordered.tensor.data_ptr():
            return wrong("the result is not the `out` that was given")
        if bordered.violated():
            return wrong("memory outside `out` was written")
    for name, before, after in zip(truth.op.parameters, kept, truth.inputs, strict=True):
        if not torch.equal(_bits(before), _bits(after)):
            return wrong(f"the input {name} was changed")
    return verdict


def _bits(x: Tensor) -> Tensor:
    """The bits as integers, so that NaN equals itself and -0 differs from 0."""
    width = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.contiguous().view(width)


def verify(op: Op, case: Case, function: Function, device: torch.device) -> Verdict:
    """The whole gate for one case: with `out`, without it, and with other values in place.

    The last call reads the same addresses with other contents, so that a result kept by address
    or computed on the first call only does not pass.
    """
    inputs = draw(op, case, device, seed=1)
    truth = find_truth(op, case, inputs)
    verdict = verify_call(truth, function)
    if not verdict.ok:
        return verdict
    verdict = verify_call(truth, function, own_output=True)
    if not verdict.ok:
        return verdict
    for old, new in zip(inputs, draw(op, case, device, seed=2), strict=True):
        old.copy_(new)
    return verify_call(find_truth(op, case, inputs), function)


def inadequate(truth: Truth, other_inputs: tuple[Tensor, ...]) -> list[str]:
    """What would pass this case without computing it: a case that lists anything is no test."""
    like = truth.inputs[0]
    shape = truth.expected.shape
    library = find(truth.op.name, "library/eager").resolve()
    fakes: dict[str, Tensor] = {
        "zeros": torch.zeros(shape, dtype=like.dtype, device=like.device),
        **{
            f"a copy of {name}": value
            for name, value in zip(truth.op.parameters, truth.inputs, strict=True)
            if value.shape == shape
        },
    }
    with torch.no_grad():
        fakes["the library's result of other inputs"] = library(*other_inputs)
    return [name for name, fake in fakes.items() if compare(truth, fake).ok]
