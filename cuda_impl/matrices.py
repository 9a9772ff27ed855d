"""How matmul's operands lie in memory, and what its kernels are told of that.

A kernel wants matrices *by rows*: neighbours in memory along the last dimension, whatever lies
between one row and the next. A copy is made only where an operand isn't so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from reference.contract import check_matmul, landing

__all__ = [
    "Operands",
    "addressable",
    "by_rows",
    "is_addressable",
    "is_weight",
    "laid_out",
    "operands",
    "stored",
]

DEVICES = ("cuda",)


class Operands(NamedTuple):
    """What a kernel multiplies.

    a: [M, K], by rows; b: [K, N], any strides
    out: [M, N], contiguous
    target: out in the result's own shape
    empty: nothing is left to do
    right, weight: what `stored` gives for b, where it is known already
    aligned: a and right are known to be addressable
    """

    a: Tensor
    b: Tensor
    out: Tensor
    target: Tensor
    empty: bool
    right: Tensor | None = None
    weight: bool = False
    aligned: bool = False

    def stored(self) -> tuple[Tensor, bool]:
        """`stored` of b."""
        return stored(self.b) if self.right is None else (self.right, self.weight)

    def is_weight(self) -> bool:
        """`is_weight` of b."""
        return self.weight or is_weight(self.b)

    def addressable(self, x: Tensor) -> Tensor:
        """`addressable` of a or of what is stored of b."""
        return x if self.aligned else addressable(x)

    def is_addressable(self, x: Tensor) -> bool:
        """`is_addressable` of a or of what is stored of b."""
        return self.aligned or is_addressable(x)

    def result(self, out: Tensor | None) -> Tensor:
        """What to return to the user who passed `out`."""
        return self.target if out is None or out is self.target else out.copy_(self.target)


def operands(
    a: Tensor,
    b: Tensor,
    out: Tensor | None,
    land: Callable[..., tuple[Tensor, Tensor, bool, bool] | None] | None = None,
) -> Operands:
    """a: [..., M, K]; b: [K, N]; out: [..., M, N], checked as reference.contract says.

    land: the extension's matmul_landing
    """
    found = land(a, b, out) if land else None
    if found is not None:
        target, right, weight, aligned = found
        return Operands(a, b, target, target, False, right, weight, aligned)
    check_matmul(a, b, out, DEVICES)
    k, n = b.shape
    target = landing(out, (*a.shape[:-1], n), a)
    if k == 0 or target.numel() == 0:
        return Operands(a, b, target, target.zero_(), empty=True)
    if a.dim() != 2 or a.is_neg():
        a = a.resolve_neg().reshape(-1, k)
    # Through one dimension: [1, N] may have any stride, and is to have N.
    flat = target if target.stride() == (n, 1) else target.view(-1).view(-1, n)
    return Operands(by_rows(a), b.resolve_neg() if b.is_neg() else b, flat, target, empty=False)


def by_rows(x: Tensor) -> Tensor:
    """x: [rows, cols] -> the same with neighbours along cols, copied only where they are not."""
    rows, cols = x.shape
    row, step = x.stride()
    if rows > 1 and step == 1:  # the usual case
        return x
    if cols > 1 and step != 1:
        x = x.contiguous()
        row = x.stride(0)
    # The stride of a dimension of size 1 may be anything; the kernels are told a plain one.
    if rows == 1:
        row = -(-cols // 8) * 8
    return x if x.stride() == (row, 1) else x.as_strided(x.shape, (row, 1))


def stored(b: Tensor) -> tuple[Tensor, bool]:
    """b: [K, N] -> (what is stored, by rows; whether that is a weight [N, K])."""
    weight = is_weight(b)
    return by_rows(b.t() if weight else b), weight


def is_weight(b: Tensor) -> bool:
    """Whether b: [K, N] is the transpose of a weight [N, K] that lies by rows."""
    along_k, along_n = b.stride()
    return along_k == 1 and (b.shape[1] == 1 or along_n >= b.shape[0] > 1)


def is_addressable(x: Tensor) -> bool:
    """Whether the tensor memory accelerator can copy x: [rows, cols], by rows: they start at
    multiples of 16 bytes."""
    row = x.stride(0)
    return x.data_ptr() % 16 == 0 and row * x.element_size() % 16 == 0 and row >= x.shape[1]


def addressable(x: Tensor) -> Tensor:
    """x, or a copy of it with padded rows. The copy reads and writes x once; the kernel that needs
    no such alignment would take twenty times as long as the tensor cores."""
    if is_addressable(x):
        return x
    rows, cols = x.shape
    step = 16 // x.element_size()
    padded = torch.empty((rows, -(-cols // step) * step), dtype=x.dtype, device=x.device)
    return padded[:, :cols].copy_(x)


def laid_out(given: Operands) -> tuple[Tensor, Tensor, bool]:
    """a and the weight [N, K], and whether both can be read 16 bytes at a time.

    a is copied where that makes it so, since its copy costs little. A weight never is: kernels then
    read it element by element.
    """
    right, _ = given.stored()
    vector = given.is_addressable(right) and right.shape[1] % 8 == 0
    return given.addressable(given.a) if vector else given.a, right, vector
