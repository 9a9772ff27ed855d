"""Figures that are derived from records, on records whose figures are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import synthetic_records
import torch

from benchmarks import record
from benchmarks.implementations import find
from benchmarks.statistics import cases_of, figures_of, paired_ratio
from benchmarks.winners import BEST_CALL, OpView, ops_of
from reference.ops import OPS
from reference.spec import Case, Op

ENVIRONMENT = synthetic_records.environment()
SOFTMAX = OPS["softmax"]
CASE = Case((1024, 1024), torch.bfloat16)
ROW = find("softmax", "triton/tuned")


def test_a_ratio_is_taken_within_rounds_so_a_drift_cancels() -> None:
    # Both arms slow down tenfold while they are sampled; one is always twice as fast.
    drift = [1.0 + 0.5 * i for i in range(20)]
    fast = [time for time in drift for _ in range(2)]
    slow = [2 * time for time in fast]
    found = paired_ratio(fast, slow)
    assert (found.value, found.low, found.high) == (2.0, 2.0, 2.0)
    assert paired_ratio(slow, fast).value == 0.5


def test_an_interval_holds_the_median_and_is_the_same_every_time() -> None:
    candidate = [1.0 + 0.01 * (i * 7 % 5) for i in range(40)]
    baseline = [1.5 + 0.01 * (i * 3 % 7) for i in range(40)]
    first, second = paired_ratio(candidate, baseline), paired_ratio(candidate, baseline)
    assert first == second
    assert first.low < first.value < first.high
    assert first.high - first.low < 0.05


def test_samples_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="as many, got 4 and 2"):
        paired_ratio([1.0] * 4, [1.0] * 2)
    with pytest.raises(ValueError, match="two or more samples"):
        paired_ratio([], [])


def test_rates_and_percentages_of_a_pointwise_row() -> None:
    line = synthetic_records.line(SOFTMAX, CASE, ROW, seconds=[1e-6] * 4)
    line["paired"] = {"library/compile": [3e-6] * 4, "ceiling/copy": [0.9e-6] * 4}
    figures = figures_of(line, ENVIRONMENT)
    assert figures.state == "ok"
    assert figures.rate == pytest.approx(2 * 2 * 2**20 / 1e-6)
    assert (figures.percent, figures.ceiling) == (pytest.approx(90.0), "copy")
    assert figures.speedup is not None
    assert (figures.speedup.value, figures.against) == (pytest.approx(3.0), "library/compile")


def test_a_call_beside_itself_is_no_speedup_over_another() -> None:
    line = synthetic_records.line(SOFTMAX, CASE, find("softmax", "library/compile"))
    own, eager = [1e-6] * 4, [3e-6] * 4
    line |= {"seconds": own, "paired": {"library/eager": eager, "library/compile": [1.01e-6] * 4}}
    figures = figures_of(line, ENVIRONMENT)
    assert figures.speedup is not None
    assert figures.itself is not None
    assert (figures.speedup.value, figures.against) == (pytest.approx(3.0), "library/eager")
    assert figures.itself.value == pytest.approx(1.01)


@pytest.mark.parametrize(
    ("sizes", "ceiling", "unit"),
    [((4096, 4096, 4096), "matmul", "TFLOP/s"), ((1, 4096, 14336), "read", "GB/s")],
)
def test_a_product_is_held_against_what_binds_it(
    sizes: tuple[int, int, int], ceiling: str, unit: str
) -> None:
    op, case = OPS["matmul"], Case(sizes, torch.bfloat16, "nk")
    floor = max(op.flops(case) / 8e14, op.bytes_moved(case) / 4.3e12)
    line = synthetic_records.line(op, case, find("matmul", "triton/tuned"))
    line |= {"seconds": [2 * floor] * 4, "paired": {"library/eager": [2 * floor] * 4}}
    figures = figures_of(line, ENVIRONMENT)
    assert (figures.ceiling, figures.unit) == (ceiling, unit)
    assert figures.percent == pytest.approx(50.0)


def test_a_row_of_other_source_is_stale_and_wins_nothing(tmp_path: Path) -> None:
    path = synthetic_records.write(tmp_path / "records.jsonl")
    run = record.read(path)
    states = {
        figures.name: figures.state
        for case in cases_of(run)
        for figures in case.rows
        if case.op == "chain"
    }
    assert states["cuda/naive"] == "stale"
    assert states["cuda/packed"] == "ok"
    removed = synthetic_records.line(SOFTMAX, CASE, ROW, variant="gone")
    assert figures_of(removed, ENVIRONMENT).state == "stale"


def test_who_won(tmp_path: Path) -> None:
    run = record.read(synthetic_records.write(tmp_path / "records.jsonl"))
    softmax, *others = ops_of(cases_of(run))
    assert [op.op for op in others] == [
        *("chain", "chain_sfu", "matmul", "matmul few rows", "matmul float32"),
    ]
    assert softmax.winner == "cuda"
    assert [tier.tier for tier in softmax.tiers] == ["library", "cuda", "cupy", "triton"]
    best = softmax.tiers[1]
    assert (best.name, best.against) == ("cuda/registers", BEST_CALL)
    assert best.speedup.value == pytest.approx(2.0 / 1.05, rel=5e-3)
    assert best.speedup.low <= best.speedup.value <= best.speedup.high
    assert softmax.cases == softmax.measured == len(SOFTMAX.benchmark_cases)
    # CuPy runs the same kernel half a per cent slower: nothing that the clock could defend.
    assert softmax.level == ("cupy",)
    assert [tier.against for tier in softmax.tiers if tier.tier == "library"] == ["library/eager"]


# A kernel that is faster than the only library call.
BOTH = (("library/eager", 1.0), ("cuda/registers", 0.5))


def won(*lines: dict[str, Any]) -> OpView:
    (op,) = ops_of(cases_of(record.Run(ENVIRONMENT, list(lines))))
    return op


def timed(
    name: str, part: float, *, case: Case = CASE, against: str = "library/eager", op: Op = SOFTMAX
) -> dict[str, Any]:
    """A row that takes `part` of the time of the call that it was sampled beside."""
    paired = {against: [1.0] * 4}
    return synthetic_records.line(op, case, find(op.name, name), seconds=[part] * 4, paired=paired)


def test_a_ratio_names_what_it_is_to() -> None:
    """Without the library's own rows nobody knows whether what was sampled is its best call."""
    kernel = timed("triton/tuned", 0.5)
    assert won(kernel).tiers[0].against == "library/eager"
    eager, compiled = timed("library/eager", 1.0), timed("library/compile", 0.8)
    # Measured, but a slower call than the one that turned out to be the best.
    assert won(eager, compiled, kernel).tiers[1].against == "library/eager"
    kernel = timed("triton/tuned", 0.5, against="library/compile")
    assert won(eager, compiled, kernel).tiers[1].against == BEST_CALL
    stale = {**compiled, "source_digest": "000000000000"}
    assert won(eager, stale, kernel).tiers[1].against == "library/compile"


