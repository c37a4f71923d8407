"""What expired of a log before it was indexed: nothing else will ever show that it was there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from reput.findings import Finding
from reput.log.files import CommitLogFile, expired_before
from reput.recovery.queue_files import QueueFiles
from reput.recovery.recovery_point import RecoveryPoint


def expired_unindexed(
    first: CommitLogFile, known: RecoveryPoint | None, queues: Iterable[QueueFiles]
) -> Finding | None:
    """Return a finding for messages that expired before they were indexed, or None.

    These are the offsets between the end of the indexes and the begin of the log's `first` file. The indexes reach to
    the
    recovery point `known`, or to the last entry of a ConsumeQueue if that is further. Indexes with neither may be new,
    so
    they give no finding. Raises StoreAccessError.
    """
    ends = [end for found in queues if (end := found.end_before(found.written)) >= 0]
    if known is not None:
        ends.append(known.end)
    end = max(ends, default=first.start)
    if end >= first.start:
        return None
    return replace(expired_before(first, end), detail="expired before they were indexed")
