"""The page in a browser: drawn, quiet, without a network, on a wide and a narrow screen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic_records

from benchmarks.report.build import build

# Debian's own: pip and npm can't fetch a browser where only packages are reachable.
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install .[dev]")
pytestmark = pytest.mark.skipif(
    not os.path.exists(CHROMIUM), reason=f"needs a browser at {CHROMIUM}: apt install chromium"
)


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    synthetic_records.write(directory / "records.jsonl")
    return build(directory)


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page(browser: sync_api.Browser, page_path: Path, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith(("file:", "data:")) else complaints.append(request.url)
        ),
    )
    page.goto(page_path.as_uri())
    page.wait_for_function(
        "[...document.querySelectorAll('[data-chart]')].every((e) => e.querySelector('svg'))"
    )
    assert page.locator("[data-chart]").count() == 4
    # Wide tables and pictures scroll inside their own boxes.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # The first screen says what ran on what, and who won.
    assert page.get_by_text("Measured on NVIDIA H200").is_visible()
    assert page.get_by_role("heading", name="Who won").is_visible()
    fold = page.locator("details").first
    assert not fold.locator("table").first.is_visible()
    fold.locator("summary").click()
    assert fold.locator("table").first.is_visible()
    assert complaints == []
    page.close()
