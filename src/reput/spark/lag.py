"""Measure the lag of a stream: how many bytes and messages of the logs it has not read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reput.core import LogListing, ScanBuffers, find_log_end, is_at_end, walk_on

# Count messages in this many unread bytes of the log (the size of one read of a remote file), and estimate the rest.
_COUNTED_BYTES = 4 << 20
_ANY_NUMBER = 1 << 62


def lag_of(sources: Iterable[LogListing], read_to: Mapping[str, int]) -> dict[str, Any]:
    """Return how far the log of each store continues after `read_to`.

    The values of a store are `end` (the log's present end), `bytes_behind` and `messages_behind`. The messages in the
    first 4 MiB after `read_to` are counted. The number of messages after the 4 MiB is estimated from this count. Raises
    StoreError.
    """
    buffers = ScanBuffers()
    return {
        source.name: _of_store(source, read_to.get(source.name, source.begin), buffers)
        for source in sources
    }


def _of_store(source: LogListing, position: int, buffers: ScanBuffers) -> dict[str, int]:
    end = position if is_at_end(source, position) else find_log_end(source, buffers)
    behind, messages = max(end - position, 0), 0
    if behind:
        walked = walk_on(
            source, position, buffers, max_bytes=_COUNTED_BYTES, max_messages=_ANY_NUMBER
        )
        messages = walked.messages
        if position < walked.end < end:
            messages = messages * behind // (walked.end - position)
    return {"end": end, "bytes_behind": behind, "messages_behind": messages}
