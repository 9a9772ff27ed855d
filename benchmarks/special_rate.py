"""A kernel that does nothing but special functions: the ceiling of the chain_sfu op."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["launch", "launch_results"]

CHAINS = 8  # independent values a thread, so that the unit's latency is covered
STEPS = 256
WARPS = 8


@triton.jit
def _special_rate_kernel(out_ptr, STEPS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    x = (tl.arange(0, BLOCK) + tl.program_id(0)).to(tl.float32) * 1e-6
    for _ in range(STEPS):
        # One instruction of the unit and nothing else; exp2 would come with range handling.
        x = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    # Never true, but the compiler can't know: keeps the loop alive without a store.
    tl.store(out_ptr + tl.arange(0, BLOCK), x, mask=x == -1.0)


def _programs(device: torch.device) -> int:
    return 32 * torch.cuda.get_device_properties(device).multi_processor_count


def launch_results(device: torch.device) -> int:
    """Special functions that one `launch` evaluates."""
    return _programs(device) * WARPS * 32 * CHAINS * STEPS


def launch(out: Tensor) -> None:
    """One launch that fills the device. out: one float32 element, never written."""
    _special_rate_kernel[(_programs(out.device),)](out, STEPS, WARPS * 32 * CHAINS, num_warps=WARPS)
