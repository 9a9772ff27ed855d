"""Which cases a row leaves out on a GPU, and why: a run takes ten minutes.

What a variant hands to another, what says nothing new, and library calls that were seen to lose.
Each reason stands in the records, so it says what was seen, and where.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    "DEFAULT_MATMUL",
    "DRAFT",
    "FEW_ROWS",
    "HALVES",
    "MANY_ROWS",
    "NAIVE_MATMUL",
    "ONLINE",
    "REGISTERS_TWIN",
    "RUNG",
    "SEARCH_CHAIN",
    "SEARCH_MATMUL",
    "SEARCH_SOFTMAX",
    "SOFTMAX_TWIN",
    "TENSOR_CORES",
    "TWIN",
    "Skip",
    "up_to",
]


class Skip(NamedTuple):
    """Cases for a GPU that a row leaves out: those of which all that is given holds.

    reason: what the record says of them
    axis: of the op; "" for any size
    least, most: sizes of the axis, both included; but: those in between that stay
    dtypes: none for any
    hopper: holds on a Hopper alone, where another variant takes the cases
    """

    reason: str
    axis: str = ""
    least: int = 0
    most: float = math.inf
    but: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    hopper: bool = False

    def covers(self, sizes: Mapping[str, int], dtype: str, hopper: bool = True) -> bool:
        """sizes: of the case, by axis; hopper: whether the device is one"""
        if self.hopper and not hopper:
            return False
        if self.dtypes and dtype not in self.dtypes:
            return False
        if not self.axis:
            return True
        size = sizes[self.axis]
        return self.least <= size <= self.most and size not in self.but


HALVES = ("float16", "bfloat16")

TWIN = "the same kernel as the cuda row, which is measured here"

# Softmax: max-autotune takes 5 s a case, so it is left out where it lost on an H200. In each of
# four runs: at 256, 1000 and 1024 columns 0.4 % faster to 12 % slower than default mode; at 16384,
# 65536 and 262144 2 to 6 % slower than eager; at 1x131072 2 % faster to 22 % slower than default.
# In one run: with 64 rows 9 to 42 % slower than default; at 32768 and 50257 columns 5 and 68 %
# slower than eager; in float32 at 131072 level with default.
SEARCH_SOFTMAX = (
    Skip("max-autotune lost to default mode up to 1024 columns, on an H200", "cols", most=1024),
    Skip("max-autotune lost to default mode with few rows, on an H200", "rows", most=64),
    Skip(
        "max-autotune lost to eager at this length, on an H200",
        "cols",
        least=16384,
        but=(128256, 131072),
        dtypes=("bfloat16",),
    ),
    Skip(
        "max-autotune was level with default mode, on an H200",
        "cols",
        least=131072,
        dtypes=("float32",),
    ),
)

# The chains, in each of four runs: with 65536 rows never 0.3 % apart, in float32 level with default
# mode to 7 % slower.
SEARCH_CHAIN = (
    Skip("max-autotune was level with default mode, on an H200", "rows", least=65536),
    Skip("max-autotune was no faster than default mode, on an H200", dtypes=("float32",)),
)

# First drafts show a shape, for which few lengths in one dtype are enough.
DRAFT = (
    Skip("a draft, measured with many rows", "rows", most=64),
    Skip("a draft, measured in bfloat16", dtypes=("float16", "float32")),
    Skip("a draft, measured at 1024, 4096 and 65536 columns", "cols", but=(1024, 4096, 65536)),
)
SOFTMAX_TWIN = (Skip(TWIN, "cols", but=(4096,)),)
REGISTERS_TWIN = (
    Skip(TWIN, "cols", but=(128, 1024, 4096, 16384, 50257, 131072, 262144)),
    Skip(TWIN, dtypes=("float16",)),
)

# A kind of special functions shows what it costs at one size.
RUNG = (
    Skip("a rung, measured at 4096 x 4096", "rows", but=(4096,)),
    Skip("a rung, measured in bfloat16 and float32", dtypes=("float16",)),
)
ONLINE = (
    Skip("made for rows too long for registers", "cols", most=32767, but=(4096,)),
    Skip("made for rows that fill the device", "rows", most=64),
)

# Products of up to so many rows are those of csrc/kernels/matmul_{gemv,decode,skinny}.cuh.
FEW_ROWS = 64
MANY_ROWS = (
    Skip(
        "made for more rows: gemv, decode and skinny are for up to 64",
        "m",
        most=FEW_ROWS,
        hopper=True,
    ),
)
_HANDS_ON = "hands {} to another variant, which has a row of its own"
TENSOR_CORES = (Skip(_HANDS_ON.format("float32"), dtypes=("float32",)),)


def up_to(rows: int) -> tuple[Skip, ...]:
    """Of a product's variant that takes 16-bit inputs and up to so many rows."""
    return (*TENSOR_CORES, Skip(_HANDS_ON.format(f"m above {rows}"), "m", least=rows + 1))


NAIVE_MATMUL = (
    *MANY_ROWS,
    *(Skip("a call takes a second or more", axis, least=8192) for axis in ("k", "n")),
    Skip("as fast as in bfloat16", dtypes=("float16",)),
)

# Larger products: default mode and eager were never more than 0.15 % apart, on an H200.
DEFAULT_MATMUL = (
    Skip(
        "torch.compile in default mode calls eager's kernel",
        "m",
        most=FEW_ROWS,
        dtypes=HALVES,
    ),
)
SEARCH_MATMUL = (
    # By weights of 4096 x 14336 and 14336 x 4096, at 2, 4, 8 and 32 rows.
    *(
        Skip("max-autotune was 0 to 28 % slower than eager, on an H200", "m", rows, rows)
        for rows in (2, 4, 8, 32)
    ),
    # Without TF32 the search takes 43 s.
    Skip("max-autotune ended with eager's kernel, on an H200", dtypes=("float32",)),
    # In six such cases never 0.2 % apart.
    Skip(
        "max-autotune ended with eager's kernel, on an H200: measured with 8192 rows",
        "m",
        least=FEW_ROWS + 1,
        but=(8192,),
    ),
)
