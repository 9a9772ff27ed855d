"""Times that can't be, faster than what was measured allows; and which arms share their rounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.bench import AGAIN, COPY, Bench
from benchmarks.buffers import Machine
from benchmarks.implementations import find
from benchmarks.timing import Arm, Settings
from reference.ops import OPS
from reference.spec import Case

CEILINGS: dict[str, Any] = {
    "read": 4e12,
    "write": 4e12,
    "copy": [[2**30, 4e12]],
    "matmul": {"bfloat16": 8e14},
}
SOFTMAX = Case((2**18, 1024), torch.bfloat16)  # 2^30 bytes: 268 us
PRODUCT = Case((4096, 4096, 4096), torch.bfloat16, "nk")  # 137 Gflop: 172 us


def verdict(
    device: str, op: str, case: Case, seconds: float, copy: float | None = None, **changed: Any
) -> str:
    machine = Machine(torch.device(device), 2**20, changed.get("ceilings", CEILINGS))
    timed = {"seconds": [1.0, seconds], "paired": {} if copy is None else {COPY: [1.0, copy]}}
    regime = changed.get("regime", "cold")
    return Bench(machine, Settings())._impossible(OPS[op], case, regime, timed)


@pytest.mark.parametrize(
    ("op", "case", "floor", "bound"),
    [("softmax", SOFTMAX, 268e-6, "bytes"), ("matmul", PRODUCT, 172e-6, "flops")],
)
def test_on_a_gpu_the_ceilings_of_the_run_decide(
    op: str, case: Case, floor: float, bound: str
) -> None:
    assert verdict("cuda", op, case, floor) == ""
    # A kernel may be some per cent better than what the ceilings were measured with.
    assert verdict("cuda", op, case, 0.9 * floor) == ""
    found = verdict("cuda", op, case, 0.5 * floor)
    assert found.startswith("impossible: ")
    assert f"its {bound} alone need" in found


def test_what_fits_the_cache_is_not_judged() -> None:
    assert verdict("cuda", "softmax", SOFTMAX, 1e-9, regime="hot") == ""
    assert verdict("cuda", "softmax", SOFTMAX, 1e-9, ceilings={}) == ""


def test_on_a_cpu_the_copy_of_the_same_rounds_decides() -> None:
    assert verdict("cpu", "softmax", SOFTMAX, 1e-3, copy=1.5e-3) == ""
    assert verdict("cpu", "softmax", SOFTMAX, 1e-3, copy=6e-3).startswith("impossible: ")
    # Without one there is nothing that a neighbour's work could not have changed.
    assert verdict("cpu", "matmul", PRODUCT, 1e-9) == ""


class _Arm:
    """Takes `seconds` a call, whatever the sample."""

    def __init__(self, seconds: float) -> None:
        self.outputs: list[object] = []
        self.rest = 0.0
        self._seconds = seconds

    def sample(self) -> float:
        return self._seconds

    def run(self) -> None:
        raise AssertionError("sampling asks for samples alone")


def test_an_arm_far_slower_than_the_library_is_sampled_apart() -> None:
    seconds = {
        "library/eager": 1e-4,
        "cuda/wgmma": 2.9e-4,
        "cuda/tiled": 3.1e-4,
        "cuda/naive": 1.0,
    }
    arms: dict[str, Arm] = {name: _Arm(time) for name, time in seconds.items()}
    rows = [find("matmul", name) for name in seconds]
    settings = Settings(least_seconds=0, limit_seconds=1e-6, least_rounds=10)
    bench = Bench(Machine(torch.device("cpu"), 2**20, CEILINGS), settings)
    found = bench._sample(rows, arms)
    rounds = {name: len(fields["seconds"]) // 2 for name, fields in found.items()}
    assert rounds == {"library/eager": 10, "cuda/wgmma": 10, "cuda/tiled": 3, "cuda/naive": 3}
    # Each beside the library call of its own rounds.
    for name, fields in found.items():
        assert fields["seconds"] == [seconds[name]] * 2 * rounds[name]
        if name != "library/eager":
            assert fields["paired"] == {"library/eager": [1e-4] * 2 * rounds[name]}


def test_a_kit_is_held_against_the_library_s_calls_and_none_against_it() -> None:
    seconds = {"library/eager": 2e-4, "library/cutlass": 1e-4, "cuda/wgmma": 1.5e-4}
    rows = [find("matmul", name) for name in seconds]
    arms: dict[str, Arm] = {name: _Arm(time) for name, time in seconds.items()}
    settings = Settings(least_seconds=0, limit_seconds=1e-6, least_rounds=10)
    found = Bench(Machine(torch.device("cpu"), 2**20, CEILINGS), settings)._sample(rows, arms)
    for name in ("library/cutlass", "cuda/wgmma"):
        assert list(found[name]["paired"]) == ["library/eager"]


def test_a_slow_eager_is_its_own_pair_in_rounds_of_its_own() -> None:
    seconds = {"library/eager": 1e-3, "library/compile": 1e-4, "triton/tuned": 1e-4}
    rows = [find("chain", name) for name in seconds]
    arms: dict[str, Arm] = {COPY: _Arm(9e-5)}
    arms |= {name: _Arm(time) for name, time in seconds.items()}
    arms |= {name + AGAIN: _Arm(seconds[name] * 1.01) for name in list(seconds)[:2]}
    settings = Settings(least_seconds=0, limit_seconds=1e-6, least_rounds=10)
    found = Bench(Machine(torch.device("cpu"), 2**20, CEILINGS), settings)._sample(rows, arms)
    assert {name: list(fields["paired"]) for name, fields in found.items()} == {
        "library/eager": ["library/eager", COPY],
        "library/compile": ["library/eager", "library/compile", COPY],
        "triton/tuned": ["library/compile", COPY],
    }
    assert found["library/eager"]["paired"]["library/eager"] == [1.01e-3] * 20
    assert found["library/compile"]["paired"]["library/eager"] == [1e-3] * 20
    assert found["library/compile"]["paired"]["library/compile"] == [1.01e-4] * 20
