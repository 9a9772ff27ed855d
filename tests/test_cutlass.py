"""matmul from CUTLASS: what it takes and where its headers are found on any machine, its numbers on
a GPU.

As in test_cuda_matmul.py the operands are small integers, so that a result is right to the bit or
wrong.
"""

from __future__ import annotations

import math
import os
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from test_cuda_matmul import assert_exact, inside_nan, integers, operands
from torch import Tensor

from benchmarks import device as machine
from benchmarks.check import Bordered, verify
from benchmarks.implementations import find
from cuda_impl import cutlass, extension, matrices, toolkit
from reference.ops import OPS
from reference.spec import Case, dtype_name

ROW = find("matmul", "library/cutlass")
HALVES = (torch.float16, torch.bfloat16)

each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)
each_layout = pytest.mark.parametrize("weight", [True, False], ids=["nk", "kn"])


@pytest.fixture
def needed(device: torch.device) -> None:
    reason = machine.unmet(ROW, device)
    if reason:
        pytest.skip(reason)


# ---------------------------------------------------------------------------- headers


@pytest.fixture
def no_cutlass(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("CUTLASS_HOME", raising=False)
    monkeypatch.setattr(toolkit.importlib.util, "find_spec", lambda name: None)
    return monkeypatch


def with_headers(include: Path) -> Path:
    (include / "cutlass").mkdir(parents=True)
    (include / "cutlass" / "cutlass.h").touch()
    return include


def test_cutlass_is_found_in_pip_s_package(no_cutlass: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert toolkit.find_cutlass() is None
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    no_cutlass.setattr(toolkit.importlib.util, "find_spec", lambda name: spec)
    assert toolkit.find_cutlass() is None
    include = with_headers(tmp_path / "source" / "include")
    assert toolkit.find_cutlass() == include


def test_cutlass_home_decides(no_cutlass: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_cutlass.setenv("CUTLASS_HOME", str(tmp_path))
    with pytest.raises(toolkit.ToolkitError, match=f"CUTLASS_HOME is {tmp_path}"):
        toolkit.find_cutlass()
    include = with_headers(tmp_path / "include")
    assert toolkit.find_cutlass() == include


def test_without_it_the_row_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None)
    reasons = [machine._unmet.__wrapped__("cutlass", "cuda"), toolkit.NO_CUTLASS]
    monkeypatch.setattr(extension.importlib, "import_module", missing)
    with pytest.raises(ImportError) as raised:
        extension.compiled_cutlass.__wrapped__()
    # All of them as the extra `cutlass` pins it.
    declared = tomllib.loads((machine.ROOT / "pyproject.toml").read_text())
    (pinned,) = declared["project"]["optional-dependencies"]["cutlass"]
    for reason in (*reasons, str(raised.value)):
        assert f"pip install --no-deps {pinned}" in reason


@pytest.mark.parametrize(
    ("source", "outdated"),
    [
        ("matmul_cutlass.cu", ["_cutlass"]),
        ("matmul_mma.cu", ["_C"]),
        ("kernels/matmul_mma.cuh", ["_C"]),
        ("launch.h", ["_C", "_cutlass"]),
    ],
)
def test_each_module_is_as_old_as_its_own_sources(
    source: str, outdated: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    edited = tmp_path / "csrc" / source
    edited.parent.mkdir(parents=True)
    edited.touch()
    found = []
    for name in ("_C", "_cutlass"):
        # Not the real modules' package, which is imported already.
        built = tmp_path / f"built{name}.py"
        built.touch()
        os.utime(built, (0, 0))
        if machine._outdated(f"built{name}", "build it"):
            found.append(name)
    assert found == outdated


# ---------------------------------------------------------------------------- what it takes


def test_what_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # The device's type is all that a CPU tensor lacks here.
    monkeypatch.setattr(matrices, "DEVICES", ("cpu",))
    monkeypatch.setattr(cutlass, "_capability", lambda device: (9, 0))
    taken: list[tuple[str, bool]] = []

    class Compiled:
        def matmul_cutlass(
            self, a: Tensor, b: Tensor, weight: bool, out: Tensor, swizzle: int
        ) -> None:
            assert all(map(matrices.is_addressable, (a, b, out)))
            taken.append(("cutlass", weight))

    monkeypatch.setattr(cutlass, "compiled_cutlass", Compiled)
    monkeypatch.setattr(cutlass, "eager", lambda *_, out: taken.append(("eager", False)))

    def way(a: Tensor, b: Tensor, out: Tensor | None = None) -> tuple[str, bool]:
        cutlass.cutlass(a, b, out=out)
        return taken.pop()

    weight = torch.zeros(40, 24, dtype=torch.float16)
    a = weight.new_zeros(5, 24)
    assert way(a, weight.t()) == ("cutlass", True)
    assert way(a, weight.t().contiguous()) == ("cutlass", False)
    assert way(weight.new_zeros(2, 3, 24), weight.t()) == ("cutlass", True)
    # Rows that start anywhere are copied, and so is what doesn't lie by rows.
    assert way(weight.new_zeros(5, 25)[:, 1:], weight.t()) == ("cutlass", True)
    assert way(a, weight.new_zeros(24, 81)[:, 1::2]) == ("cutlass", False)
    assert way(a.float(), weight.t().float()) == ("eager", False)
    # K, N, and an out that starts between multiples of 16 bytes.
    assert way(a[:, :23], weight[:, :23].t()) == ("eager", False)
    assert way(a, weight[:39].t()) == ("eager", False)
    assert way(a, weight.t(), weight.new_zeros(201)[1:].view(5, 40)) == ("eager", False)


def test_no_case_that_is_measured_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutlass, "_capability", lambda device: (9, 0))
    op = OPS["matmul"]
    measured = 0
    for case in op.benchmark_cases:
        if not ROW.left_out(op.sizes(case), dtype_name(case.dtype)):
            m, k, n = case.sizes
            a, out = (torch.empty(m, size, dtype=case.dtype, device="meta") for size in (k, n))
            assert cutlass._suits_cutlass(a, out), case.name
            measured += 1
    assert measured == 6


def test_other_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "DEVICES", ("cpu",))
    monkeypatch.setattr(cutlass, "_capability", lambda device: (8, 0))
    a = torch.zeros(8, 8, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"needs a GPU of compute capability 9\.0 .* with 8\.0"):
        cutlass.cutlass(a, a)


# ---------------------------------------------------------------------------- numbers


def compute(a: Tensor, b: Tensor) -> None:
    out = Bordered(torch.Size((a.shape[0], b.shape[1])), a)
    cutlass.cutlass(a, b, out=out.tensor)
    assert_exact(out.tensor, a, b)
    assert not out.violated()


@pytest.mark.gpu
@pytest.mark.usefixtures("needed")
@each_half
@each_layout
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        # The least; a part of a tile, of a cluster, of a stage.
        (1, 8, 8),
        (127, 64, 256),
        (129, 72, 264),
        (257, 520, 248),
        # As many stages as the ring has, and more; several tiles a block.
        (256, 256, 512),
        (2049, 4096, 2056),
        (4096, 200, 4360),
        # Handed on: for N, for K, for both.
        (33, 40, 17),
        (65, 17, 64),
        (2049, 77, 2305),
    ],
)
def test_sizes(
    dtype: torch.dtype, weight: bool, m: int, k: int, n: int, device: torch.device
) -> None:
    compute(*operands(m, k, n, dtype, weight, device))


