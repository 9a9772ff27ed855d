"""matmul of few rows in CUDA C++: `gemv` for one to four, `decode` for up to 64.

Both take a weight, b stored [N, K], in 16 bits, and are bound by the time that its bytes take. What
they don't take goes to the variants of cuda_impl/matmul.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cuda_impl import matmul, rawmodule
from cuda_impl.device import is_hopper, processors
from cuda_impl.extension import compiled
from cuda_impl.matrices import (
    Operands,
    addressable,
    by_rows,
    is_addressable,
    is_weight,
    operands,
)

__all__ = ["decode_extension", "decode_rawmodule", "gemv_extension", "gemv_rawmodule"]

# Rows of the weight that a step of gemv takes, and its warps a block; csrc/kernels/matmul_gemv.cuh.
GEMV_ROWS = 4
GEMV_WARPS = 8


class GemvPlan(NamedTuple):
    """How the gemv kernel shares out the weight.

    batch: rows of a that it has registers for
    split: warps that share out k of a tile, one or all of a block
    blocks: of the grid; tiles: of at most GEMV_ROWS rows of the weight, nearly equal
    """

    batch: int
    split: int
    blocks: int
    tiles: int

    def expression(self, dtype: torch.dtype, vector: bool) -> str:
        """The kernel's name with its template arguments."""
        arguments = f"{rawmodule.CTYPES[dtype]}, {self.batch}, {self.split}, {str(vector).lower()}"
        return f"matmul_gemv_kernel<{arguments}>"


class Tile(NamedTuple):
    """How the decode kernel works; csrc/kernels/matmul_decode.cuh.

    rows: of the weight, a tile; batch: rows of a, at most
    stages: of the ring, 16 KB of the weight each
    splits: blocks of a cluster that share out k
    """

    rows: int
    batch: int
    stages: int
    splits: int

    @property
    def depth(self) -> int:
        """Steps of k in a stage."""
        return 8192 // self.rows

    @property
    def shared_bytes(self) -> int:
        """Stages, and the sums of each warp that has a part of their k: DecodeShared::kBytes."""
        stage = (self.rows + self.batch) * self.depth * 2
        return self.stages * stage + self.depth // 32 * self.batch * (self.rows + 4) * 4


class DecodePlan(NamedTuple):
    """tile; blocks: of the grid; tiles: of at most tile.rows rows of the weight, nearly equal"""

    tile: Tile
    blocks: int
    tiles: int

    def expression(self, dtype: torch.dtype, vector: bool) -> str:
        """The kernel's name with its template arguments."""
        tile = ", ".join(map(str, self.tile))
        return f"matmul_decode_kernel<{rawmodule.CTYPES[dtype]}, {tile}, {str(vector).lower()}>"


# gemv_plan or decode_plan: (m, n, k, processors) -> plan.
Choose = Callable[[int, int, int, int], DecodePlan | GemvPlan | None]

# (up to this many rows of a, from this many rows of the weight a multiprocessor on, tile), the
# first that fits. Rows of a come from L2 once for every tile: m / (rows of the tile) is what L2
# gives beside each byte of the weight, and twice memory's rate is about what it can give. Stages
# fill what shared memory the sums leave.
DECODE_TILES = (
    # A stage holds 512 bytes of a row. A quarter more from L2. Two blocks a multiprocessor, and a
    # block for every tile: while one starts or sums up, the other reads. On an H200 one to four
    # rows of 4096 by a weight [14336, 4096] take 30.7 us so, and 32.5 with ten stages and a block.
    (8, 0, Tile(32, 8, stages=5, splits=1)),
    # A quarter more, too.
    (16, 33, Tile(64, 16, stages=9, splits=1)),
    # Half more; but without a cluster to wait for.
    (16, 0, Tile(32, 16, stages=8, splits=1)),
    # 108 rows a multiprocessor (14336 in all) are one tile, of a third more from L2.
    (32, 65, Tile(128, 32, stages=9, splits=1)),
    # Two blocks, half of k each, have twice the rows: 62 of 4096, so half more.
    (32, 0, Tile(64, 32, stages=7, splits=2)),
    # The same for 64 rows of a: of 14336, 0.6 more; of 8192, 0.5; of 4096, as much again. Four
    # blocks a cluster would halve that, but 132 multiprocessors don't hold 33 such clusters.
    (64, 65, Tile(128, 64, stages=6, splits=1)),
    (64, 33, Tile(128, 64, stages=6, splits=2)),
    (64, 0, Tile(64, 64, stages=4, splits=2)),
)

TILES = tuple(tile for _, _, tile in DECODE_TILES)


