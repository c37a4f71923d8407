"""Pages: contents of messages are text, results are sent as they are found, every view has a URL."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.testing.builders import MESSAGE, write_log
from reput.wings.console.rendering import flushed, json_markup, spark
from tests.console.serving import console
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
EVIL = "<script>alert(1)</script>\u202e\x1b[2J\"'"


def test_what_messages_hold_is_text_on_every_page(tmp_path: Path) -> None:
    name = EVIL.replace("/", "_")
    key = name.replace(" ", "")
    properties = f"KEYS\x01{key}\x02TAGS\x01{name}\x02{name}\x01{name}"
    messages = [
        replace(MESSAGE, topic=name, body=body, properties_bytes=properties.encode())
        for body in (EVIL.encode(), b'{"a": "</pre><script>x</script>"}', bytes(range(256)), b"")
    ]
    with console({"evil": write_log(tmp_path / "store", messages)}) as client:
        asked = {"key": key, "topic": name}
        found = client.get("/api/messages", params=asked).json()["messages"]
        assert len(found) == 4
        paths = [f"/messages/{one['physical_offset']}" for one in found]
        pages = ["/", *(path + view for path in paths for view in ("", "?view=hex", "?view=text"))]
        texts = [client.get(page).text for page in pages]
        for path in ("/", "/trace"):
            for wanted in (key, EVIL):
                texts.append(client.get(path, params={"key": wanted, "topic": name}).text)
    for text in texts:
        assert "<script>alert" not in text
        assert "<script>x" not in text
        shown = re.sub(r'value="[^"]*"', "", text)  # the field still has the user's input
        assert not re.search("[\x00-\x08\x0e-\x1f\u202e]", shown)


def test_bodies_download_as_they_are_and_are_never_shown(golden: Golden) -> None:
    store = golden("orders")
    row = next(row for row in store.messages if row.sys_flag & 1 == 0 and row.body_length)
    with console({"orders": store.path}) as client, reput.open_store(store.path) as opened:
        answer = client.get(f"/messages/{row.physical_offset}/body")
        assert answer.content == opened.get(row.physical_offset).body
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in answer.headers["content-security-policy"]
        record = client.get(f"/messages/{row.physical_offset}/record").content
        assert record == opened.get_record(row.physical_offset)


def test_a_check_that_finds_only_warnings_reports_no_damage(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    with console({"a": store}) as client:
        assert "nothing found" in client.get("/stores/a/check").text
        (store / "abort").touch()
        text = client.get("/stores/a/check").text
    assert "The check found 1 problem, but no damage." in text
    assert "damaged</span>" not in text


def test_a_search_in_an_unknown_topic_suggests_a_similar_one(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    with console({"a": store}) as client:
        for asked in ("topic=order", "topic=order&key=order-100377"):
            text = client.get(f"/?{asked}").text
            assert "<h3>No such topic</h3>" in text
            assert "<strong>order</strong> is in this store; did you mean orders?" in text
        assert "<h3>No message</h3>" in client.get("/?topic=orders&key=x").text
        gone = client.get("/?topic=zz&contains=x").text
        assert "<strong>zz</strong> is in this store. Nothing" in gone
        # Without ConsumeQueues, the store does not show which topics exist.
        shutil.rmtree(store / "consumequeue")
        assert "No such topic" not in client.get("/?topic=order&key=x").text
    with console({"a": golden("orders").path, "b": golden("basic").path}) as client:
        assert "is in these stores; did you mean orders?" in client.get("/?topic=order&key=x").text


def test_a_wrong_time_is_reported_for_the_field_of_the_form(golden: Golden) -> None:
    with console({"a": golden("basic").path}) as client:
        assert "From: &#39;x&#39; is not a time" in client.get("/?begin=x").text
        assert "To: &#39;x&#39; is not a time" in client.get("/?end=x").text
        assert "From is after To" in client.get("/?begin=2&end=1").text
        with reput.open_store(golden("basic").path) as store:
            topic, queue = store.list_queues()[0]
        assert "time: &#39;x&#39; is not" in client.get(f"/queues/{topic}/{queue}?at=x").text
        assert client.get("/api/messages?begin=x").json()["error"]["message"].startswith("begin: ")


@pytest.mark.parametrize("name", ["basic", "tricky", "lmq"])
def test_every_link_of_every_page_leads_to_a_page(golden: Golden, name: str) -> None:
    """Follow links from the first page on, some of each kind."""
    with console({name: golden(name).path}) as client:
        waiting, seen, kinds = ["/", "/trace"], set[str](), dict[str, int]()
        while waiting:
            path = waiting.pop()
            answer = client.get(path)
            assert answer.status_code == 200, path
            if "text/html" not in answer.headers["content-type"]:
                continue
            links = re.findall(r'(?:href|hx-get|src|data-chart)="(/[^"]*)"', answer.text)
            for link in {link.replace("&amp;", "&") for link in links} - seen:
                seen.add(link)
                kind = re.sub(r"=[^&]*|%\w\w|\d+", "", link.replace("mode=full", "full"))
                kind = re.sub(r"^(/topics/|/queues/)[^/?]+", r"\1", kind)
                kinds[kind] = kinds.get(kind, 0) + 1
                if kinds[kind] <= 2 and "full" not in kind:
                    waiting.append(link)
        assert len(kinds) > 20


def test_results_are_sent_while_they_are_found() -> None:
    sent: list[str] = []

    def pieces() -> Generator[str, None, None]:
        for name in ("a", "<!---->", "b", "c", "<!---->", "d"):
            sent.append(name)
            yield name

    parts = flushed(pieces())
    assert next(parts) == b"a"
    assert sent == ["a", "<!---->"]
    assert list(parts) == [b"bc", b"d"]


def test_an_empty_server_says_so() -> None:
    with console({}) as client:
        assert "No stores yet" in client.get("/").text
        assert client.get("/stores").status_code == 200
        assert client.get("/topics").status_code == 400
        assert client.get("/api/stores").json()["stores"] == []


def test_a_time_alone_is_a_search(golden: Golden) -> None:
    with console({"basic": golden("basic").path}) as client:
        assert "Nothing was stored in this time" in client.get("/", params={"begin": "2h ago"}).text
        assert client.get("/", params={"end": "2h ago"}).text.count("data-row") == 50
        answer = client.get("/", params={"key": "k", "begin": "soon"})
        assert (answer.status_code, "is not a time" in answer.text) == (400, True)


def test_json_is_marked_up_and_escaped() -> None:
    marked = json_markup('{"a<": [1.5, "x&y", true]}')
    assert marked == (
        '{<span class="j-name">&#34;a&lt;&#34;</span>: [<span class="j-number">1.5</span>, '
        '<span class="j-text">&#34;x&amp;y&#34;</span>, <span class="j-word">true</span>]}'
    )


def test_a_small_curve_reaches_from_side_to_side() -> None:
    assert spark([0, 5, 10]) == "0.0,23.0 50.0,12.5 100.0,2.0"
    assert spark([]) == ""