@pytest.mark.gpu
@pytest.mark.usefixtures("needed")
@each_half
@each_layout
@pytest.mark.parametrize("left", [8, 1])
def test_nothing_beside_a_slice_is_read(
    dtype: torch.dtype, weight: bool, left: int, device: torch.device
) -> None:
    for m, k, n in ((70, 72, 80), (2001, 72, 2056)):
        a, b = operands(m, k, n, dtype, weight, device)
        b_inside = inside_nan(b.t(), left).t() if weight else inside_nan(b, left)
        out = torch.full((m, n), math.nan, dtype=dtype, device=device)
        cutlass.cutlass(inside_nan(a, left), b_inside, out=out)
        assert_exact(out, a, b)


@pytest.mark.gpu
@pytest.mark.usefixtures("needed")
@pytest.mark.parametrize("case", OPS["matmul"].test_cases, ids=lambda case: case.name)
def test_the_gate_passes(case: Case, device: torch.device) -> None:
    verdict = verify(OPS["matmul"], case, cutlass.cutlass, device)
    assert verdict.ok, verdict.reason


@pytest.mark.gpu
@pytest.mark.usefixtures("needed")
def test_any_layout(device: torch.device) -> None:
    a = integers(3, 4, 6, 40, dtype=torch.float16, device=device)
    b = integers(40, 56, dtype=torch.float16, device=device)
    for view in (a, a[0, 0, 0], a.transpose(0, 2), a[:, ::2], a[..., :1].expand(a.shape)):
        assert_exact(cutlass.cutlass(view, b), view, b)
    strided = torch.full((3, 4, 6, 56, 2), math.nan, dtype=torch.float16, device=device)
    assert cutlass.cutlass(a, b, out=strided[..., 0]).data_ptr() == strided.data_ptr()
    assert_exact(strided[..., 0], a, b)
    assert strided[..., 1].isnan().all()
    shifted = torch.full((24 * 56 + 1,), math.nan, dtype=torch.float16, device=device)
    assert_exact(cutlass.cutlass(a[0], b, out=shifted[1:].view(4, 6, 56)), a[0], b)
    assert shifted[0].isnan()


