"""softmax and the chains on the device: the gate, special values, layouts, both ways in.

Inputs lie in NaN-filled buffers, outputs start as NaN, and the truth is the float64 oracle.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from benchmarks.check import Bordered, error_of, verify
from benchmarks.implementation import Implementation
from benchmarks.implementations import IMPLEMENTATIONS
from cuda_impl import softmax
from reference.ops import OPS
from reference.spec import Case

pytestmark = pytest.mark.gpu

OURS = ("softmax", "chain", "chain_sfu")
ROWS = [row for row in IMPLEMENTATIONS if row.op in OURS and row.tier in ("cuda", "cupy")]
EXTENSIONS = [row for row in ROWS if row.tier == "cuda"]
CHAINS = [row for row in ROWS if row.op != "softmax"]
SOFTMAXES = [row for row in ROWS if row.op == "softmax"]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Where plans change, one less and one more; where packs end; where registers and clusters do.
LENGTHS = sorted(
    {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 1000, 4099, 33000, 128256, 262145, 300001}
    | {2**power + step for power in range(5, 19) for step in (-1, 0, 1)}
)


def name_of(row: object) -> str | None:
    return f"{row.op}-{row.tier}-{row.variant}" if isinstance(row, Implementation) else None


def each(rows: list[Implementation]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=name_of)


each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def guarded(values: Tensor, offset: int = 0) -> Tensor:
    """The same values inside NaN, `offset` elements past a 16-byte boundary."""
    buffer = torch.full(
        (values.numel() + 128,), float("nan"), dtype=values.dtype, device=values.device
    )
    inside = buffer[64 + offset : 64 + offset + values.numel()].view(values.shape)
    return inside.copy_(values)


def assert_close(op: str, got: Tensor, *inputs: Tensor) -> None:
    """Within the op's ceiling of its oracle, NaN and inf at the same places."""
    spec = OPS[op]
    expected = spec.oracle(*inputs)
    error = error_of(got, expected, spec.error_scale(expected, *inputs))
    assert error is not None, "NaN or inf stand at other places than in the oracle"
    assert error <= spec.tolerances[inputs[0].dtype].ceiling


@pytest.mark.parametrize(
    ("row", "case"),
    [(row, case) for row in ROWS for case in OPS[row.op].test_cases],
    ids=lambda value: value.name if isinstance(value, Case) else name_of(value),
)
def test_the_gate_passes(row: Implementation, case: Case, device: torch.device) -> None:
    verdict = verify(OPS[row.op], case, row.resolve(), device)
    assert verdict.ok, verdict.reason


@each([row for row in SOFTMAXES if row.tier == "cuda" and row.variant != "naive"])
@each_dtype
@pytest.mark.parametrize("cols", LENGTHS)
def test_softmax_of_every_length(
    cols: int, dtype: torch.dtype, row: Implementation, device: torch.device
) -> None:
    for rows in (1, 7):
        x = guarded(torch.randn(rows, cols, device=device).to(dtype))
        out = Bordered(x.shape, x)
        row.resolve()(x, out=out.tensor)
        assert_close("softmax", out.tensor, x)
        assert not out.violated()


@each_dtype
@pytest.mark.parametrize("cols", [5, 130, 1000, 1001, 5000, 16383, 40000, 300001])
def test_softmax_of_misaligned_memory(cols: int, dtype: torch.dtype, device: torch.device) -> None:
    values = torch.randn(3, cols, device=device).to(dtype)
    expected = softmax.registers_extension(values)
    for offset_in in (0, 1, 3):
        for offset_out in (0, 1, 2):
            out = guarded(torch.full_like(values, float("nan")), offset_out)
            softmax.registers_extension(guarded(values, offset_in), out=out)
            assert_close("softmax", out, values)
            # float16's step below 2^-14, where the relative one ends.
            step = 2**-24 if dtype is torch.float16 else 0
            assert torch.allclose(out.float(), expected.float(), rtol=2**-7, atol=step)


