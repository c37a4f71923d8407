"""Queue offsets that old entries give to messages, in files of the plan: a rebuild in place decides them once.

Forms that store entries under the queue offsets of their messages use them, such as RocksDB.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import Queue
from reput.format.dtypes import ROCKSDB_VALUE_DTYPE
from reput.io import DISK, FileReader, FileWriter

_CHANGED_FILE, _KEPT_FILE, _NAMES_FILE = "old-changed", "old-kept", "old-queues.json"
REFUSED = -1
"""The queue offset of a message that gets no entry."""
# Read at most this many bytes of each file that `write_old_numbers` has written, to limit memory: a damaged file may
# have any size. Valid files are much smaller.
_MOST_BYTES = 1 << 31
_Numbers = npt.NDArray[np.int64]


class OldNumbers(NamedTuple):
    """The queue offsets that the messages of a queue get from old entries, instead of those in their own records.

    changed      int64[n, 2]: physical offset and queue offset of each message whose record states another queue offset;
                 queue offset -1 means no entry
    kept_at      queue offsets of the kept entries, whose messages cannot be read
    kept_values  the values of the kept entries, ROCKSDB_VALUE_DTYPE
    """

    changed: _Numbers
    kept_at: _Numbers
    kept_values: npt.NDArray[np.void]

    def numbers(self, offsets: _Numbers, default: _Numbers) -> _Numbers:
        """Return the queue offsets that messages get; -1 for messages that get no entry.

        offsets  physical offsets of the messages
        default  queue offset in each message's record; the message gets this one if no old entry decides otherwise
        """
        result = default
        if len(self.changed):
            at = np.searchsorted(self.changed[:, 0], offsets)
            rows = self.changed[np.minimum(at, len(self.changed) - 1)]
            result = np.where(rows[:, 0] == offsets, rows[:, 1], default)
        # An old entry is kept if the scan found no message that states the entry's physical offset. Normally, the
        # message of a kept entry is unreadable. Otherwise, the message's record states a wrong physical offset, and the
        # message needs no new entry, because it has the kept one. So no message gets the queue offset of a kept entry.
        if len(self.kept_at):
            result = np.where(np.isin(result, self.kept_at), REFUSED, result)
        return result


def write_old_numbers(plan: str, numbers: dict[Queue, OldNumbers]) -> None:
    """Write the queue offsets for the write tasks. Raises StoreAccessError."""
    names = [
        [*name, len(of_queue.changed), len(of_queue.kept_at)] for name, of_queue in numbers.items()
    ]
    changed = b"".join(of_queue.changed.tobytes() for of_queue in numbers.values())
    entries = b"".join(
        of_queue.kept_at.tobytes() + of_queue.kept_values.tobytes() for of_queue in numbers.values()
    )
    for name, data in (
        (_CHANGED_FILE, changed),
        (_KEPT_FILE, entries),
        (_NAMES_FILE, json.dumps(names).encode()),
    ):
        with DISK.replacing(Path(plan, name)) as attempt, FileWriter(attempt) as file:
            file.write(data, 0)


@lru_cache(maxsize=2)
def read_old_numbers(plan: str) -> dict[Queue, OldNumbers]:
    """Read the files of `write_old_numbers`. Raises StoreAccessError."""
    names = json.loads(FileReader.content_of(Path(plan, _NAMES_FILE), _MOST_BYTES))
    changed = np.frombuffer(FileReader.content_of(Path(plan, _CHANGED_FILE), _MOST_BYTES), np.int64)
    data = FileReader.content_of(Path(plan, _KEPT_FILE), _MOST_BYTES)
    result: dict[Queue, OldNumbers] = {}
    at = within = 0
    for topic, queue_id, changes, entries in names:
        pairs = changed[at : at + 2 * changes].reshape(-1, 2)
        numbers = np.frombuffer(data, np.int64, entries, within)
        values = np.frombuffer(data, ROCKSDB_VALUE_DTYPE, entries, within + numbers.nbytes)
        at, within = at + 2 * changes, within + numbers.nbytes + values.nbytes
        result[Queue(topic, queue_id)] = OldNumbers(pairs, numbers, values)
    return result