def test_tiers_are_compared_over_the_cases_that_all_have() -> None:
    other = Case((64, 4096), torch.bfloat16)
    op = won(
        timed("triton/tuned", 0.5),
        timed("triton/tuned", 0.9, case=other),
        # No time in the case that is hard: must not win by the easy one alone.
        timed("cuda/registers", 0.6),
    )
    assert (op.cases, op.measured, op.winner) == (1, 2, "triton")
    assert [tier.speedup.value for tier in op.tiers] == pytest.approx([2.0, 1 / 0.6])
    apart = won(timed("triton/tuned", 0.9, case=other), timed("cuda/registers", 0.6))
    assert (apart.cases, apart.winner, apart.level) == (0, "", ())


def test_a_variant_that_skips_what_it_is_slow_at_is_not_its_tier_s_best() -> None:
    other = Case((64, 4096), torch.bfloat16)
    good = [timed("cuda/registers", 0.5), timed("cuda/registers", 0.9, case=other)]
    (tier,) = won(*good, timed("cuda/naive", 0.6)).tiers
    assert tier.name == "cuda/registers"


def test_a_variant_made_for_few_cases_does_not_stand_for_its_tier() -> None:
    cases = [Case((rows, 4096), torch.bfloat16) for rows in (1, 2, 4, 8)]
    wide = [timed("cuda/registers", 0.8, case=case) for case in cases]
    for count, name in ((2, "cuda/registers"), (3, "cuda/naive")):
        fast = [timed("cuda/naive", 0.7, case=case) for case in cases[:count]]
        (tier,) = won(*wide, *fast).tiers
        assert tier.name == name


