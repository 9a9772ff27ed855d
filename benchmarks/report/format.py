"""How figures and texts are written, the same in every output."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.record import Run
from benchmarks.statistics import Figures, Ratio

__all__ = ["clean", "cleaned", "count", "percent", "rate", "ratio", "seconds", "span"]

LONGEST = 300

_ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[@-_])")
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    # Halves of pairs, which UTF-8 has no form for, and what XML does not allow.
    r"\ud800-\udfff\ufffe\uffff]+"
)


def clean(text: str) -> str:
    """A record's text on one line: no terminal sequence, no control character, not endless."""
    line = " ".join(_CONTROL.sub(" ", _ANSI.sub("", text)).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def cleaned(run: Run) -> Run:
    """The run with every text in it `clean`, which whatever shows one begins with.

    At the way in and nowhere else: one name that got by would end the process that draws, since a
    picture's library aborts on a control character.
    """
    return Run(_cleaned(run.environment), [_cleaned(row) for row in run.rows])


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(name): _cleaned(part) for name, part in value.items()}
    return [_cleaned(part) for part in value] if isinstance(value, list) else value


def seconds(value: float | None) -> str:
    """Three digits in the unit that suits: 12.3 us, 4.56 ms."""
    if value is None:
        return ""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if value * factor < 1000:
            return f"{_three_digits(value * factor)} {unit}"
    return f"{_three_digits(value)} s"


def rate(figures: Figures) -> str:
    """For instance 4120 GB/s or 712 TFLOP/s."""
    if figures.rate is None:
        return ""
    scale = 1e12 if figures.unit == "TFLOP/s" else 1e9
    return f"{_three_digits(figures.rate / scale)} {figures.unit}"


def percent(figures: Figures) -> str:
    """For instance 97.3 % of copy."""
    return "" if figures.percent is None else f"{figures.percent:.1f} % of {figures.ceiling}"


def ratio(value: Ratio | None) -> str:
    """With its 95 % interval: 1.853 [1.851, 1.856]."""
    if value is None:
        return ""
    digits = 3 if value.value < 10 else 1
    return f"{value.value:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


def count(value: int | None) -> str:
    """Nothing where there is nothing to count."""
    return "" if value is None else str(value)


def span(least: float, most: float, digits: int = 2) -> str:
    """From least to most, or the one where both read the same."""
    low, high = f"{least:.{digits}f}", f"{most:.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
