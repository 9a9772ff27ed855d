"""The ops themselves: oracles against independent arithmetic, and cases that can fail."""

from __future__ import annotations

import math

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import check
from reference import chain, chain_sfu, matmul, softmax, steps
from reference.ops import OPS
from reference.spec import Case, Op, Tolerance

CPU = torch.device("cpu")
CHAINS = {"chain": chain, "chain_sfu": chain_sfu}


def test_softmax_oracle_against_exact_sums() -> None:
    rows = [[0.0, 1.0, 2.0], [-200.0, -200.0, -200.0], [1e7, 1e7 + 1, 1e7 + 2]]
    got = softmax.oracle(torch.tensor(rows, dtype=torch.float64))
    for row, values in zip(rows, got.tolist(), strict=True):
        total = math.fsum(math.exp(x - max(row)) for x in row)
        assert values == pytest.approx([math.exp(x - max(row)) / total for x in row], rel=1e-14)


def test_softmax_oracle_treats_special_rows_as_torch_does() -> None:
    inf, nan = math.inf, math.nan
    x = torch.tensor([[-inf] * 3, [0, nan, 1], [0, inf, 1], [-inf, -inf, 5]], dtype=torch.float64)
    assert torch.equal(softmax.oracle(x).isnan(), torch.softmax(x, -1).isnan())
    assert softmax.oracle(x)[3].tolist() == [0, 0, 1]


def test_matmul_oracle_against_exact_sums() -> None:
    a = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    b = torch.tensor([[1.0, 0.0], [0.5, -1.0], [0.0, 2.0]])
    assert matmul.oracle(a, b).tolist() == [[2.0, 4.0], [6.5, 7.0]]
    assert matmul.oracle(a, b).dtype == torch.float64


@pytest.mark.parametrize("name", CHAINS)
def test_forty_steps_with_names_of_their_own(name: str) -> None:
    declared = CHAINS[name].STEPS
    assert len(declared) == len({step.name for step in declared}) == 40


def test_special_functions_say_what_each_chain_is_bound_by() -> None:
    assert sum(step.special for step in chain.STEPS) <= 4
    assert sum(step.special for step in chain_sfu.STEPS) >= 16


@pytest.mark.parametrize("name", CHAINS)
def test_eager_is_exactly_forty_kernels(name: str) -> None:
    op = OPS[name]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    inputs = check.draw(op, Case((8, 64), torch.float32), device, seed=0)
    out = torch.empty_like(inputs[0])
    CHAINS[name].eager(*inputs, out=out)
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]
    # acc_events: torch 2.11 warns without it.
    with profile(activities=activities, acc_events=True) as profiler:
        CHAINS[name].eager(*inputs, out=out)
        if on_gpu:
            torch.cuda.synchronize()
    kind = torch.autograd.DeviceType.CUDA if on_gpu else torch.autograd.DeviceType.CPU
    # On the CPU the calls count: what runs inside one (an allocation, a cast) has a parent.
    counted = [
        event.name
        for event in profiler.events()
        if event.device_type == kind and event.cpu_parent is None
    ]
    assert len(counted) == 40, counted


@pytest.mark.parametrize("name", CHAINS)
def test_no_step_can_be_left_out(name: str) -> None:
    """Dropping any one step must fail the gate, in float32, on a test case."""
    op, declared = OPS[name], CHAINS[name].STEPS
    case = Case((64, 257), torch.float32)
    truth = check.find_truth(op, case, check.draw(op, case, CPU, seed=0))
    for index, step in enumerate(declared):
        shorter = declared[:index] + declared[index + 1 :]
        try:
            got = steps.run(shorter, *truth.inputs).float()
        except RuntimeError:
            continue  # the side value was never written
        assert not check.compare(truth, got).ok, step.name


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_test_case_is_a_test(op: Op) -> None:
    """Zeros, a copy of an input and the library's result of other inputs must not pass."""
    for case in op.test_cases:
        truth = check.find_truth(op, case, check.draw(op, case, CPU, seed=0))
        other = check.draw(op, case, CPU, seed=1)
        assert check.inadequate(truth, other) == [], case.name


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_the_library_passes_its_own_gate(op: Op) -> None:
    for case in op.test_cases:
        library = check.find(op.name, "library/eager").resolve()
        verdict = check.verify(op, case, library, CPU)
        assert verdict.ok, f"{case.name}: {verdict.reason}"


def test_counts_are_of_the_least_traffic() -> None:
    bf16 = torch.bfloat16
    assert OPS["softmax"].bytes_moved(Case((4, 8), bf16)) == 2 * 32 * 2
    assert OPS["chain"].bytes_moved(Case((4, 8), bf16)) == (3 * 32 + 8) * 2
    assert OPS["matmul"].bytes_moved(Case((2, 3, 5), bf16)) == (6 + 15 + 10) * 2
    assert OPS["matmul"].flops(Case((2, 3, 5), bf16)) == 60
    assert OPS["chain_sfu"].special_functions(Case((4, 8), bf16)) == 16 * 32


def test_counts_do_not_wrap_for_numpy_sizes() -> None:
    import numpy as np

    size = np.int32(2**16)
    case = Case((size, size), torch.float32)
    assert OPS["softmax"].bytes_moved(case) == 2 * 2**34
    assert OPS["matmul"].flops(Case((np.int32(2**21),) * 3, torch.float32)) == 2**64


def test_case_names_are_unique_and_readable() -> None:
    assert Case((16, 4096, 14336), torch.bfloat16, "nk").name == "16x4096x14336-bfloat16-nk"
    for op in OPS.values():
        for cases in (op.test_cases, op.cpu_cases, op.benchmark_cases):
            names = [case.name for case in cases]
            assert len(names) == len(set(names)), op.name


def test_values_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="layout must be one of"):
        Case((1, 1), torch.float32, "cube")
    with pytest.raises(ValueError, match="sizes must not be negative"):
        Case((1, -1), torch.float32)
    with pytest.raises(ValueError, match="floor must lie in"):
        Tolerance(floor=1.0, ceiling=0.5)


def test_the_library_earns_slack_up_to_the_ceiling() -> None:
    tolerance = Tolerance(floor=0.125, ceiling=1.0)
    assert tolerance.limit(0.0) == 0.125
    assert tolerance.limit(0.25) == 0.625
    assert tolerance.limit(10.0) == 1.0