def test_the_library_is_its_fastest_call_in_each_case() -> None:
    cases = [Case((rows, 4096), torch.bfloat16) for rows in (2**16, 2**12)]
    eager = [timed("library/eager", 1.0, case=case) for case in cases]
    compiled = [timed("library/compile", 0.5, case=cases[0])]
    kernel = [
        timed("cuda/registers", 0.4, case=cases[0], against="library/compile"),
        timed("cuda/registers", 0.8, case=cases[1]),
    ]
    library, cuda = won(*eager, *compiled, *kernel).tiers
    assert library.speedup.value == pytest.approx(2**0.5)
    assert (library.cases, cuda.cases, cuda.against) == (2, 2, BEST_CALL)


def test_a_kit_is_shown_and_is_neither_the_library_s_best_call_nor_a_winner() -> None:
    op = OPS["matmul"]
    cases = [Case(sizes, torch.bfloat16, "nk") for sizes in ((4096,) * 3, (8192,) * 3)]
    lines = [
        timed(name, part, case=case, op=op)
        for case in cases
        for name, part in (("library/eager", 1.0), ("cuda/wgmma", 0.8))
    ]
    kit = [timed("library/cutlass", 0.5, case=case, op=op) for case in cases]
    for case in cases_of(record.Run(ENVIRONMENT, [*lines, *kit])):
        assert case.library == "library/eager"
    view = won(*lines, *kit)
    assert (view.winner, view.level, view.best_kernel) == ("cuda", (), view.tiers[2])
    assert [(tier.tier, tier.name) for tier in view.tiers] == [
        ("library", "library/eager"),
        ("kit", "library/cutlass"),
        ("cuda", "cuda/wgmma"),
    ]
    assert view.tiers[1].speedup.value == pytest.approx(2.0)
    # Where it has no time, the others are compared all the same, and the case is as fair.
    skipped = {**kit[1], **synthetic_records.untimed("skipped", "no time")}
    assert won(*lines, kit[0], skipped).cases == 2
    assert won(*lines, kit[0], skipped).unfair == 0
    # Where there is no kernel, it stands for none.
    assert won(lines[0], kit[0]).winner == ""
    assert won(kit[0]).best_kernel is None


def test_a_twin_with_fewer_cases_takes_none_from_the_others_and_is_not_compared() -> None:
    cases = [Case((rows, 4096), torch.bfloat16) for rows in (1, 2)]
    lines = [timed(name, part, case=case) for case in cases for name, part in BOTH]
    op = won(*lines, timed("cupy/registers", 0.1, case=cases[0]))
    assert (op.cases, op.winner, op.level) == (2, "cuda", ())
    assert {tier.tier: tier.cases for tier in op.tiers} == {"library": 2, "cuda": 2, "cupy": 1}


def test_a_case_without_a_library_call_that_may_be_the_fastest_is_not_counted() -> None:
    fair, unfair = (Case((2**28 // cols, cols), torch.bfloat16) for cols in (4096, 131072))
    lines = [timed(name, part, case=case) for case in (fair, unfair) for name, part in BOTH]
    searched = timed("library/compile-max", 0.9, case=fair)
    skipped = timed("library/compile-max", 0.9, case=unfair)
    skipped |= {"status": "skipped", "reason": "no time", "seconds": [], "paired": {}}
    op = won(*lines, searched, skipped)
    assert (op.cases, op.measured, op.unfair) == (1, 1, 1)
    # Where the table says why, it counts.
    short = Case((2**18, 1024), torch.bfloat16)
    lines += [timed(name, part, case=short) for name, part in BOTH]
    skipped = {**skipped, "case": short.name, "sizes": SOFTMAX.sizes(short)}
    assert won(*lines, searched, skipped).unfair == 0


def test_a_single_sample_has_no_ratio() -> None:
    line = synthetic_records.line(SOFTMAX, CASE, ROW, seconds=[1.0], paired={"ceiling/copy": [1.0]})
    figures = figures_of(line, ENVIRONMENT)
    assert (figures.seconds, figures.percent, figures.speedup) == (1.0, None, None)


def test_a_difference_within_the_clock_s_own_is_a_draw() -> None:
    def winner(part: float) -> str:
        return won(timed("library/eager", 1.0), timed("triton/tuned", part)).winner

    assert [winner(1.005), winner(0.9), winner(1.1)] == ["", "triton", "library"]
    noisy = timed("triton/tuned", 0.9)
    noisy |= {"seconds": [0.5, 0.5, 1.5, 1.5] * 5, "paired": {"library/eager": [1.1] * 20}}
    assert won(timed("library/eager", 1.0), noisy).winner == ""
