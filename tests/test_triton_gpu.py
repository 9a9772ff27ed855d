"""What only a GPU shows of the Triton tier: streams, graphs, devices, 64-bit sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from benchmarks.check import error_of
from reference.ops import OPS
from reference.spec import Case
from triton_impl import chain, chain_sfu, matmul, softmax

pytestmark = pytest.mark.gpu

GPU = torch.device("cuda", 0)
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "softmax": softmax.softmax,
    "chain": chain.chain,
    "chain_sfu": chain_sfu.chain_sfu,
    "matmul": matmul.matmul,
}
SIZES = {
    "softmax": (64, 1024),
    "chain": (64, 1024),
    "chain_sfu": (64, 1024),
    "matmul": (64, 64, 64),
}
every_op = pytest.mark.parametrize("name", FUNCTIONS)


def draw(name: str, device: torch.device = GPU) -> tuple[Tensor, ...]:
    generator = torch.Generator(device).manual_seed(3)
    return OPS[name].make_inputs(Case(SIZES[name], torch.bfloat16), device, generator)


def check(name: str, got: Tensor, *inputs: Tensor) -> None:
    op = OPS[name]
    expected = op.oracle(*inputs)
    error = error_of(got, expected, op.error_scale(expected, *inputs))
    assert error is not None
    # Two roundings.
    assert error <= 2**-7


@every_op
def test_runs_on_the_current_stream(name: str) -> None:
    function, inputs = FUNCTIONS[name], draw(name)
    function(*inputs)
    late = [torch.zeros_like(value) for value in inputs]
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        for value, source in zip(late, inputs, strict=True):
            value.copy_(source)
        got = function(*late)
    stream.synchronize()
    check(name, got, *inputs)


@every_op
def test_a_captured_graph_follows_its_inputs(name: str) -> None:
    function, inputs = FUNCTIONS[name], draw(name)
    out = torch.empty_like(function(*inputs))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(*inputs, out=out)
    for scale in (0.5, 2.0):
        for value in inputs:
            value.mul_(scale)
        graph.replay()
        check(name, out, *inputs)


@every_op
def test_given_out_nothing_is_allocated(name: str) -> None:
    function, inputs = FUNCTIONS[name], draw(name)
    out = function(*inputs)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    function(*inputs, out=out)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


@every_op
def test_the_inputs_device_need_not_be_current(name: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    inputs = draw(name, torch.device("cuda", 1))
    with torch.cuda.device(0):
        got = FUNCTIONS[name](*inputs)
        assert torch.cuda.current_device() == 0
    check(name, got, *inputs)


def test_shared_products_on_several_streams_have_nothing_in_common() -> None:
    """Two graphs and a loop of calls at one time: each has the bits that it has alone."""
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs a GPU with a tensor memory accelerator, compute capability 9.0")
    trios = []
    for seed in range(3):
        generator = torch.Generator(GPU).manual_seed(seed)
        case = Case((16, 4096, 1024), torch.bfloat16, "nk")
        a, b = OPS["matmul"].make_inputs(case, GPU, generator)
        alone = matmul.matmul(a, b)
        check("matmul", alone, a, b)
        trios.append((a, b, alone, torch.empty_like(alone)))
    graphs = []
    for a, b, _, out in trios[:2]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(20):
                matmul.matmul(a, b, out=out)
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in trios]
    for _ in range(10):
        for *_, out in trios:
            out.fill_(math.nan)
        torch.cuda.synchronize()
        for graph, stream in zip(graphs, streams, strict=False):
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(streams[2]):
            a, b, _, out = trios[2]
            for _ in range(20):
                matmul.matmul(a, b, out=out)
        torch.cuda.synchronize()
        for *_, alone, out in trios:
            assert torch.equal(out, alone)


@pytest.mark.parametrize("n_cols", [1024, 40000, 2**31 + 16])
def test_softmax_of_more_than_2_31_elements(n_cols: int) -> None:
    if torch.cuda.mem_get_info()[0] < 2**34:
        pytest.skip("needs 16 GB of free GPU memory")
    n_rows = 2**31 // n_cols + 1
    x = torch.zeros(n_rows, n_cols, dtype=torch.float16, device=GPU)
    x[-1, -1] = 10
    got = softmax.softmax(x)
    # The last element has most of the last row, and only of it.
    expected = 22026.4658 / (22026.4658 + n_cols - 1)
    assert got[-1, -1].item() == pytest.approx(expected, rel=2e-3, abs=2**-24)
    if n_rows > 1:
        assert got[-2, -1].item() == pytest.approx(1 / n_cols, rel=2e-2)


@pytest.mark.parametrize("name", ["chain", "chain_sfu"])
def test_chains_of_more_than_2_31_elements(name: str) -> None:
    if torch.cuda.mem_get_info()[0] < 2**34:
        pytest.skip("needs 16 GB of free GPU memory")
    cols = 4096
    x = torch.zeros(2**31 // cols + 8, cols, dtype=torch.float16, device=GPU)
    x[-8:] = torch.randn(8, cols, device=GPU)
    bias = torch.randn(cols, device=GPU).half()
    got = FUNCTIONS[name](x, x, bias)
    check(name, got[-8:], x[-8:], x[-8:], bias)


@pytest.mark.parametrize("n_cols", [16, 15])
def test_matmul_with_more_than_2_31_elements_in_a(n_cols: int) -> None:
    if torch.cuda.mem_get_info()[0] < 2**34:
        pytest.skip("needs 16 GB of free GPU memory")
    a = torch.zeros(70_000, 32_768, dtype=torch.float16, device=GPU)
    a[-1] = torch.randn(32_768, device=GPU)
    b = torch.randn(32_768, n_cols, device=GPU).half()
    got = matmul.matmul(a, b)
    check("matmul", got[-1:], a[-1:], b)
    assert not got[:-1].any()
