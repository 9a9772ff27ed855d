"""softmax in CUDA C++: csrc/ through the extension and through CuPy, with one launch choice.

Formula: exp(x - max) / sum(exp(x - max)) over the last dimension, in float32 inside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from torch import Tensor

from cuda_impl import rawmodule
from cuda_impl.device import capability, processors
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

    def launch(source: Tensor, target: Tensor) -> None:
        compiled().softmax_naive(source, target, naive_plan())

    return _run(launch, x, out, compiled().softmax_landing)


def naive_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `naive_extension`, through CuPy."""

    def launch(source: Tensor, target: Tensor) -> None:
        threads = naive_plan()
        expression = f"softmax_naive_kernel<{rawmodule.CTYPES[x.dtype]}>"
        blocks = -(-_rows(source) // threads)
        _launch(source, target, "softmax_naive.cuh", expression, blocks, threads)

    return _run(launch, x, out)


def block_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension, one block a row and three reads, through the extension.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """

    def launch(source: Tensor, target: Tensor) -> None:
        compiled().softmax_block(source, target, block_plan())

    return _run(launch, x, out, compiled().softmax_landing)


def block_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `block_extension`, through CuPy."""

    def launch(source: Tensor, target: Tensor) -> None:
        threads = block_plan()
        expression = f"softmax_block_kernel<{rawmodule.CTYPES[x.dtype]}, {threads}>"
        _launch(source, target, "softmax_block.cuh", expression, _rows(source), threads)

    return _run(launch, x, out)


def online_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension, one block a row and two reads, through the extension.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """

    def launch(source: Tensor, target: Tensor) -> None:
        compiled().softmax_online(source, target, online_plan())

    return _run(launch, x, out, compiled().softmax_landing)


def online_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `online_extension`, through CuPy."""

    def launch(source: Tensor, target: Tensor) -> None:
        threads = online_plan()
        expression = f"softmax_online_kernel<{rawmodule.CTYPES[x.dtype]}, {threads}>"
        _launch(source, target, "softmax_online.cuh", expression, _rows(source), threads)

    return _run(launch, x, out)


def registers_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension with one read and one write, through the extension.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """

    def launch(source: Tensor, target: Tensor) -> None:
        compiled().softmax_registers(source, target, *_registers_plan(source, target))

    return _run(launch, x, out, compiled().softmax_landing)


def registers_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernels as `registers_extension`, through CuPy."""

    def launch(source: Tensor, target: Tensor) -> None:
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

    return _run(launch, x, out)


def _run(
    launch: Callable[[Tensor, Tensor], None],
    x: Tensor,
    out: Tensor | None,
    land: Callable[..., Tensor | None] | None = None,
) -> Tensor:
    """launch: from contiguous x to a contiguous tensor of its shape, neither of them empty
    land: the extension's softmax_landing"""
    target = land(x, out) if land else None
    if target is not None:
        launch(x, target)
        return target
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        launch(dense(x), target)
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
    cols, itemsize = source.size(-1), source.element_size()
    whole = (source.data_ptr() | target.data_ptr() | cols * itemsize) % 16 == 0
    return _plan(source.numel() // cols, cols, itemsize, whole, source.get_device())


@functools.lru_cache(maxsize=1024)
def _plan(rows: int, cols: int, itemsize: int, whole: bool, device: int) -> RowPlan:
    major, _ = capability(device)
    # Eight blocks a cluster are portable; sixteen are had by asking, on GPUs of data centres.
    most_blocks = 1 if major < 9 else 16 if major < 12 else 8
    return registers_plan(
        rows, cols, itemsize, whole, processors=processors(device), most_blocks=most_blocks
    )
