"""A headless Chromium that examines pages: in light and dark, wide and on a phone, with axe-core.

`make test-browser` sets up its driver and axe-core, neither of which is part of the project, and runs these tests.
Screenshots are kept in build/browser/screenshots.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IS_REQUIRED = os.environ.get("REPUT_BROWSER") == "required"
BUILD = Path(__file__).parents[1] / "build" / "browser"
AXE = BUILD / "node_modules" / "axe-core" / "axe.min.js"
SCREENSHOTS = BUILD / "screenshots"
WIDE, PHONE = 1200, 360
VIEWS = [("wide", WIDE, "light"), ("dark", WIDE, "dark"), ("phone", PHONE, "light")]


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Run Chromium. Only `make test-browser` installs it: elsewhere the test is skipped."""
    if not IS_REQUIRED:
        pytest.skip("of a browser: run `make test-browser`")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("there is no Chromium here: apt-get install chromium", pytrace=False)
    if not AXE.exists():
        pytest.fail("there is no axe-core in build/browser: run `make test-browser`", pytrace=False)
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu"]  # in a container, root has no sandbox
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


@contextmanager
def opened_page(
    browser: Browser,
    url: str,
    width: int,
    scheme: Any,
    has_csp: bool = False,
    has_script: bool = True,
) -> Iterator[Page]:
    """Open a page in a new browser, where scripts of the test may run despite the page's policy."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme,
        bypass_csp=not has_csp, java_script_enabled=has_script,
    )  # fmt: skip
    page = context.new_page()
    page.goto(url)
    yield page
    context.close()


def screenshot(page: Page, name: str) -> None:
    """Save the whole page as build/browser/screenshots/NAME.png."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def violations(page: Page) -> list[str]:
    """Return axe-core's findings, a line for each."""
    page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = page.evaluate(
        "axe.run({resultTypes: ['violations']}).then(found => found.violations)"
    )
    return [
        f"{one['id']}: {node['html'][:200]}: {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]
