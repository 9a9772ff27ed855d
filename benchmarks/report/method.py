"""What the machine can do at most, and how everything was measured."""

from __future__ import annotations

from typing import Any

from benchmarks.report import format as write
from benchmarks.report.content import Section, Table

__all__ = ["ceilings", "method"]


def ceilings(environment: dict[str, Any]) -> Section | None:
    ceilings = environment["ceilings"]
    if not ceilings:
        return None
    rows = [
        (f"copy, {size / 2**20:.0f} MiB moved", f"{rate / 1e9:.0f} GB/s", "")
        for size, rate in ceilings.get("copy", [])
    ]
    sheet = environment.get("datasheet") or {}
    memory = f"{sheet['memory'] / 1e9:.0f} GB/s" if sheet.get("memory") else ""
    rows += [
        (name, f"{ceilings[name] / 1e9:.0f} GB/s", memory)
        for name in ("read", "write")
        if ceilings.get(name)
    ]
    for dtype, rate in ceilings.get("matmul", {}).items():
        stated = (sheet.get("matmul") or {}).get(dtype)
        rows.append(
            (
                f"matmul {dtype}",
                f"{rate / 1e12:.3g} TFLOP/s",
                f"{stated / 1e12:.0f} TFLOP/s" if stated else "",
            )
        )
    if ceilings.get("special_functions"):
        rows.append(("special functions", f"{ceilings['special_functions'] / 1e9:.0f} G/s", ""))
    if ceilings.get("launch_seconds"):
        rows.append(("smallest call", write.seconds(ceilings["launch_seconds"]), ""))
    table = Table(("what", "measured in this run", "data sheet"), tuple(rows), numbers=(1, 2))
    return Section("Ceilings", tables=(table,), folded=True)


def method(environment: dict[str, Any]) -> Section:
    timing = environment.get("timing") or {}
    settings = ", ".join(f"{name} {value}" for name, value in timing.items())
    paragraphs = [
        "Every result is compared with a float64 oracle before it is timed and again after, with "
        "poisoned outputs and new inputs at the same addresses; a wrong result has no time. It "
        "passes at twice the library's own error in the same dtype, plus a small floor.",
        "Time is device time, the median over samples. On a GPU, calls rotate over buffer sets "
        "that are three times the L2 cache together and are replayed from a CUDA graph, except "
        "eager chains, which are sent one by one as their users do. Samples of all arms of a case "
        "are taken in turn, there and back (A B C C B A), each round in another order, until the "
        "interval of each ratio is narrow or a time limit is met. Arms that are so slow that the "
        "others would wait, or that a card at its power limit would rest, have rounds of their own "
        "with the copy and the fastest library call, eager with its second arm. After each "
        "captured call a few small blocks are kept, so that what small temporaries the next one "
        "has lie elsewhere.",
        "Ratios are medians of ratios within a round, with 95 % bootstrap intervals. Percentages "
        "are of ceilings that were measured in the same run: for products the fastest of large "
        "products or, where bytes bind, reading memory; for all others a copy of as many bytes, "
        "sampled in the same rounds.",
        "Host time is what issuing a call takes, the tier's checks of its arguments included; "
        "first call is compilation, loading and whatever else happens once.",
    ]
    if settings:
        paragraphs.append(f"Settings of the clock, in seconds where a time: {settings}.")
    return Section("How it was measured", tuple(paragraphs), folded=True)
