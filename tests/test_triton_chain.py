"""The Triton chains: every dtype, shape and layout, NaN and inf as PyTorch, one rounding."""

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton_spy import spy_on

from benchmarks.check import error_of, verify
from reference import chain as chain_truth
from reference import chain_sfu as chain_sfu_truth
from reference.ops import OPS
from reference.spec import Case
from triton_impl import chain as chain_tier
from triton_impl import chain_sfu as chain_sfu_tier
from triton_impl import special

INF, NAN = math.inf, math.nan
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# (op, the tier's module, its function, the forty steps in PyTorch)
CHAINS = (
    pytest.param("chain", chain_tier, chain_tier.chain, chain_truth.forty, id="chain"),
    pytest.param(
        "chain_sfu", chain_sfu_tier, chain_sfu_tier.chain_sfu, chain_sfu_truth.forty, id="chain_sfu"
    ),
)
every_chain = pytest.mark.parametrize(("name", "module", "function", "forty"), CHAINS)

# Two roundings of a value of order one, and what special functions add in float32.
BOUND = {torch.float32: 4e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}

# In the interpreter numpy warns of NaN and overflow that these inputs rightly meet on their way.
numpy_warns = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def check(name: str, function, *inputs: Tensor) -> Tensor:
    """Judge function(*inputs) by the float64 oracle and return it."""
    got = function(*inputs)
    assert got.shape == inputs[0].shape
    assert got.dtype == inputs[0].dtype
    expected = OPS[name].oracle(*inputs)
    error = error_of(got, expected, OPS[name].error_scale(expected, *inputs))
    assert error is not None, "NaN or inf where the oracle has none, or the reverse"
    assert error <= BOUND[got.dtype]
    return got


def draw(device: torch.device, dtype: torch.dtype, *shape: int) -> tuple[Tensor, Tensor, Tensor]:
    def one(*sizes: int) -> Tensor:
        return torch.randn(sizes, device=device).to(dtype)

    return one(*shape), one(*shape), one(shape[-1])


@triton.jit
def _sigmoid_kernel(t_ptr, y_ptr, BLOCK: tl.constexpr, MODE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, special.sigmoid_of_twice(tl.load(t_ptr + at), 4.0, -1.5, MODE))


@pytest.mark.parametrize(("mode", "most"), [("narrow", 7e-5), ("wide", 6e-7)])
def test_polynomials_for_a_sigmoid(mode: str, most: float, device) -> None:
    t = torch.linspace(-1, 1, 2**14, device=device)
    got = torch.full_like(t, NAN)
    _sigmoid_kernel[(1,)](t, got, len(t), mode)
    expected = 4 * torch.sigmoid(2 * t.double()) - 1.5
    assert (got.double() - expected).abs().max() <= most


@every_chain
@pytest.mark.parametrize("case", OPS["chain"].test_cases, ids=lambda case: case.name)
def test_gate(name, module, function, forty, case: Case, device) -> None:
    verdict = verify(OPS[name], case, function, device)
    assert verdict.ok, verdict.reason


@every_chain
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [1, 7, 257, 1000, 4096])
def test_one_launch_and_one_rounding(
    monkeypatch, name, module, function, forty, dtype: torch.dtype, cols: int, device
) -> None:
    spy = spy_on(monkeypatch, module, f"{name}_kernel")
    check(name, function, *draw(device, dtype, 9, cols))
    assert len(spy.launches) == 1


@every_chain
def test_vectors_where_columns_allow(monkeypatch, name, module, function, forty, device) -> None:
    spy = spy_on(monkeypatch, module, f"{name}_kernel")
    for cols in (1000, 257, 128256):
        function(*draw(device, torch.float16, 2, cols))
    assert [arguments["UNIT"] for _, arguments, _ in spy.launches] == [8, 1, 16]


