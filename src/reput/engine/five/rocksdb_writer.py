"""Write a RocksDB database of queues: its tables (SST files) and the folder that contains these files.

Mirrors the options of `RocksDBOptionsFactory` (tag rocketmq-all-5.3.3) that affect files: format 5, blocks of 32 KiB,
Bloom filters of 16 bits per key, LZ4 for entries, and no compression for the minimum and maximum offsets of queues. A
broker opens the folder with its own options.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from reput.engine.five.rocksdb_database import require_library
from reput.errors import FormatError, ReputError, StoreAccessError
from reput.format.rocksdb_queue import ENTRIES_FAMILY, OFFSETS_FAMILY
from reput.io import DISK, LIBRARY_SETTINGS, RocksFolder

_BLOCK_BYTES, _FILTER_BITS, _TABLE_FORMAT = 32 << 10, 16, 5
# Maximum bytes of entries that are only in memory.
_BUFFER_BYTES = 128 << 20
_ITEMS_OF_A_WRITE = 10_000
_DATABASE_LOCK = "LOCK"
# Files that rocksdict creates in the folder, but a broker does not.
_NOT_OF_A_BROKER = (LIBRARY_SETTINGS, "LOG", _DATABASE_LOCK)


class TableWriter:
    """A writer of one table. Its items must come in the order of their keys."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def put(self, keys: Iterable[bytes], values: Iterable[bytes]) -> None:
        writer = self._writer
        for key, value in zip(keys, values, strict=True):
            writer[key] = value


@contextmanager
def table_writer(path: Path) -> Iterator[TableWriter]:
    """Create a table. It is complete and synced when the `with` block ends.

    Raises StoreAccessError, MissingExtraError.
    """
    rocksdict = require_library()
    writer = rocksdict.SstFileWriter(options=_options(rocksdict, is_compressed=True))
    with _explained(path), DISK.native(path) as place:
        writer.open(place)
        yield TableWriter(writer)
        writer.finish()


