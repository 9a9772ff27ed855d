"""matmul in CUDA C++: csrc/ through the extension and through CuPy, with one launch choice.

Formula: out[m, n] = sum over k of a[m, k] b[k, n], summed in float32.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cuda_impl import rawmodule
from cuda_impl.device import capability, processors
from cuda_impl.extension import compiled
from cuda_impl.matrices import is_addressable, operands
from cuda_impl.tensor_map import map_of

__all__ = [
    "naive_extension",
    "naive_rawmodule",
    "tiled_extension",
    "tiled_rawmodule",
    "wgmma_extension",
    "wgmma_rawmodule",
]


class Tile(NamedTuple):
    """How the wgmma kernel shares out the output; csrc/kernels/matmul_wgmma.cuh.

    rows, cols: of the output, a block
    stages: of the ring between memory and the tensor cores
    cluster: blocks above one another that share what they read of b
    resident: blocks that fit a multiprocessor
    """

    rows: int
    cols: int
    stages: int
    cluster: int
    resident: int

    @property
    def threads(self) -> int:
        """One warpgroup that copies, and one for every 64 rows that multiplies."""
        return 128 + 2 * self.rows

    @property
    def shared_bytes(self) -> int:
        """Stages, two 64 x 64 chunks of output for every 64 rows (one where that is the tile),
        two barriers a stage, room to align: WgmmaShared::kBytes."""
        stage = (self.rows + self.cols) * 128
        chunks = self.rows // 64 * (2 if self.cols > 64 else 1) * 64 * 128
        return self.stages * (stage + 16) + chunks + 1024


# The widest tile whose sums fit the registers of two warpgroups, so the most products for each byte
# of shared memory that the tensor cores read. Four stages leave room for the output's chunks. Two
# blocks a cluster: the traffic of b from L2 is halved, and every SM has its neighbour.
LARGE = Tile(128, 256, 4, 2, 1)

# Few rows, where all that counts is how many bytes of b are on their way (2 x 6 x 8 KB a
# multiprocessor), or few tiles: 16 times as many as of the large ones.
SMALL = Tile(64, 64, 6, 1, 2)


class WgmmaPlan(NamedTuple):
    """tile; blocks: of the grid, each with a tile after another"""

    tile: Tile
    blocks: int

    def expression(self, dtype: torch.dtype, weight: bool) -> str:
        """The kernel's name with its template arguments."""
        arguments = f"{rawmodule.CTYPES[dtype]}, {self.tile.rows}, {self.tile.cols}, "
        arguments += f"{self.tile.stages}, {self.tile.cluster}, {str(weight).lower()}"
        return f"matmul_wgmma_kernel<{arguments}>"


def naive_plan() -> int:
    """Threads a block, one thread an entry of the output."""
    return 256


