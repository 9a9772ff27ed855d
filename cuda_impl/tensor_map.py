"""Tensor maps for CuPy: what tells the tensor memory accelerator how a matrix lies in memory.

The extension encodes its own in csrc/tensor_map.h. Both ask the driver, which documents the
fields: CUDA driver API, "Tensor Map Object Management".
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["TENSOR_MAP_BYTES", "map_of", "tensor_map"]

TENSOR_MAP_BYTES = 128

# Values of the driver's enumerations, from cuda.h.
_DATA_TYPES = {torch.float16: 6, torch.bfloat16: 9}
_INTERLEAVE_NONE = 0
_SWIZZLE_128B = 3
_L2_PROMOTION_256B = 3
_FILL_WITH_ZEROS = 0


def map_of(x: Tensor, box_rows: int) -> np.ndarray:
    """The map of x: [rows, cols], by rows."""
    return tensor_map(x.get_device(), x.data_ptr(), x.dtype, *x.shape, x.stride(0), box_rows)


@functools.lru_cache(maxsize=256)
def tensor_map(
    device: int,
    pointer: int,
    dtype: torch.dtype,
    rows: int,
    cols: int,
    stride: int,
    box_rows: int,
) -> np.ndarray:
    """The map of [rows, cols] 16-bit elements, rows `stride` elements apart, in swizzled boxes of
    [box_rows, 64].

    A map depends on these numbers alone, all of them, so that a cached one is never stale.
    """
    # The driver wants it at a multiple of 64 bytes (of 128 since CUDA 13), which neither numpy nor
    # cuda.bindings sees to.
    buffer = np.zeros(2 * TENSOR_MAP_BYTES, dtype=np.uint8)
    start = -buffer.ctypes.data % TENSOR_MAP_BYTES
    encoded = buffer[start : start + TENSOR_MAP_BYTES]
    with torch.cuda.device(device):
        _bind_context(device)
        status = _encode()(
            encoded.ctypes.data,
            _DATA_TYPES[dtype],
            2,
            pointer,
            (ctypes.c_uint64 * 2)(cols, rows),
            (ctypes.c_uint64 * 1)(stride * dtype.itemsize),
            (ctypes.c_uint32 * 2)(64, box_rows),
            (ctypes.c_uint32 * 2)(1, 1),
            _INTERLEAVE_NONE,
            _SWIZZLE_128B,
            _L2_PROMOTION_256B,
            _FILL_WITH_ZEROS,
        )
    if status:
        raise RuntimeError(
            f"cuTensorMapEncodeTiled returned {status} for [{rows}, {cols}] {dtype} at "
            f"{pointer:#x}, stride {stride}, boxes of [{box_rows}, 64]"
        )
    return encoded


@functools.cache
def _encode() -> Any:
    # Asked for at the first call: this file can be imported where there is no driver.
    function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    address, number = ctypes.c_void_p, ctypes.c_uint32
    function.argtypes = [address, number, number, *[address] * 5, *[number] * 4]
    function.restype = ctypes.c_int
    return function


def _bind_context(device: int) -> None:
    """Make the device's context this thread's: encoding needs one, and a thread whose first CUDA
    call it would be has none."""
    from cupy.cuda import runtime

    runtime.setDevice(device)
