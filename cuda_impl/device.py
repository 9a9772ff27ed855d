"""What plans ask of a device, by its number, looked up once."""

from __future__ import annotations

import functools

import torch

__all__ = ["capability", "is_hopper", "processors"]


@functools.cache
def processors(device: int) -> int:
    """Its multiprocessors."""
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def capability(device: int) -> tuple[int, int]:
    """Its compute capability."""
    return torch.cuda.get_device_capability(device)


def is_hopper(device: int) -> bool:
    """Whether it has Hopper's own instructions, which later architectures don't have."""
    return capability(device) == (9, 0)
