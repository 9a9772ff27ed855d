"""matmul in CUDA C++: csrc/ through the extension and through CuPy, with one launch choice.

Formula: out[m, n] = sum over k of a[m, k] b[k, n], summed in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cuda_impl import rawmodule
from cuda_impl.extension import compiled
from cuda_impl.tensor_map import tensor_map
from reference.contract import check_matmul, landing

__all__ = [
    "naive_extension",
    "naive_rawmodule",
    "tiled_extension",
    "tiled_rawmodule",
    "wgmma_extension",
    "wgmma_rawmodule",
]

DEVICES = ("cuda",)


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
    tile = LARGE if m > 64 and 2 * large_tiles >= processors else SMALL
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
    return _matmul(a, b, out, _naive_extension)


def naive_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `naive_extension`, through CuPy."""
    return _matmul(a, b, out, _naive_rawmodule)


def tiled_extension(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b through tiles in shared memory, on any GPU's CUDA cores, through the extension.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device -> [..., M, N]. Errors as reference.contract says.
    """
    return _matmul(a, b, out, _tiled_extension)


def tiled_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `tiled_extension`, through CuPy."""
    return _matmul(a, b, out, _tiled_rawmodule)


def wgmma_extension(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b on Hopper's tensor cores, through the extension; float32 as in `tiled_extension`.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device of compute capability 9.0 -> [..., M, N]. Errors as reference.contract says.
    """
    return _matmul(a, b, out, _wgmma_extension)


def wgmma_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `wgmma_extension`, through CuPy."""
    return _matmul(a, b, out, _wgmma_rawmodule)


def _matmul(
    a: Tensor, b: Tensor, out: Tensor | None, launch: Callable[[Tensor, Tensor, Tensor], None]
) -> Tensor:
    """launch: gets a: [M, K] with neighbours along K, b: [K, N] and out: [M, N], none empty."""
    check_matmul(a, b, out, DEVICES)
    k, n = b.shape
    target = landing(out, (*a.shape[:-1], n), a)
    if target.numel() and k:
        # Through one dimension: [1, N] may have any stride, and is to have N.
        rows = target.view(-1).view(-1, n)
        launch(_by_rows(a.resolve_neg().reshape(-1, k)), b.resolve_neg(), rows)
    else:
        target.zero_()
    return target if out is None or out is target else out.copy_(target)


def _naive_extension(a: Tensor, b: Tensor, out: Tensor) -> None:
    compiled().matmul_naive(a, b, out, naive_plan())


def _naive_rawmodule(a: Tensor, b: Tensor, out: Tensor) -> None:
    threads = naive_plan()
    rawmodule.launch(
        a,
        "matmul_naive.cuh",
        f"matmul_naive_kernel<{rawmodule.CTYPES[a.dtype]}>",
        rawmodule.grid_of(-(-out.numel() // threads)),
        threads,
        (*_pointers(a, b, out), *_sizes(a, out, np.int64), *_int64s(a.stride(0), *b.stride())),
    )


def _tiled_extension(a: Tensor, b: Tensor, out: Tensor) -> None:
    stored, weight = _stored(b)
    compiled().matmul_tiled(a, _unstored(stored, weight), out, weight, _tile_for(out))


def _tiled_rawmodule(a: Tensor, b: Tensor, out: Tensor) -> None:
    stored, weight = _stored(b)
    tile = _tile_for(out)
    m, n = out.shape
    rawmodule.launch(
        a,
        "matmul_tiled.cuh",
        f"matmul_tiled_kernel<{rawmodule.CTYPES[a.dtype]}, {tile}, {str(weight).lower()}>",
        rawmodule.grid_of(-(-m // tile) * -(-n // tile)),
        256,
        (
            *_pointers(a, stored, out),
            *_sizes(a, out, np.int64),
            *_int64s(a.stride(0), stored.stride(0)),
        ),
    )


def _wgmma_extension(a: Tensor, b: Tensor, out: Tensor) -> None:
    if not _suits_wgmma(a, out):
        return _tiled_extension(a, b, out)
    stored, weight = _stored(b)
    a, stored = _addressable(a), _addressable(stored)
    plan = wgmma_plan(*out.shape, _processors(out.device))
    tile = plan.tile
    compiled().matmul_wgmma(
        a,
        _unstored(stored, weight),
        out,
        weight,
        tile.rows,
        tile.cols,
        tile.stages,
        tile.cluster,
        plan.blocks,
        _is_addressable(out),
    )


def _wgmma_rawmodule(a: Tensor, b: Tensor, out: Tensor) -> None:
    from cupy.cuda.function import CPointer

    if not _suits_wgmma(a, out):
        return _tiled_rawmodule(a, b, out)
    stored, weight = _stored(b)
    a, stored = _addressable(a), _addressable(stored)
    plan = wgmma_plan(*out.shape, _processors(out.device))
    tile = plan.tile
    bulk = _is_addressable(out)
    map_a = _map_of(a, tile.rows)
    maps = (
        map_a,
        _map_of(stored, tile.cols // tile.cluster if weight else 64),
        # The kernel looks at it only where it can be used.
        _map_of(out, 64) if bulk else map_a,
    )
    rawmodule.launch(
        a,
        "matmul_wgmma.cuh",
        plan.expression(a.dtype, weight),
        (plan.blocks, 1),
        tile.threads,
        # CuPy hands the driver the address of each argument's bytes; CPointer is that address.
        (
            *(CPointer(map_of.ctypes.data) for map_of in maps),
            out.data_ptr(),
            *_sizes(a, out, np.int32),
            np.int32(bulk),
        ),
        tile.shared_bytes,
    )


def _by_rows(x: Tensor) -> Tensor:
    """x: [rows, cols] -> the same with neighbours along cols, copied only where they are not."""
    if x.shape[1] > 1 and x.stride(1) != 1:
        x = x.contiguous()
    # The stride of a dimension of size 1 may be anything; the kernels are told a plain one.
    row = x.stride(0) if x.shape[0] > 1 else -(-x.shape[1] // 8) * 8
    return x if x.stride() == (row, 1) else x.as_strided(x.shape, (row, 1))


def _stored(b: Tensor) -> tuple[Tensor, bool]:
    """b: [K, N] -> (what is stored, by rows; whether that is a weight [N, K])."""
    k, n = b.shape
    weight = b.stride(0) == 1 and (n == 1 or b.stride(1) >= k)
    return _by_rows(b.t() if weight else b), weight


def _unstored(stored: Tensor, weight: bool) -> Tensor:
    return stored.t() if weight else stored


def _tile_for(out: Tensor) -> int:
    return tiled_plan(*out.shape, _processors(out.device))


def _suits_wgmma(a: Tensor, out: Tensor) -> bool:
    major, minor = _capability(a.device)
    if (major, minor) != (9, 0):
        raise ValueError(
            f"wgmma needs a GPU of compute capability 9.0 (Hopper), got {a.device} with "
            f"{major}.{minor}: the tiled variant runs on any"
        )
    # The tensor cores have no float32, and the tensor memory accelerator counts in 32 bits.
    return a.element_size() == 2 and max(*a.shape, *out.shape) < 2**30


def _is_addressable(x: Tensor) -> bool:
    """Whether x: [rows, cols], by rows, starts and goes on at multiples of 16 bytes."""
    row = x.stride(0)
    return x.data_ptr() % 16 == 0 and row * x.element_size() % 16 == 0 and row >= x.shape[1]


def _addressable(x: Tensor) -> Tensor:
    """x, or a copy of it with padded rows. The copy reads and writes x once; the kernel that needs
    no such alignment would take twenty times as long as the tensor cores."""
    if _is_addressable(x):
        return x
    rows, cols = x.shape
    return x.new_empty(rows, -(-cols // 8) * 8)[:, :cols].copy_(x)


def _map_of(x: Tensor, box_rows: int) -> np.ndarray:
    return tensor_map(x.data_ptr(), x.dtype, *x.shape, x.stride(0), box_rows)


def _pointers(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in tensors)


def _sizes(a: Tensor, out: Tensor, width: type[np.integer]) -> tuple[np.integer, ...]:
    """M, N, K."""
    return width(out.shape[0]), width(out.shape[1]), width(a.shape[1])


def _int64s(*numbers: int) -> tuple[np.int64, ...]:
    return tuple(map(np.int64, numbers))


@functools.cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
