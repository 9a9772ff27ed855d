"""The compiled half of the extension, or the command that makes it."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

__all__ = ["compiled"]


@functools.cache
def compiled() -> ModuleType:
    """cuda_impl._C. ImportError with the command to build it where it isn't built."""
    try:
        return importlib.import_module("cuda_impl._C")
    except ModuleNotFoundError:
        raise ImportError(
            "cuda_impl._C is not built: python setup.py build_ext --inplace"
        ) from None
