"""Damages to a copy of a store, by a seed. Each returns what it did, or None if the store lacks what it needs."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.truth.messages import TrueMessage
from tests.truth.stores import ITEMS, SLOTS, Built

ENTRY_BYTES, HEADER_BYTES, ITEM_BYTES = 20, 40, 20
_ITEMS_AT = HEADER_BYTES + 4 * SLOTS
# Fields of a record by name: position of the field, and its bytes.
FIELDS = {
    "size": (0, 4), "magic": (4, 4), "crc": (8, 4), "queue_id": (12, 4), "flag": (16, 4),
    "queue_offset": (20, 8), "physical_offset": (28, 8), "sys_flag": (36, 4),
    "born_time": (40, 8), "born_host": (48, 8), "store_time": (56, 8), "store_host": (64, 8),
    "reconsume": (72, 4), "prepared": (76, 8), "body_length": (84, 4),
}  # fmt: skip
_BODY_AT = 88
_DERIVED = (
    "consumequeue",
    "batchconsumequeue",
    "consumequeue_ext",
    "index",
    "checkpoint",
    "config",
)


@dataclass
class Damaging:
    """Changes a copy of a built store. With `is_mapped`, files are written through a mapping."""

    store: Path
    built: Built
    random: Random
    is_mapped: bool = False

    def files(self, *patterns: str) -> list[Path]:
        found = {path for pattern in patterns for path in self.store.glob(pattern)}
        return sorted(path for path in found if path.is_file() and path.name.isdigit())

    def log_files(self) -> list[Path]:
        return self.files("commitlog*/*")

    def archived(self, part: str = "*") -> list[Path]:
        """Return the files of an archive, of its log, keys or queues."""
        return sorted((self.store.parent / "archive").glob(f"{part}/*-*"))

    def queue_files(self) -> list[Path]:
        return self.files("consumequeue/*/*/*", "batchconsumequeue/*/*/*")

    def index_files(self) -> list[Path]:
        return self.files("index/*")

    def one(self, files: Sequence[Path]) -> Path:
        return self.random.choice(files)

    def inner(self, files: Sequence[Path]) -> Path:
        """Return a file, more often neither the first nor the last."""
        within = files[1:-1]
        return self.random.choice(within if within and self.random.random() < 0.8 else files)

    def write(self, path: Path, at: int, data: bytes) -> None:
        """Overwrite bytes of a file. Bytes after its end are dropped."""
        size = path.stat().st_size
        data = data[: max(size - at, 0)]
        if not data:
            return
        with path.open("r+b") as file:
            if self.is_mapped:
                with mmap.mmap(file.fileno(), size) as mapped:
                    mapped[at : at + len(data)] = data
            else:
                file.seek(at)
                file.write(data)

    def message(self) -> TrueMessage:
        return self.random.choice(self.built.truth.messages)

    def place(self, message: TrueMessage) -> tuple[Path, int] | None:
        """Return the log file of a message, and the position in it."""
        for path in self.log_files():
            if int(path.name) <= message.at < int(path.name) + path.stat().st_size:
                return path, message.at - int(path.name)
        return None


Damage = Callable[[Damaging], str | None]


def none(to: Damaging) -> str | None:
    return "nothing"


def log_missing(to: Damaging) -> str | None:
    if not (files := to.log_files()):
        return None
    path = to.inner(files)
    path.unlink()
    return f"{path.name} deleted"


def log_cut(to: Damaging) -> str | None:
    if not (files := to.log_files()):
        return None
    path = to.inner(files)
    size = to.random.randrange(path.stat().st_size)
    os.truncate(path, size)
    return f"log file {path.name} cut to {size}"


def log_zeroed(to: Damaging) -> str | None:
    if not (files := to.log_files()):
        return None
    path = to.inner(files)
    size = path.stat().st_size
    at = to.random.choice((0, to.random.randrange(size)))
    count = to.random.choice((size, 512, 4096))
    to.write(path, at, bytes(count))
    return f"log file {path.name} zeroed from {at}, {count} bytes"


def record_head_zeroed(to: Damaging) -> str | None:
    """Zeros where a record begins look like the unwritten rest of a file, most of all near the log's end."""
    newest = sorted(to.built.truth.messages, key=lambda message: message.at)[-8:]
    message = to.random.choice((to.message(), to.random.choice(newest)))
    if (place := to.place(message)) is None:
        return None
    count = to.random.choice((4, 8, 64))
    to.write(*place, bytes(count))
    return f"{count} zeros at the record of {message.at}"


