"""The pages in headless Chromium, as users operate them, in light and dark, wide and narrow (`make test-browser`).

No page may have an accessibility violation that axe-core finds, log an error, break its own Content-Security-Policy,
scroll sideways, or ask another host for anything. Screenshots stay in build/browser/screenshots.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
import uvicorn

from reput import Message, StoreConfig, open_store
from reput.engine.messages.tail import LogTail, TailFilter
from reput.engine.writer.shared_store import SharedStore
from reput.wings.console import results
from reput.wings.console.app import create_app
from reput.wings.console.mounts import Until
from reput.wings.console.searching import Outcome, Progress
from tests.browser import PHONE, WIDE, opened_page, screenshot, violations
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.waiting import wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Golden = Callable[[str], GoldenStore]
KEY, DEAD = "order-100377", "order-101744"  # the payment of the second order became a dead letter
_PATIENCE_MS = 60_000
_SMALL = StoreConfig(
    commit_log_file_bytes=1 << 16, queue_entries=50, hash_slots=64, index_items=300
)
_LARGE = replace(_SMALL, commit_log_file_bytes=1 << 23)


def expect(what: Any) -> Any:
    """Return Playwright's `expect` with a longer limit than its five seconds, which are too few on a busy machine."""
    from playwright import sync_api

    sync_api.expect.set_options(timeout=_PATIENCE_MS)
    return sync_api.expect(what)


