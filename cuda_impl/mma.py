"""matmul in CUDA C++ on the tensor cores of any GPU from sm_80 on: `mma`.

It takes 16-bit operands whose rows start at multiples of 16 bytes. What it doesn't take goes to
`tiled` of cuda_impl/matmul.py.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cuda_impl import matmul, rawmodule
from cuda_impl.device import processors
from cuda_impl.extension import compiled
from cuda_impl.matrices import Operands, operands

__all__ = ["mma_extension", "mma_rawmodule"]


class MmaPlan(NamedTuple):
    """How the mma kernel shares out the output; csrc/kernels/matmul_mma.cuh.

    rows, cols: of the output, a block
    depth: steps of k in a stage; stages: of the ring
    warps_m, warps_n: of a block, that share out its rows and its columns
    resident: blocks that fit a multiprocessor
    """

    rows: int
    cols: int
    depth: int
    stages: int
    warps_m: int
    warps_n: int
    resident: int

    @property
    def threads(self) -> int:
        return 32 * self.warps_m * self.warps_n

    @property
    def shared_bytes(self) -> int:
        """Stages, whose place the output then takes: MmaShared::kBytes."""
        ring = self.stages * (self.rows + self.cols) * self.depth * 2
        return max(ring, self.rows * self.cols * 2)

    @property
    def lines(self) -> int:
        """Rows of either operand that pass to or from shared memory for a step of k: each once to
        it, then those of every warp."""
        warps = self.rows * self.warps_n + self.cols * self.warps_m
        return self.rows + self.cols + warps

    def tiles(self, m: int, n: int) -> int:
        """Of an output [m, n], a block each."""
        return -(-m // self.rows) * -(-n // self.cols)

    def expression(self, dtype: torch.dtype, weight: bool) -> str:
        """The kernel's name with its template arguments."""
        arguments = f"{', '.join(map(str, self))}, {str(weight).lower()}"
        return f"matmul_mma_kernel<{rawmodule.CTYPES[dtype]}, {arguments}>"


MMA_PLANS = (
    # Warps of 64 x 64, the most whose sums and two sets of fragments fit 255 registers.
    MmaPlan(128, 256, depth=32, stages=4, warps_m=2, warps_n=4, resident=1),
    # The same warps, of two blocks: half as large tiles, and more bytes from L2.
    MmaPlan(128, 128, depth=32, stages=4, warps_m=2, warps_n=2, resident=2),
    # For outputs of few tiles: warps of 32 x 32 read twice as much.
    MmaPlan(64, 64, depth=64, stages=4, warps_m=2, warps_n=2, resident=3),
)


@functools.lru_cache(maxsize=1024)
def mma_plan(m: int, n: int, processors: int) -> MmaPlan:
    """The tile that a block computes.

    processors: multiprocessors of the device
    """

    # Shared memory is what limits the kernel: what passes through that of the multiprocessor with
    # the most tiles. Of equals, the one that leaves fewer without any.
    def busiest(plan: MmaPlan) -> tuple[int, int]:
        tiles = plan.tiles(m, n)
        return -(-tiles // processors) * plan.lines, -tiles

    return min(MMA_PLANS, key=busiest)


def mma_extension(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b on the tensor cores, through the extension; float32 and rows that don't start at
    multiples of 16 bytes as in `tiled`.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device -> [..., M, N]. Errors as reference.contract says.
    """
    given = operands(a, b, out, compiled().matmul_landing)
    if not given.empty:
        right, weight = given.stored()
        if _suits_mma(given, right):
            plan = mma_plan(*given.out.shape, processors(a.get_device()))
            compiled().matmul_mma(given.a, right, weight, given.out, *plan)
        else:
            matmul.tiled_extension(given.a, given.b, out=given.out)
    return given.result(out)


def mma_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `mma_extension`, through CuPy."""
    given = operands(a, b, out)
    if not given.empty:
        right, weight = given.stored()
        if _suits_mma(given, right):
            m, n = given.out.shape
            plan = mma_plan(m, n, processors(a.get_device()))
            rawmodule.launch(
                given.a,
                "matmul_mma.cuh",
                plan.expression(a.dtype, weight),
                rawmodule.grid_of(plan.tiles(m, n)),
                plan.threads,
                (
                    *(tensor.data_ptr() for tensor in (given.a, right, given.out)),
                    *map(np.int64, (m, n, b.shape[0], given.a.stride(0), right.stride(0))),
                ),
                plan.shared_bytes,
            )
        else:
            matmul.tiled_rawmodule(given.a, given.b, out=given.out)
    return given.result(out)


def _suits_mma(given: Operands, right: Tensor) -> bool:
    """right: what is stored of b"""
    # The tensor cores have no float32. A copy is made of 16 bytes or, where a row ends, of a part.
    addressable = given.is_addressable(given.a) and given.is_addressable(right)
    return given.a.element_size() == 2 and addressable
