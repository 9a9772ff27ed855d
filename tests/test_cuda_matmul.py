"""matmul in CUDA C++: its plans and layouts on any machine, its numbers on a GPU.

On a GPU the operands are small integers, whose products and sums float32 holds exactly: a result is
right to the bit or it is wrong, and the message says at which entries.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from benchmarks.check import Bordered, error_of, verify
from benchmarks.implementation import Implementation
from benchmarks.implementations import IMPLEMENTATIONS
from cuda_impl import matmul, matrices
from reference.ops import OPS
from reference.spec import Case

ROWS = [row for row in IMPLEMENTATIONS if row.op == "matmul" and row.tier in ("cuda", "cupy")]
WGMMA = [row for row in ROWS if row.variant == "wgmma"]
EXTENSIONS = [row for row in ROWS if row.tier == "cuda"]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HALVES = DTYPES[1:]
H200 = 132

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)
each_layout = pytest.mark.parametrize("weight", [True, False], ids=["nk", "kn"])


def each(rows: list[Implementation]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=lambda row: f"{row.tier}-{row.variant}")


def function_of(row: Implementation) -> Callable[..., Tensor]:
    if "sm_90" in row.needs and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a Hopper GPU (compute capability 9.0)")
    return row.resolve()


def integers(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randint(-4, 5, shape, device=device).to(dtype)


def inside_nan(values: Tensor, left: int = 8, right: int = 8) -> Tensor:
    """The same values as a slice of wider rows, NaN on both sides and above and below."""
    rows, cols = values.shape
    wide = values.new_full((rows + 2, left + cols + right), math.nan)
    return wide[1:-1, left : left + cols].copy_(values)


def operands(
    m: int, k: int, n: int, dtype: torch.dtype, weight: bool, device: torch.device
) -> tuple[Tensor, Tensor]:
    b = integers(n, k, dtype=dtype, device=device).t()
    return integers(m, k, dtype=dtype, device=device), b if weight else b.contiguous()


def assert_exact(got: Tensor, a: Tensor, b: Tensor) -> None:
    expected = (a.double() @ b.double()).to(got.dtype)
    wrong = (got != expected).nonzero()
    first = [
        f"{tuple(at)}: {got[tuple(at)].item()} for {expected[tuple(at)].item()}"
        for at in wrong[:8].tolist()
    ]
    rows, cols = (sorted(set(wrong[:, d].tolist())) for d in (-2, -1)) if len(wrong) else ((), ())
    assert not len(wrong), (
        f"{len(wrong)} of {got.numel()} entries are wrong, in rows {_span(rows)} and columns "
        f"{_span(cols)}: {first}"
    )


def _span(numbers: list[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]} ({len(numbers)} of them)"


# ---------------------------------------------------------------------------- plans


def test_the_plans_of_the_benchmarked_shapes() -> None:
    assert matmul.wgmma_plan(4096, 4096, H200) == (matmul.LARGE, 128)
    assert matmul.wgmma_plan(8192, 8192, H200) == (matmul.LARGE, 128)
    assert matmul.wgmma_plan(4096, 14336, H200) == (matmul.LARGE, 128)
    assert matmul.wgmma_plan(2048, 2048, H200) == (matmul.LARGE, 128)
    for m in (1, 16, 64):
        assert matmul.wgmma_plan(m, 14336, H200) == (matmul.SMALL, 224)
        assert matmul.wgmma_plan(14336, m, H200) == (matmul.SMALL, 224)
    assert matmul.wgmma_plan(1024, 1024, H200) == (matmul.SMALL, 256)
    assert matmul.tiled_plan(2048, 2048, H200) == 128
    assert matmul.tiled_plan(64, 14336, H200) == 64


def test_every_block_has_a_tile_and_no_block_one_round_more() -> None:
    sizes = (1, 63, 64, 65, 128, 129, 500, 4096, 10000)
    for m, n, processors in itertools.product(sizes, sizes, (1, 2, 78, 132)):
        tile, blocks = matmul.wgmma_plan(m, n, processors)
        tiles = -(-m // (tile.rows * tile.cluster)) * -(-n // tile.cols)
        clusters = blocks // tile.cluster
        at_once = max(processors * tile.resident // tile.cluster, 1)
        assert blocks % tile.cluster == 0
        assert 1 <= clusters <= min(tiles, at_once)
        assert -(-tiles // clusters) == -(-tiles // at_once)


def test_tiles_fit_a_multiprocessor() -> None:
    for tile in (matmul.LARGE, matmul.SMALL):
        # 228 KB on Hopper, of which each block loses one.
        assert tile.resident * (tile.shared_bytes + 1024) <= 228 * 1024
        assert tile.resident * tile.threads <= 2048


# ---------------------------------------------------------------------------- layouts


@pytest.mark.parametrize(
    ("b", "weight", "copied"),
    [
        (torch.randn(24, 40), False, False),
        (torch.randn(40, 24).t(), True, False),
        (torch.randn(24, 80)[:, :40], False, False),
        (torch.randn(40, 50)[:, 3:27].t(), True, False),
        (torch.randn(24, 80)[:, ::2], False, True),
        (torch.randn(48, 40)[::2], False, False),
        (torch.randn(24, 1), True, False),
        (torch.randn(1, 40), False, False),
        (torch.randn(1, 1), True, False),
        (torch.randn(40, 1).t(), False, False),
        (torch.randn(24, 1).expand(24, 40), False, True),
        (torch.randn(40).expand(24, 40), False, False),
    ],
)
def test_b_is_taken_as_it_is_stored(b: Tensor, weight: bool, copied: bool) -> None:
    stored, found = matrices.stored(b)
    assert found == weight
    assert (stored.data_ptr() != b.data_ptr()) == copied
    assert stored.stride(1) == 1
    assert torch.equal(stored.t() if weight else stored, b)


@pytest.mark.parametrize(
    ("x", "copied"),
    [
        (torch.randn(5, 24).half(), False),
        (torch.randn(5, 32).half()[:, 8:], False),
        (torch.randn(5, 32).half()[:, 1:25], True),
        (torch.randn(5, 23).half(), True),
        (torch.randn(1, 23).half(), False),
        (torch.randn(24).half().expand(5, 24), True),
    ],
)
def test_rows_that_the_tma_cannot_address_are_copied(x: Tensor, copied: bool) -> None:
    found = matrices.addressable(matrices.by_rows(x))
    assert (found.data_ptr() != x.data_ptr()) == copied
    assert torch.equal(found, x)
    assert matrices.is_addressable(found)


# ---------------------------------------------------------------------------- numbers


@pytest.mark.gpu
@each(WGMMA)
@each_half
@each_layout
@pytest.mark.parametrize("tile", [matmul.SMALL, matmul.LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        # One step of the tensor cores, one stage, a part of a second, more than the ring has.
        (64, 16, 64),
        (128, 64, 256),
        (128, 72, 256),
        (256, 4096, 256),
        # Half a cluster, ragged edges.
        (100, 64, 200),
        (129, 72, 264),
        (1, 520, 8),
        # Several tiles, all of them by one cluster: the ring goes on from one to the next, with
        # fewer steps than stages, as many, and more.
        (600, 64, 600),
        (300, 256, 1000),
        (1000, 264, 776),
    ],
)
def test_one_cluster_computes_it_all(
    row: Implementation,
    dtype: torch.dtype,
    weight: bool,
    tile: matmul.Tile,
    m: int,
    k: int,
    n: int,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function = function_of(row)
    monkeypatch.setattr(matmul, "wgmma_plan", lambda *_: matmul.WgmmaPlan(tile, tile.cluster))
    a, b = operands(m, k, n, dtype, weight, device)
    out = Bordered(torch.Size((m, n)), a)
    function(a, b, out=out.tensor)
    assert_exact(out.tensor, a, b)
    assert not out.violated()


@pytest.mark.gpu
@each(WGMMA)
@each_half
@each_layout
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        # Few tiles.
        (64, 64, 64),
        (1, 4096, 64),
        (64, 64, 4096),
        (63, 80, 136),
        # Large tiles, whole and ragged.
        (2048, 16, 2048),
        (2048, 64, 2048),
        (2048, 72, 2304),
        (2048, 4096, 2048),
        (1921, 136, 2056),
        (2177, 456, 2296),
        # Several tiles a block: the ring goes on from one to the next.
        (4096, 200, 4360),
        (2500, 1000, 6008),
    ],
)
def test_wgmma_is_exact(
    row: Implementation,
    dtype: torch.dtype,
    weight: bool,
    m: int,
    k: int,
    n: int,
    device: torch.device,
) -> None:
    a, b = operands(m, k, n, dtype, weight, device)
    out = Bordered(torch.Size((m, n)), a)
    function_of(row)(a, b, out=out.tensor)
    assert_exact(out.tensor, a, b)
    assert not out.violated()


@pytest.mark.gpu
@each(ROWS)
@each_dtype
@each_layout
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (3, 5, 7), (65, 17, 63), (129, 130, 257), (200, 31, 1001), (2049, 77, 2305)],
)
def test_odd_sizes(
    row: Implementation,
    dtype: torch.dtype,
    weight: bool,
    m: int,
    k: int,
    n: int,
    device: torch.device,
) -> None:
    a, b = operands(m, k, n, dtype, weight, device)
    out = Bordered(torch.Size((m, n)), a)
    function_of(row)(a, b, out=out.tensor)
    assert_exact(out.tensor, a, b)
    assert not out.violated()


@pytest.mark.gpu
@each(ROWS)
@each_dtype
@each_layout
@pytest.mark.parametrize("left", [8, 1])
def test_nothing_beside_a_slice_is_read(
    row: Implementation, dtype: torch.dtype, weight: bool, left: int, device: torch.device
) -> None:
    function = function_of(row)
    for m, k, n in ((70, 72, 80), (2000, 72, 2056)):
        a, b = operands(m, k, n, dtype, weight, device)
        b_inside = inside_nan(b.t(), left).t() if weight else inside_nan(b, left)
        assert_exact(function(inside_nan(a, left), b_inside), a, b)


@pytest.mark.gpu
@each(ROWS)
@pytest.mark.parametrize("case", OPS["matmul"].test_cases, ids=lambda case: case.name)
def test_the_gate_passes(row: Implementation, case: Case, device: torch.device) -> None:
    verdict = verify(OPS["matmul"], case, function_of(row), device)
    assert verdict.ok, verdict.reason


@pytest.mark.gpu
@each(ROWS)
def test_any_layout(row: Implementation, device: torch.device) -> None:
    function = function_of(row)
    a = integers(3, 4, 6, 40, dtype=torch.float16, device=device)
    b = integers(40, 56, dtype=torch.float16, device=device)
    for view in (a, a[0, 0, 0], a[0, 0], a.transpose(0, 2), a[:, ::2], a[..., :1].expand(a.shape)):
        assert_exact(function(view, b), view, b)
    for view in (b[:, ::2], b[:, :1].expand(b.shape), b[:1].expand(b.shape), b[:, 1:], b[:, :1]):
        assert_exact(function(a, view), a, view)
    assert_exact(function(a[..., ::2], b[::2]), a[..., ::2], b[::2])
    strided = torch.full((3, 4, 6, 56, 2), math.nan, dtype=torch.float16, device=device)
    assert function(a, b, out=strided[..., 0]).data_ptr() == strided.data_ptr()
    assert_exact(strided[..., 0], a, b)
    assert strided[..., 1].isnan().all()
    # An out that starts at no multiple of 16 bytes.
    shifted = torch.full((24 * 56 + 1,), math.nan, dtype=torch.float16, device=device)
    assert_exact(function(a[0], b, out=shifted[1 : 1 + 24 * 56].view(4, 6, 56)), a[0], b)


@pytest.mark.gpu
@each(ROWS)
def test_in_a_thread_whose_first_call_it_is(row: Implementation, device: torch.device) -> None:
    function = function_of(row)
    a, b = operands(70, 72, 80, torch.float16, True, device)
    function(a, b)
    # Another place: no tensor map of it has been encoded yet.
    a, b = a.clone(), b.t().clone().t()
    out = torch.full((70, 80), math.nan, dtype=torch.float16, device=device)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function, a, b, out=out).result()
    torch.cuda.synchronize()
    assert_exact(out, a, b)


@pytest.mark.gpu
@each(ROWS)
def test_empty(row: Implementation, device: torch.device) -> None:
    function = function_of(row)
    for m, k, n in ((0, 8, 8), (8, 8, 0), (0, 0, 0), (5, 0, 7)):
        a, b = operands(m, k, n, torch.float16, True, device)
        out = torch.full((m, n), math.nan, dtype=torch.float16, device=device)
        assert torch.equal(function(a, b, out=out), torch.zeros_like(out))


@pytest.mark.gpu
@each(ROWS)
@each_dtype
def test_nan_and_inf_stay_in_their_rows_and_columns(
    row: Implementation, dtype: torch.dtype, device: torch.device
) -> None:
    a, b = (torch.randn(*shape, device=device).to(dtype) for shape in ((70, 72), (72, 80)))
    a[3, 71], b[0, 79], a[69, 5] = math.nan, math.inf, -math.inf
    got = function_of(row)(a, b)
    expected = OPS["matmul"].oracle(a, b)
    assert error_of(got, expected, expected.abs().nan_to_num(1.0).clamp_min(1e9)) is not None


@pytest.mark.gpu
@each(ROWS)
def test_the_current_stream(row: Implementation, device: torch.device) -> None:
    function = function_of(row)
    a, b = operands(512, 512, 512, torch.bfloat16, True, device)
    function(a, b)
    late = torch.zeros_like(a)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late.copy_(a)
        got = function(late, b)
    stream.synchronize()
    assert_exact(got, a, b)


@pytest.mark.gpu
@each(ROWS)
def test_a_captured_graph_follows_its_inputs(row: Implementation, device: torch.device) -> None:
    function = function_of(row)
    a, b = operands(128, 256, 512, torch.bfloat16, True, device)
    out = torch.empty(128, 512, dtype=torch.bfloat16, device=device)
    function(a, b, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(a, b, out=out)
    a.copy_(integers(128, 256, dtype=torch.bfloat16, device=device))
    out.fill_(math.nan)
    graph.replay()
    assert_exact(out, a, b)


@pytest.mark.gpu
@each(EXTENSIONS)
@each_dtype
@each_layout
def test_extension_and_cupy_agree_bit_for_bit(
    row: Implementation, dtype: torch.dtype, weight: bool, device: torch.device
) -> None:
    (twin,) = (r for r in ROWS if r.tier == "cupy" and r.variant == row.variant)
    for m, k, n in ((16, 1000, 4096), (65, 77, 99), (2048, 520, 2048)):
        a, stored = (torch.randn(*s, device=device).to(dtype) for s in ((m, k), (n, k)))
        b = stored.t() if weight else stored.t().contiguous()
        one, two = function_of(row)(a, b), function_of(twin)(a, b)
        width = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
        assert torch.equal(one.view(width), two.view(width))


@pytest.mark.gpu
@each(WGMMA)
def test_a_hundred_runs_give_the_same_bits(row: Implementation, device: torch.device) -> None:
    """A stage read too early, or an output chunk written too early, would show now and then."""
    function = function_of(row)
    for k in (64, 1024):
        a, b = operands(4096, k, 4096, torch.bfloat16, True, device)
        first = function(a, b)
        assert_exact(first, a, b)
        out = torch.empty_like(first)
        for _ in range(100):
            out.fill_(math.nan)
            assert torch.equal(function(a, b, out=out), first)
