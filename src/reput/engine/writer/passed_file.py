"""Remember the facts about a log file whose records all pass in a scan for another purpose."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import closing, suppress

from reput import core
from reput.errors import ReputError

# At most this many complete files wait until no process has them open for writing.
_MOST_COMPLETE = 64


class PassedFile:
    """Collects facts while a scan reads a whole local file. They are kept only if no record was damaged."""

    def __init__(self, file: core.CommitLogFile) -> None:
        """Prepare to collect. Call this before the scan begins."""
        self._file = file
        may_keep = core.PassedRange.begin(file, file.start) is not None
        self._stamp = core.settled(file) if may_keep else ()
        self.restart()

    def restart(self) -> None:
        """Forget what has passed, because another scan begins at the start of the file."""
        self._passed = core.PassedRange.begin(self._file, self._file.start) if self._stamp else None

    def add(self, piece: core.ScannedPiece) -> None:
        """Take the next records."""
        if self._passed is not None:
            self._passed.add(piece.batch, piece.positions + piece.base)

    def keep(self, scan: core.FileScan) -> None:
        """Keep the facts after the scan, unless it has found damage."""
        end = scan.end
        is_whole = not scan.damage and not scan.misplaced and not end.torn
        if self._passed is not None and is_whole and not (end.unreadable and end.data_follows):
            _keep(self._file, self._passed.result(end.position), self._stamp)


class PassedLog:
    """Collects facts about the files of a local log while its messages are dispatched, oldest first.

    The facts about a file are kept after its last message, or when the log is closed, as soon as no process has the
    file open for writing.
    """

    def __init__(self) -> None:
        self._file: core.CommitLogFile | None = None
        self._passed: core.PassedRange | None = None
        self._stop = -1
        self._resumed: core.KnownFile | None = None
        self._complete: deque[tuple[core.CommitLogFile, core.KnownFile]] = deque(
            maxlen=_MOST_COMPLETE
        )

    def resume(self, file: core.CommitLogFile) -> None:
        """Continue with a file whose facts were kept earlier. Call this before the file is changed."""
        with closing(_log_of(file)) as log:
            self._resumed = core.KnownRanges(log).known(file)

    def add(self, file: core.CommitLogFile, batch: core.DispatchBatch) -> None:
        """Take the next messages of a file."""
        messages = batch.messages
        if not len(messages):
            return
        begin = int(messages["physical_offset"][0])
        if self._file is None or file.start != self._file.start:
            self._file, self._passed, self._stop = file, self._begin(file, begin), begin
        if begin != self._stop:
            self.lose()
        self._stop = int(messages["physical_offset"][-1]) + int(messages["size"][-1])
        if self._passed is not None:
            self._passed.add(batch)

    def _begin(self, file: core.CommitLogFile, begin: int) -> core.PassedRange | None:
        resumed, self._resumed = self._resumed, None
        if begin == file.start and (passed := core.PassedRange.begin(file, begin)) is not None:
            return passed
        if (
            resumed is None
            or resumed.queues is None
            or (resumed.start, resumed.stop) != (file.start, begin)
        ):
            return None
        return core.PassedRange(
            file,
            core.KnownFile(
                resumed.start,
                begin,
                resumed.pieces,
                queues=resumed.queues,
                rolled_back=resumed.rolled_back,
            ),
        )

    def lose(self) -> None:
        """Collect nothing about the rest of the present file, because it has damage."""
        self._passed = None

    def end(self, stop: int) -> None:
        """Note that all messages of the present file before `stop` have passed."""
        if self._file is not None and self._passed is not None:
            self._complete.append((self._file, self._passed.result(stop)))
        self._passed = None

    def keep(self) -> None:
        """Keep the facts about files that are no longer open for writing."""
        while self._complete:
            file, facts = self._complete[0]
            with suppress(ReputError, OSError):
                if not (stamp := core.settled(file)):
                    return
                _keep(file, facts, stamp)
            self._complete.popleft()


def _log_of(file: core.CommitLogFile) -> core.CommitLogReader:
    return core.CommitLogReader(core.ListedLog(core.LogListing(file.path, (file,))))


def _keep(file: core.CommitLogFile, facts: core.KnownFile, stamp: tuple[int, ...]) -> None:
    """Keep facts about a local log file (see `KnownRanges.take`)."""
    if file.is_worth_keeping:
        with closing(_log_of(file)) as log:
            core.KnownRanges(log).take(file, facts, stamp)


def keep_parts(file: core.CommitLogFile, parts: Sequence[bytes], stamp: tuple[int, ...]) -> None:
    """Keep facts about a local log file, joined from those of its ranges (`KnownFile.encoded`)."""
    ranges = [core.KnownFile.decoded(part) for part in parts]
    facts = core.KnownFile.joined([part for part in ranges if part is not None])
    if facts is not None:
        _keep(file, facts, stamp)


def keep_topics(log: core.CommitLogReader) -> None:
    """Add the topics of all files whose facts were kept to the map of topics (`LogTopics`)."""
    if any(file.is_worth_keeping for file in log.files):
        core.LogTopics(log, core.KnownRanges(log)).keep()