def log_exchanged(to: Damaging) -> str | None:
    files = to.log_files()
    if len(files) < 2:
        return None
    one, other = to.random.sample(files, 2)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    return f"log files {one.name} and {other.name} exchanged"


def log_copied(to: Damaging) -> str | None:
    files = to.log_files()
    if len(files) < 2:
        return None
    one, other = to.random.sample(files, 2)
    one.write_bytes(other.read_bytes())
    return f"log file {one.name} replaced by a copy of {other.name}"


def log_older(to: Damaging) -> str | None:
    """Replace a log file by its state after some of its messages."""
    if not (files := to.log_files()):
        return None
    path = to.inner(files)
    start = int(path.name)
    inside = [
        m.stop - start
        for m in to.built.truth.messages
        if start <= m.at < start + path.stat().st_size
    ]
    if len(inside) < 2:
        return None
    size, end = path.stat().st_size, to.random.choice(inside[:-1])
    path.write_bytes(path.read_bytes()[:end].ljust(size, b"\0"))
    return f"log file {path.name} replaced by its state when it ended at {end}"


def record_flipped(to: Damaging) -> str | None:
    message = to.message()
    place = to.place(message)
    if place is None:
        return None
    names = [*FIELDS, "body", "topic", "properties"]
    name = to.random.choice(names)
    topic_at = _BODY_AT + len(message.fields.body)
    properties_at = topic_at + 1 + len(message.topic) + 2
    at, size = (
        FIELDS.get(name)
        or {
            "body": (_BODY_AT, max(len(message.fields.body), 1)),
            "topic": (topic_at, 1 + len(message.topic)),
            "properties": (properties_at - 2, len(message.data) - properties_at + 2),
        }[name]
    )
    path, start = place
    byte = start + at + to.random.randrange(size)
    data = path.read_bytes()
    if byte >= len(data):
        return None
    bit = to.random.randrange(8)
    to.write(path, byte, bytes([data[byte] ^ 1 << bit]))
    return f"bit {bit} of byte {byte - start} ({name}) of the record at {message.at} flipped"


def record_keys(to: Damaging) -> str | None:
    """Change a name or a value in the properties of a record, so that it has another key or none."""
    having = [one for one in to.built.truth.messages if one.keys and not one.inner]
    message = to.random.choice(having)
    if (place := to.place(message)) is None:
        return None
    path, start = place
    words = [b"KEYS", b"UNIQ_KEY", *(key.encode() for key in message.keys)]
    # The last appearance of a name counts, and the properties are the last field of a record.
    word = to.random.choice([one for one in words if one in message.data])
    at = message.data.rindex(word) + to.random.randrange(len(word))
    data = path.read_bytes()
    if start + at >= len(data):
        return None
    to.write(path, start + at, bytes([data[start + at] ^ to.random.choice((1, 2, 4))]))
    return f"a letter of {word.decode()} in the record at {message.at} changed"


def queue_missing(to: Damaging) -> str | None:
    files = to.queue_files()
    if not files:
        return None
    path = to.one(files)
    path.unlink()
    return f"queue file {path.relative_to(to.store)} deleted"


def queue_folder_missing(to: Damaging) -> str | None:
    folders = sorted({path.parent for path in to.queue_files()})
    if not folders:
        return None
    folder = to.random.choice(folders)
    if to.random.random() < 0.5:
        folder = folder.parent
    shutil.rmtree(folder)
    return f"queue folder {folder.relative_to(to.store)} deleted"


def queues_missing(to: Damaging) -> str | None:
    names = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
    found = [name for name in names if (to.store / name).is_dir()]
    if not found:
        return None
    for name in found:
        shutil.rmtree(to.store / name)
    return f"{', '.join(found)} deleted"


