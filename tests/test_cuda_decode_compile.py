"""The kernels of few rows compile with NVRTC for old and new cards, and what Hopper gets is read
off: how many bytes are on their way, and that nothing waits for them too early."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from test_cuda_compile import BY_NAME, assert_nothing_spilled, cubin_of, dump, instructions

from cuda_impl import decode, gemv, rawmodule

nvrtc = pytest.importorskip(
    "cuda.bindings.nvrtc", reason="needs NVRTC's Python bindings: pip install cuda-bindings"
)

HALVES = (torch.float16, torch.bfloat16)
GEMV = tuple(gemv.GemvPlan(threads, batch) for threads in (64, 256) for batch in (1, 2, 4))
EACH_TILE = pytest.mark.parametrize("tile", decode.TILES, ids=lambda tile: "x".join(map(str, tile)))


@BY_NAME
def test_gemv(capability: tuple[int, int], tmp_path: Path) -> None:
    expressions = tuple(
        plan.expression(dtype, vector)
        for plan in GEMV
        for dtype in HALVES
        for vector in (True, False)
    )
    cubin = cubin_of("matmul_gemv.cuh", expressions, capability)
    assert_nothing_spilled(dump(cubin, tmp_path, "--dump-resource-usage"), len(expressions))


@BY_NAME
def test_decode(capability: tuple[int, int], tmp_path: Path) -> None:
    expressions = tuple(
        decode.DecodePlan(tile, 1, 1).expression(dtype, vector)
        for tile in decode.TILES
        for dtype in HALVES
        for vector in (True, False)
    )
    cubin = cubin_of("matmul_decode.cuh", expressions, capability)
    assert_nothing_spilled(dump(cubin, tmp_path, "--dump-resource-usage"), len(expressions))


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_gemv_asks_for_all_its_packs_before_it_multiplies_any(batch: int, tmp_path: Path) -> None:
    expression = gemv.GemvPlan(256, batch).expression(torch.bfloat16, True)
    listing = dump(cubin_of("matmul_gemv.cuh", (expression,), (9, 0)), tmp_path, "-sass")
    found = instructions(listing)
    assert found["LDG.E.NA.128.CONSTANT"] == 2 * gemv.ROWS
    assert found["LDG.E.128.CONSTANT"] == 2 * batch
    assert found["FFMA.FTZ"] == 2 * gemv.ROWS * batch * 8
    order = re.findall(r"\b(LDG\.E\.NA|FFMA)\b", listing)
    assert order[: 2 * gemv.ROWS] == ["LDG.E.NA"] * 2 * gemv.ROWS


@EACH_TILE
def test_decode_waits_for_the_oldest_of_its_stages(tile: decode.Tile, tmp_path: Path) -> None:
    expression = decode.DecodePlan(tile, 1, 1).expression(torch.bfloat16, True)
    listing = dump(cubin_of("matmul_decode.cuh", (expression,), (9, 0)), tmp_path, "-sass")
    found = instructions(listing)
    assert set(re.findall(r"DEPBAR\.LE SB0, (\w+)", listing)) == {hex(tile.stages - 2)}
    # Before the loop and in it, each once: four packs a thread of the weight's 16 KB, and of a.
    jump = 256 // (tile.depth // 8)
    packs = tile.rows // jump + -(-tile.batch // jump)
    assert found["LDGSTS.E.BYPASS.LTC256B.128"] == 2 * packs
    # A warp's 32 rows and 32 steps of k, in quarters, for every 8 rows of a.
    assert found["HMMA.16816.F32.BF16"] == 4 * tile.batch // 8
    assert found["LDSM.16.M88.4"] == 4 + tile.batch // 8
    clusters = {name for name in found if name.startswith("UCGABAR")}
    assert bool(clusters) == (tile.splits > 1)


@EACH_TILE
def test_python_and_cuda_agree_on_shared_memory(
    tile: decode.Tile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_with(shared_bytes: int) -> None:
        shared = f"DecodeShared<{tile.rows}, {tile.batch}, {tile.stages}>"
        source = (
            '#include "matmul_decode.cuh"\n'
            f"static_assert({shared}::kBytes == {shared_bytes});\n"
            f"static_assert({shared}::kDepth == {tile.depth});\n"
        )
        monkeypatch.setattr(rawmodule, "source_of", lambda _: source)
        cubin_of("", (), (9, 0))

    compile_with(tile.shared_bytes)
    with pytest.raises(AssertionError, match="static assertion failed"):
        compile_with(tile.shared_bytes + 1)


def test_the_extension_compiles_the_tiles_of_the_table() -> None:
    text = (rawmodule.KERNELS.parent / "matmul_decode.cu").read_text()
    compiled = re.findall(r"\bTile<(\d+), (\d+), (\d+), (\d+)>", text)
    assert sorted(tuple(map(int, tile)) for tile in compiled) == sorted(decode.TILES)
