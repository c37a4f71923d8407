"""Queue offsets of light queues: gaps of a 5.x broker are not findings, lost entries are."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from reput.base.findings import Finding, Kind
from reput.core.log.dispatch_batch import Queue
from reput.engine.check.checking.queue_entries import LightQueue, LightQueues

QUEUE = Queue("%LMQ%a", 0)


def misplaced(part: int, row: int) -> Finding:
    return Finding(Kind.MISPLACED_QUEUE_ENTRY, "f", f"{part + row}")


def file_with(skews: Sequence[int], taken: Sequence[int] = ()) -> dict[Queue, LightQueue]:
    """Return what a scan of one log file keeps: message i is at physical offset 10 * i, with queue offset i + skews[i].

    `taken` are physical offsets of messages that took a queue offset, but have no entry.
    """
    found = LightQueue()
    offsets = np.arange(0, 10 * len(skews), 10)
    for part in range(0, len(skews), 3):  # in chunks
        inside = [at for at in taken if 10 * part - 5 <= at < 10 * part + 25]
        found.add(
            offsets[part : part + 3], np.array(skews[part : part + 3], np.int64),
            offsets[part : part + 3], np.array(inside, np.int64),
            partial(misplaced, part),
        )  # fmt: skip
    return {QUEUE: found}


@pytest.mark.parametrize(
    ("skews", "taken", "first", "count"),
    [
        ((0, 0, 0, 0), (), None, 0),
        # Each change follows a transaction's message, which took a queue offset.
        ((0, 1, 1, 2), (5, 25), None, 0),
        ((0, 2, 2, 2), (3, 5), None, 0),
        ((0, 1, 1, 0), (5,), None, 0),  # the broker restarted and reused a queue offset
        ((0, 3, 3, 3, 1), (3, 5, 7, 35), None, 0),  # the same, then one message of a transaction
        ((0, 1, 1, 1), (), "1", 3),
        ((0, 0, 0, 2, 2), (25,), "3", 2),
        ((0, -1, -1), (), "1", 2),
        ((0, 2, 2, 3, 0, 0), (5, 25), "1", 3),  # queue offsets are wrong until the broker restarts
    ],
)  # fmt: skip
def test_only_what_no_broker_does_is_found(
    skews: Sequence[int], taken: Sequence[int], first: str | None, count: int
) -> None:
    found = list(LightQueues(0).take(file_with(skews, taken)))
    assert [(one.detail, one.count) for one in found] == ([] if first is None else [(first, count)])


def test_files_join_and_what_expired_is_not_held_against_the_first() -> None:
    queues = LightQueues(1000)
    assert list(queues.take(file_with((4, 4, 5), (15, 22)))) == []
    assert list(queues.take(file_with((6, 6)))) == []
    assert [one.count for one in queues.take(file_with((7,)))] == [1]