def queue_cut(to: Damaging) -> str | None:
    files = to.queue_files()
    if not files:
        return None
    path = to.one(files)
    size = to.random.randrange(path.stat().st_size)
    os.truncate(path, size)
    return f"queue file {path.relative_to(to.store)} cut to {size}"


def queue_zeroed(to: Damaging) -> str | None:
    files = to.queue_files()
    if not files:
        return None
    path = to.one(files)
    count = path.stat().st_size // ENTRY_BYTES
    first = to.random.randrange(count)
    entries = to.random.choice((1, 3, 10, count - first))
    to.write(path, first * ENTRY_BYTES, bytes(entries * ENTRY_BYTES))
    return f"{entries} entries of {path.relative_to(to.store)} zeroed from entry {first}"


def queue_of_other(to: Damaging) -> str | None:
    """Replace a queue file by a file of another queue."""
    files = to.queue_files()
    if len(files) < 2:
        return None
    one, other = to.random.sample(files, 2)
    one.write_bytes(other.read_bytes())
    return f"queue file {one.relative_to(to.store)} replaced by {other.relative_to(to.store)}"


def queue_of_other_store(to: Damaging) -> str | None:
    """Replace a queue file by the file of this name in another store."""
    return _of_other(to, to.queue_files())


def _of_other(to: Damaging, files: Sequence[Path]) -> str | None:
    found = [path for path in files if (to.built.other / path.relative_to(to.store)).exists()]
    if not found:
        return None
    path = to.one(found)
    path.write_bytes((to.built.other / path.relative_to(to.store)).read_bytes())
    return f"{path.relative_to(to.store)} replaced by that of another store"


def queues_older(to: Damaging) -> str | None:
    """Restore all queues of the earlier state."""
    return _restored(to, "consumequeue", "batchconsumequeue", "consumequeue_ext")


def index_older(to: Damaging) -> str | None:
    """Restore all IndexFiles of the earlier state."""
    return _restored(to, "index")


def all_but_log_older(to: Damaging) -> str | None:
    """Restore everything but the log of the earlier state."""
    return _restored(to, *_DERIVED)


def _restored(to: Damaging, *names: str) -> str | None:
    found = [name for name in names if (to.built.earlier / name).exists()]
    for name in found:
        source, target = to.built.earlier / name, to.store / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)
    return f"{', '.join(found)} restored from the earlier state" if found else None


def queue_older(to: Damaging) -> str | None:
    """Replace a queue file by its earlier state."""
    files = [
        path
        for path in to.queue_files()
        if (to.built.earlier / path.relative_to(to.store)).exists()
    ]
    if not files:
        return None
    path = to.one(files)
    path.write_bytes((to.built.earlier / path.relative_to(to.store)).read_bytes())
    return f"queue file {path.relative_to(to.store)} replaced by its earlier state"


def _entries(to: Damaging) -> tuple[Path, bytes, list[int]] | None:
    files = to.queue_files()
    if not files:
        return None
    path = to.one(files)
    data = path.read_bytes()
    used = [
        at
        for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES)
        if any(data[at : at + ENTRY_BYTES])
    ]
    return (path, data, used) if len(used) >= 2 else None


def entries_exchanged(to: Damaging) -> str | None:
    found = _entries(to)
    if found is None:
        return None
    path, data, used = found
    one, other = to.random.sample(used, 2)
    to.write(path, one, data[other : other + ENTRY_BYTES])
    to.write(path, other, data[one : one + ENTRY_BYTES])
    return f"entries {one // ENTRY_BYTES} and {other // ENTRY_BYTES} of {path.relative_to(to.store)} exchanged"


def entry_repeated(to: Damaging) -> str | None:
    found = _entries(to)
    if found is None:
        return None
    path, data, used = found
    number = to.random.randrange(1, len(used))
    to.write(path, used[number], data[used[number - 1] : used[number - 1] + ENTRY_BYTES])
    return f"entry {used[number] // ENTRY_BYTES} of {path.relative_to(to.store)} repeats the one before"


