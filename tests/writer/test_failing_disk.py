"""A failing disk: a clear error, no acknowledged message is lost, and the store opens again."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reput.engine.writer.put.message import Message, PutResult
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.errors import StoreAccessError, StoreFailedError
from reput.format.file_names import CHECKPOINT_FILE
from reput.io.disk import Disk
from tests.recovery.checking import check_store
from tests.small import SMALL_16K

SYNC = WriterSettings(flush="sync")


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, when: Callable[[str], bool]
) -> Iterator[None]:
    """Let calls of os.`name` fail if `when` accepts the name of the file."""
    real = getattr(os, name)

    def fail(target: int | str, *args: object, **how: int) -> object:
        where = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else str(target)
        if (folder := how.get("src_dir_fd", how.get("dir_fd"))) is not None:
            where = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), where)
        if when(where):
            raise OSError(number, os.strerror(number))
        return real(target, *args, **how)

    with monkeypatch.context() as patched:
        patched.setattr(os, name, fail)
        yield


def put_some(writer: StoreWriter, count: int, puts: dict[int, bytes]) -> None:
    """Put messages; `puts` gets the body of each acknowledged one by its offset."""
    for number in range(count):
        body = f"{number}".encode() * 50
        puts[writer.put(Message("T", body, [str(number)])).physical_offset] = body


def check_all_there(store: Path, puts: dict[int, bytes]) -> None:
    StoreWriter(store, SMALL_16K).close()
    bodies = {at: record.body for at, record in check_store(store, SMALL_16K).records}
    assert puts.items() <= bodies.items()


def test_a_sync_that_failed_is_the_end_of_the_open_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    writer = StoreWriter(store, SMALL_16K, SYNC)
    puts: dict[int, bytes] = {}
    put_some(writer, 100, puts)
    with (
        failing(monkeypatch, "fdatasync", errno.EIO, lambda where: "commitlog" in where),
        pytest.raises(StoreFailedError, match="cannot be synced: Input/output error"),
    ):
        writer.put(Message("T", b"not durable"))
    with pytest.raises(StoreFailedError, match="accepts no more messages"):
        writer.put(Message("T", b"nor this, though a sync would succeed now"))
    with pytest.raises(StoreFailedError, match="accepts no more messages"):
        writer.flush()
    with pytest.raises(StoreFailedError):
        writer.close()
    assert (store / "abort").exists()
    check_all_there(store, puts)


def test_a_full_disk_refuses_the_next_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    writer = StoreWriter(store, SMALL_16K, SYNC)
    puts: dict[int, bytes] = {}
    put_some(writer, 10, puts)
    with failing(monkeypatch, "posix_fallocate", errno.ENOSPC, lambda where: "commitlog" in where):
        with pytest.raises(StoreAccessError, match="free some space"):
            put_some(writer, 1000, puts)
        assert len(list((store / "commitlog").iterdir())) == 1
    put_some(writer, 200, puts)
    writer.close()
    check_all_there(store, puts)


def test_a_full_disk_refuses_the_part_of_a_run_that_needs_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    writer = StoreWriter(store, SMALL_16K, SYNC)
    run = [
        Message("T", f"{n}".encode() * 50, None, None, properties=b"UNIQ_KEY\x01%032X" % n)
        for n in range(300)
    ]
    with failing(monkeypatch, "posix_fallocate", errno.ENOSPC, lambda where: "commitlog" in where):
        results = writer.put_run(run)
    put = [each for each in results if isinstance(each, PutResult)]
    assert 0 < len(put) < len(run)
    assert all(isinstance(each, PutResult) for each in results[: len(put)])
    assert all(isinstance(each, StoreAccessError) for each in results[len(put) :])
    again = writer.put_run(run[len(put) :])
    put += [each for each in again if isinstance(each, PutResult)]
    writer.close()
    assert [each.queue_offset for each in put] == list(range(len(run)))
    bodies = {each.physical_offset: message.body for each, message in zip(put, run, strict=True)}
    check_all_there(store, bodies)


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_indexes_that_cannot_be_written_are_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    store = tmp_path / "store"
    writer = StoreWriter(store, SMALL_16K, replace(SYNC, append_retry_pause_s=0.01))
    puts: dict[int, bytes] = {}
    put_some(writer, 10, puts)
    step = {"consumequeue": "pwrite", "index": "posix_fallocate"}[folder]
    with failing(monkeypatch, step, errno.ENOSPC, lambda where: f"/{folder}/" in where):
        with pytest.raises((StoreFailedError, StoreAccessError), match="No space left"):
            put_some(writer, 10_000, puts)
        with pytest.raises(StoreFailedError):
            writer.dispatcher.wait(writer.end_offset, None)
        with pytest.raises(StoreFailedError):
            writer.close()
    check_all_there(store, puts)


def test_a_disk_that_is_full_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        failing(monkeypatch, "posix_fallocate", errno.ENOSPC, lambda where: True),
        pytest.raises(StoreAccessError, match="cannot be allocated"),
    ):
        StoreWriter(tmp_path / "store", SMALL_16K)
    writer = StoreWriter(tmp_path / "store", SMALL_16K)
    puts: dict[int, bytes] = {}
    put_some(writer, 3, puts)
    writer.close()
    check_all_there(tmp_path / "store", puts)


class NoRename(Disk):
    """A folder in which the checkpoint cannot be replaced."""

    def replace(self, path: Path, data: bytes) -> None:
        if path.name != CHECKPOINT_FILE:
            return super().replace(path, data)
        raise StoreAccessError(f"{path}: cannot be renamed into place: Operation not permitted")


def test_a_checkpoint_that_cannot_be_replaced(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", SMALL_16K, SYNC, disk=NoRename())
    puts: dict[int, bytes] = {}
    put_some(writer, 50, puts)
    with pytest.raises(StoreAccessError, match="cannot be renamed"):
        writer.close()
    assert (tmp_path / "store" / "abort").exists()
    check_all_there(tmp_path / "store", puts)


@pytest.mark.parametrize("is_five", [False, True])
def test_a_full_disk_leaves_a_clean_store_clean_if_nothing_was_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_five: bool
) -> None:
    store = tmp_path / "store"
    config = replace(SMALL_16K, store_version="5.3") if is_five else SMALL_16K
    with closing(StoreWriter(store, config)) as writer:
        writer.put(Message("T", bytes(SMALL_16K.commit_log_file_bytes - 1000)))
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}

    def full(name: str) -> bool:
        return "checkpoint" in name or "reput.known" in name or "commitlog" in name

    with (
        failing(monkeypatch, "posix_fallocate", errno.ENOSPC, full),
        failing(monkeypatch, "pwrite", errno.ENOSPC, full),
        failing(monkeypatch, "write", errno.ENOSPC, full),
        closing(StoreWriter(store, config)) as writer,
        pytest.raises(StoreAccessError, match="No space left"),
    ):
        writer.put(Message("T", bytes(5000)))
    assert not (store / "abort").exists()
    for file, data in before.items():
        assert file.read_bytes() == data, file