@contextmanager
def serving(stores: dict[str, Path], **how: Any) -> Iterator[str]:
    """The console in a thread; its address."""
    with ExitStack() as stack:
        opened = {name: SharedStore(path) for name, path in stores.items()}
        for store in opened.values():
            stack.callback(store.close)
        app = create_app(opened, **how)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            wait_for(lambda: server.started or not thread.is_alive())
            assert server.started
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def address(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console over a valid store and a damaged copy without an index."""
    store = golden("orders")
    damaged = copy_store(store.path, tmp_path_factory.mktemp("damaged") / "store")
    shutil.rmtree(damaged / "index")
    row = store.messages[len(store.messages) // 2]
    number, position = divmod(row.physical_offset, store.commit_log_file_bytes)
    with sorted((damaged / "commitlog").iterdir())[number].open("r+b") as file:
        file.seek(position + 4)
        file.write(bytes(4))
    with serving({"orders": store.path, "damaged": damaged}) as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser) as found:
        yield found


@contextmanager
def opened(
    browser: Browser,
    scheme: Literal["light", "dark"] = "light",
    width: int = WIDE,
    *,
    has_script: bool = True,
) -> Iterator[Page]:
    """Open a page in a fresh browser. Errors that it logs and requests to other hosts fail the test."""
    with opened_page(browser, "about:blank", width, scheme, True, has_script) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.set_default_timeout(_PATIENCE_MS)
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda made: None if "127.0.0.1" in made.url else wrong.append(made.url))
        yield page
    assert [one for one in wrong if "status of 404" not in one and "status of 500" not in one] == []


def faults(page: Page, name: str) -> list[str]:
    """Return the visual defects of a page, and save a screenshot of it."""
    page.wait_for_load_state("networkidle")
    screenshot(page, name)
    found = [f"{name}: {one}" for one in violations(page)]
    width, shown = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    if width > shown:
        found.append(f"{name}: {width} pixels wide, on a screen of {shown}")
    return found


VIEWS = {
    "window": "/?begin=2020-01-01&limit=20",
    "content": "/?contains=declined&how=text&store=orders&limit=20",
    "start": "/",
    "results": f"/?key={KEY}&store=orders",
    "message": f"/?key={KEY}&store=orders",
    "incomplete": f"/?key={KEY}&store=damaged",
    "empty": "/?key=nobody&topic=orders&store=orders",
    "error": "/messages/1?store=orders",
    "topics": "/topics?store=orders",
    "topic": "/topics/orders?store=orders",
    "queue": "/queues/orders/0?store=orders",
    "trace": f"/trace?key={DEAD}&store=orders",
    "groups": "/groups",
    "group": "/groups/billing",
    "live": "/live?topic=orders&store=orders",
    "stores": "/stores",
    "store": "/stores/orders",
    "damaged": "/stores/damaged/check?mode=full",
}


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("scheme", "width"), [("light", WIDE), ("dark", WIDE), ("light", PHONE), ("dark", PHONE)]
)
def test_every_view_is_accessible_and_fits(
    browser: Browser, address: str, scheme: Literal["light", "dark"], width: int
) -> None:
    found = []
    with opened(browser, scheme, width) as page:
        for name, path in VIEWS.items():
            page.goto(address + path)
            if name == "message":
                page.locator(".row-link").first.click()
                page.wait_for_url("**/messages/*")
            found += faults(page, f"{name}-{scheme}-{width}")
    assert found == []


def test_a_message_is_found_and_opened_from_the_keyboard(page: Page, address: str) -> None:
    page.goto(address)
    page.locator("body").click(position={"x": 5, "y": 400})
    page.keyboard.press("/")
    page.keyboard.type(KEY)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**key={KEY}**")
    expect(page.locator(".outcome").first).to_contain_text("message")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**/messages/*")
    expect(page.locator("#body-text")).to_contain_text(KEY)
    page.keyboard.press("t")
    page.wait_for_url("**/trace?*")
    expect(page.locator(".timeline .event").first).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("m")
    page.wait_for_url("**/stores")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    assert faults(page, "help") == []


def test_a_body_is_shown_as_json_text_and_hexadecimal_and_downloaded(
    page: Page, address: str
) -> None:
    page.goto(f"{address}/?key={KEY}&store=orders")
    page.locator(".row-link").first.click()
    page.get_by_role("link", name="Hex", exact=True).click()
    expect(page.locator("#body-text")).to_contain_text("00000000")
    assert "view=hex" in page.url
    page.get_by_role("link", name="Text", exact=True).click()
    expect(page.locator("#body-text")).not_to_contain_text("00000000")
    text = page.locator("#body-text").text_content()
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.locator("[data-said]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == text
    with page.expect_download() as started:
        page.get_by_role("link", name="Download", exact=True).click()
    assert Path(started.value.path()).read_bytes().decode() == text


def test_a_queue_is_browsed_page_by_page(page: Page, address: str) -> None:
    page.goto(f"{address}/queues/orders/0?store=orders&limit=5")
    newest = page.locator("tbody tr").first.text_content()
    page.keyboard.press("[")
    page.wait_for_url("**offset=*")
    assert page.locator("tbody tr").count() == 5
    assert page.locator("tbody tr").first.text_content() != newest
    page.keyboard.press("]")
    expect(page.locator("tbody tr").first).to_have_text(newest or "")
    page.get_by_role("link", name="Oldest").click()
    expect(page.locator("tbody tr").first).to_contain_text("0/0")


def test_a_bar_of_the_chart_leads_to_its_messages(page: Page, address: str) -> None:
    page.goto(f"{address}/topics/orders?store=orders")
    chart = page.locator(".u-over")
    box = chart.bounding_box()
    assert box is not None
    volume = page.evaluate(
        "fetch('/api/topics/orders/volume?store=orders').then(one => one.json())"
    )
    part = volume["messages"].index(max(volume["messages"]))
    x = box["width"] * (part + 0.5) / len(volume["messages"])
    page.mouse.move(box["x"] + x, box["y"] + box["height"] / 2)
    expect(page.locator(".chart-tip")).to_be_visible()
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url("**begin=*")
    expect(page.locator(".outcome").first).to_contain_text("message")


_BODY = "x" * 2_999_990 + "\u202e\n\t end ü"
_CLIPBOARD = "Object.defineProperty(window, 'clip', {value: navigator.clipboard});"
_NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', {value: undefined});"
_NO_COMMAND = "document.execCommand = () => false;"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console over messages whose contents attack the page."""
    path = tmp_path_factory.mktemp("hostile") / "store"
    evil = "<img src=x onerror=alert(1)>\u202egnp.exe"
    with open_store(path, "rw", config=_LARGE) as store:
        store.put(Message("orders", _BODY.encode(), keys=["long"], tags=evil))
        store.put(
            Message("orders", evil.encode(), keys=[evil.replace(" ", "-")], tags='"><script>')
        )
        store.put(Message("orders", "<svg onload=alert(1)>订单".encode("gb18030"), keys=["gbk"]))
    with serving({'<b onclick="x">': path}) as found:
        yield found


@pytest.mark.parametrize("init", [_CLIPBOARD, _CLIPBOARD + _NO_CLIPBOARD])
def test_real_values_are_copied_whole(browser: Browser, hostile: str, init: str) -> None:
    with opened(browser) as page:
        page.add_init_script(init)
        page.goto(f"{hostile}/?key=long")
        page.locator(".row-link").first.click()
        page.get_by_role("button", name="Copy", exact=True).click()
        expect(page.locator("[data-said]")).to_have_text("Copied")
        assert page.evaluate("clip.readText()") == _BODY
        page.get_by_role("button", name="Copy TAGS").click()
        expect(page.locator("[data-said]")).to_have_text("Copied TAGS")
        assert page.evaluate("clip.readText()") == "<img src=x onerror=alert(1)>\u202egnp.exe"


def test_a_text_is_selected_where_nothing_can_be_copied(browser: Browser, hostile: str) -> None:
    with opened(browser) as page:
        page.add_init_script(_NO_CLIPBOARD + _NO_COMMAND)
        page.goto(f"{hostile}/?key=gbk")
        page.locator(".row-link").first.click()
        page.get_by_role("button", name="Copy the unique key").click()
        area = page.get_by_label("Text to copy")
        assert page.evaluate("getSelection().toString()") == area.input_value() != ""
        assert faults(page, "copy") == []


def test_hostile_messages_run_nothing(browser: Browser, hostile: str) -> None:
    for width in (WIDE, PHONE):
        with opened(browser, width=width) as page:
            page.on("dialog", lambda shown: pytest.fail(shown.message))
            found = []
            for name, path in {"list": "/?topic=orders", "stores": "/stores"}.items():
                page.goto(hostile + path)
                found += faults(page, f"hostile-{name}-{width}")
            for number in range(3):
                page.goto(f"{hostile}/?topic=orders")
                page.locator(".row-link").nth(number).click()
                page.wait_for_url("**/messages/*")
                found += faults(page, f"hostile-{number}-{width}")
            assert found == []


def test_new_messages_appear_on_the_live_page(browser: Browser, tmp_path: Path) -> None:
    with open_store(tmp_path / "store", "rw", config=_SMALL) as store:
        store.put(Message("orders", b"one", keys=["k1"]))
    with serving({"a": tmp_path / "store"}) as address, opened(browser) as page:
        page.goto(f"{address}/live?topic=orders")
        assert page.locator("tbody tr").count() == 1
        with open_store(tmp_path / "store", "rw", config=_SMALL) as store:
            store.put(Message("orders", b"two", keys=["k2"]))
            store.put(Message("others", b"three", keys=["k3"]))
        expect(page.locator("tbody tr").first).to_contain_text("k2")
        assert page.locator("tbody tr").count() == 2
        expect(page.locator("[data-live-state]")).to_have_text("Watching: 1 new message")
        assert faults(page, "live-new") == []


def test_times_of_this_zone_stand_beside_utc(browser: Browser, address: str) -> None:
    context = browser.new_context(timezone_id="Asia/Shanghai")
    page = context.new_page()
    page.goto(f"{address}/?key={KEY}&store=orders")
    page.locator(".row-link").first.click()
    moment = page.locator(".facts time").last
    utc = datetime.fromisoformat(moment.get_attribute("datetime") or "")
    local = (utc + timedelta(hours=8)).strftime("%Y-%m-%d %H:%M:%S")
    expect(page.locator(".facts .beside").last).to_have_text(f"{local} UTC+08:00")
    page.get_by_role("button", name="UTC").click()
    expect(moment).to_contain_text(local)
    page.reload()
    expect(moment).to_contain_text(local)
    page.goto(address)
    page.locator("input.picker").first.fill("2026-10-14T08:35:00")
    assert page.locator("[name=begin]").input_value() == "2026-10-14T08:35+08:00"
    context.close()


def test_typed_times_are_in_the_zone_that_the_page_shows(browser: Browser, address: str) -> None:
    context = browser.new_context(timezone_id="Asia/Shanghai")
    page = context.new_page()
    page.goto(address)
    from_, to = page.locator("[name=begin]"), page.locator("[name=end]")
    label = page.locator(".search-more [data-zone]").first

    def search(begin: str, end: str) -> list[str]:
        from_.fill(begin)
        to.fill(end)
        page.get_by_role("button", name="Search").click()
        page.wait_for_url("**begin=*")
        page.wait_for_load_state("networkidle")
        times = page.locator(".row time").all()
        return sorted(one.get_attribute("datetime") or "" for one in times)

    expect(label).to_have_text("UTC")
    in_utc = search("2026-10-14T06:00", "2026-10-14T06:30")
    assert in_utc
    assert all("2026-10-14T06:00" <= one < "2026-10-14T06:31" for one in in_utc)
    page.get_by_role("button", name="UTC").click()
    expect(label).to_have_text("UTC+08:00")
    assert search("2026-10-14 14:00", "2026-10-14T14:30") == in_utc
    assert from_.input_value() == "2026-10-14T14:00+08:00"
    # A date is a whole day of this zone; other forms have no zone.
    search("2026-10-14", "2026-10-14")
    assert to.input_value() == "2026-10-14T23:59:59.999+08:00"
    search("1d ago", "now")
    assert (from_.input_value(), to.input_value()) == ("1d ago", "now")
    context.close()


def test_a_zoomed_chart_is_in_the_url(page: Page, address: str) -> None:
    page.goto(f"{address}/topics/orders?store=orders")
    box = page.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 100, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 50, steps=5)
    page.mouse.up()
    page.wait_for_url("**begin=*")
    zoomed = page.url
    with page.expect_response(lambda one: "/volume?" in one.url and "begin=" in one.url):
        page.reload()
    expect(page.locator(".u-over")).to_be_visible()
    assert page.url == zoomed
    page.locator(".u-over").dblclick()
    page.wait_for_url(lambda url: "begin=" not in url)


