"""csrc/landing.h: a landing only for what is accepted and needs no copy."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from benchmarks.device import unmet
from benchmarks.implementations import find

pytestmark = pytest.mark.gpu


@pytest.fixture
def x(device: torch.device) -> Tensor:
    if missing := unmet(find("softmax", "cuda/registers"), device):
        pytest.skip(str(missing))
    return torch.randn(16, 24, device=device).half()


def refused(x: Tensor) -> list[object]:
    """What takes the place of x, [16, 24] float16, and has no landing."""
    return [
        *(x.tolist(), None, x.cpu(), x.double(), x.int(), x.to_sparse(), x[:0], x[0, 0]),
        # What is copied, or has to be negated.
        *(x[:, :23], x[::2], x[:1].expand(16, 24), torch._neg_view(x)),
        x.clone().requires_grad_(),
    ]


def test_softmax(x: Tensor) -> None:
    from cuda_impl.extension import compiled

    land = compiled().softmax_landing
    new, out = land(x, None), torch.empty_like(x)
    assert (new.shape, new.dtype, new.device) == (x.shape, x.dtype, x.device)
    assert land(x, out) is out
    assert land(x[None, 2:], None).shape == (1, 14, 24)
    assert all(land(wrong, None) is None for wrong in [*refused(x), x.t()])
    others = [x, x.view(24, 16), x.float(), x.new_empty(24, 16).t(), x.new_empty(8, 24)]
    assert all(land(x, wrong) is None for wrong in others)
    memory = x.new_empty(17 * 24)
    assert land(memory[:384].view(16, 24), memory[24:].view(16, 24)) is None
    with torch.no_grad():
        assert land(x.clone().requires_grad_(), None) is not None


def test_chain(x: Tensor) -> None:
    from cuda_impl.extension import compiled

    land = compiled().chain_landing
    residual, bias, out = torch.empty_like(x), x[0].clone(), torch.empty_like(x)
    assert land(x, residual, bias, out) is out
    for wrong in [*refused(x), x.t(), x.float()]:
        assert land(wrong, residual, bias, None) is None
        assert land(x, wrong, bias, None) is None
        assert wrong is None or land(x, residual, bias, wrong) is None
    for wrong in (bias[:23], bias[None], bias.float(), residual):
        assert land(x, residual, wrong, None) is None
    assert land(x, residual, bias, residual) is None


def test_matmul(x: Tensor) -> None:
    from cuda_impl.extension import compiled

    land = compiled().matmul_landing
    weight = x.new_empty(40, 24)
    for b, is_weight in ((weight.t(), True), (weight.t().contiguous(), False)):
        out, right, found, aligned = land(x, b, None)
        assert (out.shape, found, aligned) == ((16, 40), is_weight, True)
        assert right.is_contiguous()
        assert right.data_ptr() == b.data_ptr()
        assert land(x, b, out)[0] is out
    assert land(x.view(24, 16), weight.t(), None) is None
    assert land(x[None], weight.t(), None) is None
    for wrong in [*refused(x), x.t(), x.float()]:
        assert land(wrong, weight.t(), None) is None
        assert wrong is None or land(x, weight.t(), wrong) is None
    # 23 elements a row are no multiple of 16 bytes.
    assert land(x.new_empty(16, 23), x.new_empty(40, 23).t(), None)[3] is False
