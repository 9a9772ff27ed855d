"""The compiled modules, or the command that makes them."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

__all__ = ["compiled", "compiled_cutlass"]


@functools.cache
def compiled() -> ModuleType:
    """cuda_impl._C. ImportError with the command to build it where it isn't built."""
    return _built("_C", "python setup.py build_ext --inplace")


@functools.cache
def compiled_cutlass() -> ModuleType:
    """cuda_impl._cutlass, built by that command where CUTLASS's headers are; or ImportError."""
    return _built(
        "_cutlass",
        "pip install --no-deps nvidia-cutlass==4.2.0.0, then python setup.py build_ext --inplace",
    )


def _built(name: str, remedy: str) -> ModuleType:
    try:
        return importlib.import_module(f"cuda_impl.{name}")
    except ModuleNotFoundError:
        raise ImportError(f"cuda_impl.{name} is not built: {remedy}") from None
