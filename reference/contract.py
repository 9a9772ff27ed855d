"""What every op accepts, said once: each tier calls these checks before any launch.

The tiers share nothing else. A wrong input so gets the same sentence from Triton, from the
extension, from CuPy and from the library, and a new tier gets the whole contract in one line.
Shared-code lines are in no implementation's count.

Errors: TypeError for an argument that is not a tensor or has an unsupported dtype; ValueError
for shape, device, overlap and gradients. Each names the argument, what came, what is accepted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from reference.spec import dtype_name

__all__ = ["check_chain", "check_matmul", "check_softmax", "dense", "landing"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Looked up in torch they would take as long as the comparison. Every call of a kernel goes through
# here, and small ones take no longer than that.
STRIDED = torch.strided
CONTIGUOUS = torch.contiguous_format


def check_softmax(x: Tensor, out: Tensor | None, devices: tuple[str, ...]) -> None:
    """x: [..., cols] with one or more dimensions. devices: the device types of the tier."""
    _check_input("x", x, devices)
    if x.dim() == 0:
        raise ValueError("x must have one or more dimensions, got a 0-d tensor")
    if out is not None:
        _check_out(out, x.shape, x=x)
    _check_forward_only(x=x, out=out)


def check_chain(
    x: Tensor, residual: Tensor, bias: Tensor, out: Tensor | None, devices: tuple[str, ...]
) -> None:
    """x and residual: [..., cols] of one shape; bias: [cols]."""
    _check_input("x", x, devices)
    if x.dim() == 0:
        raise ValueError("x must have one or more dimensions, got a 0-d tensor")
    shape = x.shape
    _check_beside("residual", residual, "x", x, shape)
    _check_beside("bias", bias, "x", x, shape[-1:])
    if out is not None:
        _check_out(out, shape, x=x, residual=residual, bias=bias)
    _check_forward_only(x=x, residual=residual, bias=bias, out=out)


def check_matmul(a: Tensor, b: Tensor, out: Tensor | None, devices: tuple[str, ...]) -> None:
    """a: [..., M, K] (or [K]); b: [K, N], stored either way round."""
    _check_input("a", a, devices)
    if a.dim() == 0:
        raise ValueError("a must be [..., K] with one or more dimensions, got a 0-d tensor")
    _check_tensor("b", b)
    if b.dim() != 2:
        raise ValueError(f"b must be [K, N] with two dimensions, got shape {tuple(b.shape)}")
    *leading, k = a.shape
    if b.shape[0] != k:
        raise ValueError(
            f"b must be [K, N] with K = {k}, the last size of a {tuple(a.shape)}, "
            f"got shape {tuple(b.shape)}"
        )
    _check_same("b", b, "a", a)
    if out is not None:
        _check_out(out, (*leading, b.shape[1]), a=a, b=b)
    _check_forward_only(a=a, b=b, out=out)


def dense(x: Tensor) -> Tensor:
    """x itself where a kernel can walk it linearly, else a contiguous copy with bits resolved."""
    return x if x.is_contiguous() and not x.is_neg() else x.resolve_neg().contiguous()


def landing(out: Tensor | None, shape: torch.Size | tuple[int, ...], like: Tensor) -> Tensor:
    """Where a kernel writes: `out` where it is contiguous, else a new contiguous tensor.

    The caller copies into a non-contiguous `out` afterwards; that case, and a missing `out`,
    are the only two that allocate.
    """
    if out is not None and out.is_contiguous() and not out.is_neg():
        return out
    if shape == like.shape:  # in a third of the time
        return torch.empty_like(like, memory_format=CONTIGUOUS)
    return like.new_empty(shape)


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if value.layout is not STRIDED:
        raise TypeError(f"{name} must be a dense (strided) tensor, got layout {value.layout}")


def _check_input(name: str, value: Tensor, devices: tuple[str, ...]) -> None:
    _check_tensor(name, value)
    if value.dtype not in DTYPES:
        accepted = ", ".join(map(dtype_name, DTYPES))
        raise TypeError(
            f"{name} must have one of the dtypes {accepted}, got {dtype_name(value.dtype)}"
        )
    # The type of a device is spelled anew at each look; is_cuda is a bit.
    if not (value.is_cuda and "cuda" in devices) and value.device.type not in devices:
        raise ValueError(
            f"{name} must be on a device of type {' or '.join(devices)}, got {value.device}"
        )


def _check_same(name: str, value: Tensor, like_name: str, like: Tensor) -> None:
    if value.dtype is not like.dtype:
        raise TypeError(
            f"{name} must have the dtype of {like_name}, {dtype_name(like.dtype)}, "
            f"got {dtype_name(value.dtype)}"
        )
    if value.device != like.device:
        raise ValueError(
            f"{name} must be on the device of {like_name}, {like.device}, got {value.device}"
        )


def _check_beside(
    name: str, value: Tensor, like_name: str, like: Tensor, shape: torch.Size
) -> None:
    _check_tensor(name, value)
    if value.shape != shape:
        raise ValueError(
            f"{name} must have shape {tuple(shape)} to go with {like_name} {tuple(like.shape)}, "
            f"got {tuple(value.shape)}"
        )
    _check_same(name, value, like_name, like)


def _check_out(out: Tensor, shape: tuple[int, ...], **inputs: Tensor) -> None:
    _check_tensor("out", out)
    first_name, first = next(iter(inputs.items()))
    if out.shape != shape:
        raise ValueError(f"out must have shape {tuple(shape)}, got {tuple(out.shape)}")
    _check_same("out", out, first_name, first)
    if not out.is_contiguous() and _elements_overlap(out):
        raise ValueError(
            f"out must not hold one element at two places, got strides {out.stride()} "
            f"for shape {tuple(out.shape)}"
        )
    out_start, out_end = _extent(out)
    for name, value in inputs.items():
        start, end = _extent(value)
        # Address ranges: strict, so interleaved views count too. An empty one meets none.
        if max(start, out_start) < min(end, out_end):
            raise ValueError(f"out must not share memory with {name}: pass a tensor of its own")


def _check_forward_only(**tensors: Tensor | None) -> None:
    for name, value in tensors.items():
        if value is not None and value.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} requires grad, and these ops are forward only: "
                f"call them under torch.no_grad() or pass {name}.detach()"
            )


def _extent(x: Tensor) -> tuple[int, int]:
    """First byte of x and the byte after its last."""
    start = x.data_ptr()
    if x.is_contiguous():  # the usual case: a walk over the strides would take microseconds
        return start, start + x.nbytes
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return start, start + (last + 1) * x.element_size()


def _elements_overlap(x: Tensor) -> bool:
    """Whether two indices of x may reach one address.

    Sorted by stride, each dimension must step over everything the smaller ones reach; that
    holds for every view made by slicing, transposing and reshaping a dense tensor.
    """
    reach = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size == 0:
            return False
        if size == 1:
            continue
        if stride < reach:
            return True
        reach = stride * (size - 1) + reach
    return False
