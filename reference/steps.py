"""A chain of pointwise steps: how one is declared, and its value in float64.

Two registers are enough for decode glue: `v`, the value that runs through the chain, and `u`,
a side value such as a gate. A step reads both and the inputs, and writes one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Registers", "Step", "run"]


@dataclass
class Registers:
    """What a step can read.

    v, u: the running value and the side value, [..., cols]
    residual: [..., cols]; bias: [cols]
    """

    v: Tensor
    u: Tensor
    residual: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Step:
    """One pointwise step.

    name: unique in its chain; every tier's source names its steps by it, in this order
    into: the register that it writes
    value: its formula
    special: whether it is an exp, tanh or sigmoid
    """

    name: str
    into: Literal["v", "u"]
    value: Callable[[Registers], Tensor]
    special: bool = False


def run(steps: tuple[Step, ...], x: Tensor, residual: Tensor, bias: Tensor) -> Tensor:
    """The chain's value in float64, from the rounded inputs.

    x, residual: [..., cols]; bias: [cols] -> float64 [..., cols]
    """
    registers = Registers(x.double(), torch.empty(0), residual.double(), bias.double())
    for step in steps:
        setattr(registers, step.into, step.value(registers))
    return registers.v
