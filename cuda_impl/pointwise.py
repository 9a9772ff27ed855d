"""How a pointwise op's kernels are launched: what chain and chain_sfu share.

Each op's own file chooses threads and packs; what its tensors allow is found here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cuda_impl import rawmodule
from reference.contract import check_chain, dense, landing

__all__ = ["PackedPlan", "launch_naive", "launch_packed", "plan_for", "run"]

DEVICES = ("cuda",)

# An op's packed_plan: (rows, cols, bias_packs) -> (threads, packs).
Choose = Callable[[int, int, bool], tuple[int, int]]


class PackedPlan(NamedTuple):
    """How the packed kernel walks memory; csrc/kernels/pointwise.cuh says what each means.

    threads: of a block
    packs: 16-byte packs a thread, of x and as many of residual
    vector: x, residual and out are 16-byte aligned
    bias_packs: so is bias, and no pack crosses the end of a row
    """

    threads: int
    packs: int
    vector: bool
    bias_packs: bool

    def expression(self, op: str, dtype: torch.dtype, variant: str = "packed") -> str:
        """The kernel's name with its template arguments."""
        flags = f"{self.vector}, {self.bias_packs}".lower()
        ctype = rawmodule.CTYPES[dtype]
        return f"{op}_{variant}_kernel<{ctype}, {self.threads}, {self.packs}, {flags}>"

    def blocks(self, count: int, cols: int, itemsize: int) -> int:
        """Blocks of the grid, for `count` elements in rows of `cols`."""
        size = 16 // itemsize
        if self.bias_packs:
            # By rows: `packs` of them under each thread, the last ones perhaps partly.
            packs = -(-(count // cols) // self.packs) * (cols // size)
        else:
            packs = -(-count // (self.packs * size))
        return -(-packs // self.threads)


def run(
    launch: Callable[[Tensor, Tensor, Tensor, Tensor], None],
    x: Tensor,
    residual: Tensor,
    bias: Tensor,
    out: Tensor | None,
    land: Callable[..., Tensor | None] | None = None,
) -> Tensor:
    """launch: from contiguous x, residual and bias to a contiguous tensor like x, none of them
    empty; land: the extension's chain_landing"""
    target = land(x, residual, bias, out) if land else None
    if target is not None:
        launch(x, residual, bias, target)
        return target
    check_chain(x, residual, bias, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        launch(dense(x), dense(residual), dense(bias), target)
    return target if out is None or out is target else out.copy_(target)


def plan_for(x: Tensor, residual: Tensor, bias: Tensor, out: Tensor, choose: Choose) -> PackedPlan:
    """What contiguous x, residual, out: [..., cols] and bias: [cols] allow."""
    return _plan(
        choose,
        x.numel(),
        bias.numel(),
        x.element_size(),
        (x.data_ptr() | residual.data_ptr() | out.data_ptr()) % 16 == 0,
        bias.data_ptr() % 16 == 0,
    )


@functools.lru_cache(maxsize=1024)
def _plan(
    choose: Choose, count: int, cols: int, itemsize: int, vector: bool, bias_vector: bool
) -> PackedPlan:
    # From 2^28 columns on, the kernel that goes by rows could not count within them in 32 bits.
    bias_packs = vector and bias_vector and cols * itemsize % 16 == 0 and cols < 2**28
    threads, packs = choose(count // cols, cols, bias_packs)
    return PackedPlan(threads, packs, vector, bias_packs)


def launch_naive(
    op: str, threads: int, x: Tensor, residual: Tensor, bias: Tensor, out: Tensor
) -> None:
    """The kernel `op`_naive_kernel through CuPy. x, residual, out: [..., cols]; bias: [cols]"""
    rawmodule.launch(
        x,
        f"{op}_naive.cuh",
        f"{op}_naive_kernel<{rawmodule.CTYPES[x.dtype]}>",
        rawmodule.grid_of(-(-x.numel() // threads)),
        threads,
        (*_pointers(x, residual, bias, out), np.int64(x.numel()), np.int64(bias.numel())),
    )


def launch_packed(
    op: str,
    plan: PackedPlan,
    x: Tensor,
    residual: Tensor,
    bias: Tensor,
    out: Tensor,
    variant: str = "packed",
) -> None:
    """The kernel `op`_`variant`_kernel through CuPy. x, residual, out: [..., cols]; bias: [cols]"""
    cols, itemsize = bias.numel(), x.element_size()
    rawmodule.launch(
        x,
        f"{op}_{variant}.cuh",
        plan.expression(op, x.dtype, variant),
        rawmodule.grid_of(plan.blocks(x.numel(), cols, itemsize)),
        plan.threads,
        (
            *_pointers(x, residual, bias, out),
            np.int64(x.numel()),
            np.int64(cols),
            # See Division and pointwise_flat in csrc/kernels/pointwise.cuh.
            np.uint64((2**64 - 1) // cols),
            np.int64(plan.threads * (16 // itemsize) % cols),
        ),
        prefer_l1=True,
    )


def _pointers(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in tensors)
