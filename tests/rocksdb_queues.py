"""Databases of queues in tests: their contents, and a database that lags its log."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from reput.engine.five.rocksdb_database import RocksDatabase
from reput.engine.five.rocksdb_writer import opened_to_write
from reput.format.rocksdb_queue import (
    CHECKPOINT_KEY,
    ENTRIES_FAMILY,
    OFFSETS_FAMILY,
    decode_end,
    decode_value,
    encode_checkpoint,
    encode_end,
    end_key,
)

Items = Mapping[str, Mapping[bytes, bytes]]


def items(store: Path) -> Items:
    """Return the contents of the database without minima, which a broker writes on request."""
    with closing(RocksDatabase(str(store / "consumequeue"))) as database:
        return {
            ENTRIES_FAMILY: dict(database.items(b"")),
            OFFSETS_FAMILY: {k: v for k, v in database.end_items() if k[-8:-5] != b"min"},
        }


def cut_database(store: Path, physical_offset: int) -> None:
    """Truncate the database, as if it had last been flushed before the message at this offset."""
    found = items(store)
    database = opened_to_write(store / "consumequeue")
    changes = database.changes()
    newest: dict[bytes, tuple[int, int]] = {}
    for key, value in found[ENTRIES_FAMILY].items():
        entry = decode_value(value)
        assert entry is not None
        if entry[0].physical_offset >= physical_offset:
            changes.delete(key)
        else:
            place = entry[0].physical_offset, int.from_bytes(key[-8:], "big")
            newest[key[:-9]] = max(newest.get(key[:-9], (-1, 0)), place)
    for key in found[OFFSETS_FAMILY]:
        changes.delete(key, OFFSETS_FAMILY)
    for prefix, end in newest.items():
        topic, queue_id = prefix[5:-5].decode(), int.from_bytes(prefix[-4:], "big")
        changes.put(end_key(topic, queue_id), encode_end(*end), OFFSETS_FAMILY)
    changes.put(CHECKPOINT_KEY, encode_checkpoint(physical_offset), OFFSETS_FAMILY)
    database.write(changes)
    database.close()


def delete_queues(store: Path, *topics: str) -> None:
    """Delete all queues of these topics from the database."""
    found = items(store)
    database = opened_to_write(store / "consumequeue")
    changes = database.changes()
    for family, values in found.items():
        for key, value in values.items():
            end = decode_end(key, value) if family == OFFSETS_FAMILY else None
            topic = end.topic if end else key[5 : 5 + int.from_bytes(key[:4], "big")].decode()
            if topic in topics:
                changes.delete(key, family)
    database.write(changes)
    database.close()
