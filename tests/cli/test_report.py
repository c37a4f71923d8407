"""`reput report` and the page of `reput trace`: their contents, and that no text of a store changes the markup."""

import os
import re
import struct
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND, WARNED, WRONG_USE
from tests.check.checking import unchanged
from tests.cli.running import one_line, reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenLibrary, GoldenStore, TornCase
from tests.inspect.stories import Story

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]
_INDEX_COUNT_AT, _MAGIC_AT = 36, 4
_EMPTY = {"meta", "path", "rect"}  # elements without an end tag, in HTML or SVG


class _Page(HTMLParser):
    """Collects the words and elements of a page. Fails if elements are not nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._open: list[str] = []
        self.words = ""
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words += data


def read(path: Path) -> _Page:
    """Parse a page, which must not request anything else."""
    text = path.read_text()
    page = _Page(text)
    assert not {"script", "link", "img", "iframe", "object", "form"} & {
        tag for tag, _ in page.elements
    }
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "url(" not in text
    assert "@import" not in text
    return page


def reported(store: Path, page: Path, code: int, *options: str) -> _Page:
    with unchanged(store):
        ran = reput("report", store, "--output", page, *options)
    assert (ran.code, ran.out, ran.err) == (code, "", f"Wrote {page}\n")
    return read(page)


@pytest.fixture(scope="module")
def shop(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> _Page:
    """A report of a shop's store that replaces an older and longer page."""
    path = tmp_path_factory.mktemp("shop") / "report.html"
    path.write_text("x" * 1_000_000)
    page = reported(golden("orders").path, path, FOUND)
    assert [one.name for one in path.parent.iterdir()] == ["report.html"]
    return page


def test_the_page_has_the_figures_of_stats(shop: _Page) -> None:
    for words in (
        "Valid: the log, every queue entry and every index entry agree.",
        "19,622", "6.2 MiB", "58,866", "99.8%",  # as `reput stats` prints them
        "shipments: 8,934", "orders: 5,270", "%RETRY%billing: 415", "2.6 MiB, 41%",
        "customer-10", "415 retries, 3 dead letters", "51 min 59 s",
        "maxIndexNum=7400", "maxHashSlotNum=1850",
    ):  # fmt: skip
        assert words in shop.words
    drawings = [attributes for tag, attributes in shop.elements if tag == "svg"]
    assert len(drawings) > 80
    assert all(("aria-label" in one) != ("aria-hidden" in one) for one in drawings)


def test_columns_on_the_page_are_as_high_as_their_messages(shop: _Page) -> None:
    """The heights of all columns in the drawing add up to the number of messages of each topic."""
    sums = {
        style: sum(map(float, re.findall(r"v-([\d.]+)", path)))
        for style, path in reversed(_first_paths(shop))
    }
    top = 800  # messages at the top of the axis
    for style, messages in (("s0", 8_934), ("s1", 5_270), ("s2", 5_000)):
        assert sums[style] * top / 100 == pytest.approx(messages, abs=30)


def _first_paths(page: _Page) -> list[tuple[str, str]]:
    """Return class and path of everything drawn as a path, in order. Messages come first."""
    return [(a["class"] or "", a["d"] or "") for tag, a in page.elements if tag == "path"]


