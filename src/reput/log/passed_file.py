"""Remember the facts about a log file whose records all pass in a scan for another purpose."""

from __future__ import annotations

from contextlib import closing

from reput.log.files import CommitLogFile
from reput.log.known_file import KnownFile
from reput.log.known_ranges import KnownRanges, settled
from reput.log.log_topics import LogTopics
from reput.log.range_scan import PassedRange
from reput.log.reader import CommitLogReader
from reput.log.scan import FileScan, ScannedPiece
from reput.log.sources import ListedLog, LogListing


class PassedFile:
    """Collects facts while a scan reads a whole local file. They are kept only if no record was damaged."""

    def __init__(self, file: CommitLogFile) -> None:
        """Prepare to collect. Call this before the scan begins."""
        self._file = file
        # In a DLedger log, records do not begin where they state.
        self._stamp = () if file.gap else settled(file)
        self.restart()

    def restart(self) -> None:
        """Forget what has passed, because another scan begins at the start of the file."""
        self._passed = PassedRange(self._file, self._file.start) if self._stamp else None

    def add(self, piece: ScannedPiece) -> None:
        """Take the next records."""
        if self._passed is not None:
            self._passed.add(piece.batch, piece.positions + piece.base)

    def keep(self, scan: FileScan) -> None:
        """Keep the facts after the scan, unless it has found damage."""
        end = scan.end
        is_whole = not scan.damage and not scan.misplaced and not end.torn
        if self._passed is not None and is_whole and not (end.unreadable and end.data_follows):
            keep_passed(self._file, self._passed.result(end.position), self._stamp)


def keep_passed(file: CommitLogFile, passed: KnownFile, stamp: tuple[int, ...]) -> None:
    """Keep facts about a local log file (see `KnownRanges.take`)."""
    listed = LogListing(file.path, (file,))
    with closing(CommitLogReader(ListedLog(listed))) as log:
        KnownRanges(log).take(file, passed, stamp)


def keep_topics(log: CommitLogReader) -> None:
    """Add the topics of all files whose facts were kept to the map of topics (`LogTopics`)."""
    LogTopics(log, KnownRanges(log)).keep()
