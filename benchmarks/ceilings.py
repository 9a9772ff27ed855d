"""What this machine can do at most: measured in the same run and by the same clock as the rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.device import Clocks
from benchmarks.timing import GRAPH_CALLS, Arm, Settings, make_arm, measure
from reference.spec import dtype_name

__all__ = ["MOST_SETS", "copy_arm", "copy_calls", "measure_ceilings", "set_count"]

# Bytes moved (read plus written) at which the copy is measured.
COPY_BYTES = {"cuda": [2**20 * n for n in (2, 8, 32, 128, 512, 2048)], "cpu": [2**26, 2**28]}

# A virtual machine reports the whole host's cache, of which it has a slice; beyond this, filling
# buffers would take longer than all measurements.
CPU_WORKING_SET = 2**28

# Where buffers lie in memory moves a kernel with three streams by 4 % (seen on an H200, from one
# process to the next); over a few sets that averages out.
LEAST_SETS = 3

# One pass over the sets must fit one CUDA graph.
MOST_SETS = GRAPH_CALLS

SETTINGS = Settings(least_rounds=5, limit_seconds=0.4)


def set_count(set_bytes: int, device: torch.device, cache_bytes: int) -> int:
    """How many buffer sets make a working set of three times the cache: on a GPU at least
    LEAST_SETS, of a cache of no bytes one.

    Raises ValueError for sets so small that it would take more than MOST_SETS.
    """
    working_set = 3 * cache_bytes
    if device.type == "cpu":
        working_set = min(working_set, CPU_WORKING_SET)
    least = LEAST_SETS if device.type == "cuda" and cache_bytes else 1
    count = max(least, -(-working_set // max(set_bytes, 1)))
    if count > MOST_SETS:
        raise ValueError(
            f"too small to be measured cold: {count} buffer sets of {set_bytes} bytes would be "
            f"needed to leave the cache, and at most {MOST_SETS} are rotated"
        )
    return count


def copy_calls(
    bytes_moved: int, device: torch.device, cache_bytes: int
) -> dict[str, list[Callable[[], object]]]:
    """The ways to copy bytes_moved / 2, by name, each as calls over the same rotating buffers.

    On a GPU a copy kernel stands beside the driver's copy: in a graph the latter falls from 4.2
    to 2.8 TB/s at half a gigabyte (seen on an H200), and then it is no ceiling.
    """
    # Whole 16-byte words, so that neither way has an edge to care for.
    words = max(1, -(-bytes_moved // 32)) * 4
    pairs = [
        (
            torch.empty(words, dtype=torch.int32, device=device),
            torch.randint(2**31 - 1, (words,), dtype=torch.int32, device=device),
        )
        for _ in range(set_count(8 * words, device, cache_bytes))
    ]
    ways: dict[str, list[Callable[[], object]]] = {
        "driver": [functools.partial(target.copy_, source) for target, source in pairs]
    }
    if device.type == "cuda":
        # No way to say "copy by a kernel" in torch, but inverting bits costs nothing beside it.
        ways["kernel"] = [
            functools.partial(torch.bitwise_not, source, out=target) for target, source in pairs
        ]
    return ways


def copy_arm(
    bytes_moved: int, device: torch.device, cache_bytes: int, sample_seconds: float
) -> Arm:
    """The memory ceiling's arm: the fastest of `copy_calls`."""
    arms = [
        make_arm(calls, device, "graph", sample_seconds)
        for calls in copy_calls(bytes_moved, device, cache_bytes).values()
    ]
    return min(arms, key=lambda arm: min(arm.sample(), arm.sample()))


def measure_ceilings(device: torch.device, cache_bytes: int) -> dict[str, Any]:
    """Copy, read, write (bytes/s), matmul by dtype (flop/s), special functions (results/s) and
    the time of the smallest launch (s; inside a graph)."""
    seconds = functools.partial(_seconds_of, device=device)
    on_gpu = device.type == "cuda"
    big = torch.empty(2**30 if on_gpu else 2**27, dtype=torch.uint8, device=device)
    floats = big.view(torch.float32)
    floats.normal_()
    return {
        "copy": [
            [size, size / _seconds(copy_arm(size, device, cache_bytes, SETTINGS.sample_seconds))]
            for size in COPY_BYTES[device.type]
        ],
        "read": big.numel() / min(seconds([call]) for call in _read_calls(floats)),
        "write": big.numel() / seconds([lambda: floats.zero_()]),
        "matmul": {
            dtype_name(dtype): _matmul_rate(dtype, device)
            for dtype in (torch.float32, torch.bfloat16, torch.float16)
            # float16 products take minutes on most CPUs, and no case asks for them there.
            if on_gpu or dtype != torch.float16
        },
        "special_functions": _special_rate(device),
        "launch_seconds": seconds([functools.partial(floats[:1].add_, 1.0)]),
    }


def _seconds_of(calls: list[Callable[[], object]], device: torch.device) -> float:
    return _seconds(make_arm(calls, device, "graph", SETTINGS.sample_seconds))


def _seconds(arm: Arm) -> float:
    return min(measure({"ceiling": arm}, SETTINGS, Clocks()).seconds["ceiling"])


def _read_calls(x: torch.Tensor) -> list[Callable[[], object]]:
    """The ways to read x once: on a GPU the library's sum is beaten by a kernel that only reads."""
    calls: list[Callable[[], object]] = [x.sum]
    if x.is_cuda:
        # Here, not at the top: a machine without a GPU may have no triton.
        from benchmarks.read_rate import launch

        calls.append(functools.partial(launch, x.view(torch.int32)))
    return calls


def _matmul_rate(dtype: torch.dtype, device: torch.device) -> float:
    """The best of two large squares: the larger is limited by power, the smaller by its waves."""
    if device.type == "cpu":
        sizes = [1024]
    else:
        sizes = [2048] if dtype == torch.float32 else [4096, 8192]
    rates = []
    for size in sizes:
        a = torch.randn(size, size, dtype=dtype, device=device)
        b = torch.randn(size, size, dtype=dtype, device=device).t()
        out = torch.empty_like(a)
        call = functools.partial(torch.matmul, a, b, out=out)
        rates.append(2 * size**3 / _seconds_of([call], device))
    return max(rates)


def _special_rate(device: torch.device) -> float:
    """Results a second: of tanh, one instruction, on a GPU; of the library's fastest on a CPU."""
    if device.type == "cpu":
        x = torch.randn(2**20)
        out = torch.empty_like(x)
        calls = [functools.partial(function, x, out=out) for function in (torch.tanh, torch.exp)]
        return x.numel() / min(_seconds_of([call], device) for call in calls)
    # Here, not at the top: a machine without a GPU may have no triton.
    from benchmarks.special_rate import launch, launch_results

    out = torch.empty(1, device=device)
    return launch_results(device) / _seconds_of([lambda: launch(out)], device)
