"""A broker that is started by mistake on an open store changes files before it fails on the lock.

When such a broker loads the store, it deletes the newest IndexFile, cuts queues, and removes log files without records.
When it ends, it may remove `abort`. The owner then acknowledges no more messages, reports why, and has lost none that
it had acknowledged.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from reput.core.queues.kinds import CONSUME_QUEUE
from reput.core.queues.writer import EntryFilesWriter
from reput.engine.stores import open_store
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.errors import StoreFailedError, StoreLockedError
from reput.format.file_names import next_index_file_name, offset_file_name
from reput.io.lock import locked
from tests.recovery.checking import check_store
from tests.small import SMALL_64K

OFTEN = WriterSettings(
    flush_interval_commit_log_s=0.01, flush_interval_consume_queue_s=0.01,
    flush_commit_log_thorough_interval_s=0.02, flush_consume_queue_thorough_interval_s=0.02,
)  # fmt: skip
NEVER = WriterSettings(
    flush_interval_commit_log_s=3600, flush_interval_consume_queue_s=3600,
    flush_commit_log_thorough_interval_s=3600, flush_consume_queue_thorough_interval_s=3600,
)  # fmt: skip


def replace_newest_index_file(store: Path) -> None:
    """Do as a broker after an unclean shutdown: `IndexService.load` deletes the file, and dispatch creates another."""
    newest = max((store / "index").iterdir())
    size = newest.stat().st_size
    newest.unlink()
    with open(newest.with_name(next_index_file_name(newest.name, 0)), "wb") as file:
        file.truncate(size)


def delete_newest_index_file(store: Path) -> None:
    max((store / "index").iterdir()).unlink()


def exchange_index_file(store: Path) -> None:
    copy_over(max((store / "index").iterdir()))


def delete_queue_file(store: Path) -> None:
    max((store / "consumequeue/T/0").iterdir()).unlink()


def exchange_queue_file(store: Path) -> None:
    copy_over(max((store / "consumequeue/T/0").iterdir()))


def delete_log_file(store: Path) -> None:
    max((store / "commitlog").iterdir()).unlink()


def exchange_log_file(store: Path) -> None:
    copy_over(max((store / "commitlog").iterdir()))


def copy_over(path: Path) -> None:
    shutil.copyfile(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)


def delete_abort(store: Path) -> None:
    (store / "abort").unlink()


def delete_lock(store: Path) -> None:
    (store / "lock").unlink()


KINDS = [
    replace_newest_index_file, delete_newest_index_file, exchange_index_file, delete_queue_file,
    exchange_queue_file, delete_log_file, delete_abort, delete_lock,
]  # fmt: skip


def start_broker(store: Path, load: Callable[[Path], None]) -> None:
    """Do as a broker that is started on an open store: it loads the store, and then fails because of the lock."""
    held = store / "lock"
    with pytest.raises(StoreLockedError), locked(held, "another owns it"):
        pass
    load(store)


def put_until_refused(writer: StoreWriter, most: int, found: dict[str, bytes]) -> str | None:
    """Put up to `most` messages; `found` gets the acknowledged ones. Return the reason of a refusal, or None."""
    begin = len(found)
    for number in range(begin, begin + most):
        message = Message("T", f"body {number}".encode(), [f"key{number}"])
        try:
            writer.put(message)
        except StoreFailedError as error:
            return str(error)
        found[f"key{number}"] = message.body
    return None


def check_found(store: Path, acknowledged: dict[str, bytes]) -> None:
    """Reopen the store: every message must be in its queue, and be found by its key."""
    with open_store(store, mode="rw", config=SMALL_64K):
        pass
    check_store(store, SMALL_64K)
    with open_store(store, config=SMALL_64K) as opened:
        for key, body in acknowledged.items():
            answer = opened.query("T", key)
            assert body in [message.body for message in answer.messages], key


@pytest.mark.every_case
@pytest.mark.parametrize("load", [*KINDS, exchange_log_file])
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_it_takes_no_more_messages_and_says_why(
    tmp_path: Path, load: Callable[[Path], None], flush: str
) -> None:
    store, acknowledged = tmp_path / "store", dict[str, bytes]()
    writer = StoreWriter(store, SMALL_64K, replace(OFTEN, flush=flush))
    assert put_until_refused(writer, 120, acknowledged) is None
    writer.wait_dispatched(None, None)
    start_broker(store, load)
    why = None
    while why is None:
        why = put_until_refused(writer, 1, acknowledged)
        with suppress(StoreFailedError):
            writer.wait_dispatched(None, 60)
    assert why is not None
    assert str(store) in why
    assert "another process" in why
    assert "accepts no more messages" in why
    with pytest.raises(StoreFailedError):
        writer.close()
    assert (store / "abort").exists()
    if load is not exchange_log_file:
        check_found(store, acknowledged)


@pytest.mark.every_case
@pytest.mark.parametrize("load", KINDS)
def test_a_store_that_is_closed_before_any_flush(
    tmp_path: Path, load: Callable[[Path], None]
) -> None:
    store, acknowledged = tmp_path / "store", dict[str, bytes]()
    writer = StoreWriter(store, SMALL_64K, NEVER)
    assert put_until_refused(writer, 120, acknowledged) is None
    writer.wait_dispatched(None, None)
    start_broker(store, load)
    put_until_refused(writer, 400, acknowledged)  # enough messages for the next files
    with pytest.raises((StoreFailedError, OSError), match="another process"):
        writer.close()
    check_found(store, acknowledged)


@pytest.mark.parametrize("after", [5, 31, 80, 130])
def test_a_queue_file_that_is_displaced_after_a_recovery_point(tmp_path: Path, after: int) -> None:
    """The writer notices late, and has already begun the next file. Queue entries before the recovery point stay."""
    store, acknowledged = tmp_path / "store", dict[str, bytes]()
    writer = StoreWriter(store, SMALL_64K, NEVER)
    assert put_until_refused(writer, 120, acknowledged) is None
    writer.wait_dispatched(None, None)
    writer._index_sync.run()
    start_broker(store, exchange_queue_file)
    put_until_refused(writer, after, acknowledged)
    with pytest.raises(StoreFailedError, match="another process"):
        writer.close()
    assert (store / "abort").exists()
    check_found(store, acknowledged)


def test_a_file_that_was_displaced_while_it_was_synced(tmp_path: Path) -> None:
    """A sync closes full files. The next check still notices that another process has replaced one of them."""
    files = EntryFilesWriter(tmp_path / "T/0", CONSUME_QUEUE, 50 * 20)
    files.write(memoryview(bytes(range(20)) * 70), 0)
    files.check_in_place()
    files.write(memoryview(bytes(range(20)) * 40), 70)
    files.position = 110
    files.sync()
    exchange_queue_file_of(tmp_path / "T/0", 50)
    with pytest.raises(StoreFailedError, match="another process replaced"):
        files.check_in_place()


def exchange_queue_file_of(folder: Path, number: int) -> None:
    copy_over(folder / offset_file_name(number * 20))


@pytest.mark.every_case
@pytest.mark.parametrize("load", [delete_queue_file, exchange_queue_file])
def test_a_queue_file_that_is_opened_again(
    tmp_path: Path, load: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the file is closed after each write
    monkeypatch.setattr("reput.io.open_files._most_pooled", lambda: 0)
    test_a_store_that_is_closed_before_any_flush(tmp_path, load)


def test_expiry_by_the_owner_is_no_reason(tmp_path: Path) -> None:
    store, acknowledged = tmp_path / "store", dict[str, bytes]()
    writer = StoreWriter(store, SMALL_64K, replace(NEVER, max_commit_log_bytes=1 << 17))
    for _ in range(10):
        assert put_until_refused(writer, 400, acknowledged) is None
        writer.wait_dispatched(None, None)
        writer.retention.clean()
    writer.close()  # the remaining files of queues and index are synced only now
    assert len(list((store / "commitlog").iterdir())) == 2
    assert len(list((store / "index").iterdir())) < 8
