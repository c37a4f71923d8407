"""What a process or the cache folder remembers about an IndexFile is not used after any change of the file."""

import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from mmap import mmap
from pathlib import Path

import pytest

from reput.core.index import index_files
from reput.core.query.message_store import MessageStore
from reput.core.store.store_reader import StoreReader
from reput.format.index_file import index_key, key_hash
from reput.io import Stamp
from tests.index.proving import ITEMS, ITEMS_AT, SLOTS, index_of, messages, prove_and_keep
from tests.oracle.forge import LogForge, write_store

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.every_case]

_PREVIOUS_AT = 16
_ITEM = 20
Change = Callable[[Path, int, int], None]


@pytest.fixture
def log() -> LogForge:
    return messages(500)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder on a disk, where a change through a mapping changes the file's time. In memory it does not."""
    place = "/var/tmp" if os.path.isdir("/var/tmp") else None
    with tempfile.TemporaryDirectory(prefix="reput-changed-", dir=place) as created:
        yield Path(created)


@pytest.fixture
def store(on_disk: Path, log: LogForge) -> Path:
    """A store of 500 messages whose index has the first 400. The proof of the IndexFile is saved."""
    path = write_store(on_disk / "store", log.files())
    index_of(path, log.files(), lambda record: record.physical_offset < log.offsets[400])
    with opened(path) as reader, StoreReader(path, hash_slots=SLOTS, index_items=ITEMS) as files:
        (file,) = files.index.current()
        prove_and_keep(file, files.commit_log)
        assert found_by(reader, "k100") == [log.offsets[100]]
    return path


def opened(store: Path) -> MessageStore:
    return MessageStore(store, hash_slots=SLOTS, index_items=ITEMS)


def found_by(reader: MessageStore, key: str) -> list[int] | None:
    """Return the physical offsets of the messages with a key; None for an incomplete answer."""
    answer = reader.query("T", key)
    return [one.physical_offset for one in answer.messages] if answer.is_complete else None


def is_proven(reader: MessageStore, offset: int) -> bool:
    ranges = reader.query("T", "k200").coverage.indexed
    return any(one.start <= offset < one.stop and one.basis == "proven" for one in ranges)


def index_file(store: Path) -> Path:
    (path,) = (store / "index").iterdir()
    return path


def item_with(data: bytes, key: str) -> int:
    wanted = struct.pack(">i", key_hash(index_key("T", key)))
    return next(n for n in range(1, ITEMS) if data[ITEMS_AT + n * _ITEM :][:4] == wanted)


def unlinked(data: bytes, key: str) -> list[tuple[int, bytes]]:
    """Return writes (position, bytes) that remove a key's item from its chain, and leave a valid chain."""
    number = item_with(data, key)
    at = ITEMS_AT + number * _ITEM + _PREVIOUS_AT
    (previous,) = struct.unpack_from(">i", data, at)
    pointed = struct.pack(">i", number)
    for position in (
        *range(ITEMS_AT + _ITEM + _PREVIOUS_AT, ITEMS_AT + _ITEM * ITEMS - 4, _ITEM),
        *range(40, ITEMS_AT, 4),
    ):
        if data[position : position + 4] == pointed:
            return [(position, struct.pack(">i", previous))]
    raise AssertionError(f"no slot and no item leads to the item of key {key}")


def write_through(path: Path, writes: list[tuple[int, bytes]]) -> None:
    with path.open("r+b") as file:
        for at, data in writes:
            os.pwrite(file.fileno(), data, at)


def map_through(path: Path, writes: list[tuple[int, bytes]]) -> None:
    with path.open("r+b") as file, mmap(file.fileno(), 0) as mapped:
        for at, data in writes:
            mapped[at : at + len(data)] = data


def grow(store: Path, log: LogForge) -> None:
    """Put the last hundred messages into the index, as a broker would."""
    path = index_file(store)
    inode = path.stat().st_ino
    index_of(store, log.files())
    assert path.stat().st_ino == inode


