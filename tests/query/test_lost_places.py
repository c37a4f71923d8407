"""Offsets and offset ids of messages in lost parts of the log: unreadable, not missing."""

from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.format.host import Host
from reput.format.message_id import encode_offset_id
from tests.cli.running import reput as run
from tests.index.proving import messages
from tests.query.stores import build_store

_HOST = Host("127.0.0.1", 10911)
_COUNT = 300


@pytest.fixture
def log(tmp_path: Path) -> list[int]:
    """A store of several log files, and the offsets of its messages."""
    forge = messages(_COUNT)
    build_store(tmp_path / "store", forge.files(), hash_slots=64, index_items=300)
    return forge.offsets


def _middle(store: Path) -> Path:
    return sorted((store / "commitlog").iterdir())[1]


def test_an_offset_in_a_missing_log_file_is_unreadable(tmp_path: Path, log: list[int]) -> None:
    lost = _middle(tmp_path / "store")
    offset = next(one for one in log if one >= int(lost.name))
    lost.unlink()
    with reput.open_store(tmp_path / "store") as store:
        for read in (store.get, store.get_record, store.locate):
            with pytest.raises(CorruptMessageError, match="no file contains"):
                read(offset)
        with pytest.raises(MessageNotFoundError):
            store.get(log[-1] + 1_000_000)


def test_an_offset_id_of_an_unreadable_message_is_no_complete_answer(
    tmp_path: Path, log: list[int]
) -> None:
    name = _middle(tmp_path / "store").name
    offset = next(one for one in log if one >= int(name))
    reput.archive(tmp_path / "store", tmp_path / "archive", with_last=True)
    (lost,) = (tmp_path / "archive" / "log").glob(f"{name}-*")
    data = lost.read_bytes()
    lost.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    with reput.open_store(tmp_path / "archive") as store:
        found = store.find_by_id(encode_offset_id(_HOST, offset), "T")
        assert (found.messages, found.is_complete) == ((), False)
        (unreadable,) = found.coverage.unreadable
        assert unreadable.start <= offset
        readable = store.find_by_id(encode_offset_id(_HOST, log[0]), "T")
        assert [one.physical_offset for one in readable] == [log[0]]
        assert readable.is_complete
        beyond = store.find_by_id(encode_offset_id(_HOST, log[-1] + 5), "T")
        assert (beyond.messages, beyond.is_complete) == ((), True)


def _zeros(store: Path) -> None:
    path = _middle(store)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:200] + bytes(size - 200))


def _a_copy(store: Path) -> None:
    path = _middle(store)
    path.write_bytes((store / "commitlog" / f"{0:020}").read_bytes())


def _cut_off(store: Path) -> None:
    files = sorted((store / "commitlog").iterdir())
    for path in files[2:]:
        path.unlink()
    _zeros(store)


@pytest.mark.parametrize("lose", [_zeros, _a_copy, _cut_off])
def test_an_offset_in_a_lost_part_of_a_file_is_unreadable(
    tmp_path: Path, log: list[int], lose: Callable[[Path], None]
) -> None:
    path = _middle(tmp_path / "store")
    size, start = path.stat().st_size, int(path.name)
    inside = [one for one in log if start + 200 < one < start + size]
    lose(tmp_path / "store")
    with reput.open_store(tmp_path / "store") as store:
        for offset in inside:
            for read in (store.get, store.get_record, store.locate):
                with pytest.raises(CorruptMessageError):
                    read(offset)
        # In a readable record, no message begins.
        with pytest.raises(MessageNotFoundError):
            store.get(log[1] + 1)
    assert run("show", tmp_path / "store", inside[0]).code == 3
    assert run("show", tmp_path / "store", log[1] + 1).code == 1
