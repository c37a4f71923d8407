"""Pre-blank entries in the middle of a queue: damage if the log has the messages, skipped if the log lost them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from reput.base.config import StoreConfig
from reput.cli.main import main
from reput.engine.stores import open_store
from reput.engine.writer.put.message import Message
from reput.errors import FormatError, MessageNotFoundError
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK, encode_entry

FILE_BYTES = 1 << 14
CONFIG = StoreConfig(commit_log_file_bytes=FILE_BYTES, queue_entries=1000)
COUNT = 350


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store where another topic has a message after each message of the queue."""
    with open_store(tmp_path / "store", mode="rw", config=CONFIG) as opened:
        for number in range(COUNT):
            opened.put_many([Message("T", b"body", [f"k{number}"]), Message("U", b"other", [])])
    return tmp_path / "store"


def queue_file(store: Path) -> Path:
    return store / "consumequeue" / "T" / "0" / f"{0:020d}"


def of_second_file(store: Path) -> tuple[int, int]:
    """Return queue offsets [first, stop) of the messages in the second file of the log."""
    with open_store(store) as opened:
        messages = opened.pull("T", 0, 0, COUNT).messages
    found = [one.queue_offset for one in messages if one.physical_offset // FILE_BYTES == 1]
    return found[0], found[-1] + 1


def lose_second_file(store: Path) -> None:
    (store / "commitlog" / f"{FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))


def write_blanks(store: Path, first: int, stop: int) -> None:
    with open(queue_file(store), "r+b") as file:
        file.seek(first * ENTRY_BYTES)
        file.write(encode_entry(PRE_BLANK) * (stop - first))


def check_reads_past(store: Path, first: int, stop: int) -> None:
    with open_store(store) as opened:
        pulled = opened.pull("T", 0, first - 10, 20)
        numbers = [*range(first - 10, first), *range(stop, stop + 10)]
        assert [message.queue_offset for message in pulled.messages] == numbers
        assert len(opened.pull_records("T", 0, first - 10, 20).records) == 20
        assert opened.pull("T", 0, first + 5, 3).messages[0].queue_offset == stop
        with pytest.raises(MessageNotFoundError):
            opened.get_by_queue("T", 0, first + 5)


def test_a_gap_whose_messages_the_log_has_is_damage(store: Path) -> None:
    first, stop = 140, 160
    write_blanks(store, first, stop)
    with open_store(store) as opened:
        for ask in (
            lambda: opened.pull("T", 0, first, 20),
            lambda: opened.pull("T", 0, first, 20, "a tag"),
            lambda: opened.pull_records("T", 0, first, 8),
            lambda: opened.pull_records("T", 0, stop - 1, 8),
            lambda: opened.get_by_queue("T", 0, first + 5),
        ):
            with pytest.raises(FormatError, match=r"pre-blank.* 140 at offset .*rebuild"):
                ask()
        for before in (
            opened.pull("T", 0, first - 10, 20),
            opened.pull_records("T", 0, first - 10, 20),
        ):
            assert (len(before[1]), before.next_begin_offset) == (10, first)
        skipping = opened.pull("T", 0, first, 8, on_corrupt="skip")
        assert (skipping.unreadable[0].begin, skipping.unreadable[0].end) == (first, stop)
        assert skipping.messages[0].queue_offset == stop
        assert not skipping.is_complete
        assert opened.pull("T", 0, stop, 8).messages[0].queue_offset == stop
    assert main(["rebuild", str(store)]) == 0
    with open_store(store) as opened:
        assert len(opened.pull("T", 0, 0, COUNT).messages) == COUNT


def test_a_gap_at_the_end_is_damage(store: Path) -> None:
    write_blanks(store, COUNT - 10, COUNT)
    with open_store(store) as opened, pytest.raises(FormatError, match="pre-blank"):
        opened.pull("T", 0, COUNT - 10, 8)


def test_a_rebuild_leaves_a_gap_that_is_read_past(store: Path) -> None:
    first, stop = of_second_file(store)
    lose_second_file(store)
    queue_file(store).unlink()
    main(["rebuild", str(store)])
    entries = queue_file(store).read_bytes()[first * ENTRY_BYTES : stop * ENTRY_BYTES]
    assert entries == encode_entry(PRE_BLANK) * (stop - first)
    check_reads_past(store, first, stop)


def test_a_gap_is_damage_if_the_log_has_some_of_its_messages(store: Path) -> None:
    first, stop = of_second_file(store)
    lose_second_file(store)
    write_blanks(store, first, stop + 5)
    with open_store(store) as opened, pytest.raises(FormatError, match=f" {stop} at offset"):
        opened.pull("T", 0, first, 8)


def test_a_gap_of_a_long_log_is_searched_step_by_step(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer skips a gap before the log was searched to its end."""
    first, stop = of_second_file(store)
    log = store / "commitlog" / f"{FILE_BYTES:020d}"
    log.write_bytes(log.read_bytes().replace(b"body\x01T", b"body\x01V"))
    write_blanks(store, first, stop)
    monkeypatch.setattr("reput.core.query.queue_ends._MOST_GAP_BYTES", FILE_BYTES // 2)
    with open_store(store) as opened:
        with pytest.raises(FormatError, match="not known yet"):
            opened.pull("T", 0, first, 5)
        for _ in range(10):
            with suppress(FormatError):
                pulled = opened.pull("T", 0, first, 5)
        assert pulled.messages[0].queue_offset == stop
