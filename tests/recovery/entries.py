"""Queue entries by number, read from the files by a slow oracle, and the meaning of "no entry moved"."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from reput.core.queues.kinds import is_database
from reput.engine.five.rocksdb_database import RocksDatabase
from reput.io.storage import LOCAL
from tests.oracle.walk import read_file

ENTRY_BYTES = {"consumequeue": 20, "batchconsumequeue": 46}
_ADDRESSES = -(2**31) - 1
Entries = dict[tuple[str, ...], dict[int, bytes]]
"""For each queue (kind, topic, queue id), its entries by queue offset.

The queue offset of a batch queue's entry is the one in the entry, because readers ignore its place in the file.
"""


def log_paths(store: Path) -> list[Path]:
    """Return the files of the log, in one folder or several, by physical offset."""
    found = [path for path in store.glob("commitlog*/*") if path.name.isdigit()]
    return sorted(found, key=lambda path: path.name)


def read_log(store: Path) -> list[tuple[int, Any]]:
    """Return the (start offset, bytes) of each log file."""
    return [(int(path.name), read_file(path)) for path in log_paths(store)]


def entries_of(store: Path) -> Entries:
    """Return the entries of each queue. An address of a unit in consumequeue_ext is replaced by the unit."""
    found: Entries = {}
    for kind, size in ENTRY_BYTES.items():
        for path in sorted((store / kind).glob("*/*/*")):
            if not path.name.isdigit():
                continue
            data = path.read_bytes()
            queue = found.setdefault((kind, path.parent.parent.name, path.parent.name), {})
            for at in range(0, len(data) - size + 1, size):
                entry = data[at : at + size]
                if any(entry):
                    number = (int(path.name) + at) // size
                    queue[int.from_bytes(entry[28:36], "big") if size > 20 else number] = entry
    for (kind, topic, queue_id), entries in found.items():
        folder = store / "consumequeue_ext" / topic / queue_id
        if kind == "consumequeue" and folder.is_dir():
            units = _Units(folder)
            for number, entry in entries.items():
                entries[number] = units.with_unit(entry)
    for name, number, value in _stored_in_rocksdb(store / "consumequeue"):
        found.setdefault(name, {})[number] = value
    return found


class _Units:
    """The units in the extension files of one queue. An entry's tags code may be the address of such a unit."""

    def __init__(self, folder: Path) -> None:
        self._files = {int(path.name): path.read_bytes() for path in folder.iterdir()}
        self._file_bytes = max(map(len, self._files.values()), default=1)

    def with_unit(self, entry: bytes) -> bytes:
        code = int.from_bytes(entry[12:], "big", signed=True)
        if code > _ADDRESSES:
            return entry
        position = code + 2**63
        start = position - position % self._file_bytes
        unit = self._files[start][position - start :]
        size = int.from_bytes(unit[:2], "big", signed=True)
        assert size >= 20, (entry.hex(), position, size)
        return entry[:12] + unit[:size]


def _stored_in_rocksdb(folder: Path) -> Iterator[tuple[tuple[str, ...], int, bytes]]:
    """Return entries up to the end of each queue: a broker ignores later ones."""
    if not is_database(str(folder), LOCAL):
        return
    with closing(RocksDatabase(str(folder))) as database:
        ends = {(end.topic, str(end.queue_id)): end.queue_offset for end in database.ends()}
        for key, value in database.items(b""):
            size = int.from_bytes(key[:4], "big")
            topic = key[5 : 5 + size].decode()
            queue_id = str(int.from_bytes(key[6 + size : 10 + size], "big", signed=True))
            number = int.from_bytes(key[11 + size :], "big")
            if number <= ends.get((topic, queue_id), -1):
                yield ("rocksdb", topic, queue_id), number, value


def ends_before(entry: bytes, log_end: int) -> bool:
    """Return whether the message of an entry ends before the log does."""
    offset = int.from_bytes(entry[:8], "big")
    return offset + int.from_bytes(entry[8:12], "big") <= log_end


def is_blank(entry: bytes) -> bool:
    return entry[:12] == b"\0" * 8 + b"\x7f\xff\xff\xff"


def assert_none_moved(before: Entries, after: Entries, log_end: int, case: Any) -> None:
    """Check that each entry of a message that ends before the end of the log has the same queue offset and bytes."""
    for queue, entries in before.items():
        stays = {
            number: entry
            for number, entry in entries.items()
            if is_blank(entry) or ends_before(entry, log_end)
        }
        kept = after.get(queue, {})
        moved = [n for n, entry in stays.items() if kept.get(n) != entry and not is_blank(entry)]
        assert not moved, (case, queue, moved[:3])
        last = max((n for n, entry in stays.items() if not is_blank(entry)), default=-1)
        assert max(kept, default=-1) >= last, (case, queue)
