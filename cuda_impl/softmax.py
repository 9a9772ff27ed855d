"""softmax in CUDA C++: csrc/ through the extension and through CuPy, with one launch choice.

Formula: exp(x - max) / sum(exp(x - max)) over the last dimension, in float32 inside.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from cuda_impl import rawmodule
from cuda_impl.clusters import clusters_at_once
from cuda_impl.device import capability, is_hopper, processors
from cuda_impl.extension import compiled
from cuda_impl.softmax_plan import (
    LINE,
    RowPlan,
    StreamedPlan,
    block_plan,
    naive_plan,
    online_plan,
    registers_plan,
    streamed_plan,
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
    "streamed_extension",
    "streamed_rawmodule",
]

DEVICES = ("cuda",)


def naive_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension, one thread a row, through the extension.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """

    def launch(source: Tensor, target: Tensor) -> None:
        compiled().softmax_naive(source, target, naive_plan())

    return _run(launch, x, out)


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

    return _run(launch, x, out)


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

    return _run(launch, x, out)


def online_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `online_extension`, through CuPy."""

    def launch(source: Tensor, target: Tensor) -> None:
        threads = online_plan()
        expression = f"softmax_online_kernel<{rawmodule.CTYPES[x.dtype]}, {threads}>"
        _launch(source, target, "softmax_online.cuh", expression, _rows(source), threads)

    return _run(launch, x, out)


def registers_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension, with one read and one write, through the extension.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """

    def launch(source: Tensor, target: Tensor) -> None:
        compiled().softmax_registers(source, target, *_registers_plan(*_layout(source, target)))

    return _run(launch, x, out)


def registers_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernels as `registers_extension`, through CuPy."""

    def launch(source: Tensor, target: Tensor) -> None:
        _launch_registers(source, target, _registers_plan(*_layout(source, target)))

    return _run(launch, x, out)


def streamed_extension(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension, long rows while the next ones arrive, through the extension.

    Other rows, and other devices than Hopper, as in `registers_extension`.

    x: [..., cols] float32, float16 or bfloat16 on a CUDA device -> like x. Errors as
    reference.contract says.
    """

    def launch(source: Tensor, target: Tensor) -> None:
        plan = _streamed_plan(*_layout(source, target))
        if isinstance(plan, RowPlan):
            compiled().softmax_registers(source, target, *plan)
        else:
            compiled().softmax_streamed(source, target, *plan)

    return _run(launch, x, out)


def streamed_rawmodule(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `streamed_extension`, through CuPy; other rows as in
    `registers_rawmodule`."""

    def launch(source: Tensor, target: Tensor) -> None:
        plan = _streamed_plan(*_layout(source, target))
        if isinstance(plan, RowPlan):
            _launch_registers(source, target, plan)
        else:
            _launch_streamed(source, target, plan)

    return _run(launch, x, out)


def _run(launch: Callable[[Tensor, Tensor], None], x: Tensor, out: Tensor | None) -> Tensor:
    """launch: from contiguous x to a contiguous tensor of its shape, neither of them empty"""
    check_softmax(x, out, DEVICES)
    target = landing(out, x.shape, x)
    if x.numel():
        launch(dense(x), target)
    return target if out is None or out is target else out.copy_(target)


def _launch_registers(source: Tensor, target: Tensor, plan: RowPlan) -> None:
    _launch(
        source,
        target,
        "softmax_registers.cuh",
        plan.expression(source.dtype),
        plan.blocks(_rows(source)),
        plan.block,
        # Only the online kernel takes rows of more than 2^31 elements.
        width=np.int32 if plan.elements else np.int64,
    )


def _launch_streamed(source: Tensor, target: Tensor, plan: StreamedPlan) -> None:
    rows = _rows(source)

    def grid(kernel: Any) -> tuple[int, int]:
        clusters = clusters_at_once(
            kernel.kernel.ptr, plan.cluster, plan.threads, plan.shared_bytes
        )
        return min(rows, clusters) * plan.cluster, 1

    rawmodule.launch(
        source,
        "softmax_streamed.cuh",
        plan.expression(source.dtype),
        grid,
        plan.threads,
        (source.data_ptr(), target.data_ptr(), np.int64(rows), np.int32(source.shape[-1])),
        plan.shared_bytes,
        prefer_shared=True,
    )


def _launch(
    source: Tensor,
    target: Tensor,
    header: str,
    expression: str,
    blocks: int,
    threads: int,
    *,
    width: type[np.int32] | type[np.int64] = np.int64,
) -> None:
    """width: of the number of columns, as the kernel declares it"""
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
    )


def _rows(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


def _layout(source: Tensor, target: Tensor) -> tuple[int, int, int, int, int, int]:
    """All that a plan depends on: rows, columns, bytes an element, where in a line source and
    target start, the device."""
    cols = source.size(-1)
    return (
        source.numel() // cols,
        cols,
        source.element_size(),
        source.data_ptr() % LINE,
        target.data_ptr() % LINE,
        source.get_device(),
    )


@functools.lru_cache(maxsize=1024)
def _registers_plan(
    rows: int, cols: int, itemsize: int, here: int, there: int, device: int
) -> RowPlan:
    return registers_plan(
        rows,
        cols,
        itemsize,
        (here | there | cols * itemsize) % 16 == 0,
        processors=processors(device),
        clusters=capability(device) >= (9, 0),
    )


@functools.lru_cache(maxsize=1024)
def _streamed_plan(
    rows: int, cols: int, itemsize: int, here: int, there: int, device: int
) -> StreamedPlan | RowPlan:
    plan = None
    # The kernel is Hopper's, and moves the same 16 bytes of both.
    if (here ^ there) % 16 == 0 and is_hopper(device):
        boundary = math.gcd(here | there | cols * itemsize, LINE)
        plan = streamed_plan(rows, cols, itemsize, boundary, processors=processors(device))
    return plan or _registers_plan(rows, cols, itemsize, here, there, device)
