"""matmul of one to four rows in CUDA C++, without tensor cores: `gemv`.

It takes a weight, b stored [N, K], in 16 bits, and is bound by the time that its bytes take. What
it doesn't take goes to the variants of cuda_impl/matmul.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cuda_impl import matmul, rawmodule
from cuda_impl.device import is_hopper
from cuda_impl.extension import compiled
from cuda_impl.matrices import Operands, laid_out, operands

__all__ = ["gemv_extension", "gemv_rawmodule"]

# Rows of the weight that a block takes: kGemvRows in csrc/kernels/matmul_gemv.cuh.
ROWS = 4


class GemvPlan(NamedTuple):
    """How the gemv kernel is launched.

    threads: of a block, which share out k
    batch: rows of a that it has registers for
    """

    threads: int
    batch: int

    def expression(self, dtype: torch.dtype, vector: bool) -> str:
        """The kernel's name with its template arguments."""
        numbers = f"{self.threads}, {self.batch}, {str(vector).lower()}"
        return f"matmul_gemv_kernel<{rawmodule.CTYPES[dtype]}, {numbers}>"


def gemv_plan(m: int, n: int, k: int) -> GemvPlan | None:
    """How to multiply m rows by a weight [n, k]; None for what the kernel doesn't take."""
    if m > 4 or k >= 2**30 or n >= ROWS * (2**31 - 1):
        return None
    # 256 threads have 4096 steps of k on their way, 64 have 1024: of shorter rows most threads
    # would have nothing.
    return GemvPlan(256 if k > 1024 else 64, m if m < 3 else 4)


def gemv_extension(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b for one to four rows of a and a 16-bit weight, through the extension. Others as in
    `wgmma`, or in `tiled` where the GPU is no Hopper.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device -> [..., M, N]. Errors as reference.contract says.
    """
    given = operands(a, b, out, compiled().matmul_landing)
    if not given.empty:
        plan = _plan(given)
        if plan is None:
            hopper = is_hopper(given.a.get_device())
            others = matmul.wgmma_extension if hopper else matmul.tiled_extension
            others(given.a, given.b, out=given.out)
        else:
            left, right, vector = laid_out(given)
            compiled().matmul_gemv(left, right, given.out, *plan, vector)
    return given.result(out)


def gemv_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `gemv_extension`, through CuPy."""
    given = operands(a, b, out)
    if not given.empty:
        plan = _plan(given)
        if plan is None:
            hopper = is_hopper(given.a.get_device())
            others = matmul.wgmma_rawmodule if hopper else matmul.tiled_rawmodule
            others(given.a, given.b, out=given.out)
        else:
            _launch_rawmodule(given, plan)
    return given.result(out)


def _plan(given: Operands) -> GemvPlan | None:
    if given.a.element_size() != 2 or not given.is_weight():
        return None
    return gemv_plan(*given.out.shape, given.a.shape[1])


def _launch_rawmodule(given: Operands, plan: GemvPlan) -> None:
    # Named, so that a padded copy lives until the launch has taken it.
    left, right, vector = laid_out(given)
    m, n = given.out.shape
    rawmodule.launch(
        left,
        "matmul_gemv.cuh",
        plan.expression(left.dtype, vector),
        (-(-n // ROWS), 1),
        plan.threads,
        (
            *(tensor.data_ptr() for tensor in (left, right, given.out)),
            *(np.int32(m), np.int64(n), np.int32(left.shape[1])),
            *map(np.int64, (left.stride(0), right.stride(0))),
        ),
    )
