"""What a report says, as plain values: the one source of the page, the Markdown and the terminal.

Nothing here knows an output format, or what is said.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Page", "Section", "Table"]


@dataclass(frozen=True)
class Table:
    """rows: cells as text, as many as header. numbers: the columns that align right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Section:
    """figures: names of pictures (see `benchmarks.report.figures`). folded: closed at first."""

    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[str, ...] = ()
    folded: bool = False


@dataclass(frozen=True)
class Page:
    title: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...]
