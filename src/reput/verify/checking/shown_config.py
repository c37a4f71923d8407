"""The settings of a broker that the files of its store show."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reput.config import StoreConfig
from reput.errors import ReputError, UsageError
from reput.findings import Finding, Kind
from reput.format.batch_consume_queue import BATCH_ENTRY_BYTES
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.file_names import BATCH_QUEUE_FOLDER, EXTENSION_FOLDER, parse_offset_file_name
from reput.format.properties import LMQ_PREFIX
from reput.index.geometry import GeometryFinder
from reput.verify.checking.folders import entries_of

if TYPE_CHECKING:
    from reput.verify.checking.checked_store import CheckedStore

_LEAST_EXTENSION_BYTES = 64


def shown_config(store: CheckedStore) -> StoreConfig:
    """The settings that most of the store's files show; a damaged one does not decide."""
    config, sizes = store.config, Counter(_queue_file_sizes(store.queues.values()))
    if sizes and (size := sizes.most_common(1)[0][0]) and size % ENTRY_BYTES == 0:
        config = replace(config, queue_entries=size // ENTRY_BYTES)
    if (size := _usual_size(store.path / BATCH_QUEUE_FOLDER)) >= BATCH_ENTRY_BYTES:
        config = replace(config, batch_queue_file_bytes=size)
    if (size := _usual_size(store.path / EXTENSION_FOLDER)) >= _LEAST_EXTENSION_BYTES:
        config = replace(config, extension_file_bytes=size)
    if any(queue.topic.startswith(LMQ_PREFIX) for queue in store.queues):
        config = replace(config, enable_lmq=True, enable_multi_dispatch=True)
    files = [(path, os.stat(path).st_size) for path in store.index]
    files = [(path, size) for path, size in files if size or not store.is_live]
    if not files:
        return config
    try:
        known = GeometryFinder(None, None).find(files)
    except (ReputError, UsageError):
        known = {}
    usual = Counter(size for _, size in files).most_common()
    for size, _ in usual:
        if size in known:
            slots, items = known[size]
            return replace(config, hash_slots=slots, index_items=items)
    if usual[0][0] != config.index_file_bytes:
        store.knows_index_sizes = False
        detail = "its numbers of slots and items are not certain; give the broker's settings"
        store.findings += [Finding(Kind.INDEX_HEADER, path, detail) for path, _ in files]
    return config


def _usual_size(folder: Path) -> int:
    """That of most files of the queues in a folder; 0 without any."""
    queues = [queue.path for topic in entries_of(folder) for queue in entries_of(Path(topic.path))]
    found = Counter(_queue_file_sizes(queues)).most_common(1)
    return found[0][0] if found else 0


def _queue_file_sizes(folders: Iterable[str]) -> Iterator[int]:
    for folder in folders:
        for entry in entries_of(Path(folder)):
            if parse_offset_file_name(entry.name) is not None:
                yield entry.stat(follow_symlinks=False).st_size
