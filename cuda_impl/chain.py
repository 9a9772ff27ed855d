"""chain in CUDA C++: csrc/ through the extension and through CuPy, with one launch choice.

The forty steps: reference/chain.py; here: csrc/kernels/chain_*.cuh, in float32 inside.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cuda_impl import pointwise, rawmodule
from cuda_impl.device import processors
from cuda_impl.extension import compiled

__all__ = [
    "naive_extension",
    "naive_rawmodule",
    "packed_extension",
    "packed_rawmodule",
    "streamed_extension",
    "streamed_rawmodule",
]


def naive_plan() -> int:
    """Threads a block, one thread an element."""
    return 256


def packed_plan(rows: int, cols: int, bias_packs: bool) -> tuple[int, int]:
    """(threads a block, packs a thread) for x: [rows, cols].

    bias_packs: rows of whole packs, so that a thread's packs can share one of bias
    """
    # Without them a pack of bias for each of x: more would not fit the registers. With them four
    # rows share what is computed from one pack of bias, which is the fewest instructions, 33 an
    # element: 1.02 of a copy at 2^28 on an H200. At 2^24 that makes 3.9 waves of blocks, and the
    # last one counts, 0.95; half as much a thread reaches 0.97 there.
    if bias_packs and rows == 1:
        return 128, 1  # packs lie below one another, and would all be the one row's
    return 128, 4 if bias_packs and rows * cols >= 2**26 else 2


class StreamPlan(NamedTuple):
    """How the streamed kernel is launched; csrc/kernels/chain_streamed.cuh.

    threads: of a block
    depth: rows of a thread that are on their way or computed, 32 bytes of shared memory each
    resident: threads an SM that registers are left for
    groups: blocks that share out the rows
    """

    threads: int
    depth: int
    resident: int
    groups: int

    def expression(self, dtype: torch.dtype) -> str:
        """The kernel's name with its template arguments."""
        ctype = rawmodule.CTYPES[dtype]
        return f"chain_streamed_kernel<{ctype}, {self.threads}, {self.depth}, {self.resident}>"


@functools.lru_cache(maxsize=1024)
def streamed_plan(rows: int, packs: int, processors: int) -> StreamPlan | None:
    """For rows of `packs` whole, aligned packs; None where the packed kernel is to be taken.

    processors: multiprocessors of the device
    """
    # 40 KB an SM for each row of depth: three on their way, where 40 KB would hide the latency.
    threads, depth, resident = 128, 4, 1280
    chunks = -(-packs // threads)
    # More than an eighth of the threads beyond the last column, or too few rows to walk down.
    if 8 * packs < 7 * chunks * threads or rows * chunks < 2 * processors:
        return None
    at_once = max(processors * (resident // threads) // chunks, 1)
    # As few rounds as fit, and all of one length.
    rounds = -(-rows // at_once)
    groups = -(-rows // rounds)
    return StreamPlan(threads, depth, resident, groups) if groups <= 65535 else None


def naive_extension(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The forty steps in one kernel, one thread an element, through the extension.

    x, residual: [..., cols]; bias: [cols], float32, float16 or bfloat16 on a CUDA device
    -> [..., cols]. Errors as reference.contract says.
    """

    def launch(*tensors: Tensor) -> None:
        compiled().chain_naive(*tensors, naive_plan())

    return pointwise.run(launch, x, residual, bias, out, compiled().chain_landing)


def naive_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernel as `naive_extension`, through CuPy."""

    def launch(*tensors: Tensor) -> None:
        pointwise.launch_naive("chain", naive_plan(), *tensors)

    return pointwise.run(launch, x, residual, bias, out)


def packed_extension(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The forty steps in one kernel that moves 16 bytes at a time, through the extension.

    x, residual: [..., cols]; bias: [cols], float32, float16 or bfloat16 on a CUDA device
    -> [..., cols]. Errors as reference.contract says.
    """

    def launch(*tensors: Tensor) -> None:
        compiled().chain_packed(*tensors, *pointwise.plan_for(*tensors, packed_plan))

    return pointwise.run(launch, x, residual, bias, out, compiled().chain_landing)


def packed_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernel as `packed_extension`, through CuPy."""

    def launch(*tensors: Tensor) -> None:
        plan = pointwise.plan_for(*tensors, packed_plan)
        pointwise.launch_packed("chain", plan, *tensors)

    return pointwise.run(launch, x, residual, bias, out)


def streamed_extension(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The forty steps in one kernel whose threads stay on their columns, through the extension.

    x, residual: [..., cols]; bias: [cols], float32, float16 or bfloat16 on a CUDA device
    -> [..., cols]. Few, ragged or misaligned rows go as in `packed_extension`. Errors as
    reference.contract says.
    """

    def launch(*tensors: Tensor) -> None:
        packed = pointwise.plan_for(*tensors, packed_plan)
        plan = _stream_plan(packed, *tensors)
        if plan is None:
            compiled().chain_packed(*tensors, *packed)
        else:
            compiled().chain_streamed(*tensors, *plan)

    return pointwise.run(launch, x, residual, bias, out, compiled().chain_landing)


def streamed_rawmodule(
    x: Tensor, residual: Tensor, bias: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The same kernels as `streamed_extension`, through CuPy."""

    def launch(*tensors: Tensor) -> None:
        packed = pointwise.plan_for(*tensors, packed_plan)
        plan = _stream_plan(packed, *tensors)
        if plan is None:
            pointwise.launch_packed("chain", packed, *tensors)
        else:
            source, _, bias, _ = tensors
            cols = bias.numel()
            columns = plan.threads * 16 // source.element_size()
            rawmodule.launch(
                source,
                "chain_streamed.cuh",
                plan.expression(source.dtype),
                (-(-cols // columns), plan.groups),
                plan.threads,
                (
                    *(tensor.data_ptr() for tensor in tensors),
                    np.int64(source.numel() // cols),
                    np.int64(cols),
                ),
            )

    return pointwise.run(launch, x, residual, bias, out)


def _stream_plan(
    packed: pointwise.PackedPlan, x: Tensor, residual: Tensor, bias: Tensor, out: Tensor
) -> StreamPlan | None:
    if not packed.bias_packs:
        return None
    cols = bias.numel()
    packs = cols * x.element_size() // 16
    return streamed_plan(x.numel() // cols, packs, processors(x.get_device()))
