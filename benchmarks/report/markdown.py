"""report.md: the page's content for a terminal or a code host."""

from __future__ import annotations

import re

from tabulate import tabulate

from benchmarks.report.content import Page, Section, Table

__all__ = ["escape", "render", "table_text"]

# A bracket is text but where it closes a link, and an underscore inside a word is text.
_MARKUP = re.compile(r"[\\`*<>|#~$]|\](?=[(\[:])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def escape(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no link, no cell of its own.

    No more than that takes is escaped, since a report is read in terminals too.
    """
    return _MARKUP.sub(r"\\\g<0>", text).replace("&", "&amp;")


def render(page: Page, figures: dict[str, str], notes: list[str]) -> str:
    """figures: name -> caption of the pictures in figures/. notes: said under the lead."""
    parts = [f"# {escape(page.title)}", *map(escape, (*page.lead, *notes))]
    for section in page.sections:
        parts += _section(section, figures)
    return "\n\n".join(parts) + "\n"


def _section(section: Section, figures: dict[str, str]) -> list[str]:
    parts = [f"## {escape(section.title)}", *map(escape, section.paragraphs)]
    for table in section.tables:
        if table.title:
            parts.append(f"### {escape(table.title)}")
        parts.append(table_text(table))
    for name in section.figures:
        if name in figures:
            parts.append(f"![{escape(figures[name])}](figures/{name}.svg)")
    return parts


def table_text(table: Table) -> str:
    """A pipe table."""
    align = ["right" if i in table.numbers else "left" for i in range(len(table.header))]
    return str(
        tabulate(
            [list(map(escape, row)) for row in table.rows],
            headers=[escape(name) for name in table.header],
            tablefmt="pipe",
            colalign=align,
            disable_numparse=True,
        )
    )
