"""index.html: the page's content in one file that needs no network."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from benchmarks.report.content import Page
from benchmarks.report.figures import vega_lite

__all__ = ["render"]


def render(page: Page, captions: dict[str, str], charts: dict[str, dict[str, Any]]) -> str:
    """charts: Vega-Lite by name, drawn by the script that the page carries."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    template = environment.get_template("index.html.j2")
    return template.render(
        page=page,
        captions=captions,
        anchors={section.title: _anchor(section.title) for section in page.sections},
        charts=_for_script(json.dumps(charts)),
        drawing=vl_convert.javascript_bundle(
            "window.vegaEmbed = vegaEmbed;", vl_version=vega_lite()
        )
        if charts
        else "",
    )


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _for_script(text: str) -> str:
    """JSON inside <script>: no text of a record can end the element or open a comment in it."""
    return text.replace("<", "\\u003c")