def test_findings_of_a_damaged_store(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    with max((store / "index").iterdir()).open("r+b") as file:
        file.seek(_INDEX_COUNT_AT)
        file.write(struct.pack(">i", 1))
    page = reported(store, tmp_path / "report.html", DAMAGED)
    assert re.search(r"missing_index_entry \(\d+ times\)", page.words)
    assert f"reput repair {store}" in page.words
    assert "Cost: " in page.words
    assert re.search(r"Damaged: \d+ findings", page.words)


def test_a_store_with_only_warnings_is_not_called_damaged(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    (store / "abort").touch()
    page = reported(store, tmp_path / "report.html", WARNED, "--quick")
    assert "Warnings, but no damage: 1 finding, see what the check found" in page.words
    assert "Damaged" not in page.words


@pytest.mark.slow
def test_a_quick_report_says_so(golden: Golden, tmp_path: Path) -> None:
    page = reported(golden("basic").path, tmp_path / "report.html", FOUND, "--quick")
    assert "Only names, sizes, headers, ends and samples were checked." in page.words


def test_what_a_log_cannot_show_is_on_the_page(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    with sorted((store / "commitlog").iterdir())[1].open("r+b") as file:
        file.seek(_MAGIC_AT)
        file.write(bytes(4))
    page = reported(store, tmp_path / "report.html", DAMAGED)
    assert "not in the figures" in page.words


@pytest.mark.slow
def test_every_golden_damage_has_a_page(
    golden_library: GoldenLibrary, torn: Torn, tmp_path: Path
) -> None:
    torn("kill9")
    for name in golden_library.torn_names():
        case = torn(name)
        for state in (case.before, case.after):
            ran = reput("report", state, "--output", tmp_path / "report.html")
            assert ran.code in (FOUND, WARNED, DAMAGED), (name, ran.err)
            read(tmp_path / "report.html")


HOSTILE = "<script>alert(1)</script>\"'>&amp;{{ 7*7 }}\u202e\x1b[31m"


def test_names_in_a_store_do_not_steer_the_page(tmp_path: Path) -> None:
    story = Story()
    for number in range(3):
        story.put("t<b>\"'{{ 7*7 }}", number * 60_000, key=HOSTILE.replace(" ", ""), TAGS="<i>x")
    store = story.store(tmp_path / "s")
    for code, arguments in (
        # the store has no checkpoint
        (WARNED, ("report", store, "--output", tmp_path / "page.html")),
        (
            FOUND,
            ("trace", store, "--key", HOSTILE.replace(" ", ""), "--output", tmp_path / "page.html"),
        ),
    ):
        assert reput(*arguments).code == code
        page = read(tmp_path / "page.html")
        assert "t<b>\"'{{ 7*7 }}" in page.words
        assert "<script>alert(1)</script>\"'>&amp;{{7*7}}\\u202e\\x1b[31m" in page.words
        assert not {"b", "i"} & {tag for tag, attributes in page.elements if not attributes}


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    (tmp_path / "s" / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    page = reported(tmp_path / "s", tmp_path / "report.html", WARNED)
    assert "The log has no messages." in page.words
    assert "checkpoint_missing" in page.words


def test_the_timeline_of_a_message(tmp_path: Path) -> None:
    story = Story()
    story.put("orders")
    for number, at_ms in enumerate((10_000, 40_000, 3_600_000)):
        story.put("%RETRY%billing", at_ms, times=number + 1)
    story.put("%DLQ%billing", 7_200_000)
    store = story.store(tmp_path / "s")
    ran = reput("trace", store, "--key", "order-1", "--output", tmp_path / "trace.html")
    assert (ran.code, ran.err) == (FOUND, f"Wrote {tmp_path / 'trace.html'}\n")
    page = read(tmp_path / "trace.html")
    assert "5 records over 2 h 0 min." in page.words
    for line in ran.lines:
        if line.startswith("  - "):
            assert line.removeprefix("  - ") in page.words
    dots = [a["d"] or "" for tag, a in page.elements if tag == "path" and a["class"] == "dot"]
    places = [float(dot[1:].split()[0]) for dot in dots]
    assert (len(places), places[0], places[-1]) == (5, 0.0, 100.0)
    assert places == sorted(places)
    assert "after 59 min 20 s" in page.words


def test_nothing_found_is_a_page_too(golden: Golden, tmp_path: Path) -> None:
    store = golden("basic").path
    ran = reput("trace", store, "--key", "no such", "--output", tmp_path / "trace.html")
    assert ran.code == NOT_FOUND
    assert "No message was found." in read(tmp_path / "trace.html").words


@pytest.mark.parametrize("command", ["report", "trace"])
def test_a_page_is_not_written_into_a_store(golden: Golden, tmp_path: Path, command: str) -> None:
    store = golden("basic").path
    options = ["--key", "x"] if command == "trace" else []
    with unchanged(store):
        ran = reput(command, store, *options, "--output", store / "page.html")
        assert ran.code == WRONG_USE
        assert "which is only read" in one_line(ran)
    ran = reput(command, store, *options, "--output", tmp_path / "none" / "page.html")
    assert (ran.code, "is not a folder" in one_line(ran)) == (WRONG_USE, True)


def test_short_gaps_are_shown_to_the_millisecond(tmp_path: Path) -> None:
    story = Story()
    for at_ms in (0, 7, 20_000):
        story.put("T", at_ms)
    reput("report", story.store(tmp_path / "s"), "--output", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "2023-11-14 22:13:20 to 22:13:40" in page
    assert "2023-11-14 22:13:20.000 to 22:13:20.007" in page


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes where others may have put a link")
def test_root_does_not_follow_the_link_of_another_user(golden: Golden, tmp_path: Path) -> None:
    secret, link = tmp_path / "secret", tmp_path / "page.html"
    secret.write_text("secret")
    link.symlink_to(secret)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    ran = reput("report", golden("orders").path, "--quick", "--output", link)
    assert ran.code == 2
    assert "another user's link" in one_line(ran)
    assert secret.read_text() == "secret"
