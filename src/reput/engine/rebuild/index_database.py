"""Write the index of keys into RocksDB, as a broker of 5.4 with `indexRocksDBEnable` does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from reput.core import (
    CommitLogReader,
    StoreFacts,
    StoreLog,
    create_index_database,
    database_contents,
    indexed_messages,
)
from reput.errors import UsageError
from reput.format.file_names import MESSAGE_DATABASE_FOLDERS
from reput.format.rocksdb_index import LAST_OFFSET_KEY, LAST_TIME_KEY, encode_offset

_KEYS = "keys"


def check_index_form(form: str | None, only: str | None, salvage: bool) -> None:
    """Raise UsageError for an unknown form of the index, and for arguments that do not apply to RocksDB."""
    if form not in (None, "files", "rocksdb"):
        raise UsageError(f"index must be 'files' or 'rocksdb', not {form!r}", arguments=["index"])
    if form == "rocksdb" and (only == "consumequeue" or salvage):
        raise UsageError(
            "index='rocksdb' cannot be combined with only='consumequeue' or salvage",
            arguments=["index"],
        )


def index_folder(facts: StoreFacts, in_place: bool) -> str:
    """Return the name of the folder into which the index is written.

    Raises:
        UsageError: The store is rebuilt in place, and its database also has other items.
        MissingExtraError, FormatError, StoreAccessError.
    """
    names = [Path(folder).name for folder in facts.message_databases]
    if in_place:
        others = [name for name in database_contents(facts) if name != _KEYS]
        if others or len(names) > 1:
            raise UsageError(
                f"{facts.path}: its database of keys also has {' and '.join(others) or 'a second folder'}, which a "
                "rebuild would delete; pass output, or index='files'",
                arguments=["index"],
            )
    return names[0] if in_place and names else MESSAGE_DATABASE_FOLDERS[0]


def write_index_database(source: StoreLog, start: int, stop: int, folder: Path) -> int:
    """Write the index of the messages in [start, stop). Return the number of keys. Raises StoreError."""
    with closing(CommitLogReader(source)) as log:
        return create_index_database(folder, _items(log, start, stop))


def _items(log: CommitLogReader, start: int, stop: int) -> Iterator[tuple[bytes, bytes]]:
    last, newest = -1, 0
    for message, items in indexed_messages(log, start, stop):
        yield from items
        last, newest = message.physical_offset, max(newest, message.store_timestamp)
    if last >= 0:
        yield LAST_OFFSET_KEY, encode_offset(last)
        yield LAST_TIME_KEY, encode_offset(newest)
