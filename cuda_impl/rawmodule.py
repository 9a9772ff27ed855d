"""Kernels of csrc/kernels/ through cupy.RawModule: compiled by NVRTC at the first call."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cuda_impl import flags, toolkit

__all__ = ["CTYPES", "grid_of", "launch", "loaded_functions", "nvrtc_options", "source_of"]

KERNELS = Path(__file__).resolve().parent.parent / "csrc" / "kernels"

# What a dtype is called in a name expression.
CTYPES = {torch.float32: "float", torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}

_loaded: dict[tuple[int, str], Any] = {}

# Blocks of a cluster that every device with clusters has; a kernel has to ask for more.
_PORTABLE_CLUSTER = 8
_NON_PORTABLE_CLUSTER_ALLOWED = 14  # CUfunction_attribute in cuda.h


def launch(
    x: Tensor,
    header: str,
    expression: str,
    grid: tuple[int, int],
    block: int,
    arguments: Sequence[Any],
    shared_bytes: int = 0,
    *,
    prefer_l1: bool = False,
    cluster: int = 1,
) -> None:
    """Launch a kernel on the device of x, on torch's current stream there.

    header: its file in csrc/kernels/; expression: its C++ name with template arguments
    arguments: a data_ptr() for a pointer, numpy.int32 or numpy.int64 for a number: CuPy passes
        what it gets, without a look at the declaration
    prefer_l1: as prefer_l1 in csrc/launch.h, which says what it is for
    cluster: blocks of the kernel's cluster
    """
    if x.device.index != torch.cuda.current_device():
        with torch.cuda.device(x.device):
            return launch(
                x,
                header,
                expression,
                grid,
                block,
                arguments,
                shared_bytes,
                prefer_l1=prefer_l1,
                cluster=cluster,
            )
    function = _loaded.get((x.device.index, expression))
    if function is None:
        function = _load(x.device.index, header, expression, shared_bytes, prefer_l1, cluster)
    stream = _stream(torch.cuda.current_stream(x.device).cuda_stream)
    function(grid, (block,), arguments, shared_mem=shared_bytes, stream=stream)


def grid_of(blocks: int) -> tuple[int, int]:
    """A grid of at least `blocks` blocks, as grid_of in csrc/launch.h makes it."""
    width = 2**30
    return (blocks, 1) if blocks < width else (width, -(-blocks // width))


def loaded_functions() -> dict[str, Any]:
    """The kernels that this process has compiled and launched, by name expression."""
    return {expression: function for (_, expression), function in _loaded.items()}


def source_of(header: str) -> str:
    """What the compiler is given. CuPy's cache on disk looks at this text and at no included file,
    so that without the digest an edited header would run yesterday's kernel."""
    return f'// csrc/kernels {_digest()}\n#include "{header}"\n'


def nvrtc_options(capability: tuple[int, int]) -> tuple[str, ...]:
    """The flags of cuda_impl.flags, and where the kernels and CUDA's headers are."""
    folders = (KERNELS, *_header_folders())
    return (
        "-std=c++17",
        # CuPy adds -arch=sm_90 of its own; NVRTC then keeps the more specific sm_90a.
        flags.nvrtc_arch(capability),
        *flags.ARITHMETIC,
        *(f"-I{folder}" for folder in folders),
    )


def _load(
    device: int,
    header: str,
    expression: str,
    shared_bytes: int,
    prefer_l1: bool,
    cluster: int,
) -> Any:
    import cupy

    module = cupy.RawModule(
        code=source_of(header),
        options=nvrtc_options(torch.cuda.get_device_capability(device)),
        name_expressions=(expression,),
        # Cooperative launches refuse a kernel with cluster dimensions of its own.
        enable_cooperative_groups=False,
    )
    function = module.get_function(expression)
    if shared_bytes > 48 * 1024:
        function.max_dynamic_shared_size_bytes = shared_bytes
    if prefer_l1:
        function.preferred_shared_memory_carveout = 0
    if cluster > _PORTABLE_CLUSTER:
        cupy.cuda.driver.funcSetAttribute(function.kernel.ptr, _NON_PORTABLE_CLUSTER_ALLOWED, 1)
    _loaded[device, expression] = function
    return function


@dataclass(frozen=True)
class _TorchStream:
    """A stream that CuPy can take over, by the protocol that both libraries know."""

    pointer: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


@functools.lru_cache(maxsize=64)
def _stream(pointer: int) -> Any:
    import cupy

    # Kept, and given to each launch: entering a stream takes longer than launching on it.
    return cupy.cuda.Stream.from_external(_TorchStream(pointer))


@functools.cache
def _digest() -> str:
    total = hashlib.sha256()
    for path in sorted(KERNELS.iterdir()):
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:16]


@functools.cache
def _header_folders() -> list[Path]:
    try:
        root = toolkit.find_toolkit(torch.version.cuda)
    except toolkit.ToolkitError:
        # NVRTC needs CUDA's headers, not its compiler, and pip's runtime package has them.
        root = None
    return toolkit.header_folders(root)