@each(SOFTMAXES)
@each_dtype
@pytest.mark.parametrize("cols", [3, 40, 1025, 20001, 65537])
def test_softmax_of_special_values(
    row: Implementation, dtype: torch.dtype, cols: int, device: torch.device
) -> None:
    inf, nan = math.inf, math.nan
    x = torch.randn(12, cols, device=device).to(dtype)
    x[0] = -inf
    x[1, :-1] = -inf
    x[2, : cols // 2] = -inf
    x[3, 0] = nan
    x[4, cols // 2] = nan
    x[5, -1] = inf
    x[6] = inf
    x[7] = torch.finfo(dtype).min
    x[8, 1] = torch.finfo(dtype).max
    x[9] = -5.0
    x[10] += 1000.0
    got = row.resolve()(x)
    assert torch.equal(got.isnan(), torch.softmax(x.float(), -1).isnan())
    assert torch.equal(got[1, -1:], torch.ones(1, dtype=dtype, device=device))
    assert_close("softmax", got, x)


@each(SOFTMAXES)
def test_softmax_keeps_its_precision_beside_a_large_offset(
    row: Implementation, device: torch.device
) -> None:
    x = torch.tensor([[0.0, 1.0, 2.0]], device=device) - 1e7
    assert_close("softmax", row.resolve()(x), x)


@each(SOFTMAXES)
@pytest.mark.parametrize("cols", [3, 33, 255, 1025])
def test_softmax_with_its_maximum_anywhere(
    row: Implementation, cols: int, device: torch.device
) -> None:
    x = torch.full((cols, cols), -450.0, device=device)
    x.diagonal().fill_(-400.0)
    assert_close("softmax", row.resolve()(x), x)


@each(CHAINS)
@each_dtype
def test_chain_of_special_values(
    row: Implementation, dtype: torch.dtype, device: torch.device
) -> None:
    special = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, torch.finfo(dtype).max]
    x, residual = (part.to(dtype) for part in torch.cartesian_prod(*[torch.tensor(special)] * 2).T)
    x, residual = (part.reshape(8, 8).to(device).contiguous() for part in (x, residual))
    bias = torch.tensor([math.nan, 0.0, 1.0, -1.0, math.inf, -math.inf, 0.5, 2.0])
    bias = bias.to(device, dtype)
    assert_close(row.op, row.resolve()(x, residual, bias), x, residual, bias)


@each([row for row in CHAINS if row.variant != "naive"])
@each_dtype
def test_chain_of_any_size_and_alignment(
    row: Implementation, dtype: torch.dtype, device: torch.device
) -> None:
    function = row.resolve()
    for rows, cols in (
        (1, 1),
        (1, 7),
        (1, 4096),
        (3, 8),
        (5, 5),
        (2, 4097),
        (9, 1000),
        (3000, 3),
        (7, 4096),
        # Enough rows, and columns that nearly fill a block, for threads that walk down the rows:
        # 265 and 1001 leave some threads a row more than others.
        (265, 1024),
        (1001, 2040),
        (5000, 4096),
    ):
        values = [torch.randn(n, device=device).to(dtype) for n in (rows * cols, rows * cols, cols)]
        x, residual, bias = values[0].view(rows, cols), values[1].view(rows, cols), values[2]
        for offsets in ((0, 0, 0, 0), (1, 0, 0, 0), (0, 3, 0, 0), (0, 0, 1, 0), (0, 0, 0, 2)):
            inputs = [guarded(v, o) for v, o in zip((x, residual, bias), offsets, strict=False)]
            out = guarded(torch.full_like(x, float("nan")), offsets[3])
            function(*inputs, out=out)
            assert_close(row.op, out, x, residual, bias)


def draw(op: str, dtype: torch.dtype, device: torch.device, *shape: int) -> list[Tensor]:
    count = len(OPS[op].parameters)
    shapes = [shape, shape, shape[-1:]][:count]
    return [torch.randn(each_shape, device=device).to(dtype) for each_shape in shapes]


@each(ROWS)
def test_any_layout(row: Implementation, device: torch.device) -> None:
    function = row.resolve()
    for layout in (
        lambda x: x.transpose(0, 1),
        lambda x: x[:, ::2],
        lambda x: x[1:, :, 3:],
        lambda x: x[0, 0],
        lambda x: x[..., :1].expand(x.shape),
    ):
        inputs = draw(row.op, torch.float16, device, 4, 6, 40)
        inputs = [layout(x) if x.dim() == 3 else x for x in inputs]
        if len(inputs) == 3:
            inputs[2] = inputs[2][-inputs[0].shape[-1] :]
        assert_close(row.op, function(*inputs), *inputs)
        strided = torch.full((*inputs[0].shape, 2), math.nan, dtype=torch.float16, device=device)
        assert function(*inputs, out=strided[..., 0]).data_ptr() == strided.data_ptr()
        assert_close(row.op, strided[..., 0], *inputs)
        assert strided[..., 1].isnan().all()


@each(ROWS)
def test_empty(row: Implementation, device: torch.device) -> None:
    for shape in ((0,), (0, 5), (5, 0), (2, 0, 3), (3, 2, 0)):
        inputs = draw(row.op, torch.float32, device, *shape)
        got = row.resolve()(*inputs)
        assert got.shape == shape
        assert got.device == inputs[0].device
    inputs = draw(row.op, torch.float32, device, 2, 2)
    assert_close(row.op, row.resolve()(*inputs), *inputs)


@each(ROWS)
def test_the_current_stream(row: Implementation, device: torch.device) -> None:
    inputs = draw(row.op, torch.float32, device, 64, 4096)
    row.resolve()(*inputs)
    late = [torch.zeros_like(x) for x in inputs]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        for empty, x in zip(late, inputs, strict=True):
            empty.copy_(x)
        got = row.resolve()(*late)
    stream.synchronize()
    assert_close(row.op, got, *inputs)


@each(ROWS)
def test_a_captured_graph_follows_its_inputs(row: Implementation, device: torch.device) -> None:
    inputs = draw(row.op, torch.bfloat16, device, 8, 1000)
    out = torch.empty_like(inputs[0])
    row.resolve()(*inputs, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        row.resolve()(*inputs, out=out)
    for x in inputs:
        x.copy_(torch.randn_like(x))
    out.fill_(math.nan)
    graph.replay()
    assert_close(row.op, out, *inputs)


@each(EXTENSIONS)
@each_dtype
def test_extension_and_cupy_agree_bit_for_bit(
    row: Implementation, dtype: torch.dtype, device: torch.device
) -> None:
    (twin,) = (
        other
        for other in ROWS
        if (other.op, other.tier, other.variant) == (row.op, "cupy", row.variant)
    )
    for shape in ((64, 1000), (7, 1001), (5, 40000), (1, 300001), (1001, 2048)):
        inputs = draw(row.op, dtype, device, *shape)
        one, two = (which.resolve()(*inputs) for which in (row, twin))
        width = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
        assert torch.equal(one.view(width), two.view(width))


@pytest.mark.parametrize("rows", [70000, 2**16 + 1])
def test_many_short_rows(rows: int, device: torch.device) -> None:
    x = torch.randn(rows, 3, device=device)
    assert_close("softmax", softmax.registers_extension(x), x)


def test_more_than_two_to_the_31_elements(device: torch.device) -> None:
    if torch.cuda.mem_get_info(device)[0] < 24 * 2**30:
        pytest.skip("needs 24 GB of free device memory")
    cols = 4096
    x = torch.zeros(2**31 // cols + 2, cols, dtype=torch.bfloat16, device=device)
    x[-1] = torch.randn(cols, device=device)
    out = torch.full_like(x, math.nan)
    softmax.registers_extension(x, out=out)
    assert_close("softmax", out[-2:], x[-2:])
    assert_close("softmax", out[:2], x[:2])