@numpy_warns
@every_chain
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_inf_as_pytorch(name, module, function, forty, dtype, device) -> None:
    odd = torch.tensor([NAN, INF, -INF, -0.0, 1.0, 3e4, -3e4], device=device)
    # Every pair of odd values in x and in the residual, in each column of every odd bias.
    x, residual, _ = torch.meshgrid(odd, odd, odd, indexing="ij")
    x, residual = (value.reshape(-1, len(odd)).to(dtype) for value in (x, residual))
    bias = odd.to(dtype)
    got = function(x, residual, bias).double()
    expected = forty(x.double(), residual.double(), bias.double())
    # Beyond the dtype's range a result rounds to inf. Where terms of 3e4 cancel, float32 keeps
    # three digits of what is left.
    expected = expected.to(dtype).double()
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2, equal_nan=True)


@numpy_warns
@every_chain
def test_a_nan_touches_its_own_element_only(name, module, function, forty, device) -> None:
    for argument in range(2):
        inputs = draw(device, torch.float32, 5, 300)
        inputs[argument][3, 7] = NAN
        where = function(*inputs).isnan().nonzero().tolist()
        assert where == [[3, 7]]
    x, residual, bias = draw(device, torch.float32, 5, 300)
    bias[7] = NAN
    assert function(x, residual, bias).isnan().nonzero().tolist() == [[i, 7] for i in range(5)]


@numpy_warns
@every_chain
def test_values_far_from_zero(name, module, function, forty, device) -> None:
    for scale in (1e-6, 10.0):
        x, residual, bias = draw(device, torch.float32, 33, 65)
        check(name, function, x * scale, residual * scale, bias * scale)


@every_chain
def test_every_layout(name, module, function, forty, device) -> None:
    x, residual, bias = draw(device, torch.float32, 48, 64)
    far = torch.randn(49 * 64 + 1, device=device).bfloat16()
    offset = far[1 : 48 * 64 + 1].view(48, 64)
    image = torch.randn(2, 3, 4, 64, device=device).to(memory_format=torch.channels_last)
    for inputs in (
        (x.t().contiguous().t(), residual, bias),
        (x[:, ::2], residual[:, ::2], bias[::2]),
        (x[5:20, 3:40], residual[5:20, 3:40], bias[3:40]),
        (x[:1].expand(48, 64), residual, bias[:1].expand(64)),
        (offset, residual.bfloat16(), bias.bfloat16()),
        (image, residual[:24].view(2, 3, 4, 64), bias),
        (x[0], residual[0], bias),
    ):
        check(name, function, *inputs)


@every_chain
def test_rows_further_apart_than_32_bits_reach(name, module, function, forty, device) -> None:
    if device.type == "cuda" and torch.cuda.mem_get_info()[0] < 2**33:
        pytest.skip("needs 8 GB of free GPU memory")
    # Pages that nobody touches cost no memory on the CPU.
    far = torch.empty(2 * 1_200_000_000 + 8, dtype=torch.float16, device=device)
    x = far.as_strided((3, 8), (1_200_000_000, 1))
    x.copy_(torch.arange(24.0).view(3, 8) / 12)
    check(name, function, x, torch.ones_like(x), torch.ones(8, device=device).half())


@every_chain
@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
def test_empty(name, module, function, forty, shape: tuple[int, ...], device) -> None:
    assert function(*draw(device, torch.float32, *shape)).shape == shape
    check(name, function, *draw(device, torch.float32, 2, 2))


@every_chain
@pytest.mark.parametrize("dtype", DTYPES)
def test_out_of_any_layout_is_filled_and_returned(
    name, module, function, forty, dtype: torch.dtype, device
) -> None:
    inputs = draw(device, dtype, 5, 7)
    expected = function(*inputs)
    for out in (torch.empty(5, 7, device=device), torch.empty(7, 5, device=device).t()):
        out = out.to(dtype).fill_(NAN)
        assert function(*inputs, out=out) is out
        assert torch.equal(out, expected)


def test_more_columns_than_32_bits_count_are_not_divided() -> None:
    from triton_impl.launch import vector

    assert [vector(n) for n in (1000, 1024, 7, 2**30)] == [8, 16, 1, 16]
    # Triton takes 2^27 units of 16 as 32 bits, and their product would wrap.
    assert vector(2**31) == vector(2**31 - 64) == 1
