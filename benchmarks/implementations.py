"""IMPLEMENTATIONS: one row per op x tier x variant. Data only: importing it imports no tier.

An op with more than a handful of rows has a file for them.
"""

from __future__ import annotations

from benchmarks.chain_rows import CHAINS
from benchmarks.implementation import Implementation
from benchmarks.matmul_rows import MATMUL
from benchmarks.softmax_rows import SOFTMAX

__all__ = ["IMPLEMENTATIONS", "find", "of_op"]

# Of each op measured in this order: the library first, since it is every ratio's denominator, and
# first drafts last, since minutes of them leave the card hot and its clocks low.
IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *SOFTMAX,
    *CHAINS,
    *MATMUL,
)


def of_op(op: str) -> tuple[Implementation, ...]:
    """The rows of one op, library first, so that a ratio's denominator is measured first."""
    return tuple(row for row in IMPLEMENTATIONS if row.op == op)


def find(op: str, name: str) -> Implementation:
    """The row of `op` called `name`, for instance ``("softmax", "triton/tuned")``."""
    for row in of_op(op):
        if row.name == name:
            return row
    known = ", ".join(row.name for row in of_op(op)) or "no implementation"
    raise ValueError(f"{op} has no implementation {name!r}; it has {known}")
