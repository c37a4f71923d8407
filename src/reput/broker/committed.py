"""The offsets that consumer groups committed, wherever a broker keeps them: in JSON, or in RocksDB (5.x).

Mirrors `ConsumerOffsetManager`, `LmqConsumerOffsetManager`, and the managers of `broker.config.v1` and `.v2` (tag
rocketmq-all-5.3.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reput.broker.config_file import ConfigFile
from reput.broker.offsets import ConsumerOffsets, numbers
from reput.errors import FormatError
from reput.files.rocksdb import RocksFolder
from reput.files.storage import LOCAL
from reput.format.file_names import CONFIG_FOLDER, ROCKSDB_CONFIG_FOLDER, ROCKSDB_OFFSETS_FOLDER
from reput.format.rocksdb_config import (
    FAMILY,
    OFFSETS_PREFIX_V2,
    CommittedOffset,
    decode_offset_v2,
    decode_offsets_v1,
)
from reput.queues.rocksdb_database import is_database

_LMQ_FILE, _LMQ_TABLE = "lmqConsumerOffset.json", "lmqOffsetTable"


def committed_offsets(store: Path) -> list[CommittedOffset]:
    """Each group's offset of each queue, in no order: those of RocksDB where it has any, else those in files.

    A broker that keeps them in RocksDB leaves old files behind, which it reads no more.

    Raises:
        MissingExtraError: rocksdict is not installed.
        FormatError: a file or database is damaged.
        StoreAccessError.
    """
    offsets: dict[tuple[str, str, int], CommittedOffset] = {}
    for read in (_of_version_2, _of_version_1, _in_files):
        for one in read(store):
            offsets.setdefault(one[:3], one)
        if offsets:
            break
    return list(offsets.values())


def _of_version_2(store: Path) -> Iterator[CommittedOffset]:
    folder = str(store / CONFIG_FOLDER / ROCKSDB_CONFIG_FOLDER)
    if is_database(folder, LOCAL):
        with RocksFolder(folder, (FAMILY,)) as database:
            for key, value in database.family_items(FAMILY, OFFSETS_PREFIX_V2):
                if not key.startswith(OFFSETS_PREFIX_V2):
                    return
                if (found := decode_offset_v2(key, value)) is not None:
                    yield found


def _of_version_1(store: Path) -> Iterator[CommittedOffset]:
    folder = str(store / CONFIG_FOLDER / ROCKSDB_OFFSETS_FOLDER)
    if is_database(folder, LOCAL):
        with RocksFolder(folder, (FAMILY,)) as database:
            for key, value in database.family_items(FAMILY):
                yield from decode_offsets_v1(key, value)


def _in_files(store: Path) -> Iterator[CommittedOffset]:
    """With `enableLmq` all offsets are in a file of another name, those of light queues as one number each."""
    light = ConfigFile(store, _LMQ_FILE, is_kept=False)
    content = light.load()
    try:
        for pair, offset in (content.get(_LMQ_TABLE) or {}).items():
            topic, _, group = pair.partition("@")
            yield CommittedOffset(group, topic, 0, int(offset))
        for pair, by_queue in (content.get("offsetTable") or {}).items():
            topic, _, group = pair.partition("@")
            for queue_id, offset in numbers(by_queue).items():
                yield CommittedOffset(group, topic, queue_id, offset)
    except (ValueError, TypeError, AttributeError):
        raise FormatError(light.path, 0, "offsetTable is not maps of numbers") from None
    for entry in ConsumerOffsets(store, is_kept=False).entries():
        yield CommittedOffset(*entry)
