"""A queue that begins later than the log's messages of it is damaged. If these messages have expired, it is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.base.config import StoreConfig
from reput.cli.main import main
from reput.core.query.answers import PullStatus
from reput.engine.messages.topic_messages import messages_of_topic
from reput.engine.stores import open_store
from reput.engine.writer.put.message import Message
from reput.errors import FormatError

CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 14, queue_entries=100, hash_slots=10, index_items=1000
)
COUNT = 350


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store", mode="rw", config=CONFIG) as opened:
        opened.put_many([Message("T", b"body", [f"k{number}"]) for number in range(COUNT)])
    return tmp_path / "store"


def first_of(store: Path) -> Path:
    return store / "consumequeue" / "T" / "0" / f"{0:020d}"


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.every_case
@pytest.mark.parametrize("damage", [os.unlink, empty, pipe])
def test_a_first_file_that_is_lost_is_damage(
    store: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(first_of(store))
    with open_store(store) as opened:
        for ask in (
            lambda: opened.pull("T", 0, 0, 8),
            lambda: opened.pull_records("T", 0, 50, 8),
            lambda: opened.get_by_queue("T", 0, 50),
            lambda: opened.min_queue_offset("T", 0),
            lambda: opened.offset_by_time("T", 0, 0),
        ):
            with pytest.raises(FormatError):
                ask()
        assert opened.min_queue_offset("T", 0, check=False) == 100
        assert opened.offset_by_time("T", 0, 0, check=False) == 100
        assert opened.offset_by_time("T", 0, 2**42) == COUNT
        assert len(opened.pull("T", 0, 100, 8).messages) == 8
        found = messages_of_topic(opened, "T", limit=COUNT)
        assert len(found.messages) == COUNT - 100
        assert [problem for problem in found.problems if "earlier message" in problem.detail]
    assert main(["tail", str(store), "--topic", "T", "--lines", "1000"]) == 3
    out, err = capsys.readouterr()
    assert "k100" in out
    assert "rebuild the ConsumeQueues" in err


def test_expired_messages_are_no_damage(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first queue file is missing, but the log has none of its messages: they have expired."""
    with open_store(store) as opened:
        first = opened.get_by_queue("T", 0, 100).physical_offset
    log = store / "commitlog"
    for path in sorted(log.iterdir()):
        if int(path.name) + CONFIG.commit_log_file_bytes <= first:
            path.unlink()
    begin = int(min(log.iterdir()).name)
    first_of(store).unlink()
    with open_store(store) as opened:
        least = opened.min_queue_offset("T", 0, check=False)
        is_whole = opened.get_by_queue("T", 0, 100).physical_offset == first and least == 100
    # The log still begins before the second queue file's first message. Let these messages belong to another queue.
    with open(log / f"{begin:020d}", "r+b") as file:
        data = file.read(first - begin).replace(b"\x01T", b"\x01U")
        file.seek(0)
        file.write(data)
    with open_store(store) as opened:
        assert is_whole
        assert opened.pull("T", 0, 0, 8).status == PullStatus.OFFSET_TOO_SMALL


def test_entries_of_expired_messages_before_it_are_no_damage(store: Path) -> None:
    (store / "commitlog" / f"{0:020d}").unlink()
    with open_store(store) as opened:
        least = opened.min_queue_offset("T", 0, check=False)
        assert 0 < least < 300
        assert opened.pull("T", 0, 0, 8).status == PullStatus.OFFSET_TOO_SMALL
