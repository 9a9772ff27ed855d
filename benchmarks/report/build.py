"""Builds a run's report beside its records: report.md, index.html and figures/."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

from benchmarks.codesize import ROOT
from benchmarks.record import Run, read
from benchmarks.report import markdown
from benchmarks.report.format import cleaned
from benchmarks.report.page import page

__all__ = ["build"]

_NO_PICTURES = (
    "There are no pictures and no index.html, because {module} is not installed: "
    "pip install {package}, then python -m benchmarks report {directory}"
)


def build(directory: Path, beside: Path | None = None) -> Path:
    """Write the report of `directory`/records.jsonl there and return the file to open.

    beside: another run's folder, shown in sections of its own

    That file is index.html, or report.md where the packages that draw are missing. Raises
    RecordError for unusable records, before anything is written.
    """
    run = cleaned(read(directory / "records.jsonl"))
    other = None if beside is None else cleaned(read(beside / "records.jsonl"))
    try:
        return _build_all(directory, run, other)
    except ModuleNotFoundError as error:
        packages = {"altair": "altair", "vl_convert": "vl-convert-python", "jinja2": "jinja2"}
        if error.name not in packages:
            raise
        note = _NO_PICTURES.format(
            module=error.name, package=packages[error.name], directory=_named(directory)
        )
        content = page(run, other, {}, [])
        return _write(directory / "report.md", markdown.render(content, {}, [note]))


def _build_all(directory: Path, run: Run, other: Run | None) -> Path:
    import vl_convert

    from benchmarks.report import figures, html

    charts = {name: chart.to_dict() for name, chart in figures.charts(run).items()}
    captions = {name: figures.CAPTIONS[name] for name in charts}
    if other is not None:
        # Named for their machine, so that no picture can be taken for this one's.
        slug = re.sub(r"[^a-z0-9]+", "-", other.environment["machine"]["slug"].lower())[:60]
        for name, chart in figures.charts(other).items():
            charts[f"{slug}-{name}"] = chart.to_dict()
            captions[f"{slug}-{name}"] = f"{slug}: {figures.CAPTIONS[name]}"
    own = {name: text for name, text in captions.items() if name in figures.CAPTIONS}
    foreign = [name for name in captions if name not in own]
    content = page(run, other, own, foreign)
    (directory / "figures").mkdir(exist_ok=True)
    for name, declared in charts.items():
        svg = vl_convert.vegalite_to_svg(json.dumps(declared), vl_version=figures.vega_lite())
        _write(directory / "figures" / f"{name}.svg", svg)
    _write(directory / "report.md", markdown.render(content, captions, []))
    return _write(directory / "index.html", html.render(content, captions, charts))


def _named(directory: Path) -> str:
    """As a command in the tree's root names it. A path elsewhere is no reader's business."""
    try:
        return shlex.quote(directory.resolve().relative_to(ROOT).as_posix())
    except ValueError:
        return "DIR"


def _write(path: Path, text: str) -> Path:
    """Whole or not at all: an interrupted build leaves the old file."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8", newline="\n")
    os.replace(part, path)
    return path
