"""Compiler flags for both compilers, nvcc and NVRTC, so that both make the same arithmetic.

Read by setup.py and by rawmodule.py. Importing it imports nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

__all__ = [
    "ARITHMETIC",
    "DEFAULT_ARCHITECTURES",
    "NVCC",
    "NVCC_CUTLASS",
    "architectures",
    "nvrtc_arch",
]

# CuPy always appends -ftz=true, so nvcc gets it too: under 2^-126 results are 0 in both, and so is
# what goes into float32 arithmetic, such as the products of gemv. The rest are both compilers'
# defaults, written down because the bit-for-bit test rests on them.
ARITHMETIC = ("--ftz=true", "--prec-div=true", "--prec-sqrt=true", "--fmad=true")

NVCC = ("-O3", *ARITHMETIC)

# CUTLASS asserts on the device; that may call a function, before which the compiler makes every
# wgmma wait for the last one (C7510). Its kernels are Hopper's own: other architectures would get a
# stub each, and the build take as long again.
NVCC_CUTLASS = (*NVCC, "-DNDEBUG", "-gencode=arch=compute_90a,code=sm_90a")

# Where there is no GPU to ask: the oldest architecture whose instructions the sources use, the one
# that wgmma needs by name, and PTX that later ones can compile for themselves.
DEFAULT_ARCHITECTURES = ("8.0", "9.0a", "10.0+PTX")


def architectures(
    environment: Mapping[str, str], capability: tuple[int, int] | None
) -> tuple[str, ...]:
    """What to compile for, in the notation of TORCH_CUDA_ARCH_LIST.

    environment: its TORCH_CUDA_ARCH_LIST decides, if set and not empty; a plain 9.0 in it, as
        container images set it, becomes 9.0a, without which wgmma could only trap
    capability: else the visible GPU's; None without one
    """
    listed = environment.get("TORCH_CUDA_ARCH_LIST", "").replace(";", " ").split()
    if listed:
        named = ("9.0a" if name == "9.0" else name for name in listed)
        # PTX of 9.0a would run on no other architecture, so what asks for PTX of 9.0 gets both.
        both = (("9.0a", name) if name == "9.0+PTX" else (name,) for name in named)
        return tuple(dict.fromkeys(itertools.chain.from_iterable(both)))
    if capability is None:
        return DEFAULT_ARCHITECTURES
    return (_by_name(*capability),)


def nvrtc_arch(capability: tuple[int, int]) -> str:
    """(9, 0) -> "-arch=sm_90a"."""
    return f"-arch=sm_{_by_name(*capability).replace('.', '')}"


def _by_name(major: int, minor: int) -> str:
    # wgmma and setmaxnreg exist in sm_90a, not in sm_90.
    return f"{major}.{minor}" + ("a" if (major, minor) == (9, 0) else "")