@pytest.mark.gpu
@pytest.mark.usefixtures("needed")
def test_what_the_binding_refuses(device: torch.device) -> None:
    compiled = extension.compiled_cutlass()

    def launch(a: Tensor, b: Tensor, weight: bool, out: Tensor, swizzle: int = 8) -> None:
        compiled.matmul_cutlass(a, b, weight, out, swizzle)

    a, out = (torch.zeros(16, cols, dtype=torch.float16, device=device) for cols in (24, 40))
    weight = torch.zeros(40, 24, dtype=torch.float16, device=device)
    launch(a, weight, True, out)
    with pytest.raises(TypeError, match="a must be float16 or bfloat16, got Float"):
        launch(a.float(), weight.float(), True, out.float())
    with pytest.raises(ValueError, match="rows of a don't start at multiples of 16 bytes"):
        launch(a[:, 1:17], weight[:, :16], True, out)
    with pytest.raises(ValueError, match="rows of b don't start at multiples of 16 bytes"):
        launch(a[:, :16], weight[:, 1:17], True, out)
    shifted = out.new_zeros(16 * 40 + 1)[1:].view(16, 40)
    with pytest.raises(ValueError, match="rows of out don't start at multiples of 16 bytes"):
        launch(a, weight, True, shifted)
    # Rows are in order, but CUTLASS wants sizes in whole packs too.
    with pytest.raises(ValueError, match="K = 23 is no multiple of 8"):
        launch(a[:, :23], weight[:, :23], True, out)
    with pytest.raises(ValueError, match="N = 39 is no multiple of 8"):
        launch(a, weight[:39], True, out.new_zeros(16, 39))
    with pytest.raises(ValueError, match="b must have stride 1 along its last dimension"):
        launch(a, weight.t().contiguous().t(), True, out)
    with pytest.raises(ValueError, match="b must have K = 24"):
        launch(a, weight, False, out)
    with pytest.raises(ValueError, match="swizzle must be 1, 2, 4 or 8, got 3"):
        launch(a, weight, True, out, 3)
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.usefixtures("needed")
def test_in_a_thread_whose_first_call_it_is(device: torch.device) -> None:
    a, b = operands(72, 72, 80, torch.float16, True, device)
    out = torch.full((72, 80), math.nan, dtype=torch.float16, device=device)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(cutlass.cutlass, a, b, out=out).result()
    torch.cuda.synchronize()
    assert_exact(out, a, b)


@pytest.mark.gpu
@pytest.mark.usefixtures("needed")
def test_the_current_stream(device: torch.device) -> None:
    a, b = operands(512, 512, 512, torch.bfloat16, True, device)
    cutlass.cutlass(a, b)
    late = torch.zeros_like(a)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late.copy_(a)
        got = cutlass.cutlass(late, b)
    stream.synchronize()
    assert_exact(got, a, b)


@pytest.mark.gpu
@pytest.mark.usefixtures("needed")
def test_a_captured_graph_follows_its_inputs(device: torch.device) -> None:
    a, b = operands(128, 256, 512, torch.bfloat16, True, device)
    out = torch.empty(128, 512, dtype=torch.bfloat16, device=device)
    cutlass.cutlass(a, b, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cutlass.cutlass(a, b, out=out)
    a.copy_(integers(128, 256, dtype=torch.bfloat16, device=device))
    out.fill_(math.nan)
    graph.replay()
    assert_exact(out, a, b)


@pytest.mark.gpu
@pytest.mark.usefixtures("needed")
def test_given_out_it_allocates_nothing(device: torch.device) -> None:
    """Its scheduler asks for no workspace."""
    a, b = operands(512, 512, 512, torch.bfloat16, True, device)
    out = torch.empty(512, 512, dtype=torch.bfloat16, device=device)
    cutlass.cutlass(a, b, out=out)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    cutlass.cutlass(a, b, out=out)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
