"""Copy some messages of an archive or a store into a new store, for a test environment.

The copies get new offsets and store times. Their properties state the origin of each message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.base import Progress, StoreConfig, Time, silent
from reput.engine.tables import dataset
from reput.engine.writer import WritableStore
from reput.format import commit_log
from reput.format.erasure import KEPT_PROPERTIES
from reput.format.file_names import COMMIT_LOG_FOLDER
from reput.format.message_id import spellings
from reput.format.properties import (
    CLUSTER,
    INTERNAL_TOPICS,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    RETRY_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    WAIT,
)
from reput.io import Archive
from reput.wings.archive.new_store import check_empty, new_store
from reput.wings.archive.report import RestoreReport

ORIGIN_STORE, ORIGIN_OFFSET, ORIGIN_QUEUE_OFFSET = (
    "REPUT_ORIGIN_STORE", "REPUT_ORIGIN_OFFSET", "REPUT_ORIGIN_QUEUE_OFFSET",
)  # fmt: skip
"""Properties of a copied message, which state its original: the archive or store, physical offset and queue offset."""
_HARMLESS = (CLUSTER, WAIT, RETRY_TOPIC)
_DROPPED = (
    *(name for name in KEPT_PROPERTIES if name not in _HARMLESS), commit_log.CRC_PROPERTY, ORIGIN_STORE, ORIGIN_OFFSET,
    ORIGIN_QUEUE_OFFSET,
)  # fmt: skip
"""Properties that are not copied: with them, another broker would delay or forward the message again."""
_FLAGS = (
    commit_log.SYS_FLAG_TRANSACTION_MASK
    | commit_log.SYS_FLAG_BORN_HOST_V6
    | commit_log.SYS_FLAG_STORE_HOST_V6
)
_COLUMNS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "flag", "sys_flag", "born_timestamp", "born_host",
    "reconsume_times", "keys", "unique_keys", "properties", "body",
)  # fmt: skip
_MOST_ROWS = 1 << 14
Mask = npt.NDArray[np.bool_]


def copy_messages(
    archive: str,
    destination: str,
    *,
    topics: Sequence[str],
    keys: Sequence[str],
    begin: Time | None,
    end: Time | None,
    options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> RestoreReport:
    """Copy messages that have one of these topics and one of these keys into a new store.

    Without topics, messages of all topics match; without keys, messages with any key or none. Ids may be in lower case.
    `reput.restore` calls this function if it gets topics or keys.
    """
    target = Path(destination)
    check_empty(target)
    config = Archive(archive, options).config
    rows = dataset(
        archive, _COLUMNS, topic=topics or None, begin=begin, end=end, unwrap_batches=True,
        decompressed=False, storage_options=options,
    ).to_reader()  # fmt: skip
    with new_store(target) as new:
        # Delete the log that an earlier, killed run has written. Otherwise, its messages would be in the copy twice.
        new.keep_only([])
        copied, left_out, log_end = _copy(
            rows, new.folder, config, spellings(*keys), archive, progress
        )
        progress("move", 0, 1)
        new.finish([COMMIT_LOG_FOLDER])
    files = len(list((target / COMMIT_LOG_FOLDER).iterdir()))
    return RestoreReport(archive, str(target), files, log_end, copied, 0, log_end, True, left_out)


def _copy(
    rows: Iterable[pa.RecordBatch], folder: Path, config: StoreConfig, keys: Sequence[str], archive: str,
    progress: Progress,
) -> tuple[int, int, int]:  # fmt: skip
    """Put rows into a new store; return the numbers of copied and of skipped messages, and the end of the log."""
    copied = left_out = done = 0
    with WritableStore.open(folder, config, None) as store:
        for batch in rows:
            progress("copy", done, done)
            done += len(batch)
            is_selected = _has_a_key(batch, keys)
            is_user_s = _is_of_users(batch)
            left_out += int((is_selected & ~is_user_s).sum())
            selected = batch.filter(pa.array(is_selected & is_user_s))
            for start in range(0, len(selected), _MOST_ROWS):
                part = selected.slice(start, _MOST_ROWS)
                store.put_columns(_columns(part, archive))
                copied += len(part)
        store.wait_dispatched()
        return copied, left_out, store.end_offset()


def _has_a_key(rows: pa.RecordBatch, keys: Sequence[str]) -> Mask:
    if not keys:
        return np.ones(len(rows), np.bool_)
    met = np.zeros(len(rows), np.bool_)
    for name in ("keys", "unique_keys"):
        lists = rows.column(name)
        matches = pc.is_in(lists.flatten(), pa.array(keys, pa.string()))
        met[pc.list_parent_indices(lists).filter(matches).to_numpy()] = True
    return met


def _is_of_users(rows: pa.RecordBatch) -> Mask:
    """Return which messages belong to users: they are in no internal topic, and neither prepared nor rolled back."""
    topics = rows.column("topic")
    internal = pc.or_(
        pc.is_in(topics, pa.array(sorted(INTERNAL_TOPICS))),
        pc.starts_with(topics, SYSTEM_TOPIC_PREFIX),
    )
    kind = rows.column("sys_flag").to_numpy() & commit_log.SYS_FLAG_TRANSACTION_MASK
    is_open = (kind == commit_log.SYS_FLAG_PREPARED) | (kind == commit_log.SYS_FLAG_ROLLBACK)
    return np.asarray(~internal.to_numpy(zero_copy_only=False) & ~is_open, np.bool_)


def _columns(rows: pa.RecordBatch, archive: str) -> dict[str, Any]:
    sys_flags = rows.column("sys_flag").to_numpy()
    named = ("topic", "queue_id", "flag", "reconsume_times", "born_host", "body")
    return {name: rows.column(name) for name in named} | {
        "sys_flag": pa.array(sys_flags & ~np.int32(_FLAGS)),
        "born_timestamp": pa.array(
            rows.column("born_timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
        ),
        "properties": _properties(rows, archive),
    }


def _properties(rows: pa.RecordBatch, archive: str) -> pa.Array:
    """Return the properties strings of the copies.

    A copy has the properties of the original message, except the properties in _DROPPED. After these properties, the
    copy has ORIGIN_STORE, ORIGIN_OFFSET and ORIGIN_QUEUE_OFFSET, which state where the original message is stored.
    """
    properties = rows.column("properties")
    pairs = pc.binary_join_element_wise(properties.keys, properties.items, NAME_SEPARATOR)
    stays = ~pc.is_in(properties.keys, pa.array(_DROPPED)).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(stays)])[properties.offsets.to_numpy()]
    lists = pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pairs.filter(pa.array(stays)))
    texts = pc.binary_join(lists, PROPERTY_SEPARATOR)
    origin = [
        pc.binary_join_element_wise(f"{name}{NAME_SEPARATOR}", pc.cast(value, pa.string()), "")
        for name, value in (
            (ORIGIN_STORE, pa.repeat(archive, len(rows))),
            (ORIGIN_OFFSET, rows.column("physical_offset")),
            (ORIGIN_QUEUE_OFFSET, rows.column("queue_offset")),
        )
    ]
    joined = pc.binary_join_element_wise(texts, *origin, PROPERTY_SEPARATOR)
    # If a message had no properties, the joined text begins with a separator. Remove it.
    return pc.utf8_ltrim(joined, PROPERTY_SEPARATOR)
