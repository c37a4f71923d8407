"""Searches over many stores: one table, newest first, and one line for the stores without a hit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import reput
from reput import Message, StoreConfig
from reput.query.shared_store import MissingStore
from tests.console.serving import console
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
_SIZES = StoreConfig(
    commit_log_file_bytes=1 << 16, queue_entries=50, hash_slots=64, index_items=300
)
_STORES = 40


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Forty stores; a key on the 37th, another one on each tenth."""
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
    assert page.count("No message in what could be read") == 1  # one store is missing
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
    from reput.console import search_page

    client.get("/?key=rare")

    def fail(store: object) -> list[object]:
        raise AssertionError("topics are listed again")

    monkeypatch.setattr(search_page, "topics_of", fail)
    assert rows(client.get("/?key=rare").text) == ["b36"]
