"""Searches over many stores: one table, newest first, and a single line for all stores without a hit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

import reput
from reput import Message, StoreConfig
from reput.engine.writer.shared_store import MissingStore, SharedStore
from tests.console.serving import console
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
_SIZES = StoreConfig(
    commit_log_file_bytes=1 << 16, queue_entries=50, hash_slots=64, index_items=300
)
_STORES = 40


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Forty stores: the key `rare` is in one of them, the key `tenth` in every tenth store."""
    folder = tmp_path_factory.mktemp("stores")
    paths: dict[str, Path] = {}
    for number in range(_STORES):
        paths[f"b{number:02d}"] = path = folder / f"b{number:02d}"
        with reput.open_store(path, "rw", config=_SIZES) as store:
            keys = ["rare"] if number == 36 else ["tenth"] if number % 10 == 0 else [f"k{number}"]
            store.put(Message("orders", b"x", keys=keys))
    gone = MissingStore("gone", "/gone", 1_792_000_000_000, "the store is gone")
    with console(paths, missing=lambda: [gone]) as found:
        yield found


def rows(page: str) -> list[str]:
    return re.findall(r'<td data-label="Store" class="clip">(\w+)</td>', page)


def test_the_hit_of_one_store_is_the_only_row_and_the_others_are_one_line(
    client: TestClient,
) -> None:
    page = client.get("/?key=rare").text
    assert rows(page) == ["b36"]
    assert page.count("<table") == 1
    assert "39 stores have no such message" in page
    assert "gone is missing since" in page
    assert "40 of 41 stores searched, 1 message found" in page
    assert page.index("b36</td>") < page.index("39 stores")
    assert len(page) < 40_000


def test_hits_of_several_stores_are_in_order_of_time(client: TestClient) -> None:
    page = client.get("/?key=tenth").text
    assert rows(page) == ["b30", "b20", "b10", "b00"]
    assert "<strong>4 messages</strong> in 4 of 41 stores" in page


def test_a_limit_leads_to_older_messages(client: TestClient) -> None:
    found, link = [], "/?key=tenth&limit=2"
    for _ in range(4):
        page = client.get(link).text
        found += [name for name in rows(page) if name not in found]
        following = re.search(r'rel="next" href="([^"]+)"', page)
        if following is None:
            break
        link = following[1].replace("&amp;", "&")
    assert found == ["b30", "b20", "b10", "b00"]


def test_no_hit_at_all_is_said_once(client: TestClient) -> None:
    page = client.get("/?key=nowhere").text
    assert page.count("No message in the readable part") == 1  # one store is missing
    assert rows(page) == []


def test_messages_of_one_of_two_stores_are_one_table(golden: Golden) -> None:
    stores = {"orders": golden("orders").path, "tricky": golden("tricky").path}
    with console(stores) as client:
        page = client.get("/?key=order-103921").text
        assert rows(page) == ["orders"] * 8
        assert "8 messages" in page
        assert "<strong>8 messages</strong> in 1 of 2 stores." in page