@pytest.mark.parametrize("write", [write_through, map_through])
@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
def test_an_old_item_changes_between_two_queries(
    store: Path, log: LogForge, write: Callable[..., None], grows: bool, is_open: bool
) -> None:
    reader = opened(store)
    if is_open:
        assert found_by(reader, "k100") == [log.offsets[100]]
    if grows:
        grow(store, log)
    write(index_file(store), unlinked(index_file(store).read_bytes(), "k100"))
    with reader:
        for key in (100, 103, 499):
            assert found_by(reader, f"k{key}") in (None, [log.offsets[key]])
    with opened(store) as another:
        assert found_by(another, "k100") in (None, [log.offsets[100]])


@pytest.mark.parametrize("is_open", [False, True])
def test_a_slot_is_lost_between_two_queries(store: Path, log: LogForge, is_open: bool) -> None:
    reader = opened(store)
    if is_open:
        assert found_by(reader, "k100") == [log.offsets[100]]
    grow(store, log)
    slot = key_hash(index_key("T", "k100")) % SLOTS
    write_through(index_file(store), [(40 + 4 * slot, bytes(4))])
    with reader:
        assert found_by(reader, "k100") in (None, [log.offsets[100]])


def test_another_file_of_the_same_inode_that_has_more(store: Path, log: LogForge) -> None:
    """Overwrite the file with an index that has fewer old and more new messages, but the same first and last items."""
    path = index_file(store)
    with opened(store) as reader:
        assert found_by(reader, "k100") == [log.offsets[100]]
        old = path.read_bytes()
        first, last = log.offsets[1], log.offsets[398]
        kept = set(log.offsets[200:]) | {first, last}
        grow(store, log)
        data = index_of(store, log.files(), lambda record: record.physical_offset in kept)[0]
        assert data.stat().st_size == len(old)
        assert found_by(reader, "k100") in (None, [log.offsets[100]])
    with opened(store) as another:
        assert found_by(another, "k100") in (None, [log.offsets[100]])


def test_counters_of_the_header_change(store: Path, log: LogForge) -> None:
    with opened(store) as reader:
        assert found_by(reader, "k100") == [log.offsets[100]]
        for count in (1, 50, 9_999):
            write_through(index_file(store), [(36, struct.pack(">i", count))])
            for key in (100, 397, 499):
                assert found_by(reader, f"k{key}") in (None, [log.offsets[key]])


@pytest.mark.parametrize("is_open", [False, True])
def test_a_message_in_the_proved_log_gets_another_key(
    store: Path, log: LogForge, is_open: bool
) -> None:
    reader = opened(store)
    at = log.offsets[100]
    if is_open:
        assert is_proven(reader, at)
    begin = at - at % (1 << 14)
    path = store / "commitlog" / f"{begin:020d}"
    key = path.read_bytes().index(b"k100 every", at - begin) + begin
    write_through(path, [(key - begin, b"Z100")])
    with reader:
        assert not is_proven(reader, at)
    with opened(store) as another:
        assert not is_proven(another, at)


@pytest.mark.parametrize("is_recent", [True, False], ids=["new index", "old index"])
def test_a_message_between_two_index_files_gets_another_key(
    on_disk: Path, log: LogForge, monkeypatch: pytest.MonkeyPatch, is_recent: bool
) -> None:
    """The IndexFiles are judged again for each query while they are new, and only after a change once they are old."""
    if not is_recent:
        judged = index_files._as_it_is
        monkeypatch.setattr(
            index_files, "_as_it_is", lambda file: judged(file)._replace(stamp=Stamp())
        )
    path = write_store(on_disk / "store", log.files())
    older, _ = index_of(path, log.files(), items=600)[:2]
    (last,) = struct.unpack_from(">i", older.read_bytes(), 36)
    (at,) = struct.unpack_from(">q", older.read_bytes(), ITEMS_AT + (last - 1) * _ITEM + 4)
    begin = at - at % (1 << 14)
    file = path / "commitlog" / f"{begin:020d}"
    key = file.read_bytes().index(b"KEYS\x01k", at - begin) + 5
    with MessageStore(path, hash_slots=SLOTS, index_items=600) as reader:
        assert found_by(reader, "Z") == []
        data = file.read_bytes()
        end = data.index(b" ", key)
        write_through(file, [(key, b"Z" + b" " * (end - key - 1))])
        answer = reader.query("T", "Z")
    # The index has the old key, so the record's properties may have lost more than this key.
    assert [one.physical_offset for one in answer.messages] == [at]
    assert [lost.start for lost in answer.coverage.unreadable] == [at]
    assert not answer.is_complete
