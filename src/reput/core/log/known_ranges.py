"""Remember results of scans of log ranges: store times of messages, and message ids without an index entry.

The store times of a file's first and last message do not bound the times in between, because clocks may be set back.
Only a scan sees all store times. A scan also finds ids without an index entry: if a record has several UNIQ_KEYs, as in
messages that 5.x clients send as a list, a broker indexes only the last one. Both results are stored in the user's
cache folder, so each file is scanned once.

Results are valid while the file's stamp (`reput.io.stamps`) is unchanged and the last message of the range is still
at its offset. The last file of the log grows, which changes its stamp. The process that scanned this file then ignores
the stamp, and only checks that the last message of the range is still at its offset. Other processes ignore the stored
results instead. Every process scans damaged ranges again, so that each process reports the damage.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property

from reput.base import Finding
from reput.core.log.files import CommitLogFile
from reput.core.log.known_file import KnownFile, ReplacedIds, TimedPiece
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import has_data
from reput.errors import ReputError
from reput.io import OwnCache, Stamp

# Maximum size of a stored result. A larger file in the cache is ignored.
_MOST_BYTES = 256 << 20
# The log's last file grows, so stored results about it soon become invalid. They are stored only after a scan of at
# least this many bytes, because a shorter scan is fast.
_LEAST_GROWTH_BYTES = 2 << 20
# Errors that a damaged or foreign cache file can cause.
_WRONG_FORM = (ValueError, TypeError, LookupError, OverflowError, RecursionError)


class KnownRanges:
    """Known facts about the ranges of one log, from the memory of this process or from the cache. Not thread-safe."""

    def __init__(self, log: CommitLogReader) -> None:
        self._log = log
        self._learned: dict[CommitLogFile, KnownFile] = {}
        self._whole: dict[CommitLogFile, tuple[KnownFile, TimedPiece | None]] = {}
        self._check: Callable[[], None] = _go_on

    @contextmanager
    def interrupted_by(self, check: Callable[[], None]) -> Iterator[None]:
        """Call `check` often during scans in the `with` block. Its errors end the scan."""
        self._check = check
        try:
            yield
        finally:
            self._check = _go_on

    @cached_property
    def _cache(self) -> OwnCache:
        return OwnCache("ranges")

    def times(self, within: OffsetRange) -> TimedPiece | None:
        """Return the store times of a range within one file; None if they are unknown. This never scans."""
        file = self._log.file_at(within.start)
        facts = None if file is None else self._known(file)
        if facts is None or within.start < facts.start or facts.stop < within.stop:
            return None
        return TimedPiece.joined(
            [p for p in facts.pieces if p.start < within.stop and within.start < p.stop]
        )

    def stamp(self, within: OffsetRange) -> tuple[int, ...]:
        """Return the stamp (inode, size, ctime) of the file that contains a range, as an argument for `keep`.

        Call this method before the range is scanned. If the file changes during the scan, the stamp no longer matches,
        so the result of the scan is not used later. The stamp is empty if the result would not be kept.
        """
        file = self._log.file_at(within.start)
        if file is None or file == self._log.files[-1] or within.stop != file.end:
            # The result is kept only for a scan to the end of a file that no longer grows.
            return ()
        if within.size_bytes < CommitLogFile.LEAST_KEPT_BYTES or self._known(file) is not None:
            return ()
        return settled(file)

    def keep(self, within: OffsetRange, stamp: tuple[int, ...], piece: TimedPiece) -> None:
        """Keep `piece`, the result of a scan of the range `within`.

        Call this method only if the range ends at the end of its file, and the scan found no damage.
        """
        file = self._log.file_at(within.start)
        if file is not None:
            pieces = (piece._replace(start=within.start, stop=within.stop),)
            self._keep(file, KnownFile(*within, pieces, stamp=stamp))

    def take(self, file: CommitLogFile, passed: KnownFile, stamp: tuple[int, ...]) -> None:
        """Keep facts that another scan has collected as it passed a file, unless more is known already.

        Args:
            file: The file.
            passed: Facts about all its records, none of which is damaged.
            stamp: The file's stamp (`settled`) before that scan.
        """
        known = self._known(file)
        is_known = known is not None and known.queues is not None and known.start <= file.start
        if stamp and not (is_known and known is not None and known.stop >= passed.stop):
            ends = passed.stop >= file.end
            by_stamp = replace(passed, stamp=stamp) if ends else replace(passed, kept_at=stamp)
            self._keep(file, by_stamp)

    def pieces(self, begin: int, end: int, *, newest_first: bool = False) -> Iterator[TimedPiece]:
        """Yield the pieces of the log that may have messages stored between two times (ms), both inclusive.

        The oldest piece comes first; with `newest_first`, the newest. A file whose times are unknown is scanned when
        its turn comes. Raises StoreAccessError, StoreChangedError.
        """
        files = self._log.files
        for file in reversed(files) if newest_first else files:
            facts = self.learn(file)
            of, whole = self._whole.get(file, (None, None))
            if of is not facts:
                whole = TimedPiece.joined(facts.pieces)
                self._whole[file] = facts, whole
            if whole is not None and not whole.is_outside(begin, end):
                pieces = reversed(facts.pieces) if newest_first else facts.pieces
                yield from (piece for piece in pieces if not piece.is_outside(begin, end))

    def outside(self, begin: int, end: int) -> list[OffsetRange]:
        """Return ranges that have no message of a time window (ms, inclusive), as far as scans have shown.

        This never scans: call it after `pieces`.
        """
        ranges: list[OffsetRange] = []
        for file in self._log.files:
            if (facts := self._known(file)) is not None:
                inside = [p for p in facts.pieces if not p.is_outside(begin, end)]
                read = OffsetRange(facts.start, facts.stop)
                ranges += read.without([OffsetRange(p.start, p.stop) for p in inside])
        return ranges

    def damage(self) -> list[Finding]:
        """Return the unreadable ranges that scans in this process have found. This never scans."""
        learned = filter(None, map(self._learned.get, self._log.files))
        return [lost for facts in learned for lost in facts.damage]

    def end(self) -> int:
        """Scan new messages of the log's last file; return the offset after the last one. Raises as `pieces` does."""
        return self.learn(self._log.files[-1]).stop

    def stored_within(self, piece: TimedPiece, begin: int, end: int) -> set[int]:
        """Return physical offsets of the messages in `piece` that were stored between two times (ms, inclusive).

        Raises StoreAccessError, StoreChangedError.
        """
        from reput.core.log.range_scan import stored_within

        file = self._log.file_at(piece.start)
        return (
            set() if file is None else stored_within(self._log.source.open, file, piece, begin, end)
        )

    def is_known(self, file: CommitLogFile) -> bool:
        """Return whether a file was scanned already. If so, only messages appended later need a scan."""
        facts = self._known(file)
        return facts is not None and facts.start <= file.start

    def remembered(self, file: CommitLogFile) -> KnownFile | None:
        """Return the results of an earlier scan in this process of a file that no longer grows, else None.

        This reads nothing but the file's stamp.
        """
        facts = self._learned.get(file)
        with suppress(OSError):
            if facts is not None and facts.stamp and facts.stamp == _stamp(file):
                return facts if facts.start <= file.start else None
        return None

    def known(self, file: CommitLogFile) -> KnownFile | None:
        """Return the results of an earlier scan of a file if they are still valid, else None. This never scans."""
        facts = self._known(file)
        return None if facts is None or facts.start > file.start else facts

    def learn(
        self, file: CommitLogFile, *, with_ids: bool = False, with_queues: bool = False
    ) -> KnownFile:
        """Return the results of a scan of a file, from the memory of this process, from the cache, or from a new scan.

        The results are the messages' store times, the damaged ranges and, with `with_ids`, the message ids without an
        index entry. `with_queues` scans a file again if an earlier scan has not collected its queues.

        Raises StoreAccessError, StoreChangedError.
        """
        # This method is called many times in a row, so avoid reading the cache each time: if the file's stamp has not
        # changed, the result in memory is still valid.
        facts = self.remembered(file)
        if facts is not None and _has(facts, with_ids, with_queues):
            return facts
        facts = self._known(file)
        if facts is None or facts.start > file.start or not _has(facts, with_ids, with_queues):
            facts = KnownFile(
                file.start, file.start, ids=ReplacedIds() if with_ids else None, queues=()
            )
        if not facts.stamp:
            facts = self._extended(file, facts)
        self._learned[file] = facts
        return facts

    def _extended(self, file: CommitLogFile, facts: KnownFile) -> KnownFile:
        """Add to `facts` the messages that were appended since the last scan. Only the last file with data grows."""
        from reput.core.log.range_scan import scan_range

        source = self._log.source
        later = (later_file for later_file in self._log.files if later_file.start > file.start)
        ends = any(
            has_data(source.open, later_file, is_local=source.is_local) for later_file in later
        )
        is_new = not facts.pieces
        # Only results that are stored in the cache need a stamp, which shows later changes of the file. Results are
        # stored in two cases: the file no longer grows (`ends` is true), or the file still grows, and its first scan
        # reads a long range.
        stamp = settled(file) if ends or (is_new and file.size >= _LEAST_GROWTH_BYTES) else ()
        # The file may have changed after the earlier scan, but before this stamp was taken. So scan all of it again.
        if stamp and not is_new:
            facts = KnownFile(
                file.start, file.start, ids=None if facts.ids is None else ReplacedIds(), queues=()
            )
        extended = scan_range(source.open, file, facts, ends=ends, check=self._check)
        if self._is_written_now(extended.damage[len(facts.damage) :]):
            extended = scan_range(source.open, file, facts, ends=ends, check=self._check)
        if ends:
            extended = replace(extended, stamp=stamp)
        elif extended.stop - extended.start >= _LEAST_GROWTH_BYTES:
            extended = replace(extended, kept_at=stamp)
        return (
            self._keep(file, extended)
            if extended.stamp or extended.kept_at
            else self._witnessed(extended)
        )

    def _is_written_now(self, damage: Sequence[Finding]) -> bool:
        """Return whether a record that a scan could not read is readable now, because it was just being written."""
        for lost in damage:
            with suppress(ReputError):
                self._log.locate(lost.start)
                return True
        return False

    def _known(self, file: CommitLogFile) -> KnownFile | None:
        """Return facts from the memory of this process or from the cache, if they are still valid, else None."""
        with suppress(ReputError, OSError, *_WRONG_FORM):
            facts = self._learned.get(file, file.known)
            if facts is not None and self._holds(file, facts):
                return facts
            if file.is_worth_keeping:
                data = self._cache.read(_name(file), _MOST_BYTES)
                facts = None if data is None else KnownFile.decoded(data)
                is_as_kept = facts is not None and _stamp(file) in (facts.stamp, facts.kept_at)
                if facts is not None and is_as_kept and self._holds(file, facts):
                    self._learned[file] = facts
                    return facts
        return None

    def _holds(self, file: CommitLogFile, facts: KnownFile) -> bool:
        has_stamp = not facts.stamp or facts.stamp == _stamp(file)
        return has_stamp and self._witness(facts) == facts.witness

    def _witnessed(self, facts: KnownFile) -> KnownFile:
        """Return `facts` with the CRC of its last record as `witness`.

        Raises ReputError if the log has lost this record.
        """
        return replace(facts, witness=self._witness(facts))

    def _witness(self, facts: KnownFile) -> int:
        if not facts.pieces or facts.pieces[-1].last < 0:
            # No record was found, so there is no CRC to compare later.
            return facts.witness
        return zlib.crc32(self._log.read_record(facts.pieces[-1].last))

    def _keep(self, file: CommitLogFile, facts: KnownFile) -> KnownFile:
        with suppress(ReputError, OSError):
            facts = self._witnessed(facts)
            has_stamp = _stamp(file) in (facts.stamp, facts.kept_at)
            is_worth_it = facts.stop - facts.start >= CommitLogFile.LEAST_KEPT_BYTES
            if facts.pieces and not facts.damage and has_stamp and is_worth_it:
                self._cache.write(_name(file), facts.encoded())
        return facts


def _go_on() -> None:
    """Let a scan continue."""


def _has(facts: KnownFile, with_ids: bool, with_queues: bool) -> bool:
    has_ids = facts.ids is not None or not with_ids
    return has_ids and (facts.queues is not None or not with_queues)


def _name(file: CommitLogFile) -> str:
    """Return a file's name in the cache: by device and inode, or by URL for a remote file."""
    if "://" in file.path:
        return f"{zlib.crc32(file.path.encode()):08x}-{file.start:x}.remote"
    status = os.stat(file.path)
    return f"{status.st_dev:x}-{status.st_ino:x}.json"


def settled(file: CommitLogFile) -> tuple[int, ...]:
    """Return a file's start and stamp (inode, size, ctime).

    The result is empty if a later change might leave the stamp the same.
    """
    if "://" in file.path:
        return _stamp(file)
    stamp = Stamp.settled(file.path)
    return () if stamp is None else (file.start, *stamp)


def _stamp(file: CommitLogFile) -> tuple[int, ...]:
    if "://" in file.path:
        return file.start, file.inode, file.size
    return file.start, *Stamp.of(file.path)
