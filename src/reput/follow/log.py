"""A log that another process writes: where it ends for its readers, and whether it is still the same log.

What is at the end of the log counts when it has been there for a moment, for a broker copies a record into its file
while others read. When a broker recovers, it may cut the last file of its log, and what follows the cut stays there
until it is overwritten.
"""

from __future__ import annotations

import time
from itertools import takewhile

from reput.follow.state import CHECKPOINT_SPACING_BYTES, LogCheckpoint
from reput.format.commit_log import MIN_RECORD_BYTES, read_size_and_magic
from reput.log.growing import walk_on
from reput.log.scan import ScanBuffers
from reput.log.scan_mode import GROWING
from reput.log.sources import LogSource

_SETTLED_S = 0.2


class FollowedLog:
    """A log, as it was when it was looked at last.

    files  of that moment
    seen   physical offset after the last record that can be read
    """

    def __init__(self, source: LogSource, buffers: ScanBuffers) -> None:
        """Nothing is seen before `look`. Raises StoreNotFoundError, StoreAccessError."""
        self._source, self._buffers = source, buffers
        self._seen_at = 0.0
        self.seen = 0
        self.list_files()

    @property
    def begin(self) -> int:
        return self._log.begin

    def list_files(self) -> None:
        """Look which files there are now. Raises StoreNotFoundError, StoreAccessError."""
        self._log = self._source.list()
        self.files = self._log.files

    def look(self, start: int) -> None:
        """Look how far the log can be read from `start` on, at which a record or a file begins."""
        self._seen_at = time.monotonic()
        self.seen = walk_on(self._log, start, self._buffers, in_last=GROWING).end

    def settle(self) -> None:
        """Wait until what was seen last has been there for a moment."""
        time.sleep(max(self._seen_at + _SETTLED_S - time.monotonic(), 0))

    def last_with_data(self) -> int:
        """Physical offset at which the last file begins that has any."""
        return (self._log.last_with_data() or self.files[0]).start

    def held(self, checkpoints: list[LogCheckpoint]) -> list[LogCheckpoint]:
        """Checkpoints that match this log, up to the first that does not; those of expired messages are left out."""
        there = (
            checkpoint for checkpoint in checkpoints if checkpoint.physical_offset >= self.begin
        )
        return list(takewhile(self.holds, there))

    def holds(self, checkpoint: LogCheckpoint) -> bool:
        head = self.head_at(checkpoint.physical_offset)
        return head is not None and LogCheckpoint.of(checkpoint.physical_offset, head) == checkpoint

    def head_at(self, offset: int) -> bytes | None:
        """The first bytes of the record there, None where no file has it."""
        for file in self.files:
            if file.start <= offset < file.end - MIN_RECORD_BYTES:
                with self._log.open_file(file.path) as reader:
                    return reader.read(offset - file.start, MIN_RECORD_BYTES)
        return None

    def end_of(self, checkpoint: LogCheckpoint) -> int:
        """Physical offset after the message of a checkpoint that matches."""
        head = self.head_at(checkpoint.physical_offset)
        return checkpoint.physical_offset + (read_size_and_magic(head, 0)[0] if head else 0)

    def settled_before(self, checkpoints: list[LogCheckpoint]) -> int:
        """A place, of a record or a file, before which these checkpoints, which all match, would reveal a cut.

        After a cut in the last file checkpoints may match for a while, until the broker has written there.
        """
        last = self.last_with_data()
        if not checkpoints:
            return last
        newest = checkpoints[-1].physical_offset
        offsets = [checkpoint.physical_offset for checkpoint in checkpoints]
        return max(
            [min(last, newest), *(at for at in offsets if at + CHECKPOINT_SPACING_BYTES <= newest)]
        )