@functools.lru_cache(maxsize=1024)
def gemv_plan(m: int, n: int, k: int, processors: int) -> GemvPlan | None:
    """How to multiply m rows by a weight [n, k]; None for more than four rows.

    processors: multiprocessors of the device
    """
    if m > 4:
        return None
    # All warps of a block side by side cover 2048 steps of k. Where rows are shorter most of them
    # would have nothing to do, and each takes rows of its own.
    split = GEMV_WARPS if k > 1024 else 1
    teams = GEMV_WARPS // split
    tiles = _even_tiles(n, GEMV_ROWS, 2 * processors * teams)
    blocks = min(-(-tiles // teams), 2 * processors)
    return GemvPlan(m if m < 3 else 4, split, blocks, tiles)


@functools.lru_cache(maxsize=1024)
def decode_plan(m: int, n: int, k: int, processors: int) -> DecodePlan | None:
    """How to multiply m rows by a weight [n, k]; None for more than 64 rows.

    processors: multiprocessors of the device
    """
    for most, rows_each, tile in DECODE_TILES:
        if m <= most and n >= rows_each * processors:
            fewest = -(-n // tile.rows)
            if tile.batch == 8:
                return DecodePlan(tile, fewest, fewest)
            clusters = max(processors // tile.splits, 1)
            tiles = _even_tiles(n, tile.rows, clusters)
            return DecodePlan(tile, min(clusters, tiles) * tile.splits, tiles)
    return None


def _even_tiles(n: int, rows: int, takers: int) -> int:
    """Into how many tiles of at most `rows` rows to cut n rows, so that all takers get as many."""
    fewest = -(-n // rows)
    return min(n, -(-fewest // takers) * takers)


def gemv_extension(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b for one to four rows of a and a 16-bit weight, through the extension. Others as in
    `wgmma`, or in `tiled` where the GPU is no Hopper.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device -> [..., M, N]. Errors as reference.contract says.
    """
    given = operands(a, b, out, compiled().matmul_landing)
    return _run(given, gemv_plan, _launch_extension, _others_extension).result(out)


def gemv_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `gemv_extension`, through CuPy."""
    given = operands(a, b, out)
    return _run(given, gemv_plan, _launch_rawmodule, _others_rawmodule).result(out)


def decode_extension(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b for one to 64 rows of a and a 16-bit weight, through the extension; others as in
    `wgmma`.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device of compute capability 9.0 -> [..., M, N]. Errors as reference.contract says.
    """
    given = operands(a, b, out, compiled().matmul_landing)
    if not given.empty:
        _check_hopper(given)
    return _run(given, decode_plan, _launch_extension, _others_extension).result(out)


def decode_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernels as `decode_extension`, through CuPy."""
    given = operands(a, b, out)
    if not given.empty:
        _check_hopper(given)
    return _run(given, decode_plan, _launch_rawmodule, _others_rawmodule).result(out)


def _run(
    given: Operands,
    choose: Choose,
    launch: Callable[[Operands, DecodePlan | GemvPlan], None],
    others: Callable[[Operands], None],
) -> Operands:
    """launch: by the plan that `choose` makes; others: what there is none for"""
    if not given.empty:
        plan = _plan(given, choose)
        if plan is None:
            others(given)
        else:
            launch(given, plan)
    return given


def _plan(given: Operands, choose: Choose) -> DecodePlan | GemvPlan | None:
    """None for what neither kernel takes."""
    if given.a.element_size() != 2 or not is_weight(given.b):
        return None
    return choose(*given.out.shape, given.a.shape[1], processors(given.a.get_device()))


def _laid_out(given: Operands) -> tuple[Tensor, Tensor, bool]:
    """a and the weight [N, K], and whether both can be read 16 bytes at a time.

    a is copied where that makes it so, since its copy costs little. A weight never is: the kernels
    then read it element by element.
    """
    right = by_rows(given.b.t())
    vector = is_addressable(right) and right.shape[1] % 8 == 0
    return addressable(given.a) if vector else given.a, right, vector


def _launch_extension(given: Operands, plan: DecodePlan | GemvPlan) -> None:
    left, right, vector = _laid_out(given)
    if isinstance(plan, GemvPlan):
        compiled().matmul_gemv(left, right, given.out, *plan, vector)
    else:
        tile, blocks, tiles = plan
        compiled().matmul_decode(left, right, given.out, *tile, blocks, tiles, vector)


def _launch_rawmodule(given: Operands, plan: DecodePlan | GemvPlan) -> None:
    # Named, so that a padded copy lives until the launch has taken it.
    left, right, vector = _laid_out(given)
    m, n = given.out.shape
    is_gemv = isinstance(plan, GemvPlan)
    rawmodule.launch(
        left,
        "matmul_gemv.cuh" if is_gemv else "matmul_decode.cuh",
        plan.expression(left.dtype, vector),
        (plan.blocks, 1),
        256,
        (
            *(tensor.data_ptr() for tensor in (left, right, given.out)),
            np.int32(m),
            *map(np.int64, (n, left.shape[1], left.stride(0), right.stride(0))),
            *map(np.int64, (plan.tiles, *divmod(n, plan.tiles))),
        ),
        plan.tile.shared_bytes if isinstance(plan, DecodePlan) else 0,
    )


def _others_extension(given: Operands) -> None:
    others = matmul.wgmma_extension if is_hopper(given.a.get_device()) else matmul.tiled_extension
    others(given.a, given.b, out=given.out)


def _others_rawmodule(given: Operands) -> None:
    others = matmul.wgmma_rawmodule if is_hopper(given.a.get_device()) else matmul.tiled_rawmodule
    others(given.a, given.b, out=given.out)


def _check_hopper(given: Operands) -> None:
    if not is_hopper(given.a.get_device()):
        raise ValueError(
            f"decode needs a GPU of compute capability 9.0 (Hopper), got {given.a.device}: the "
            "gemv variant runs on any"
        )
