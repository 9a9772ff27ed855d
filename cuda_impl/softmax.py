"""softmax in CUDA C++: csrc/ through the extension and through CuPy, with one launch choice.

Formula: exp(x - max) / sum(exp(x - max)) over the last dimension, in float32 inside.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from cuda_impl import rawmodule
from cuda_impl.extension import compiled
from cuda_impl.softmax_plan import (
    RowPlan,
    block_plan,
    naive_plan,
    online_plan,
    registers_plan,
)
from reference.contract import check_softmax, dense, landing

__all__ = [
    "block_extension",
    "block_rawmodule",
    "naive_extension",
    "naive_rawmodule",
    "online_extension",
    "online_rawmodule",
    "registers_extension",
    "registers_rawmodule",
]

DEVICES = ("cuda",)


def naive_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension, one thread a row, through the extension.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        cols = x.shape[-1]
        compiled().softmax_naive(dense(x).view(-1, cols), target.view(-1, cols), naive_plan())
    return target if out is None or out is target else out.copy_(target)


def naive_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `naive_extension`, through CuPy."""
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        threads = naive_plan()
        expression = f"softmax_naive_kernel<{rawmodule.CTYPES[x.dtype]}>"
        blocks = -(-_rows(x) // threads)
        _launch(dense(x), target, "softmax_naive.cuh", expression, blocks, threads)
    return target if out is None or out is target else out.copy_(target)


def block_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension, one block a row and three reads, through the extension.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        cols = x.shape[-1]
        compiled().softmax_block(dense(x).view(-1, cols), target.view(-1, cols), block_plan())
    return target if out is None or out is target else out.copy_(target)


def block_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `block_extension`, through CuPy."""
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        threads = block_plan()
        expression = f"softmax_block_kernel<{rawmodule.CTYPES[x.dtype]}, {threads}>"
        _launch(dense(x), target, "softmax_block.cuh", expression, _rows(x), threads)
    return target if out is None or out is target else out.copy_(target)


def online_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension, one block a row and two reads, through the extension.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        cols = x.shape[-1]
        compiled().softmax_online(dense(x).view(-1, cols), target.view(-1, cols), online_plan())
    return target if out is None or out is target else out.copy_(target)


def online_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `online_extension`, through CuPy."""
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        threads = online_plan()
        expression = f"softmax_online_kernel<{rawmodule.CTYPES[x.dtype]}, {threads}>"
        _launch(dense(x), target, "softmax_online.cuh", expression, _rows(x), threads)
    return target if out is None or out is target else out.copy_(target)


def registers_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension with one read and one write, through the extension.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        cols = x.shape[-1]
        source = dense(x)
        plan = _registers_plan(source, target)
        compiled().softmax_registers(source.view(-1, cols), target.view(-1, cols), *plan)
    return target if out is None or out is target else out.copy_(target)


def registers_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernels as `registers_extension`, through CuPy."""
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        source = dense(x)
        plan = _registers_plan(source, target)
        _launch(
            source,
            target,
            "softmax_registers.cuh",
            plan.expression(source.dtype),
            plan.blocks(_rows(source)),
            plan.block,
            # Only the online kernel takes rows of more than 2^31 elements.
            width=np.int32 if plan.elements else np.int64,
            cluster=plan.cluster,
        )
    return target if out is None or out is target else out.copy_(target)


def _launch(
    source: Tensor,
    target: Tensor,
    header: str,
    expression: str,
    blocks: int,
    threads: int,
    *,
    width: type[np.int32] | type[np.int64] = np.int64,
    cluster: int = 1,
) -> None:
    """width: of the number of columns, as the kernel declares it; cluster: its blocks"""
    rawmodule.launch(
        source,
        header,
        expression,
        rawmodule.grid_of(blocks),
        threads,
        (
            source.data_ptr(),
            target.data_ptr(),
            np.int64(_rows(source)),
            width(source.shape[-1]),
        ),
        prefer_l1=True,
        cluster=cluster,
    )


def _rows(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


def _registers_plan(source: Tensor, target: Tensor) -> RowPlan:
    return registers_plan(
        _rows(source),
        source.shape[-1],
        source.element_size(),
        _whole(source, target),
        processors=_processors(source.device),
        most_blocks=_most_blocks(source.device),
    )


def _whole(source: Tensor, target: Tensor) -> bool:
    ends = source.data_ptr() | target.data_ptr() | source.shape[-1] * source.element_size()
    return ends % 16 == 0


@functools.cache
def _most_blocks(device: torch.device) -> int:
    """Of a cluster. Eight is portable; sixteen are had by asking, on GPUs of data centres."""
    major, _ = torch.cuda.get_device_capability(device)
    return 1 if major < 9 else 16 if major < 12 else 8


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
