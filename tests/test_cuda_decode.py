"""matmul of few rows in CUDA C++: its plans on any machine, its numbers on a GPU.

As in test_cuda_matmul.py the operands are small integers, so that a result is right to the bit or
wrong; the tests there run these variants too, mostly with more rows, which they hand on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from test_cuda_matmul import assert_exact, function_of, inside_nan, integers, operands
from torch import Tensor

from benchmarks.check import Bordered, verify
from benchmarks.implementation import Implementation
from benchmarks.implementations import IMPLEMENTATIONS
from cuda_impl import decode, gemv, matrices
from reference.ops import OPS
from reference.spec import Case

ROWS = [row for row in IMPLEMENTATIONS if row.op == "matmul" and row.variant in ("gemv", "decode")]
DECODE = [row for row in ROWS if row.variant == "decode"]
GEMV = [row for row in ROWS if row.variant == "gemv"]
HALVES = (torch.float16, torch.bfloat16)
H200 = 132

each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)
each_tile = pytest.mark.parametrize("tile", decode.TILES, ids=lambda tile: "x".join(map(str, tile)))


def each(rows: list[Implementation]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=lambda row: f"{row.tier}-{row.variant}")


# ---------------------------------------------------------------------------- plans


def test_the_plans_of_the_benchmarked_shapes() -> None:
    def plan(m: int, k: int, n: int) -> tuple[tuple[int, ...], int, int]:
        found = decode.decode_plan(m, n, k, H200)
        assert isinstance(found, decode.DecodePlan)
        return tuple(found.tile), found.blocks, found.tiles

    # All 132 multiprocessors at work, with 31 or 32 rows each, and 108 or 109; up to eight rows of
    # a, as many blocks as tiles.
    assert plan(8, 4096, 4096) == ((32, 8, 5, 1), 128, 128)
    assert plan(16, 4096, 4096) == ((32, 16, 8, 1), 132, 132)
    assert plan(32, 4096, 4096) == ((64, 32, 7, 2), 132, 66)
    assert plan(64, 4096, 4096) == ((64, 64, 4, 2), 132, 66)
    assert plan(2, 4096, 14336) == ((32, 8, 5, 1), 448, 448)
    assert plan(16, 4096, 14336) == ((64, 16, 9, 1), 132, 264)
    assert plan(32, 4096, 14336) == ((128, 32, 9, 1), 132, 132)
    assert plan(64, 4096, 14336) == ((128, 64, 6, 1), 132, 132)
    assert plan(64, 14336, 4096) == plan(64, 4096, 4096)
    assert plan(64, 4096, 8192) == ((128, 64, 6, 2), 132, 66)
    assert plan(64, 8192, 28672) == ((128, 64, 6, 1), 132, 264)
    assert plan(64, 4096, 128256) == ((128, 64, 6, 1), 132, 1056)
    # (threads, rows of a): fewer threads for short rows.
    assert gemv.gemv_plan(1, 4096, 4096) == (256, 1)
    assert gemv.gemv_plan(2, 14336, 4096) == (256, 2)
    assert gemv.gemv_plan(3, 4096, 512) == (64, 4)
    assert gemv.gemv_plan(5, 4096, 512) is None
    assert gemv.gemv_plan(1, 8, 2**30) is None
    assert gemv.gemv_plan(1, 2**33, 8) is None


def test_every_tile_is_some_plan_s() -> None:
    plans = {
        decode.decode_plan(m, n, 4096, H200)
        for m in (3, 8, 9, 16, 17, 32, 33, 64)
        for n in (64, 4096, 8192, 14336)
    }
    assert {plan.tile for plan in plans if isinstance(plan, decode.DecodePlan)} == set(decode.TILES)
    assert len(set(decode.TILES)) == len(decode.TILES)


def test_all_rows_are_in_tiles_of_equal_height() -> None:
    rows = (1, 2, 31, 33, 131, 132, 133, 1000, 4096, 4224, 4225, 128256)
    for m, n, k, processors in itertools.product(
        (1, 2, 3, 4, 8, 16, 17, 64), rows, (1, 64, 1025, 4096), (1, 2, 78, 132)
    ):
        plan = decode.decode_plan(m, n, k, processors)
        assert plan is not None
        takers = plan.blocks // plan.tile.splits
        assert plan.tile.batch >= m
        assert plan.blocks % plan.tile.splits == 0
        if plan.tile.batch > 8:
            assert plan.blocks <= max(processors, plan.tile.splits)
        # The kernel's own count: EvenTiles.
        each, longer = divmod(n, plan.tiles)
        heights = [each + (tile < longer) for tile in range(plan.tiles)]
        assert sum(heights) == n
        assert 1 <= min(heights) <= max(heights) <= plan.tile.rows
        # Nobody has more than one tile less than another.
        assert plan.tiles % takers == 0 or plan.tiles in (n, -(-n // plan.tile.rows))
        assert -(-plan.tiles // takers) - plan.tiles // takers <= 1


@each_tile
def test_a_tile_fits_a_multiprocessor_and_keeps_memory_at_work(tile: decode.Tile) -> None:
    # 228 KB on Hopper, of which a block loses one.
    assert tile.shared_bytes + 1024 <= 228 * 1024
    # 4.25 TB/s for 0.8 us are 26 KB of each of 132 multiprocessors.
    assert (tile.stages - 1) * 16 >= 48
    assert tile.rows * tile.depth * 2 == 16 * 1024


def test_what_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "processors", lambda device: H200)
    monkeypatch.setattr(decode, "is_hopper", lambda device: True)
    # The device's type is all that a CPU tensor lacks here.
    monkeypatch.setattr(matrices, "DEVICES", ("cpu",))

    def plans(a: Tensor, b: Tensor) -> tuple[bool, bool]:
        given = matrices.operands(a, b, None)
        return gemv._plan(given) is not None, decode._plan(given) is not None

    weight = torch.zeros(40, 24, dtype=torch.float16)
    assert plans(weight.new_zeros(4, 24), weight.t()) == (True, True)
    assert plans(weight.new_zeros(5, 24), weight.t()) == (False, True)
    assert plans(weight.new_zeros(64, 24), weight.t()) == (False, True)
    assert plans(weight.new_zeros(65, 24), weight.t()) == (False, False)
    assert plans(weight.new_zeros(4, 24), weight.t().contiguous()) == (False, False)
    assert plans(torch.zeros(4, 24), torch.zeros(40, 24).t()) == (False, False)
    # Leading dimensions are rows too.
    assert plans(weight.new_zeros(2, 2, 24), weight.t()) == (True, True)
    assert plans(weight.new_zeros(24), weight.t()) == (True, True)


@pytest.mark.parametrize(
    ("a", "weight", "vector", "copied"),
    [
        (torch.randn(3, 24).half(), torch.randn(40, 24).half(), True, False),
        # A slice of a is copied, one of the weight is read element by element.
        (torch.randn(3, 32).half()[:, 1:25], torch.randn(40, 24).half(), True, True),
        (torch.randn(3, 24).half(), torch.randn(40, 32).half()[:, 1:25], False, False),
        (torch.randn(3, 24).half(), torch.randn(40, 32).half()[:, 8:], True, False),
        # Odd K, also where rows are padded.
        (torch.randn(3, 23).half(), torch.randn(40, 23).half(), False, False),
        (torch.randn(3, 23).half(), torch.randn(40, 24).half()[:, :23], False, False),
        (torch.randn(1, 24).half(), torch.randn(1, 24).half(), True, False),
    ],
)
def test_layouts(
    a: Tensor, weight: Tensor, vector: bool, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "DEVICES", ("cpu",))
    given = matrices.operands(a, weight.t(), None)
    left, right, found = matrices.laid_out(given)
    assert found == vector
    assert (left.data_ptr() != a.data_ptr()) == copied
    assert right.data_ptr() == weight.data_ptr()
    assert torch.equal(left, a)
    assert torch.equal(right, weight)


# ---------------------------------------------------------------------------- numbers

# With as many multiprocessors a block has a tile or two; with fewer the ring goes on from tile to
# tile. One is fewer than a cluster needs.
each_size = pytest.mark.parametrize("processors", [132, 4, 1])


def compute(row: Implementation, a: Tensor, b: Tensor) -> None:
    out = Bordered(torch.Size((a.shape[0], b.shape[1])), a)
    function_of(row)(a, b, out=out.tensor)
    assert_exact(out.tensor, a, b)
    assert not out.violated()


def with_processors(monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr(decode, "processors", lambda device: processors)


@pytest.mark.gpu
@each(ROWS)
@each_half
@each_size
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 32, 33, 48, 63, 64])
def test_few_rows(
    row: Implementation,
    dtype: torch.dtype,
    processors: int,
    m: int,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_processors(monkeypatch, processors)
    # (k, n): one step, a few, more than the ring holds; fewer rows than a tile, as many, more.
    for k, n in ((8, 8), (64, 264), (1024, 33), (1032, 1), (4096, 520), (2056, 1000)):
        compute(row, *operands(m, k, n, dtype, True, device))


@pytest.mark.gpu
@each(ROWS)
@each_half
@each_size
@pytest.mark.parametrize("m", [1, 2, 4, 7, 13, 32, 61])
def test_odd_sizes_and_misaligned_rows(
    row: Implementation,
    dtype: torch.dtype,
    processors: int,
    m: int,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_processors(monkeypatch, processors)
    for k, n in ((1, 1), (2, 3), (7, 129), (129, 65), (1001, 77), (2049, 131), (4099, 257)):
        compute(row, *operands(m, k, n, dtype, True, device))


@pytest.mark.gpu
@each(DECODE)
@each_half
@each_tile
@pytest.mark.parametrize("clusters", [1, 3])
def test_each_tile(
    row: Implementation,
    dtype: torch.dtype,
    tile: decode.Tile,
    clusters: int,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plan(m: int, n: int, k: int, processors: int) -> decode.DecodePlan:
        tiles = decode._even_tiles(n, tile.rows, clusters)
        return decode.DecodePlan(tile, min(clusters, tiles) * tile.splits, tiles)

    monkeypatch.setattr(decode, "decode_plan", plan)
    depth = tile.depth
    # Fewer steps than stages, as many, one more, many more; with two splits one of them has none.
    for steps in (1, 2, tile.stages - 1, tile.stages, tile.stages + 1, 3 * tile.stages):
        for m, n in ((1, 1), (tile.batch - 1, tile.rows + 1), (tile.batch, 5 * tile.rows)):
            compute(row, *operands(m, steps * depth, n, dtype, True, device))
            compute(row, *operands(m, steps * depth - 8, n, dtype, True, device))
            compute(row, *operands(m, steps * depth - 3, n, dtype, True, device))


@pytest.mark.gpu
@each(ROWS)
@each_half
@pytest.mark.parametrize(("left", "right"), [(8, 8), (1, 7), (3, 3), (8, 1)])
def test_nothing_beside_a_slice_is_read(
    row: Implementation, dtype: torch.dtype, left: int, right: int, device: torch.device
) -> None:
    function = function_of(row)
    for m, k, n in itertools.product((1, 3, 8, 30, 64), (72, 77, 1031), (80, 301)):
        a, b = operands(m, k, n, dtype, True, device)
        b_inside = inside_nan(b.t(), left, right).t()
        assert_exact(function(inside_nan(a, left, right), b_inside), a, b)


@pytest.mark.gpu
@each(ROWS)
def test_nan_and_inf_stay_in_their_rows_and_columns(
    row: Implementation, device: torch.device
) -> None:
    function = function_of(row)
    for m in (2, 4, 8, 16, 32, 64):
        a = torch.ones(m, 1024, dtype=torch.bfloat16, device=device)
        weight = torch.ones(300, 1024, dtype=torch.bfloat16, device=device)
        a[1, 700], weight[299, 3], weight[17, 1023] = math.nan, math.inf, -math.inf
        got = function(a, weight.t())
        expected = torch.full((m, 300), 1024.0, device=device)
        expected[:, 299], expected[:, 17], expected[1] = math.inf, -math.inf, math.nan
        assert torch.equal(got.float().nan_to_num(7.0), expected.nan_to_num(7.0)), m


@pytest.mark.gpu
@each(ROWS)
@each_half
@pytest.mark.parametrize("m", [1, 2, 4, 8, 16, 32, 64, 65, 200])
def test_the_gate_passes(
    row: Implementation, dtype: torch.dtype, m: int, device: torch.device
) -> None:
    for size in ((m, 4096, 4096), (m, 4096, 14336), (m, 14336, 4096), (m, 1000, 999)):
        for layout in ("nk", "kn"):
            verdict = verify(OPS["matmul"], Case(size, dtype, layout), function_of(row), device)
            assert verdict.ok, (size, layout, verdict.reason)


@pytest.mark.gpu
@each([row for row in ROWS if row.tier == "cuda"])
@each_half
@pytest.mark.parametrize("m", [1, 2, 3, 8, 16, 32, 64])
def test_extension_and_cupy_agree_bit_for_bit(
    row: Implementation, dtype: torch.dtype, m: int, device: torch.device
) -> None:
    (twin,) = (r for r in ROWS if r.tier == "cupy" and r.variant == row.variant)
    for k, n in ((4096, 4096), (1000, 14336), (1001, 300), (300, 77)):
        a, weight = (torch.randn(*s, device=device).to(dtype) for s in ((m, k), (n, k)))
        one, two = function_of(row)(a, weight.t()), function_of(twin)(a, weight.t())
        assert torch.equal(one.view(torch.int16), two.view(torch.int16))


@pytest.mark.gpu
@each(ROWS)
@pytest.mark.parametrize("m", [1, 2, 4, 8, 16, 32, 64])
def test_a_hundred_runs_give_the_same_bits(
    row: Implementation, m: int, device: torch.device
) -> None:
    """A stage read too early, or sums written too early, would show now and then."""
    function = function_of(row)
    for k, n in ((4096, 4096), (512, 40000)):
        a = integers(m, k, dtype=torch.bfloat16, device=device)
        weight = integers(n, k, dtype=torch.bfloat16, device=device)
        first = function(a, weight.t())
        assert_exact(first, a, weight.t())
        # Sums that are not exact, whose bits tell the order in which they were added up.
        a, weight = torch.randn_like(a), torch.randn_like(weight)
        first = function(a, weight.t())
        out = torch.empty_like(first)
        for _ in range(100):
            out.fill_(math.nan)
            assert torch.equal(function(a, weight.t(), out=out), first)


@pytest.mark.gpu
@each(GEMV)
@each_half
def test_beyond_32_bits(row: Implementation, dtype: torch.dtype, device: torch.device) -> None:
    if torch.cuda.mem_get_info()[0] < 12 * 2**30:
        pytest.skip("needs 12 GB of memory")
    functions = (function_of(row), *(function_of(r) for r in DECODE if r.tier == row.tier))
    # The last row starts past 2^32 bytes and 2^31 elements.
    weight = torch.zeros(2**17 + 3, 2**14 + 8, dtype=dtype, device=device)
    weight[-1, ::8], weight[-2, -1] = 1, 3
    ones = weight.shape[1] // 8
    for function, m in itertools.product(functions, (1, 8, 64)):
        got = function(torch.ones(m, weight.shape[1], dtype=dtype, device=device), weight.t())
        assert got[:, -1].eq(torch.tensor(ones, dtype=dtype)).all()
        assert got[:, -2].eq(3).all()
        assert not got[:, :-2].any()


@pytest.mark.gpu
@each(ROWS)
def test_in_a_captured_graph(row: Implementation, device: torch.device) -> None:
    function: Callable[..., Tensor] = function_of(row)
    for m in (1, 4, 16, 64):
        a, b = operands(m, 1024, 1000, torch.bfloat16, True, device)
        out = torch.empty(m, 1000, dtype=torch.bfloat16, device=device)
        function(a, b, out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function(a, b, out=out)
        a.copy_(integers(m, 1024, dtype=torch.bfloat16, device=device))
        out.fill_(math.nan)
        graph.replay()
        assert_exact(out, a, b)