def entry_flipped(to: Damaging) -> str | None:
    found = _entries(to)
    if found is None:
        return None
    path, data, used = found
    at = to.random.choice(used) + to.random.randrange(ENTRY_BYTES)
    bit = to.random.randrange(8)
    to.write(path, at, bytes([data[at] ^ 1 << bit]))
    return f"bit {bit} of byte {at} of {path.relative_to(to.store)} flipped"


def queue_database(to: Damaging) -> str | None:
    """Delete, cut or flip a file of a database of queues or keys."""
    folders = ("consumequeue", "consumequeue_rocksdb", "RocksDBMessageStore")
    found = (path for folder in folders for path in sorted(to.store.glob(f"{folder}/*")))
    files = [path for path in found if path.is_file()]
    if not files:
        return None
    path, how = to.one(files), to.random.choice(("deleted", "cut", "flipped"))
    if how == "deleted" or not path.stat().st_size:
        path.unlink()
        return f"{path.relative_to(to.store)} deleted"
    at = to.random.randrange(path.stat().st_size)
    if how == "cut":
        os.truncate(path, at)
    else:
        data = path.read_bytes()
        to.write(path, at, bytes([data[at] ^ 4]))
    return f"{path.relative_to(to.store)} {how} at {at}"


def extension_changed(to: Damaging) -> str | None:
    """Delete, cut or zero a file of extension units."""
    if not (files := to.files("consumequeue_ext/*/*/*")):
        return None
    path, how = to.one(files), to.random.choice(("deleted", "cut", "zeroed"))
    at = to.random.randrange(path.stat().st_size)
    if how == "deleted":
        path.unlink()
    elif how == "cut":
        os.truncate(path, at)
    else:
        to.write(path, at, bytes(200))
    return f"{path.relative_to(to.store)} {how} at {at}"


def index_missing(to: Damaging) -> str | None:
    files = to.index_files()
    if not files:
        return None
    if to.random.random() < 0.2:
        shutil.rmtree(to.store / "index")
        return "index deleted"
    path = to.one(files)
    path.unlink()
    return f"IndexFile {path.name} deleted"


def index_stale(to: Damaging) -> str | None:
    """Replace the last IndexFile by its state when it had fewer items."""
    files = to.index_files()
    if not files:
        return None
    path = to.one(files)
    data = bytearray(path.read_bytes())
    count = struct.unpack_from(">i", data, 36)[0] - 1
    if count < 2:
        return None
    kept = to.random.randrange(1, count)
    # Drop the newest items in turn: each one's slot then leads to the item that the dropped one leads to.
    for number in range(count, kept, -1):
        at = _ITEMS_AT + number * ITEM_BYTES
        key_hash, _, _, before = struct.unpack_from(">iqii", data, at)
        struct.pack_into(">i", data, HEADER_BYTES + 4 * (key_hash % SLOTS), before)
        data[at : at + ITEM_BYTES] = bytes(ITEM_BYTES)
    _, offset, seconds, _ = struct.unpack_from(">iqii", data, _ITEMS_AT + kept * ITEM_BYTES)
    begin = struct.unpack_from(">q", data, 0)[0]
    struct.pack_into(">q", data, 8, begin + 1000 * seconds)
    struct.pack_into(">q", data, 24, offset)
    struct.pack_into(">i", data, 36, kept + 1)
    to.write(path, 0, bytes(data))
    return f"IndexFile {path.name} replaced by its state with {kept} of {count} items"


def index_of_other(to: Damaging) -> str | None:
    """Replace an IndexFile by another one: of this store, or of its earlier state."""
    files = to.index_files()
    others = [*files, *sorted((to.built.earlier / "index").glob("*"))]
    if not files or len(others) < 2:
        return None
    one, other = to.one(files), to.one(others)
    if one.read_bytes() == other.read_bytes():
        return None
    one.write_bytes(other.read_bytes())
    return f"IndexFile {one.name} replaced by {other.parent.parent.name}/{other.name}"


