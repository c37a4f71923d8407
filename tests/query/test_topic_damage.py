"""The newest messages of a topic, read past damage: each unreadable record is named once, and pages go on after it."""

from pathlib import Path

import pytest

import reput
from reput.base.findings import Kind
from reput.core.query.message_store import MessageStore
from reput.engine.messages.tail import LogTail, TailFilter
from reput.engine.messages.topic_messages import messages_of_topic
from reput.engine.writer.put.message import PutResult
from tests.small import SMALL_16K

_MESSAGES = 120


@pytest.fixture
def sent(tmp_path: Path) -> tuple[Path, list[PutResult]]:
    """A store, and the places of its messages."""
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_16K) as store:
        results = store.put_many([reput.Message("T", b"x" * 100) for _ in range(_MESSAGES)])
    return tmp_path / "store", list(results)


def destroy(store: Path, results: list[PutResult]) -> None:
    """Zero the heads of records."""
    for result in results:
        for file in sorted((store / "commitlog").iterdir()):
            within = result.physical_offset - int(file.name)
            if 0 <= within < file.stat().st_size:
                with file.open("r+b") as log:
                    log.seek(within)
                    log.write(bytes(16))


def pages(store: MessageStore, limit: int) -> list[int]:
    """Return the queue offsets on all pages; each page but the last has a cursor."""
    numbers, cursor = list[int](), None
    while True:
        page = messages_of_topic(store, "T", limit=limit, after=cursor)
        numbers += [message.queue_offset for message in page.messages]
        assert page.cursor is None or cursor is None or page.cursor < cursor
        cursor = page.cursor
        if cursor is None:
            return numbers


@pytest.mark.parametrize("window", [(None, None), (0, 1 << 60)], ids=["newest", "window"])
def test_an_unreadable_record_is_named_once_with_its_range(
    sent: tuple[Path, list[PutResult]], window: tuple[int | None, int | None]
) -> None:
    path, results = sent
    bad, after = results[60], results[61]
    destroy(path, [bad])
    with reput.open_store(path) as store:
        page = messages_of_topic(store, "T", *window, limit=_MESSAGES)
        tail = LogTail(store, TailFilter("T", begin=window[0], end=window[1]))
        tail.last(_MESSAGES)
    assert len(page.messages) == _MESSAGES - 1
    for damage in (page.problems, tail.damage):
        named = [lost for lost in damage if lost.start < after.physical_offset <= lost.stop]
        (lost,) = [lost for lost in damage if lost.start <= bad.physical_offset < lost.stop]
        assert (lost.kind, named) == (Kind.UNREADABLE_RECORD, [lost])


def test_a_page_ends_after_much_damage_and_the_next_one_goes_on(
    sent: tuple[Path, list[PutResult]],
) -> None:
    path, results = sent
    destroy(path, results[40:100:2])
    with reput.open_store(path) as store:
        first = messages_of_topic(store, "T", limit=_MESSAGES)
        assert first.cursor is not None
        assert not first.is_complete
        expected = [n for n in reversed(range(_MESSAGES)) if n not in range(40, 100, 2)]
        assert pages(store, _MESSAGES) == pages(store, 7) == expected
