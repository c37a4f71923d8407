"""A store that is unchanged since it was closed is opened at once; any other store is examined."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from tests.recovery.checking import check_store
from tests.small import SMALL_16K


def filled(store: Path, count: int = 500) -> int:
    writer = StoreWriter(store, SMALL_16K)
    for number in range(count):
        writer.put(Message("T", b"body" * 9, [str(number)], queue_id=number % 3))
    writer.close()
    return writer.end_offset


def test_nothing_is_read_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    end = filled(store)
    writer = StoreWriter(store, SMALL_16K)
    assert writer.recovery.log_end == writer.recovery.checked_from == end
    assert writer.put(Message("T")).queue_offset == 167
    writer.close()
    check_store(store, SMALL_16K)


def test_folders_without_files_are_made_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    StoreWriter(store, SMALL_16K).close()
    for name in ("consumequeue", "index"):
        (store / name).rmdir()
    filled(store, 10)
    check_store(store, SMALL_16K)


def flip_a_bit(store: Path) -> None:
    path = sorted((store / "commitlog").iterdir())[-1]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def lose_a_queue(store: Path) -> None:
    for path in (store / "consumequeue" / "T" / "1").iterdir():
        path.unlink()


def lose_an_index_file(store: Path) -> None:
    sorted((store / "index").iterdir())[1].unlink()


def touch_the_log(store: Path) -> None:
    os.utime(sorted((store / "commitlog").iterdir())[-1])


def garble_the_mark(store: Path) -> None:
    (store / "reput.known").write_bytes(b'{"form": 1, "end": "\xff')


def crash(store: Path) -> None:
    (store / "abort").touch()


@pytest.mark.parametrize(
    "harm",
    [flip_a_bit, lose_a_queue, lose_an_index_file, touch_the_log, garble_the_mark, crash],
)
def test_what_was_touched_is_looked_at(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    store = tmp_path / "store"
    end = filled(store)
    harm(store)
    writer = StoreWriter(store, SMALL_16K, WriterSettings(as_broker=True))
    assert writer.recovery.checked_from < end
    assert (writer.recovery.log_end < end) == (harm is flip_a_bit)
    writer.put(Message("T", b"more"))
    writer.close()
    check_store(store, SMALL_16K)
