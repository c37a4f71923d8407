"""Find out whether a light queue (%LMQ%) that does not exist was lost.

Messages name further queues in the property INNER_MULTI_DISPATCH. The map of known ranges has only the queues of the
messages themselves, because the properties of all messages take much longer to read. So a question about a light topic
without queues scans the messages of its window.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from reput.base import Finding, Kind
from reput.core.log.offset_range import OffsetRange
from reput.errors import StoreNotFoundError
from reput.format.file_names import CONSUME_QUEUE_FOLDER

if TYPE_CHECKING:
    from reput.core.query.message_store import MessageStore

# A scan of this many bytes takes about a second.
_MOST_BYTES = 256 << 20


def lost_light_queue(
    store: MessageStore, topic: str, ranges: Sequence[OffsetRange]
) -> Finding | None:
    """Return a finding if messages in ranges of the log name a queue of a light topic, or may name one.

    Each range lies in one file and begins at a record. Raises StoreAccessError, StoreChangedError.
    """
    folder = os.path.join(store.path, CONSUME_QUEUE_FOLDER, topic)
    if sum(part.size_bytes for part in ranges) > _MOST_BYTES:
        unknown = "there is no such queue, and too much of the log to search for its messages"
        return Finding(Kind.MISSING_QUEUE, folder, unknown)
    # Import this late, because most questions need no kernels.
    from reput.core.log.scan import FileScan
    from reput.core.log.scan_mode import READER_SALVAGE, DispatchRules

    log, rules = store.commit_log, DispatchRules(multi_dispatch=True, lmq=True)
    for start, stop in ranges:
        if (file := log.file_at(start)) is None:
            continue
        scan = FileScan(file, start, stop, READER_SALVAGE, rules, open_file=log.source.open)
        with suppress(StoreNotFoundError):  # The file has expired meanwhile.
            for batch in scan.batches():
                named = {batch.queues[number].topic for number in batch.multi["queue"].tolist()}
                if topic in named:
                    lost = "the log has messages of this queue"
                    return Finding(Kind.MISSING_QUEUE, folder, lost)
    return None