def test_topics_are_not_listed_for_every_search(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reput.wings.console import search_page

    client.get("/?key=rare")

    def fail(store: object) -> list[object]:
        raise AssertionError("topics are listed again")

    monkeypatch.setattr(search_page, "each_topic", fail)
    assert rows(client.get("/?key=rare").text) == ["b36"]


def test_a_time_needs_neither_a_key_nor_a_topic(client: TestClient) -> None:
    found, link = [], "/?begin=1h+ago&limit=15"
    for _ in range(5):
        page = client.get(link).text
        found += rows(page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        if following is None:
            break
        link = following[1].replace("&amp;", "&")
    assert found == [f"b{number:02d}" for number in reversed(range(_STORES))]


def test_several_keys_and_an_offset_are_found_at_once(client: TestClient) -> None:
    assert rows(client.get("/?key=k1+k3,+rare").text) == ["b36", "b03", "b01"]
    # 0 is searched as a physical offset: each log has a message there.
    assert len(rows(client.get("/?key=0&limit=100").text)) == _STORES


def test_an_id_in_lower_case_is_found(golden: Golden) -> None:
    store = golden("orders")
    with SharedStore(store.path).reader() as reader:
        message_id = reader.get(store.messages[100].physical_offset).message_id.lower()
    assert message_id != message_id.upper()
    with console({"orders": store.path, "tricky": golden("tricky").path}) as client:
        assert rows(client.get(f"/?key={message_id}").text) == ["orders"]


def test_bodies_are_searched_and_a_wrong_pattern_is_said(client: TestClient) -> None:
    assert len(rows(client.get("/?contains=x&limit=100").text)) == _STORES
    assert rows(client.get("/?contains=KEYS%3Drare&how=property").text) == ["b36"]
    assert rows(client.get("/?key=tenth&contains=^y&how=regex").text) == []
    wrong = client.get("/?contains=(&how=regex")
    assert wrong.status_code == 400
    assert "regular expression" in wrong.text


def test_a_search_is_stopped_and_shows_what_it_has_found(client: TestClient) -> None:
    from reput.wings.console.arguments import SearchForm
    from reput.wings.console.mounts import Until
    from reput.wings.console.results import Results, Searches

    searches = Searches()
    stores: list[tuple[str, SharedStore]] = []
    results = searches.add(
        Results(stores, {}, SearchForm(None, ("k",), None, None, 9, None), {}, Until())
    )
    name, over = results.id, list[bool]()
    for stopped in ("", "nothing", name):
        searches.stop(stopped)
        over.append(results.until.is_over)
    assert over == [False, False, True]
    assert results.is_stopped
    del results
    searches.stop(name)
    assert client.post("/searches/nothing/stop").status_code == 204


def test_a_stopped_search_says_so_and_continues(golden: Golden) -> None:
    from reput.wings.console.arguments import SearchForm
    from reput.wings.console.mounts import Until
    from reput.wings.console.results import Results

    with closing(SharedStore(golden("orders").path)) as store:
        wanted = SearchForm(None, ("order-103921",), None, None, 50, None)
        for stores in ([("a", store)], [("a", store), ("b", store)]):
            results = Results(stores, {}, wanted, {}, Until())
            results.until.stop()
            list(results.rows_and_beats())
            assert results.unsearched == len(stores)
            assert {*results.cursors} == {name for name, _ in stores}


class _Texts(HTMLParser):
    """The texts of a page, and its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag if tag != "script" or dict(attrs).get("src") else "foreign script")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_names_of_stores_steer_nothing(tmp_path: Path) -> None:
    """Control characters in names and paths are displayed as visible characters, and markup as text."""
    names = ["safe\u202egnp.exe", "two\nlines\x1b[31m", "<script>alert(1)</script>"]
    paths: dict[str, Path] = {}
    for number, name in enumerate(names):
        paths[name] = path = tmp_path / name.replace("/", "")
        with reput.open_store(path, "rw", config=_SIZES) as store:
            store.put(Message("orders", b"x", keys=["k"]))
        if number == 1:  # damage that is reported with the path
            (path / "index").rename(path / "other")
            next((path / "commitlog").iterdir()).write_bytes(b"\1" * (1 << 16))
    gone = MissingStore("gone\u202e", "/gone\u202e", 1_792_000_000_000, "it\u202e is gone")
    asked = [
        "/",
        "/start",
        "/?key=k",
        "/?topic=orders",
        "/stores",
        "/topics",
        "/live",
        "/groups",
        "/trace?key=k",
    ]
    for name in [*names, "strange\u202e"]:
        quoted = quote(name, safe="")
        asked += [
            f"/stores/{quoted}",
            f"/stores/{quoted}/findings",
            f"/stores/{quoted}/check?mode=full",
        ]
        asked += [
            f"/{path}?store={quoted}"
            for path in (
                "",
                "topics",
                "topics/orders",
                "queues/orders/0",
                "live",
                "groups",
                "messages/0",
            )
        ]
    with console(paths, missing=lambda: [gone]) as found:
        for address in asked:
            answer = found.get(address)
            page = _Texts(answer.text)
            steering = [one for one in page.texts if not one.replace("\n", "").isprintable()]
            assert (address, steering) == (address, [])
            assert not [one for one in page.texts if "two\nlines" in one], address
            assert "foreign script" not in page.tags, address
        chosen = found.get("/live", params={"store": names[0]}).text
        assert f'<option value="{names[0]}" selected>' in chosen
