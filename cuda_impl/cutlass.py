"""matmul from CUTLASS, NVIDIA's templates for such kernels: csrc/matmul_cutlass.cu.

What it doesn't take goes to the library's other call, torch.matmul.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from cuda_impl.extension import compiled_cutlass
from cuda_impl.matrices import addressable, is_addressable, operands, stored
from reference.matmul import eager

__all__ = ["SWIZZLE", "cutlass"]

# Rows of tiles that are computed at a time, at most: CUTLASS's default of 1 walks along whole rows
# of tiles, between which a large b has left the cache. 8 is what wgmma has too.
SWIZZLE = 8


def cutlass(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b by a kernel of CUTLASS's; float32, K or N that are no multiples of 8 and an out that
    starts between multiples of 16 bytes by torch.matmul.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device of compute capability 9.0 -> [..., M, N]. Errors as reference.contract says; RuntimeError
    with CUTLASS's own word for what it can't do.
    """
    given = operands(a, b, out)
    if not given.empty and not _suits_cutlass(given.a, given.out):
        eager(given.a, given.b, out=given.out)
    elif not given.empty:
        right, weight = stored(given.b)
        compiled_cutlass().matmul_cutlass(
            addressable(given.a), addressable(right), weight, given.out, SWIZZLE
        )
    return given.result(out)


def _suits_cutlass(a: Tensor, out: Tensor) -> bool:
    """a: [M, K], by rows; out: [M, N], contiguous"""
    major, minor = _capability(a.device)
    if (major, minor) != (9, 0):
        raise ValueError(
            f"CUTLASS's kernel needs a GPU of compute capability 9.0 (Hopper), got {a.device} with "
            f"{major}.{minor}: torch.matmul runs on any"
        )
    # CUTLASS asks for sizes in whole packs of 16 bytes even where rows lie further apart: K, and N
    # for rows of out. Operands that start elsewhere are copied; out isn't.
    in_packs = a.shape[1] % 8 == 0 and out.shape[1] % 8 == 0 and is_addressable(out)
    return a.element_size() == 2 and in_packs and max(*a.shape, *out.shape) < 2**30


@functools.cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
