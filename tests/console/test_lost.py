"""Pages of damaged stores say that messages may be missing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import reput
from reput import Message
from tests.console.serving import console
from tests.small import SMALL_16K

_MAY_BE_MISSING = "Some messages (?:may be missing|could not be read)"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of one topic with a queue of several files, over several log files."""
    path = tmp_path / "store"
    with reput.open_store(path, "rw", config=SMALL_16K) as opened:
        for number in range(150):
            opened.put(Message("orders", bytes(300), keys=[f"k{number}"]))
    return path


@pytest.fixture
def client(store: Path) -> Iterator[TestClient]:
    with console({"s": store}) as opened:
        yield opened


def _text(client: TestClient, page: str) -> str:
    answer = client.get(page)
    assert answer.status_code == 200
    text: str = answer.text
    return text


@pytest.mark.parametrize("page", ["/live", "/queues/orders/0?offset=0", "/topics/orders"])
def test_pages_of_an_intact_store_have_no_notice(client: TestClient, page: str) -> None:
    assert not re.search(_MAY_BE_MISSING, _text(client, page))


def test_the_live_page_reports_a_lost_part_of_the_log(store: Path, client: TestClient) -> None:
    *_, before_last, _ = sorted((store / "commitlog").iterdir())
    before_last.unlink()
    assert re.search(_MAY_BE_MISSING, _text(client, "/live"))


def test_the_live_page_reports_a_damaged_new_message(store: Path, client: TestClient) -> None:
    following = re.search(r'data-live="([^"]+)"', _text(client, "/live"))
    assert following is not None
    with reput.open_store(store, "rw", config=SMALL_16K) as opened:
        offset = opened.put(Message("orders", bytes(300))).physical_offset
    _overwrite(store, offset + 100, b"x")
    rows = _text(client, following[1].replace("&amp;", "&"))
    assert re.search(_MAY_BE_MISSING, rows)


def test_the_last_page_of_a_queue_reports_its_lost_end(store: Path, client: TestClient) -> None:
    *_, last = sorted((store / "consumequeue" / "orders" / "0").iterdir())
    last.unlink()
    page = _text(client, "/queues/orders/0")
    assert re.search(_MAY_BE_MISSING, page)
    # Only the pages at the ends of a queue say so.
    assert not re.search(_MAY_BE_MISSING, _text(client, "/queues/orders/0?offset=0&limit=10"))


def test_the_first_page_of_a_queue_reports_its_lost_begin(store: Path, client: TestClient) -> None:
    first, *_ = sorted((store / "consumequeue" / "orders" / "0").iterdir())
    first.unlink()
    begin = SMALL_16K.queue_entries

    assert re.search(_MAY_BE_MISSING, _text(client, f"/queues/orders/0?offset={begin}&limit=10"))


def test_a_search_for_an_unreadable_place_is_incomplete(store: Path, client: TestClient) -> None:
    with reput.open_store(store) as opened:
        message = opened.get_by_queue("orders", 0, 75)
    _overwrite(store, message.physical_offset, bytes(message.size_bytes))
    for key in (message.message_id, str(message.physical_offset)):
        assert "This answer is incomplete" in _text(client, f"/?key={key}")
    answer = client.get(f"/api/messages/{message.message_id}")
    assert answer.status_code == 200
    assert not answer.json()["complete"]
    assert not client.get("/api/trace", params={"message": message.message_id}).json()["complete"]
    assert client.get("/api/trace", params={"message": "another"}).json()["complete"]
    # The index shows that no message has another key.
    assert "This answer is incomplete" not in _text(client, "/?key=another")


def _overwrite(store: Path, physical_offset: int, data: bytes) -> None:
    files = (store / "commitlog").iterdir()
    file = max(path for path in files if int(path.name) <= physical_offset)
    with file.open("r+b") as opened:
        opened.seek(physical_offset - int(file.name))
        opened.write(data)


def test_an_id_of_no_place_is_not_found(client: TestClient) -> None:
    assert client.get(f"/api/messages/{'0' * 32}").status_code == 404
    assert client.get("/api/messages/no-such-id").status_code == 404


def test_a_topic_of_the_log_without_queues_is_not_unknown(store: Path, client: TestClient) -> None:
    shutil.rmtree(store / "consumequeue" / "orders")
    answer = client.get("/topics/orders")
    assert answer.status_code == 500
    assert "its ConsumeQueues are missing" in answer.text
    assert client.get("/topics/unknown").status_code == 404


@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize(("which", "at"), [("first", 0), ("last", -1)])
def test_no_time_of_another_message_is_stated_for_a_damaged_one(
    store: Path, tmp_path: Path, which: str, at: int, is_archived: bool
) -> None:
    place = store
    if is_archived:
        place = tmp_path / "archive"
        reput.archive(store, place, with_last=True)
        _flip_frame(place, at)
    else:
        with reput.open_store(store) as opened:
            first = opened.get_by_queue("orders", 0, 0).physical_offset
            last = opened.get_by_queue("orders", 0, 149).physical_offset
        _overwrite(store, (first, last)[at] + 4, b"\\0")
    with console({"s": place}) as client:
        (facts,) = client.get("/api/stores").json()["stores"]
        for name in ("first", "last"):
            assert (facts[f"{name}_store_timestamp"] is None) == (name == which)
        assert any("message is unknown" in problem for problem in facts["problems"])
        for page in ("/stores", "/stores/s"):
            assert _text(client, page).count(">unknown</span>") == 1


def _flip_frame(archive: Path, at: int) -> None:
    """Change a byte of the first or last frame of an archived log, whose files have one frame each."""
    log = sorted(archive.glob("log/*.zst"))[at]
    data = bytearray(log.read_bytes())
    data[40] ^= 0xFF
    log.write_bytes(data)