def index_of_other_store(to: Damaging) -> str | None:
    """Replace an IndexFile by one of another store."""
    files, others = to.index_files(), sorted((to.built.other / "index").glob("*"))
    if not files or not others:
        return None
    one, other = to.one(files), to.one(others)
    one.write_bytes(other.read_bytes())
    return f"IndexFile {one.name} replaced by {other.name} of another store"


def _index_part(to: Damaging, begin: int, end: int, what: str) -> str | None:
    files = to.index_files()
    if not files:
        return None
    path = to.one(files)
    data = path.read_bytes()
    at = to.random.randrange(begin, end)
    if to.random.random() < 0.5:
        bit = to.random.randrange(8)
        to.write(path, at, bytes([data[at] ^ 1 << bit]))
        return f"bit {bit} of byte {at} ({what}) of IndexFile {path.name} flipped"
    at -= at % 4
    count = to.random.choice((4, 40, 256))
    to.write(path, at, bytes(min(count, end - at)))
    return f"{min(count, end - at)} bytes ({what}) of IndexFile {path.name} zeroed from {at}"


def index_header(to: Damaging) -> str | None:
    return _index_part(to, 0, HEADER_BYTES, "header")


def index_slots(to: Damaging) -> str | None:
    return _index_part(to, HEADER_BYTES, _ITEMS_AT, "slots")


def index_items(to: Damaging) -> str | None:
    return _index_part(to, _ITEMS_AT, _ITEMS_AT + ITEMS * ITEM_BYTES, "items")


def checkpoint_changed(to: Damaging) -> str | None:
    path = to.store / "checkpoint"
    how = to.random.choice(("missing", "older", "zeroed"))
    if how == "missing":
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(
            (to.built.earlier / "checkpoint").read_bytes() if how == "older" else bytes(4096)
        )
    return f"checkpoint {how}"


def topics_changed(to: Damaging) -> str | None:
    path = to.store / "config" / "topics.json"
    how = to.random.choice(("missing", "cut", "empty", "older"))
    if how == "missing":
        path.unlink(missing_ok=True)
    elif how == "older":
        path.write_bytes((to.built.earlier / "config" / "topics.json").read_bytes())
    else:
        path.write_bytes(path.read_bytes()[:60] if how == "cut" else b'{"topicConfigTable":{}}')
    return f"topics.json {how}"


def archive_missing(to: Damaging) -> str | None:
    if not (files := to.archived()):
        return None
    path = to.one(files)
    path.unlink()
    return f"archive: {path.parent.name}/{path.name} deleted"


def archive_flipped(to: Damaging) -> str | None:
    if not (files := to.archived()):
        return None
    path = to.one(files)
    data = bytearray(path.read_bytes())
    at, bit = to.random.randrange(len(data)), to.random.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"archive: bit {bit} of byte {at} of {path.parent.name}/{path.name} flipped"


def archive_exchanged(to: Damaging) -> str | None:
    part = to.random.choice(("log", "keys", "queues"))
    if len(files := to.archived(part)) < 2:
        return None
    one, other = to.random.sample(files, 2)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    return f"archive: {part}/{one.name} and {other.name} exchanged"


def archive_copied(to: Damaging) -> str | None:
    part = to.random.choice(("log", "keys", "queues"))
    if len(files := to.archived(part)) < 2:
        return None
    one, other = to.random.sample(files, 2)
    one.write_bytes(other.read_bytes())
    return f"archive: {part}/{one.name} replaced by a copy of {other.name}"


DAMAGES: dict[str, Damage] = {
    damage.__name__: damage
    for damage in (
        none, log_missing, log_cut, log_zeroed, record_head_zeroed, log_exchanged, log_copied, log_older,
        record_flipped, record_keys, queue_missing, queue_folder_missing, queues_missing, queue_cut, queue_zeroed,
        queue_of_other, queue_older, queues_older, queue_of_other_store, entries_exchanged, entry_repeated,
        entry_flipped, queue_database, extension_changed, index_missing, index_stale, index_of_other,
        index_of_other_store, index_older, all_but_log_older, index_header, index_slots, index_items,
        checkpoint_changed, topics_changed, archive_missing, archive_flipped, archive_exchanged, archive_copied,
    )
}  # fmt: skip