@functools.lru_cache(maxsize=1024)
def tiled_plan(m: int, n: int, processors: int) -> int:
    """The side of the square tile that a block computes.

    processors: multiprocessors of the device
    """
    # 128: eight multiply-adds for each float read from shared memory. 64: half of that, but where
    # the larger tiles leave multiprocessors idle there are four times as many.
    return 128 if -(-m // 128) * -(-n // 128) >= processors else 64


@functools.lru_cache(maxsize=1024)
def wgmma_plan(m: int, n: int, processors: int) -> WgmmaPlan:
    """The tile, and how many blocks take turns at them.

    processors: multiprocessors of the device
    """
    large_tiles = -(-m // LARGE.rows) * -(-n // LARGE.cols)
    # Half the device at the large tile's speed is what the small one reaches on all of it.
    tile = LARGE if min(m, n) > 64 and 2 * large_tiles >= processors else SMALL
    clusters = -(-m // (tile.rows * tile.cluster)) * -(-n // tile.cols)
    at_once = max(processors * tile.resident // tile.cluster, 1)
    # The fewest that need no more rounds: 128 blocks for 4096^3, not 132 of which most would wait
    # in the last round. What idles leaves its power to the others.
    rounds = -(-clusters // at_once)
    return WgmmaPlan(tile, -(-clusters // rounds) * tile.cluster)


def naive_extension(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b, one thread an entry, through the extension.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device -> [..., M, N]. Errors as reference.contract says.
    """
    given = operands(a, b, out, compiled().matmul_landing)
    if not given.empty:
        compiled().matmul_naive(given.a, given.b, given.out, naive_plan())
    return given.result(out)


def naive_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `naive_extension`, through CuPy."""
    given = operands(a, b, out)
    if not given.empty:
        threads = naive_plan()
        strides = (given.a.stride(0), *given.b.stride())
        rawmodule.launch(
            given.a,
            "matmul_naive.cuh",
            f"matmul_naive_kernel<{rawmodule.CTYPES[a.dtype]}>",
            rawmodule.grid_of(-(-given.out.numel() // threads)),
            threads,
            (
                *_pointers(given.a, given.b, given.out),
                *map(np.int64, (*given.out.shape, b.shape[0], *strides)),
            ),
        )
    return given.result(out)


def tiled_extension(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b through tiles in shared memory, on any GPU's CUDA cores, through the extension.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device -> [..., M, N]. Errors as reference.contract says.
    """
    given = operands(a, b, out, compiled().matmul_landing)
    if not given.empty:
        tile = tiled_plan(*given.out.shape, processors(a.get_device()))
        compiled().matmul_tiled(given.a, *given.stored(), given.out, tile)
    return given.result(out)


def tiled_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `tiled_extension`, through CuPy."""
    given = operands(a, b, out)
    if not given.empty:
        m, n = given.out.shape
        tile = tiled_plan(m, n, processors(a.get_device()))
        right, weight = given.stored()
        strides = (given.a.stride(0), right.stride(0))
        rawmodule.launch(
            given.a,
            "matmul_tiled.cuh",
            f"matmul_tiled_kernel<{rawmodule.CTYPES[a.dtype]}, {tile}, {str(weight).lower()}>",
            rawmodule.grid_of(-(-m // tile) * -(-n // tile)),
            256,
            (
                *_pointers(given.a, right, given.out),
                *map(np.int64, (m, n, b.shape[0], *strides)),
            ),
        )
    return given.result(out)


def wgmma_extension(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b on Hopper's tensor cores, through the extension; float32 as in `tiled_extension`.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device of compute capability 9.0 -> [..., M, N]. Errors as reference.contract says.
    """
    given = operands(a, b, out, compiled().matmul_landing)
    if not given.empty and not _suits_wgmma(given.a, given.out):
        tiled_extension(given.a, given.b, out=given.out)
    elif not given.empty:
        plan = wgmma_plan(*given.out.shape, processors(a.get_device()))
        right, weight = given.stored()
        compiled().matmul_wgmma(
            given.addressable(given.a),
            given.addressable(right),
            weight,
            given.out,
            *plan.tile[:4],
            plan.blocks,
            is_addressable(given.out),
        )
    return given.result(out)


def wgmma_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `wgmma_extension`, through CuPy."""
    given = operands(a, b, out)
    if not given.empty and not _suits_wgmma(given.a, given.out):
        tiled_rawmodule(given.a, given.b, out=given.out)
    elif not given.empty:
        from cupy.cuda.function import CPointer

        plan = wgmma_plan(*given.out.shape, processors(a.get_device()))
        tile = plan.tile
        right, weight = given.stored()
        # Named, so that padded copies and maps live until the launch has taken them.
        left, right = given.addressable(given.a), given.addressable(right)
        bulk = is_addressable(given.out)
        map_a = map_of(left, tile.rows)
        map_b = map_of(right, tile.cols // tile.cluster if weight else 64)
        # Without bulk stores the kernel doesn't look at it.
        map_out = map_of(given.out, 64) if bulk else map_a
        rawmodule.launch(
            left,
            "matmul_wgmma.cuh",
            plan.expression(a.dtype, weight),
            (plan.blocks, 1),
            tile.threads,
            (
                # CuPy gives the driver the address of an argument's bytes: CPointer is that.
                *(CPointer(map_of.ctypes.data) for map_of in (map_a, map_b, map_out)),
                given.out.data_ptr(),
                *map(np.int32, (*given.out.shape, b.shape[0], bulk)),
            ),
            tile.shared_bytes,
        )
    return given.result(out)


def _suits_wgmma(a: Tensor, out: Tensor) -> bool:
    major, minor = capability(a.get_device())
    if (major, minor) != (9, 0):
        raise ValueError(
            f"wgmma needs a GPU of compute capability 9.0 (Hopper), got {a.device} with "
            f"{major}.{minor}: the tiled variant runs on any"
        )
    # The tensor cores have no float32, and the tensor memory accelerator counts in 32 bits.
    return a.element_size() == 2 and max(*a.shape, *out.shape) < 2**30


def _pointers(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in tensors)
