"""The end of the log as a broker would find it: found once for all readers, and updated as the log grows."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.core.log.ends import recovered_end
from reput.core.query import compat
from reput.core.query.message_store import MessageStore
from reput.engine.writer.put.message import Message
from reput.engine.writer.shared_store import SharedStore
from tests.small import SMALL_16K


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the physical offsets from which the log was walked."""
    begun: list[int] = []

    def counted(log: Any, start: int, *, whole_records: bool) -> int:
        begun.append(start)
        return recovered_end(log, start)

    monkeypatch.setattr(compat, "recovered_end", counted)
    return begun


def test_the_end_is_that_of_a_reader_that_opens_now_and_no_record_is_walked_twice(
    tmp_path: Path, walks: list[int]
) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=SMALL_16K) as writer:
        writer.put(Message("T", b"x"))
        with closing(SharedStore(path, config=SMALL_16K)) as shared:
            ends = [shared.broker_end()]
            for _ in range(12):
                writer.put_many([Message("T", bytes(1000))] * 9)
                ends.append(shared.broker_end())
                assert walks[-1] >= ends[-2]
                del walks[:]
                with MessageStore(path, config=SMALL_16K) as fresh:
                    assert fresh.broker_end() == ends[-1] == writer.end_offset()
            with shared.reader(), shared.reader() as other:
                del walks[:]
                assert other.broker_end() == ends[-1]
                assert walks == []


def test_what_was_damaged_stays_the_end_until_it_is_too_old_to_be_looked_at(
    tmp_path: Path, walks: list[int]
) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=SMALL_16K) as writer:
        puts = [writer.put(Message("T", bytes(1000))) for _ in range(40)]
        lost = puts[30].physical_offset
        number, position = divmod(lost, SMALL_16K.commit_log_file_bytes)
        with sorted((path / "commitlog").iterdir())[number].open("r+b") as file:
            file.seek(position + 4)
            file.write(bytes(4))
        with closing(SharedStore(path, config=SMALL_16K)) as shared:
            for _ in range(10):
                with MessageStore(path, config=SMALL_16K) as fresh:
                    assert shared.broker_end() == fresh.broker_end()
                writer.put_many([Message("T", bytes(1000))] * 9)
            assert shared.broker_end() == writer.end_offset()