@contextmanager
def _new_database(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Yield the library and a new database in a folder, which is complete when the `with` block ends."""
    rocksdict = require_library()
    DISK.create_folder(folder)
    with _explained(folder), DISK.native_folder(folder) as place:
        options = _options(rocksdict, is_compressed=True)
        options.create_if_missing(True)
        database = rocksdict.Rdict(place, options)
        try:
            yield rocksdict, database
        finally:
            database.close()
    _remove_traces(folder)


def create_database(folder: Path, tables: list[str], ends: Mapping[bytes, bytes]) -> None:
    """Create a database from tables, whose key ranges must not overlap, and from items of the family `offset`.

    The tables are moved into the database. Raises StoreAccessError, MissingExtraError.
    """
    with _new_database(folder) as (rocksdict, database), ExitStack() as stack:
        if tables:
            how = rocksdict.IngestExternalFileOptions()
            how.set_move_files(True)
            places = [stack.enter_context(DISK.native(table)) for table in tables]
            database.ingest_external_file(places, how)
        family = database.create_column_family(
            OFFSETS_FAMILY, _options(rocksdict, is_compressed=False)
        )
        for key, value in ends.items():
            family[key] = value
        family.flush()
        database.flush()
        family.close()


def create_index_database(folder: Path, items: Iterable[tuple[bytes, bytes]]) -> int:
    """Create a database with one column family, from items in any order. Return the number of items.

    Raises StoreAccessError, MissingExtraError, and the errors of `items`.
    """
    count, rest = 0, iter(items)
    with _new_database(folder) as (rocksdict, database):
        while part := list(islice(rest, _ITEMS_OF_A_WRITE)):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key, value in part:
                batch.put(key, value)
            database.write(batch)
            count += len(part)
        database.flush()
    return count


class Changes:
    """The changes of one atomic write."""

    def __init__(self, batch: Any, families: Mapping[str, Any]) -> None:
        self._batch, self._families = batch, families

    def put(self, key: bytes, value: bytes, family: str = ENTRIES_FAMILY) -> None:
        self._batch.put(key, value, self._families[family])

    def delete(self, key: bytes, family: str = ENTRIES_FAMILY) -> None:
        self._batch.delete(key, self._families[family])


class WritableDatabase:
    """The RocksDB database with a store's queues, open for reading and writing. Each method raises StoreAccessError."""

    def __init__(self, folder: Path, rocksdict: Any) -> None:
        self._folder, self._rocksdict = folder, rocksdict
        self._is_disowned = False
        # `close` must not remove files that already existed before the database was opened.
        self._there = {path.name for path in folder.iterdir()}
        RocksFolder.leave_quickly_when_forked()
        with _explained(folder), ExitStack() as stack:
            place = stack.enter_context(DISK.native_folder(folder))
            options = _options(rocksdict, is_compressed=True)
            _as_a_broker(options, rocksdict)
            families = {
                ENTRIES_FAMILY: options,
                OFFSETS_FAMILY: _options(rocksdict, is_compressed=False),
            }
            existing = set(rocksdict.Rdict.list_cf(place, rocksdict.Options(raw_mode=True)))
            if odd := existing ^ families.keys():
                raise FormatError(
                    str(folder),
                    0,
                    f"not the queues of a store: it has the column family {min(odd)}",
                )
            self._database = rocksdict.Rdict(place, options, column_families=families)
            self._parts = {name: self._database.get_column_family(name) for name in families}
            self._handles = {
                name: self._database.get_column_family_handle(name) for name in families
            }
            status = (folder / _DATABASE_LOCK).stat()
            self._lock = status.st_dev, status.st_ino
            # The folder stays open, because the database creates further files later.
            self._place = stack.pop_all()
        self._how = rocksdict.WriteOptions()
        # A broker has no write-ahead log either: after a crash, it derives missing entries from the CommitLog.
        self._how.disable_wal = True

    def value(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None if the key is missing."""
        with _explained(self._folder):
            value: bytes | None = self._parts[family].get(key)
        return value

    def items(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a family, in the order of the keys."""
        return self._walk(family, None)

    def items_before(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield entries in descending order, from the entry with this key, or else the last entry before it."""
        return self._walk(ENTRIES_FAMILY, key)

    def _walk(self, family: str, back_from: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        with _explained(self._folder):
            cursor = self._parts[family].iter()
            if back_from is None:
                cursor.seek_to_first()
            else:
                cursor.seek_for_prev(back_from)
            while cursor.valid():
                yield cursor.key(), cursor.value()
                if back_from is None:
                    cursor.next()
                else:
                    cursor.prev()
            # This raises an error if a damaged block has ended the iteration.
            cursor.status()

    def changes(self) -> Changes:
        """Return an empty set of changes."""
        return Changes(self._rocksdict.WriteBatch(raw_mode=True), self._handles)

    def write(self, changes: Changes) -> None:
        """Apply changes to the database in memory only. `flush` writes them to files."""
        with _explained(self._folder):
            self._database.write(changes._batch, self._how)

    def flush(self) -> None:
        """Write the changes in memory to files: entries first, then the offset up to which they are complete."""
        with _explained(self._folder):
            for name in (ENTRIES_FAMILY, OFFSETS_FAMILY):
                self._parts[name].flush()

    def check_in_place(self) -> None:
        """Raise StoreFailedError if the database's lock file was deleted or replaced.

        Raises StoreAccessError if the file cannot be examined.
        """
        DISK.check_in_place(self._folder / _DATABASE_LOCK, self._lock)

    def disown(self) -> None:
        """Give up the database in a forked child, so that the child never closes it.

        Closing it there would write entries that the parent has in memory into the parent's files.
        """
        # This process is a forked child. Freeing its copy of this object would close the parent's database. The extra
        # reference prevents this, even when the child ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        self._is_disowned = True

    def close(self) -> None:
        """Flush and close the database, and remove files that a broker does not have in this folder."""
        if not self._parts or self._is_disowned:
            return
        try:
            self.flush()
        finally:
            for part in self._parts.values():
                part.close()
            self._parts, self._handles = {}, {}
            self._database.close()
            self._place.close()
            with _explained(self._folder):
                _remove_traces(self._folder, self._there)


def _as_a_broker(options: Any, rocksdict: Any) -> None:
    """Set the options with which a broker writes and compacts RocksDB's SST files."""
    options.set_bottommost_compression_type(rocksdict.DBCompressionType.zstd())
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    how = rocksdict.UniversalCompactOptions()
    how.size_ratio, how.max_size_amplification_percent = 100, 25
    options.set_universal_compaction_options(how)
    options.set_level_zero_file_num_compaction_trigger(2)
    options.set_write_buffer_size(_BUFFER_BYTES)
    # Both families are flushed together, so that they have the same state after a crash.
    options.set_atomic_flush(True)
    options.set_keep_log_file_num(1)


def opened_to_write(folder: Path) -> WritableDatabase:
    """Open the database in a folder. Raises MissingExtraError, FormatError, StoreAccessError."""
    return WritableDatabase(folder, require_library())


def _remove_traces(folder: Path, except_for: Collection[str] = ()) -> None:
    for name in _NOT_OF_A_BROKER:
        if name not in except_for:
            DISK.remove_tree(folder / name)
    for path in folder.glob("LOG.old.*"):
        if path.name not in except_for:
            DISK.remove_tree(path)
    for path in folder.iterdir():
        DISK.give(path)


def _options(rocksdict: Any, is_compressed: bool) -> Any:
    kinds = rocksdict.DBCompressionType
    options = rocksdict.Options(raw_mode=True)
    options.set_compression_type(kinds.lz4() if is_compressed else kinds.none())
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_format_version(_TABLE_FORMAT)
    blocks.set_block_size(_BLOCK_BYTES)
    blocks.set_bloom_filter(_FILTER_BITS, False)
    options.set_block_based_table_factory(blocks)
    return options


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ReputError):
        raise
    # rocksdict raises plain Exceptions only.
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise StoreAccessError(f"{path}: RocksDB cannot write the database: {lines[0]}") from None
