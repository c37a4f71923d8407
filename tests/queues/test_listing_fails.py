"""After a failed listing of a folder, the next answer has the present files, not the remembered ones."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from reput.core.queues.reader import ConsumeQueueReader, ExtensionFiles
from reput.core.queues.store_queues import ConsumeQueueSetReader
from reput.errors import StoreAccessError
from reput.format.consume_queue_ext import LAST_ADDRESS
from reput.io.open_files import OpenFiles
from reput.io.storage import LocalStorage

LONG_AGO_NS = 1_700_000_000_000_000_000


class FailsOnce(LocalStorage):
    """A storage whose next listing fails if `is_due`."""

    is_due = False

    def list(self, folder: str) -> Sequence[os.DirEntry[str]]:
        if self.is_due:
            self.is_due = False
            raise StoreAccessError(f"{folder}: cannot be read")
        return super().list(folder)


def settled(folder: Path, second: int) -> None:
    """Set the times of the folder's entries far back, so that any further change is noticed."""
    os.utime(folder, ns=(0, LONG_AGO_NS + second * 10**9))


def test_the_topics_of_a_store(tmp_path: Path) -> None:
    folder, storage = tmp_path / "consumequeue", FailsOnce()
    (folder / "A").mkdir(parents=True)
    settled(folder, 1)
    with ConsumeQueueSetReader(tmp_path, storage) as queues:
        assert queues.topics() == ["A"]
        (folder / "B").mkdir()
        settled(folder, 2)
        storage.is_due = True
        with pytest.raises(StoreAccessError):
            queues.topics()
        assert queues.topics() == ["A", "B"]


def test_the_files_of_a_queue(tmp_path: Path) -> None:
    folder, storage = tmp_path / "0", FailsOnce()
    folder.mkdir()
    (folder / f"{0:020d}").write_bytes(bytes(600))
    settled(folder, 1)
    queue = ConsumeQueueReader(str(folder), storage=storage)
    (folder / f"{600:020d}").write_bytes(bytes(600))
    settled(folder, 2)
    storage.is_due = True
    with pytest.raises(StoreAccessError):
        queue.refresh()
    queue.refresh()
    assert [file.start for file in queue._files] == [0, 30]


def test_the_extension_files_of_a_queue(tmp_path: Path) -> None:
    folder, storage = tmp_path / "0", FailsOnce()
    folder.mkdir()
    (folder / f"{0:020d}").write_bytes(bytes(64))
    settled(folder, 1)
    files = ExtensionFiles(str(folder), OpenFiles(storage.open), storage)
    assert len(files.files_before(LAST_ADDRESS)) == 1
    (folder / f"{64:020d}").write_bytes(bytes(64))
    settled(folder, 2)
    storage.is_due = True
    with pytest.raises(StoreAccessError):
        files.files_before(LAST_ADDRESS)
    assert len(files.files_before(LAST_ADDRESS)) == 2
