"""Matrix product in Triton, in three ways.

16-bit operands that the tensor memory accelerator can address go through it
(`matmul_descriptor_kernel`): persistent programs, each a pipeline that runs on into its next tile.
Where few rows meet a b too narrow to give every multiprocessor a tile, tiles are cut into shares
(`matmul_streamk.py`). Everything else, and every other GPU, goes through pointers and masks
(`matmul_pointer_kernel`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference.contract import check_matmul
from triton_impl.launch import (
    DEVICES,
    INTERPRETED,
    TensorMap,
    cdiv,
    on_device,
    place,
    processors,
    settle,
)
from triton_impl.matmul_streamk import launch_streamk, streamk_plan, tiles_of

__all__ = ["matmul"]


@dataclass(frozen=True)
class Plan:
    """A launch: its tile, its warps, the depth of its pipeline.

    programs: persistent programs a multiprocessor
    halves: whether the output is stored in two halves, so that its staging buffer is half as big
    """

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    programs: int = 1
    halves: bool = False


# Descriptor kernel: (up to this many rows of a, plan). Few rows: all that counts is how many bytes
# of b are on their way, so the stages are deep and the tiles narrow, and two programs a
# multiprocessor share out the last wave. Where tiles are fewer than multiprocessors: stream-K.
DECODE_PLANS = (
    # 64 columns x 128: 16 KB of b a stage, 64 to 80 KB a program in flight.
    (16, Plan(16, 64, 128, num_warps=4, num_stages=5, programs=2)),
    (32, Plan(32, 64, 128, num_warps=4, num_stages=4, programs=2)),
    (64, Plan(64, 64, 128, num_warps=4, num_stages=3, programs=2)),
)

# Descriptor kernel, more rows: the largest tile that still gives every multiprocessor one.
# 128 x 256: the highest arithmetic intensity whose accumulator two warpgroups hold in registers;
# 4096^3 is 512 tiles, 97 % of four waves of 132. Measured at 0.998 of cuBLAS there.
LARGE = Plan(128, 256, 64, num_warps=8, num_stages=4, halves=True)
# 128 x 128: twice the tiles, for 2048^3 and the like.
MEDIUM = Plan(128, 128, 64, num_warps=8, num_stages=4)
# 64 x 128: four times the tiles, for 1024^3 and narrower.
SMALL = Plan(64, 128, 64, num_warps=4, num_stages=4, programs=2)

# Pointer kernel. 16-bit: unaligned rows are read an element at a time, with a 64-bit address for
# each; at a block_k of 64 those alone fill the registers.
POINTER = Plan(64, 64, 32, num_warps=4, num_stages=3)
# float32 runs on the FMA pipe, whose operands pass through registers: a tile of 4096 products.
POINTER_FP32 = Plan(64, 64, 16, num_warps=4, num_stages=3)

# Tiles are visited in bands of this many rows of tiles, so that programs at work at one time share
# their rows of a and columns of b in L2.
BAND = 8


@triton.jit
def _tile_of(index, tiles_m, tiles_n, BAND: tl.constexpr):
    band = index // (BAND * tiles_n)
    height = tl.minimum(tiles_m - band * BAND, BAND)
    within = index % (BAND * tiles_n)
    return band * BAND + within % height, within // height


@triton.jit
def matmul_descriptor_kernel(
    a_desc,
    b_desc,
    y_desc,
    size_m,
    size_n,
    size_k,
    B_IS_NK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BAND: tl.constexpr,
    HALVES: tl.constexpr,
    WIDEN: tl.constexpr,
):
    tiles_m = tiles_of(size_m, BLOCK_M)
    tiles_n = tiles_of(size_n, BLOCK_N)
    tiles = tiles_m * tiles_n
    # flatten makes one loop of both, so that the next tile's loads start during this one's store.
    # (warp_specialize beside it changes nothing on Hopper: the same instructions come out.)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        tile_m, tile_n = _tile_of(tile, tiles_m, tiles_n, BAND)
        row = tile_m * BLOCK_M
        col = tile_n * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(tiles_of(size_k, BLOCK_K)):
            # Loads past an edge give 0, stores past one are dropped.
            a = a_desc.load([row, step * BLOCK_K])
            if B_IS_NK:
                b = b_desc.load([col, step * BLOCK_K]).T
            else:
                b = b_desc.load([step * BLOCK_K, col])
            if WIDEN:
                a = a.to(tl.float32)
                b = b.to(tl.float32)
            total = tl.dot(a, b, total)
        if HALVES:
            total = tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2))
            left, right = tl.split(tl.permute(total, (0, 2, 1)))
            y_desc.store([row, col], left.to(y_desc.dtype))
            y_desc.store([row, col + BLOCK_N // 2], right.to(y_desc.dtype))
        else:
            y_desc.store([row, col], total.to(y_desc.dtype))


@triton.jit
def matmul_pointer_kernel(
    a_ptr,
    b_ptr,
    y_ptr,
    size_m,
    size_n,
    size_k,
    stride_a_m,
    stride_a_k,
    stride_b_k,
    stride_b_n,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BAND: tl.constexpr,
    WIDEN: tl.constexpr,
):
    tile_m, tile_n = _tile_of(
        tl.program_id(0), tiles_of(size_m, BLOCK_M), tiles_of(size_n, BLOCK_N), BAND
    )
    # 64-bit: an index times a stride passes 2^31 at sizes that fit the card.
    rows = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + rows * stride_a_m + ks[None, :] * stride_a_k
    b_ptrs = b_ptr + ks[:, None] * stride_b_k + cols * stride_b_n
    # Times a stride this too passes 2^31.
    depth = tl.full((), BLOCK_K, tl.int64)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(tiles_of(size_k, BLOCK_K)):
        left = size_k - step * BLOCK_K
        # Past K both are 0: 0 on one side alone would let a neighbour's NaN through.
        a = tl.load(a_ptrs, mask=(rows < size_m) & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < left) & (cols < size_n), other=0.0)
        if WIDEN:
            a = a.to(tl.float32)
            b = b.to(tl.float32)
        # "ieee" is about float32 alone: no TF32.
        total = tl.dot(a, b, total, input_precision="ieee")
        a_ptrs += depth * stride_a_k
        b_ptrs += depth * stride_b_k
    mask = (rows < size_m) & (cols < size_n)
    tl.store(y_ptr + rows * size_n + cols, total.to(y_ptr.dtype.element_ty), mask=mask)


def matmul(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a @ b, accumulated in float32 and rounded once; float32 without TF32.

    a: [..., M, K] or [K]; b: [K, N], stored either way round -> [..., M, N] or [N]
    float32, float16 or bfloat16. Raises what `reference.contract.check_matmul` raises.
    """
    check_matmul(a, b, out, DEVICES)
    shape = (*a.shape[:-1], b.shape[1])
    y = place(out, shape, a)
    if y.numel() and a.shape[-1] == 0:
        y.zero_()
    elif y.numel():
        rows = a.resolve_neg().reshape(-1, a.shape[-1])
        with on_device(a):
            _launch(rows, b.resolve_neg(), y.view(-1, b.shape[1]))
    return settle(y, out, a)


