"""What every test needs to know of the machine: whether there is a GPU, and what to do without."""

from __future__ import annotations

import os

import pytest
import torch

HAS_GPU = torch.cuda.is_available()

# Triton reads this when a kernel is decorated, so it must be set before a tier is imported. On a
# machine without a GPU the Triton tier runs in the interpreter.
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def seeded() -> None:
    """What a test draws is the same in every run and in every order of the tests."""
    torch.manual_seed(20)


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The machine's best device."""
    return torch.device("cuda" if HAS_GPU else "cpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if HAS_GPU:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and there is none"))
