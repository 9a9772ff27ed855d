"""See which kernel a launcher chose, and with what, while it still runs."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


class Spy:
    """Stands for a kernel and notes each launch.

    launches: (grid, arguments by the kernel's names, options) of each
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self.launches: list[tuple[tuple[int, ...], dict[str, Any], dict[str, Any]]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def launch(*arguments: Any, **options: Any) -> Any:
            names = self._kernel.arg_names
            self.launches.append((grid, dict(zip(names, arguments, strict=True)), options))
            return self._kernel[grid](*arguments, **options)

        return launch


def spy_on(monkeypatch: pytest.MonkeyPatch, module: ModuleType, kernel: str) -> Spy:
    """Put a Spy in the kernel's place in its module."""
    spy = Spy(getattr(module, kernel))
    monkeypatch.setattr(module, kernel, spy)
    return spy
