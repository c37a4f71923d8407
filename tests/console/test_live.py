"""The live view of new messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

import reput
from reput import Message
from reput.wings.console import live_page
from reput.wings.lakes.body_decoders import BodyFields
from tests.console.serving import console
from tests.small import SMALL


def put(path: Path, *keys: str, topic: str = "orders", body: bytes = b'{"n": 1}') -> None:
    with reput.open_store(path, "rw", config=SMALL) as store:
        for key in keys:
            store.put(Message(topic, body, keys=[key], tags="t"))


def watched(client: TestClient, link: str) -> tuple[list[str], str]:
    """Return the keys that a page shows, and the address of its next request."""
    page = client.get(link).text
    following = re.search(r'data-(?:next|live)="([^"]+)"', page)
    assert following is not None
    keys = re.findall(r'data-label="Keys" class="mono clip">([^<]*)<', page)
    return keys, following[1].replace("&amp;", "&")


def test_each_message_is_shown_once_over_all_stores(tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("a", "b")}
    for name, path in paths.items():
        put(path, f"{name}1", f"{name}2")
    with console(paths) as client:
        keys, link = watched(client, "/live")
        assert sorted(keys) == ["a1", "a2", "b1", "b2"]
        keys, link = watched(client, link)
        assert keys == []
        put(paths["b"], "b3", "b4")
        put(paths["a"], "a3")
        keys, link = watched(client, link)
        assert sorted(keys) == ["a3", "b3", "b4"]
        assert watched(client, link)[0] == []


def test_no_message_is_lost_when_many_come_at_once(tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("a", "b", "c")}
    for path in paths.values():
        put(path, "first")
    new = {f"{name}{number}" for name in paths for number in range(150)}
    with console(paths) as client:
        _, link = watched(client, "/live")
        for name, path in paths.items():
            put(path, *(f"{name}{number}" for number in range(150)))
        seen: list[str] = []
        while len(seen) < len(new):
            keys, link = watched(client, link)
            assert keys
            seen += keys
        assert sorted(seen) == sorted(new)


def test_only_messages_that_are_asked_for_are_shown(tmp_path: Path) -> None:
    put(tmp_path / "a", "first")
    asked = (
        "?topic=payments",
        "?key=k2",
        "?contains=yes",
        "?contains=%5Ey&how=regex",
        "?tags=other",
    )
    with console({"a": tmp_path / "a"}) as client:
        links = [watched(client, f"/live{one}")[1] for one in asked]
        put(tmp_path / "a", "k1", topic="payments")
        put(tmp_path / "a", "k2")
        put(tmp_path / "a", "k3", body=b"yes")
        found = [watched(client, link)[0] for link in links]
        assert found == [["k1"], ["k2"], ["k3"], ["k3"], []]
        assert client.get("/live?contains=(&how=regex").status_code == 400


def test_the_address_of_a_page_over_many_stores_is_short(tmp_path: Path) -> None:
    """Each message is shown once, a request is repeated after an error, and the server reports a forgotten page."""
    put(tmp_path / "a", "first")
    many = {f"store-{number:03d}": tmp_path / "a" for number in range(60)}
    with console(many) as client:
        _, first = watched(client, "/live")
        assert len(first) < 100
        put(tmp_path / "a", "k1")
        for _ in range(2):  # repeat the request, as a page does whose answer was lost
            keys, second = watched(client, first)
            assert keys == ["k1"] * len(many)
        put(tmp_path / "a", "k2")
        keys, _ = watched(client, second)
        assert keys == ["k2"] * len(many)
        assert "starts again with the newest messages" in client.get(first).text
        assert "starts again with the newest messages" in client.get("/live?at=unknown").text


def test_cursors_that_are_kept_are_few() -> None:
    kept = live_page._SavedCursors(most=100)
    names = [kept.put(dict.fromkeys(map(str, range(30)), number), "") for number in range(5)]
    assert [kept.get(name) is not None for name in names] == [False, False, True, True, True]
    assert kept.get(kept.put(dict.fromkeys(map(str, range(500)), 1), "")) is not None


class _Reversed:
    """A decoder that a user's package could provide: bodies are reversed texts after an exclamation mark."""

    name, is_fixed = "reversed", True

    def fields(self, sample: Any) -> BodyFields:
        raise NotImplementedError

    def decode(self, body: bytes) -> Mapping[str, Any]:
        if not body.startswith(b"!"):
            raise ValueError("not reversed")
        return {"text": body[:0:-1].decode()}


def test_bodies_are_shown_in_their_encodings(tmp_path: Path) -> None:
    bodies = {
        "orders": b"!<b>",
        "orders2": b"plain",
        "gbk": "新订单".encode("gbk"),
        "hex": b"\xff\x00\x01",
    }
    for name, body in bodies.items():
        put(tmp_path / "a", name, topic=name, body=body)
    with console({"a": tmp_path / "a"}, decoders={"orders*": _Reversed()}) as client:

        def page(key: str, view: str = "") -> str:
            link = re.search(r'class="row-link" href="([^"]+)"', client.get(f"/?key={key}").text)
            assert link is not None
            return str(client.get(link[1].replace("&amp;", "&") + view).text)

        assert "&gt;b&lt;" in page("orders")
        assert "&gt;b&lt;" not in page("orders", "&view=text")
        assert ">plain</pre>" in page("orders2")
        assert ">新订单</pre>" in page("gbk")
        assert "d0 c2" in page("gbk", "&view=hex")
        assert "ff 00 01" in page("hex")
