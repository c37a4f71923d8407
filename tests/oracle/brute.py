"""Queries by key without an index: read every record and compare."""

from collections.abc import Iterable

from tests.oracle.records import Record


def query_exact(
    walked: Iterable[tuple[int, Record]], topic: str, key: str, begin: int, end: int
) -> list[int]:
    """Return the log offsets of all messages with that key, newest (highest) first.

    `walked` is `Walk.records`. The window is [begin, end] in ms of the store timestamp. A message is
    returned once if it has this topic and this key, as its unique key or as an element of KEYS.
    Rollbacks of transactions are not indexed, so they are never returned.
    """
    return sorted(
        (
            offset
            for offset, record in walked
            if record.topic == topic
            and key in record.index_keys
            and begin <= record.store_timestamp <= end
        ),
        reverse=True,
    )
