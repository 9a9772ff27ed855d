"""matmul's kernels compile with NVRTC for old and new cards, and what Hopper gets is read off."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from test_cuda_compile import BY_NAME, assert_nothing_spilled, cubin_of, dump, instructions

from cuda_impl import matmul, rawmodule

nvrtc = pytest.importorskip(
    "cuda.bindings.nvrtc", reason="needs NVRTC's Python bindings: pip install cuda-bindings"
)

TILES = (matmul.LARGE, matmul.SMALL)
CTYPES = rawmodule.CTYPES.values()


def expression(tile: matmul.Tile, weight: bool) -> str:
    return matmul.WgmmaPlan(tile, 1).expression(torch.bfloat16, weight)


@BY_NAME
def test_naive_and_tiled(capability: tuple[int, int], tmp_path: Path) -> None:
    naive = tuple(f"matmul_naive_kernel<{ctype}>" for ctype in CTYPES)
    assert cubin_of("matmul_naive.cuh", naive, capability)
    tiled = tuple(
        f"matmul_tiled_kernel<{ctype}, {tile}, {weight}>"
        for ctype in CTYPES
        for tile in (64, 128)
        for weight in ("true", "false")
    )
    usage = dump(cubin_of("matmul_tiled.cuh", tiled, capability), tmp_path, "--dump-resource-usage")
    assert_nothing_spilled(usage, len(tiled))


@BY_NAME
def test_wgmma(capability: tuple[int, int], tmp_path: Path) -> None:
    plans = [matmul.WgmmaPlan(tile, 1) for tile in TILES]
    expressions = tuple(
        plan.expression(dtype, weight)
        for plan in plans
        for dtype in (torch.float16, torch.bfloat16)
        for weight in (True, False)
    )
    cubin = cubin_of("matmul_wgmma.cuh", expressions, capability)
    usage = dump(cubin, tmp_path, "--dump-resource-usage")
    assert_nothing_spilled(usage, len(expressions))


@pytest.mark.parametrize("weight", [True, False], ids=["nk", "kn"])
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.rows}x{tile.cols}")
def test_the_tensor_cores_are_kept_busy(tile: matmul.Tile, weight: bool, tmp_path: Path) -> None:
    cubin = cubin_of("matmul_wgmma.cuh", (expression(tile, weight),), (9, 0))
    listing = dump(cubin, tmp_path, "-sass")
    found = instructions(listing)
    # One stage's worth; a compiler that can't keep them in flight would wait after each.
    assert found[f"HGMMA.64x{tile.cols}x16.F32.BF16"] == 4
    assert found["WARPGROUP.DEPBAR.LE"] == 2
    order = re.findall(r"\b(WARPGROUP\.ARRIVE|HGMMA|WARPGROUP\.DEPBAR|MEMBAR\.ALL\.GPU)", listing)
    start = order.index("WARPGROUP.ARRIVE")
    # No fence for the whole device where stages are handed back.
    assert order[start : start + 7] == [
        "WARPGROUP.ARRIVE",
        *["HGMMA"] * 4,
        "WARPGROUP.DEPBAR",
        "WARPGROUP.DEPBAR",
    ]
    assert not [name for name in found if name.startswith(("LDL", "STL"))]
    shares = 1 if weight else tile.cols // tile.cluster // 64
    multicast = found["UTMALDG.2D.MULTICAST"]
    assert (found["UTMALDG.2D"], multicast) == (
        (1, shares) if tile.cluster > 1 else (1 + shares, 0)
    )


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.rows}x{tile.cols}")
def test_python_and_cuda_agree_on_shared_memory(
    tile: matmul.Tile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_with(shared_bytes: int) -> None:
        shared = f"WgmmaShared<{tile.rows}, {tile.cols}, {tile.stages}>"
        source = (
            '#include "matmul_wgmma.cuh"\n'
            f"static_assert({shared}::kBytes == {shared_bytes});\n"
            f"static_assert({shared}::kThreads == {tile.threads});\n"
        )
        monkeypatch.setattr(rawmodule, "source_of", lambda _: source)
        cubin_of("", (), (9, 0))

    compile_with(tile.shared_bytes)
    with pytest.raises(AssertionError, match="static assertion failed"):
        compile_with(tile.shared_bytes + 1)
