"""Stores of a given number of files, queues and keys, with as few bytes as possible."""

from __future__ import annotations

from pathlib import Path

import reput
from reput.base.config import StoreConfig

FILE_BYTES = 1 << 12
_BODY = bytes(3300)


def config(*, items: int = 20) -> StoreConfig:
    """Return settings by which each message of `write` fills a log file, and `items` keys an IndexFile."""
    return StoreConfig(
        commit_log_file_bytes=FILE_BYTES, queue_entries=50, hash_slots=16, index_items=items + 1
    )


def write(
    path: Path, messages: int, *, queues: int = 1, items: int = 20, body: bytes = _BODY
) -> Path:
    """Write a store of messages with one key each, in turn to each queue. By default each fills a log file."""
    with reput.open_store(path, mode="rw", config=config(items=items)) as store:
        store.put_many(
            reput.Message(f"T{number % queues}", body, keys=[f"k{number}"], queue_id=0)
            for number in range(messages)
        )
    return path
