"""The pages in a real browser: legible on a phone, in the dark and in print, to a screen reader, without a network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.browser import VIEWS, opened_page, screenshot, violations
from tests.cli.running import reput
from tests.golden.stores import GoldenStore, TornCase
from tests.inspect.stories import Story

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]


def _note(urls: list[str], request: Any) -> None:
    urls.append(request.url)


def looked_at(browser: Browser, path: Path, name: str) -> None:
    """Check in each view that nothing is wider than the screen, axe-core finds nothing, and no other file is loaded."""
    for view, width, scheme in VIEWS:
        with opened_page(browser, "about:blank", width, scheme) as page:
            asked: list[str] = []
            page.on("request", partial(_note, asked))
            page.goto(path.as_uri())
            screenshot(page, f"{name}-{view}")
            assert asked == [path.as_uri()]
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert violations(page) == []
    with opened_page(browser, path.as_uri(), 1200, "dark") as page:
        page.emulate_media(media="print")
        assert page.pdf().startswith(b"%PDF")


def test_the_report_of_a_shop(browser: Browser, golden: Golden, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    reput("report", golden("orders").path, "--output", path)
    looked_at(browser, path, "report")


def test_the_report_of_a_damaged_store(browser: Browser, torn: Torn, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    reput("report", torn("name_collision").after, "--output", path)
    looked_at(browser, path, "report-damaged")


def test_the_report_of_an_empty_store_and_of_long_names(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    (tmp_path / "s" / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    reput("report", tmp_path / "s", "--output", tmp_path / "report.html")
    looked_at(browser, tmp_path / "report.html", "report-empty")
    story = Story()
    for number in range(40):
        story.put("T" * 100 + str(number), number * 3_600_000, key="K" * 300, TAGS="x" * 90)
    reput("report", story.store(tmp_path / "long"), "--output", tmp_path / "report.html")
    looked_at(browser, tmp_path / "report.html", "report-long-names")


def test_a_timeline(browser: Browser, tmp_path: Path) -> None:
    story = Story()
    story.put("orders")
    at_ms = 0
    for number, delay_ms in enumerate((10_000, 30_000, 60_000, 120_000, 3_600_000)):
        at_ms += delay_ms
        story.put("%RETRY%billing", at_ms, times=number + 1)
    story.put("%DLQ%billing", at_ms + 7_200_000)
    path = tmp_path / "trace.html"
    reput("trace", story.store(tmp_path / "s"), "--key", "order-1", "--output", path)
    looked_at(browser, path, "trace")
