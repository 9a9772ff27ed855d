"""How chain and chain_sfu are launched: they differ in their steps and in nothing else."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cuda_impl import rawmodule

__all__ = ["PackedPlan", "launch_naive", "launch_packed", "naive_plan", "packed_plan"]


class PackedPlan(NamedTuple):
    """How the packed kernel walks memory; csrc/kernels/pointwise.cuh says what each means.

    threads: of a block
    packs: 16-byte packs a thread, of x and as many of residual
    vector: x, residual and out are 16-byte aligned
    bias_packs: so is bias, and no pack crosses the end of a row
    reciprocal: of cols, for a remainder without a division
    stride: elements from one of a thread's packs to its next, modulo cols
    """

    threads: int
    packs: int
    vector: bool
    bias_packs: bool
    reciprocal: int
    stride: int

    def expression(self, op: str, dtype: torch.dtype) -> str:
        """The kernel's name with its template arguments."""
        flags = f"{self.vector}, {self.bias_packs}".lower()
        ctype = rawmodule.CTYPES[dtype]
        return f"{op}_packed_kernel<{ctype}, {self.threads}, {self.packs}, {flags}>"

    def blocks(self, count: int, cols: int, itemsize: int) -> int:
        """Blocks of the grid, for `count` elements in rows of `cols`."""
        size = 16 // itemsize
        if self.bias_packs:
            # By rows: `packs` of them under each thread, the last ones perhaps partly.
            packs = -(-(count // cols) // self.packs) * (cols // size)
        else:
            packs = -(-count // (self.packs * size))
        return -(-packs // self.threads)


def naive_plan() -> int:
    """Threads a block, one thread an element."""
    return 256


def packed_plan(x: Tensor, residual: Tensor, bias: Tensor, out: Tensor) -> PackedPlan:
    """The launch for contiguous x, residual, out: [..., cols] and bias: [cols].

    64 registers a thread let 1024 threads fit an SM; 2 packs each of x and residual keep 64 KB in
    flight between them, and 32 KB would hide the latency.
    """
    threads = 256
    cols, itemsize = bias.numel(), x.element_size()
    vector = (x.data_ptr() | residual.data_ptr() | out.data_ptr()) % 16 == 0
    bias_packs = vector and (bias.data_ptr() | cols * itemsize) % 16 == 0
    if not bias_packs:
        # A pack of bias for each pack of x: more of them would not fit the registers.
        packs = 2
    elif x.numel() < 2**22:
        # A device that isn't full: more blocks, so that every SM has some.
        packs = 1
    else:
        # Four rows share what is computed from one pack of bias.
        packs = 4
    return PackedPlan(
        threads,
        packs,
        vector,
        bias_packs,
        (2**64 - 1) // cols,
        threads * (16 // itemsize) % cols,
    )


def launch_naive(op: str, x: Tensor, residual: Tensor, bias: Tensor, out: Tensor) -> None:
    """The kernel `op`_naive_kernel through CuPy. x, residual, out: [..., cols]; bias: [cols]"""
    threads = naive_plan()
    rawmodule.launch(
        x,
        f"{op}_naive.cuh",
        f"{op}_naive_kernel<{rawmodule.CTYPES[x.dtype]}>",
        rawmodule.grid_of(-(-x.numel() // threads)),
        threads,
        (*_pointers(x, residual, bias, out), np.int64(x.numel()), np.int64(bias.numel())),
    )


def launch_packed(op: str, x: Tensor, residual: Tensor, bias: Tensor, out: Tensor) -> None:
    """The kernel `op`_packed_kernel through CuPy. x, residual, out: [..., cols]; bias: [cols]"""
    plan = packed_plan(x, residual, bias, out)
    rawmodule.launch(
        x,
        f"{op}_packed.cuh",
        plan.expression(op, x.dtype),
        rawmodule.grid_of(plan.blocks(x.numel(), bias.numel(), x.element_size())),
        plan.threads,
        (
            *_pointers(x, residual, bias, out),
            np.int64(x.numel()),
            np.int64(bias.numel()),
            np.uint64(plan.reciprocal),
            np.int64(plan.stride),
        ),
    )


def _pointers(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in tensors)