def _launch(a: Tensor, b: Tensor, y: Tensor) -> None:
    """a: [M, K]; b: [K, N], any strides; y: [M, N] contiguous, not empty"""
    b_is_nk = b.stride(0) == 1 and b.stride(1) != 1
    stored_b = b.t() if b_is_nk else b
    if _has_descriptors(a) and _describable(a) and _describable(stored_b):
        # Stored as [K, N], b comes in rows of 64 columns; that layout hasn't been measured.
        plan = streamk_plan(*y.shape, a.shape[1], processors(a)) if b_is_nk else None
        if plan:
            launch_streamk(a, stored_b, y, plan)
            return
        if _describable(y):
            _launch_descriptor(a, stored_b, y, b_is_nk)
            return
    _launch_pointer(a, b, y)


def _has_descriptors(x: Tensor) -> bool:
    if x.dtype is torch.float32:
        return False
    return INTERPRETED or _capability(x.get_device()) >= 9


@functools.cache
def _capability(index: int) -> int:
    return torch.cuda.get_device_capability(index)[0]


def _describable(x: Tensor) -> bool:
    """Whether a tensor map can be made of x: a 16-byte aligned start and rows, dense along them."""
    return (
        x.stride(1) == 1
        and x.stride(0) * x.element_size() % 16 == 0
        # An expanded row has stride 0, and a map wants rows one after another, up to 2^40 bytes.
        and x.shape[1] <= x.stride(0) < 2**40 // x.element_size()
        and x.data_ptr() % 16 == 0
        and max(x.shape) < 2**31
    )


def _choose(size_m: int, size_n: int, n_processors: int) -> Plan:
    for most_rows, plan in DECODE_PLANS:
        if size_m <= most_rows:
            return plan
    for plan in (LARGE, MEDIUM):
        tiles = cdiv(size_m, plan.block_m) * cdiv(size_n, plan.block_n)
        # A tile of which more than half hangs over the edge would be wasted work.
        if tiles >= n_processors and plan.block_n < 2 * size_n:
            return plan
    return SMALL


def _launch_descriptor(a: Tensor, b: Tensor, y: Tensor, b_is_nk: bool) -> None:
    """a: [M, K]; b: [N, K] if b_is_nk else [K, N]; y: [M, N]"""
    size_m, size_k = a.shape
    size_n = y.shape[1]
    n_processors = processors(a)
    plan = _choose(size_m, size_n, n_processors)
    b_block = [plan.block_n, plan.block_k] if b_is_nk else [plan.block_k, plan.block_n]
    y_block = [plan.block_m, plan.block_n // 2 if plan.halves else plan.block_n]
    tiles = cdiv(size_m, plan.block_m) * cdiv(size_n, plan.block_n)
    matmul_descriptor_kernel[(min(tiles, n_processors * plan.programs),)](
        TensorMap(a, a.shape, a.stride(), [plan.block_m, plan.block_k]),
        TensorMap(b, b.shape, b.stride(), b_block),
        TensorMap(y, y.shape, y.stride(), y_block),
        size_m,
        size_n,
        size_k,
        b_is_nk,
        plan.block_m,
        plan.block_n,
        plan.block_k,
        BAND,
        plan.halves,
        INTERPRETED,
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
    )


def _launch_pointer(a: Tensor, b: Tensor, y: Tensor) -> None:
    """a: [M, K]; b: [K, N], any strides; y: [M, N]"""
    size_m, size_k = a.shape
    size_n = y.shape[1]
    plan = POINTER_FP32 if a.dtype is torch.float32 else POINTER
    tiles = cdiv(size_m, plan.block_m) * cdiv(size_n, plan.block_n)
    matmul_pointer_kernel[(tiles,)](
        a,
        b,
        y,
        size_m,
        size_n,
        size_k,
        *a.stride(),
        *b.stride(),
        plan.block_m,
        plan.block_n,
        plan.block_k,
        BAND,
        INTERPRETED,
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
    )
