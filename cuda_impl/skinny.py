"""matmul of up to 64 rows in CUDA C++ on Hopper's tensor cores: `skinny`.

It takes a weight, b stored [N, K], in 16 bits, and is bound by the time that its bytes take. What
it doesn't take goes to `decode` of cuda_impl/decode.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cuda_impl import decode, rawmodule
from cuda_impl.device import is_hopper, processors
from cuda_impl.extension import compiled
from cuda_impl.matrices import Operands, operands
from cuda_impl.tensor_map import map_of

__all__ = ["skinny_extension", "skinny_rawmodule"]


class SkinnyPlan(NamedTuple):
    """How the skinny kernel works; csrc/kernels/matmul_skinny.cuh.

    rows: of the weight, a block; batch: rows of a, at most: 16, 32 or 64
    stages: of the ring, 64 steps of k each
    splits: blocks of a cluster that share out k
    """

    rows: int
    batch: int
    stages: int
    splits: int

    @property
    def threads(self) -> int:
        """A warpgroup for every 64 rows, and a warp that copies."""
        return self.rows * 2 + 32

    @property
    def shared_bytes(self) -> int:
        """Stages, two barriers each, the sums that others send, room to align:
        SkinnyShared::kBytes."""
        sent = self.batch * (self.rows + 4) * 4 if self.splits > 1 else 0
        return self.stages * ((self.rows + self.batch) * 128 + 16) + sent + 8 + 1024

    def blocks(self, n: int) -> int:
        """Of the grid, for n rows of the weight."""
        return -(-n // self.rows) * self.splits

    def expression(self, dtype: torch.dtype) -> str:
        """The kernel's name with its template arguments."""
        return f"matmul_skinny_kernel<{rawmodule.CTYPES[dtype]}, {', '.join(map(str, self))}>"


# (up to this many rows of a, from this many times 128 rows of the weight a multiprocessor on,
# plan), the first that fits.
#
# Rows: each byte of the weight brings batch / rows bytes of a from L2. 128 rows of the weight keep
# that at a half, but of 4096 they make 32 blocks: there 64 rows and two blocks a tile are faster,
# each of which sums up half of k. Four and eight blocks a tile were slower nearly everywhere: they
# wait for the last of them to start, and for its sums.
# Against cuBLAS on an H200, bfloat16, 16 / 32 / 64 rows: weight [4096, 4096] 1.35 1.35 1.08;
# [14336, 4096] 1.01 1.05 1.10; [4096, 14336] 1.09 1.12 1.14; [28672, 8192] 0.96 0.97 1.02.
SKINNY_PLANS = (
    (16, 0.75, SkinnyPlan(128, 16, stages=6, splits=1)),
    (16, 0.0, SkinnyPlan(64, 16, stages=6, splits=2)),
    (32, 0.75, SkinnyPlan(128, 32, stages=5, splits=1)),
    (32, 0.0, SkinnyPlan(64, 32, stages=7, splits=2)),
    (64, 0.75, SkinnyPlan(128, 64, stages=4, splits=1)),
    (64, 0.0, SkinnyPlan(64, 64, stages=5, splits=2)),
)

# A block with fewer steps than this would spend more time on its start and its sums than on them.
SKINNY_STEPS = 4


@functools.lru_cache(maxsize=1024)
def skinny_plan(m: int, n: int, k: int, processors: int) -> SkinnyPlan | None:
    """How to multiply m rows by a weight [n, k]; None for more than 64 rows.

    processors: multiprocessors of the device
    """
    steps = -(-k // 64)
    found = None
    for most, tiles_each, plan in SKINNY_PLANS:
        if m > most or (found and plan.batch > found.batch):
            continue
        # Without a better one, the most splits that k has the steps for.
        if plan.splits == 1 or steps >= SKINNY_STEPS * plan.splits:
            found = plan
            if n >= tiles_each * processors * 128:
                return plan
    return found


def skinny_extension(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b for up to 64 rows of a and a 16-bit weight, through the extension; others as in
    `decode`.

    a: [..., M, K]; b: [K, N], stored either way round; float32, float16 or bfloat16 on a CUDA
    device of compute capability 9.0 -> [..., M, N]. Errors as reference.contract says.
    """
    given = operands(a, b, out, compiled().matmul_landing)
    return _run(given, _launch_extension, decode.decode_extension).result(out)


def skinny_rawmodule(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same kernel as `skinny_extension`, through CuPy."""
    return _run(operands(a, b, out), _launch_rawmodule, decode.decode_rawmodule).result(out)


def _run(
    given: Operands,
    launch: Callable[[Operands, SkinnyPlan, Tensor], None],
    others: Callable[..., Tensor],
) -> Operands:
    """launch: by a plan and the weight [N, K]; others: what there is no plan for"""
    if not given.empty:
        found = _plan(given)
        if found is None:
            others(given.a, given.b, out=given.out)
        else:
            launch(given, *found)
    return given


def _launch_extension(given: Operands, plan: SkinnyPlan, right: Tensor) -> None:
    compiled().matmul_skinny(given.addressable(given.a), right, given.out, *plan)


def _launch_rawmodule(given: Operands, plan: SkinnyPlan, right: Tensor) -> None:
    from cupy.cuda.function import CPointer

    # Named, so that a padded copy and the maps live until the launch has taken them.
    left = given.addressable(given.a)
    map_a, map_weight = map_of(left, plan.batch), map_of(right, plan.rows)
    m, n = given.out.shape
    rawmodule.launch(
        left,
        "matmul_skinny.cuh",
        plan.expression(left.dtype),
        (plan.blocks(n), 1),
        plan.threads,
        (
            # CuPy gives the driver the address of an argument's bytes: CPointer is that.
            *(CPointer(map_of_one.ctypes.data) for map_of_one in (map_a, map_weight)),
            given.out.data_ptr(),
            *map(np.int32, (m, n, left.shape[1])),
        ),
        plan.shared_bytes,
    )


def _plan(given: Operands) -> tuple[SkinnyPlan, Tensor] | None:
    """The plan, and the weight [N, K]; None for what the kernel doesn't take."""
    if not is_hopper(given.a.get_device()):
        raise ValueError(
            f"skinny needs a GPU of compute capability 9.0 (Hopper), got {given.a.device}: the "
            "tiled variant runs on any"
        )
    k, n = given.b.shape
    # The tensor memory accelerator counts in 32 bits, and addresses only some rows: of a they are
    # copied where it has to be, but a copy of the weight takes longer than `decode`.
    if given.a.element_size() != 2 or max(k, n) >= 2**30 or not given.is_weight():
        return None
    right, _ = given.stored()
    if not given.is_addressable(right):
        return None
    plan = skinny_plan(given.out.shape[0], n, k, processors(given.a.get_device()))
    return None if plan is None else (plan, right)
