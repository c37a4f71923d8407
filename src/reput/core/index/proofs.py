"""The evidence for trusting an IndexFile: proofs and spot checks, kept in the user's cache folder.

A proof compares all items of the file with the log. A spot check compares some of them. A judge decides for which
ranges of the log the file is trusted; its decision is a `Verdict`. Results are kept by device and inode of the file. A
proof is valid for one IndexFile and one log:

  - The IndexFile must have the same size, change time, header and last proved item. A file that has grown
    fails this test, because nothing shows whether its old items and slots are intact.
  - The log must have the last proved message in its place. A log that was cut off and overwritten has lost it.
  - Items are trusted only up to the first log file whose inode, size or change time differs.

All stamps (inode, size and change time of a file) are taken before the proof (`Stamps.before`). No result is kept for
an IndexFile that changed during the proof, or that changed so recently that a further change could leave its stamp
unchanged. A log file that changed so recently counts as changed.

Results of spot checks are kept for full files, and for all files of a store that no process has open. They are valid
only while no log file has changed.
"""

from __future__ import annotations

import json
import os
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from reput.core.index.reader import IndexFileReader
from reput.core.log.files import CommitLogFile
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.errors import ReputError
from reput.format.index_file import decode_header
from reput.io import OwnCache, Stamp

# Version of the content of cache files. Files of other versions are ignored.
_FORM = 5
_PROOF, _SPOT_CHECK = "", "-spot-check"
_MOST_BYTES = 1 << 20
_MOST_RANGES = 1 << 12
# Errors that a damaged or foreign cache file can cause.
_WRONG_FORM = (ValueError, TypeError, LookupError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof about an IndexFile's items 1 to `items`, for one CommitLog.

    ranges     physical offsets, oldest first: each key of each message that begins there is in these items, and a
               look-up reaches it
    problems   the reasons why the ranges do not cover more, one line each
    gap_bytes  0 if every message of the ranges was compared with its items. Otherwise, only samples of long ranges were
               compared. The samples include all gaps of more than `gap_bytes` bytes between the messages of consecutive
               items
    is_kept    whether the proof is remembered; False if the file has changed, or if a later change could leave its
               inode, size and change time the same
    is_timed   whether the seconds of items 2 and later never decrease, and the compared items agree with their messages
               (`reput.core.index.index_files.at_times`)
    seen       stamps (inode, size, change time) of the log files that contain the ranges; the proof is valid until a
               stamp changes
    """

    items: int
    ranges: tuple[OffsetRange, ...] = ()
    problems: tuple[str, ...] = ()
    gap_bytes: int = 0
    is_timed: bool = False
    is_kept: bool = field(default=False, compare=False)
    seen: tuple[tuple[str, Stamp], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The ranges for which an IndexFile with items 1 to `last` can be trusted.

    ranges     ranges of the log whose keys are all among these items, according to spot checks
    proof      a proof of the file, or None; the ranges that it proves are trusted as well
    problem    a message for users: why the file is not trusted at all
    is_whole   whether the file is complete up to item `last`, so that only items added later need a check
    is_linked  whether every link was followed, and each item is reached from its slot
    """

    last: int
    ranges: tuple[OffsetRange, ...] = ()
    proof: Proof | None = None
    problem: str = ""
    is_whole: bool = False
    is_linked: bool = False


class Judge(Protocol):
    """Decides for which ranges of the log an IndexFile can be trusted, considering only its items 1 to `last`."""

    def __call__(
        self,
        file: IndexFileReader,
        log: CommitLogReader,
        last: int,
        before: Verdict | None,
        files: int = 1,
    ) -> Verdict:
        """Return the verdict on a file. `before` is an earlier verdict on the same file and log, if known.

        If `files`, the number of files judged together, is large, each file may be examined less closely.

        Raises StoreAccessError, StoreChangedError.
        """
        ...


class Stamps(NamedTuple):
    """Stamps (inode, size, change time) of an IndexFile and of the log files it points to, taken before they are read.

    Only settled stamps are included. A stamp is settled if any later change of the file will change the stamp.
    """

    file: Stamp | None
    log: dict[int, Stamp]

    @classmethod
    def before(cls, file: IndexFileReader, log: CommitLogReader) -> Stamps:
        """Return the stamps (inode, size, change time) of the files that a proof or a spot check is about to read.

        A file is excluded if a later change could leave its stamp the same.

        Raises StoreAccessError, StoreChangedError.
        """
        last = file.next_item - 1
        stamp = Stamp.settled(file.path) if last > 0 else None
        if stamp is None:
            # No result will be kept for this IndexFile: it has no items, or a later change could leave its inode, size
            # and change time the same.
            return cls(None, {})
        start, stop = file.offset(1), file.offset(last)
        return cls(stamp, cls.of_log(log.files_within(start, stop + 1)))

    @staticmethod
    def of_log(files: Iterable[CommitLogFile]) -> dict[int, Stamp]:
        """Return the stamps (inode, size, change time) of log files, by the physical offset of the file.

        A file is excluded if a later change could leave its stamp the same.
        """
        stamps = {file.start: Stamp.settled(file.path) for file in files}
        return {begin: stamp for begin, stamp in stamps.items() if stamp is not None}


class ProofCache:
    """Results of earlier proofs and spot checks of IndexFiles, in this user's cache."""

    def __init__(self) -> None:
        self._cache = OwnCache("proofs")

    def keep_proof(
        self, file: IndexFileReader, log: CommitLogReader, proof: Proof, before: Stamps
    ) -> bool:
        """Keep a proof, and return whether it could be kept. `before` are the stamps taken before the proof began."""
        more = {"gap_bytes": proof.gap_bytes, "problems": list(proof.problems),
                "is_timed": proof.is_timed}  # fmt: skip
        return self._keep(_PROOF, file, log, proof.items, proof.ranges, before, more)

    def proof(self, file: IndexFileReader, log: CommitLogReader) -> Proof | None:
        """Return the cached `Proof` of an IndexFile, or None if the proof is outdated or missing.

        If a log file has changed, the returned proof covers only the items whose messages lie before this log file.
        """
        with suppress(ReputError, OSError, *_WRONG_FORM):
            return _proof(self._kept(_PROOF, file), file, log)
        return None

    def keep_spot_check(
        self, file: IndexFileReader, log: CommitLogReader, verdict: Verdict, before: Stamps
    ) -> bool:
        """Keep a spot check, and return whether it could be kept. `before` are the stamps taken before it began."""
        more = {"is_whole": verdict.is_whole, "is_linked": verdict.is_linked}
        return self._keep(_SPOT_CHECK, file, log, verdict.last, verdict.ranges, before, more)

    def spot_check(self, file: IndexFileReader, log: CommitLogReader) -> Verdict | None:
        """Return the cached result of the spot checks of an IndexFile; None if the result is missing or outdated."""
        with suppress(ReputError, OSError, *_WRONG_FORM):
            return _spot_check(self._kept(_SPOT_CHECK, file), file, log)
        return None

    def _keep(
        self,
        kind: str,
        file: IndexFileReader,
        log: CommitLogReader,
        items: int,
        ranges: Sequence[OffsetRange],
        before: Stamps,
        more: dict[str, Any],
    ) -> bool:
        if not ranges or len(ranges) > _MOST_RANGES or before.file is None:
            return False
        with suppress(ReputError, OSError):
            content = {"form": _FORM, "items": items, "ranges": [list(part) for part in ranges],
                    "file": _identity(file, items), "log": _log_files(log, ranges, before.log),
                    "witness": _witness(file, log, items), **more}  # fmt: skip
            data = json.dumps(content).encode()
            # The stamp of the IndexFile is compared last: if it is unchanged, the file has not changed since before the
            # proof or spot check. So the values above describe the file that was examined.
            is_same = Stamp.of(file.path) == before.file
            if is_same and len(data) <= _MOST_BYTES:
                self._cache.write(_name(file, kind), data)
                return True
        return False

    def _kept(self, kind: str, file: IndexFileReader) -> dict[str, Any]:
        """Return a kept result.

        Raises LookupError if no result is kept, and one of the errors in `_WRONG_FORM` if its content is invalid.
        """
        data = self._cache.read(_name(file, kind), _MOST_BYTES)
        if data is None:
            raise LookupError
        content: dict[str, Any] = json.loads(data)
        if content["form"] != _FORM:
            raise ValueError
        return content


def _name(file: IndexFileReader, kind: str) -> str:
    status = os.stat(file.path)
    return f"{status.st_dev:x}-{status.st_ino:x}{kind}.json"


def _identity(file: IndexFileReader, items: int) -> dict[str, Any]:
    status = os.stat(file.path)
    header = file.header_bytes()
    begin = decode_header(header)
    return {
        "size": status.st_size,
        "slots": file.hash_slots,
        "begin": [begin.begin_timestamp, begin.begin_physical_offset],
        "last": file.item_bytes(items).hex(),
        "changed": [status.st_ctime_ns, header.hex()],
    }


def _log_files(
    log: CommitLogReader, ranges: Sequence[OffsetRange], before: dict[int, Stamp]
) -> list[list[int]]:
    """Return [start, inode, size, change time] of each log file from the first range to the last.

    `ranges` are the ranges of the log that the proof or spot check covers, in ascending order.

    `before` maps the start of a log file to the inode, size and change time that the file had before the proof or spot
    check. If `before` lacks a file, the result has three zeros for the file, so that the file later counts as changed.
    """
    return [
        [file.start, *before.get(file.start, Stamp())]
        for file in log.files_within(ranges[0].start, ranges[-1].stop)
    ]


def _witness(file: IndexFileReader, log: CommitLogReader, items: int) -> list[int]:
    """Return the physical offset and a checksum of the message to which the last examined item leads.

    This item has the number `items`. A proof examines all items up to it, and a spot check some of them.
    """
    offset = file.offset(items)
    return [offset, zlib.crc32(log.read_record(offset))]


def _proof(content: dict[str, Any], file: IndexFileReader, log: CommitLogReader) -> Proof | None:
    items, gap_bytes = int(content["items"]), int(content["gap_bytes"])
    if not _is_same(content, file, log, items):
        return None
    ranges = _ranges(content)
    edge = _first_change(content["log"], log)
    # Keep only the items whose messages lie before the first changed log file.
    if edge is not None:
        items = bisect_left(
            range(items + 1), edge, lo=1, key=lambda number: file.offset(number)
        ) - 1  # fmt: skip
        ranges = [OffsetRange(start, min(stop, edge)) for start, stop in ranges if start < edge]
    if items == 0 or not ranges:
        return None
    problems = tuple(map(str, content["problems"]))
    stop = ranges[-1].stop
    then = {start: Stamp(*stamp) for start, *stamp in content["log"]}
    files = log.files_within(min(then, default=stop), stop)
    stamps = tuple((file.path, then[file.start]) for file in files if file.start in then)
    return Proof(
        items, tuple(ranges), problems, gap_bytes, content["is_timed"] is True, seen=stamps
    )


def _spot_check(
    content: dict[str, Any], file: IndexFileReader, log: CommitLogReader
) -> Verdict | None:
    last = int(content["items"])
    is_valid = last == file.next_item - 1 and _is_same(content, file, log, last)
    if not is_valid or _first_change(content["log"], log) is not None:
        return None
    ranges = tuple(_ranges(content))
    return Verdict(
        last, ranges, is_whole=content["is_whole"] is True, is_linked=content["is_linked"] is True
    )


def _is_same(
    content: dict[str, Any], file: IndexFileReader, log: CommitLogReader, items: int
) -> bool:
    """Return whether the file still has these items, and the log still has the last item's message."""
    last = file.next_item - 1
    if not 0 < items <= last:
        return False
    is_same = content["file"] == _identity(file, items)
    return is_same and bool(content["witness"] == _witness(file, log, items))


def _ranges(content: dict[str, Any]) -> list[OffsetRange]:
    """Return the ranges of a cached result. Raises ValueError if a range is empty, or the ranges do not ascend."""
    ranges = [OffsetRange(int(start), int(stop)) for start, stop in content["ranges"]]
    if any(part.start >= part.stop for part in ranges) or ranges != sorted(ranges):
        raise ValueError
    return ranges


def _first_change(entries: Sequence[Sequence[int]], log: CommitLogReader) -> int | None:
    """Return the physical offset of the first changed log file, or None if no log file has changed."""
    stamps = {start: Stamp(*stamp) for start, *stamp in entries}
    for file in log.files_within(min(stamps, default=0), max(stamps, default=-1) + 1):
        if file.start in stamps and stamps[file.start] != Stamp.of(file.path):
            return file.start
    return None
