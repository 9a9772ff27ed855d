"""matmul of up to 64 rows in CUDA C++, on the tensor cores through registers: `decode`.

It takes a weight, b stored [N, K], in 16 bits, and is bound by the time that its bytes take. What
it doesn't take goes to the variants of cuda_impl/matmul.py.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cuda_impl import matmul, rawmodule
from cuda_impl.device import is_hopper, processors
from cuda_impl.extension import compiled
from cuda_impl.matrices import Operands, laid_out, operands

__all__ = ["decode_extension", "decode_rawmodule"]


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


def decode_extension(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b for one to 64 rows of a and a 16-bit weight, through the extension; others as in
    `wgmma`.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device of compute capability 9.0 -> [..., M, N]. Errors as reference.contract says.
    """
    given = operands(a, b, out, compiled().matmul_landing)
    if not given.empty:
        plan = _plan(given)
        if plan is None:
            matmul.wgmma_extension(given.a, given.b, out=given.out)
        else:
            left, right, vector = laid_out(given)
            tile, blocks, tiles = plan
            compiled().matmul_decode(left, right, given.out, *tile, blocks, tiles, vector)
    return given.result(out)


def decode_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernels as `decode_extension`, through CuPy."""
    given = operands(a, b, out)
    if not given.empty:
        plan = _plan(given)
        if plan is None:
            matmul.wgmma_rawmodule(given.a, given.b, out=given.out)
        else:
            _launch_rawmodule(given, plan)
    return given.result(out)


def _plan(given: Operands) -> DecodePlan | None:
    """None for what the kernel doesn't take."""
    if not is_hopper(given.a.get_device()):
        raise ValueError(
            f"decode needs a GPU of compute capability 9.0 (Hopper), got {given.a.device}: the "
            "gemv variant runs on any"
        )
    if given.a.element_size() != 2 or not given.is_weight():
        return None
    return decode_plan(*given.out.shape, given.a.shape[1], processors(given.a.get_device()))


def _launch_rawmodule(given: Operands, plan: DecodePlan) -> None:
    # Named, so that a padded copy lives until the launch has taken it.
    left, right, vector = laid_out(given)
    m, n = given.out.shape
    rawmodule.launch(
        left,
        "matmul_decode.cuh",
        plan.expression(left.dtype, vector),
        (plan.blocks, 1),
        256,
        (
            *(tensor.data_ptr() for tensor in (left, right, given.out)),
            np.int32(m),
            *map(np.int64, (n, left.shape[1], left.stride(0), right.stride(0))),
            *map(np.int64, (plan.tiles, *divmod(n, plan.tiles))),
        ),
        plan.tile.shared_bytes,
    )