def test_results_are_downloaded(page: Page, address: str) -> None:
    page.goto(f"{address}/?key={KEY}&store=orders")
    count = page.locator("tr[data-row]").count()
    with page.expect_download() as started:
        page.get_by_role("link", name="JSON lines").click()
    assert started.value.suggested_filename == "messages.jsonl"
    assert len(Path(started.value.path()).read_bytes().splitlines()) == count


def test_the_chosen_theme_stays(page: Page, address: str) -> None:
    page.goto(address)
    before = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    page.get_by_role("button", name="Light or dark").click()
    page.goto(f"{address}/stores")
    after = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    assert before != after


def test_a_token_is_asked_for_once(browser: Browser, golden: Golden) -> None:
    with (
        serving({"orders": golden("orders").path}, token="secret") as address,
        opened(browser) as page,
    ):
        page.goto(f"{address}/topics")
        assert faults(page, "login") == []
        page.get_by_label("Token").fill("secret")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/topics")
        page.goto(f"{address}/stores")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/login")


def test_a_search_is_stopped_and_what_it_found_stays(
    browser: Browser, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(store: SharedStore, wanted: Any, share: Any, until: Until) -> Iterator[Any]:
        with store.reader() as reader:
            yield tuple(islice(LogTail(reader, TailFilter()).new(), 3))
        while not until.is_over:
            time.sleep(0.01)
            yield Progress(1_000, 1_000_000_000)
        yield Outcome(3, 1_000, (), None, is_late=True)

    monkeypatch.setattr(results, "search", endless)
    path = golden("orders").path
    for stores in ({"orders": path}, {"one": path, "two": path}):
        with serving(stores) as address, opened(browser) as page:
            page.goto(f"{address}/?key=order", wait_until="commit")
            expect(page.locator(".progress").last).to_contain_text("GB of log left")
            screenshot(page, f"searching-{len(stores)}")
            page.get_by_role("button", name="Stop").click()
            expect(page.locator(".count")).to_contain_text("You stopped the search")
            assert page.locator("tbody tr[data-row]").count() == 3 * len(stores)
            assert page.get_by_role("link", name="Older messages").is_visible()


def test_no_script_is_needed_to_search_and_read(browser: Browser, address: str) -> None:
    with opened(browser, has_script=False) as page:
        page.goto(address)
        page.locator("#key").fill(KEY)
        page.get_by_role("button", name="Search").click()
        expect(page.locator(".count")).to_contain_text("messages")
        assert not page.get_by_role("button", name="Stop").is_visible()
        page.locator(".row-link").first.click()
        expect(page.locator("#body-text")).to_contain_text(KEY)
        page.get_by_role("link", name="Trace").last.click()
        expect(page.locator(".timeline .event").first).to_be_visible()


def test_the_hit_of_one_of_forty_stores_is_seen_at_once(browser: Browser, tmp_path: Path) -> None:
    paths = {f"broker-{number:02d}": tmp_path / f"b{number:02d}" for number in range(40)}
    for name, path in paths.items():
        with open_store(path, "rw", config=_SMALL) as store:
            store.put(Message("orders", b'{"order": 1}', keys=["rare" if "36" in name else "k"]))
    with serving(paths) as address:
        for width in (WIDE, PHONE):
            with opened(browser, width=width) as page:
                page.goto(f"{address}/?key=rare")
                box = page.locator("tr[data-row]").bounding_box()
                assert box is not None
                assert box["y"] + box["height"] < 900
                assert faults(page, f"forty-light-{width}") == []
