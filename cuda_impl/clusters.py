"""How many clusters of a kernel run at once, for CuPy, which doesn't ask.

The extension asks the CUDA runtime, this the driver: CUDA driver API, "Occupancy".
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

__all__ = ["clusters_at_once"]


_CLUSTER_DIMENSION = 4


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute of cuda.h, whose values take 64 bytes."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("pad", ctypes.c_uint),
        ("cluster", ctypes.c_uint * 3),
        ("rest", ctypes.c_uint * 13),
    )


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


@functools.lru_cache(maxsize=1024)
def clusters_at_once(function: int, cluster: int, threads: int, shared_bytes: int) -> int:
    """Clusters that the device holds at once, 1 or more.

    function: the driver's handle of a loaded kernel, whose device is current; cluster: its blocks;
    threads, shared_bytes: of a block
    """
    attribute = _Attribute(_CLUSTER_DIMENSION, 0, (cluster, 1, 1))
    config = _LaunchConfig(
        (cluster, 1, 1), (threads, 1, 1), shared_bytes, None, ctypes.addressof(attribute), 1
    )
    clusters = ctypes.c_int()
    status = _ask()(ctypes.byref(clusters), function, ctypes.byref(config))
    if status:
        raise RuntimeError(
            f"cuOccupancyMaxActiveClusters returned {status} for clusters of {cluster} blocks with "
            f"{threads} threads and {shared_bytes} bytes"
        )
    return max(clusters.value, 1)


@functools.cache
def _ask() -> Any:
    # Asked for at the first call: this file can be imported where there is no driver.
    function = ctypes.CDLL("libcuda.so.1").cuOccupancyMaxActiveClusters
    function.argtypes = [ctypes.c_void_p] * 3
    function.restype = ctypes.c_int
    return function
