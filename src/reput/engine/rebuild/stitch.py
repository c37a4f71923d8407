"""Check that the scans of all splits together equal one serial scan of the log.

The scan of each split must begin where the scan of the previous split ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from reput.base import Finding
from reput.core import CommitLogFile, OffsetRange, WalkVerdict, holes
from reput.engine.rebuild.scan_split import ScanTask
from reput.engine.rebuild.splits import Split, SplitSummary


@dataclass(slots=True)
class LogSummary:
    """The whole log, as one serial scan would have found it.

    splits      the summaries of splits with messages, in log order
    begin, end  physical offsets of the log
    torn        whether the log has bytes after `end`, which are not a record
    damage      ranges lost before the end of the log, in order
    """

    splits: list[SplitSummary]
    begin: int
    end: int
    torn: bool = False
    damage: list[Finding] = field(default_factory=list)

    @property
    def lost(self) -> tuple[OffsetRange, ...]:
        """Return the ranges of the damage, merged."""
        return OffsetRange.merged(OffsetRange.of(self.damage))

    @property
    def staged(self) -> tuple[str, ...]:
        """Return the names of the staged files, in log order."""
        return tuple(split.staged for split in self.splits)

    @property
    def misplaced(self) -> int:
        """Return the number of messages that state a wrong physical offset."""
        return sum(split.misplaced for split in self.splits)

    @property
    def messages(self) -> int:
        return sum(split.messages for split in self.splits)

    @property
    def keys(self) -> int:
        return sum(split.keys for split in self.splits)


class Stitcher:
    """Keeps the newest summary of each split, and decides which splits must be scanned again.

    A scan that starts inside a file guesses where a record begins. If the guess was wrong, for example because a
    message body contains a record, the split is scanned again from the end of the previous one. A split is also scanned
    again if a message of an earlier split states a higher physical offset than messages of this split: a broker would
    not index the latter (`IndexService.buildIndex`). Only wrong PHYSICALOFFSET fields cause this.
    """

    def __init__(self, splits: list[Split]) -> None:
        self._splits = splits
        self._by_file: dict[int, list[Split]] = defaultdict(list)
        for split in splits:
            self._by_file[split.file.start].append(split)
        self._summaries: dict[int, SplitSummary] = {}
        self._walk: list[SplitSummary] = []

    def take(self, summaries: Iterable[SplitSummary]) -> None:
        for summary in summaries:
            self._summaries[summary.number] = summary

    def rescans(self) -> list[ScanTask]:
        """Return the scans to repeat: at most one per file; none if each split begins where the previous scan ended."""
        self._walk, tasks, end_offset = [], [], 0
        for splits in self._by_file.values():
            expected = splits[0].file.start
            for place, split in enumerate(splits):
                # The previous scan ended after this split, for example because a large record
                # covers it.
                if expected >= split.stop:
                    continue
                summary = self._summaries[split.number]
                if not _joins(summary, expected, end_offset):
                    following = tuple(
                        (later, self._summaries[later.number].start)
                        for later in splits[place + 1 :]
                    )
                    tasks.append(ScanTask(split, expected, end_offset, following))
                    # The result of this rescan decides where the next split of the log file must begin. So the file's
                    # later splits cannot be checked yet.
                    break
                self._walk.append(summary)
                expected = summary.end
                end_offset = max(end_offset, summary.end_offset_out)
                if summary.finished:
                    break
        return tasks

    def readable_files(self) -> Iterator[tuple[CommitLogFile, list[SplitSummary]]]:
        """Yield each file of which every record could be read, with the summaries of its scans."""
        by_file: dict[int, list[SplitSummary]] = defaultdict(list)
        for summary in self._walk:
            by_file[self._splits[summary.number].file.start].append(summary)
        for start, summaries in by_file.items():
            last = summaries[-1]
            is_whole = not any(split.damage or split.misplaced for split in summaries)
            if is_whole and not (last.unreadable and (last.data_follows or last.torn)):
                yield self._by_file[start][0].file, summaries

    def log(self) -> LogSummary:
        """Return the summary of the whole log. Call this method only after `rescans` has returned an empty list."""
        files = [splits[0].file for splits in self._by_file.values()]
        splits = [summary for summary in self._walk if summary.messages]
        log = LogSummary(splits, files[0].start, files[0].start, damage=holes(files))
        # Zeros at the end of the last file are free space, not part of the log.
        used = max((n + 1 for n, summary in enumerate(self._walk) if _is_used(summary)), default=0)
        for summary in self._walk[:used]:
            log.damage += summary.damage
            log.end = summary.end
            if summary.unreadable:
                file = self._splits[summary.number].file
                log.damage.append(file.lost(summary.end, file.end, summary.unreadable))
                log.end = file.end
        log.damage.sort(key=lambda lost: lost.start)
        if used:
            self._take_off_tail(log, self._walk[:used])
        return log

    def _take_off_tail(self, log: LogSummary, walk: list[SplitSummary]) -> None:
        """Do not count torn bytes at the end of the last file as damage."""
        file = self._splits[walk[-1].number].file
        followed = {offset for summary in walk for offset in summary.hiding}
        followed |= {summary.end for summary in walk if summary.data_follows}
        of_file = [damage for damage in log.damage if file.start <= damage.start < file.end]
        is_unreadable = bool(walk[-1].unreadable)
        log.end = WalkVerdict(log.end, of_file, is_unreadable, followed).end_for_rebuild()
        tail = [damage for damage in of_file if damage.start >= log.end]
        log.damage = [damage for damage in log.damage if damage not in tail]
        log.torn = bool(tail) and (walk[-1].torn or len(tail) > is_unreadable)


def _is_used(summary: SplitSummary) -> bool:
    """Return whether the scan found anything except zeros: messages, a blank, or unreadable bytes."""
    ended = summary.finished and not summary.unreadable
    return bool(summary.messages or summary.damage or summary.torn or ended)


def _joins(summary: SplitSummary, expected: int, end_offset: int) -> bool:
    """Return whether a split (a part of a log file) was scanned with the same result as in a serial scan of the log.

    A serial scan would reach the split at the physical offset `expected`. The last message that the serial scan had
    indexed before the split would be at `end_offset`.
    """
    if summary.start != expected:
        return False
    # IndexService skips messages before the message that it indexed last. When this split was scanned, the message
    # indexed last before the split was assumed to be at `end_offset_in`. In fact, this message is at `end_offset`. The
    # wrong assumption makes no difference if no message with index entries lies between these two offsets.
    if summary.end_offset_in == end_offset or summary.first_keyed_offset is None:
        return True
    return summary.end_offset_in <= end_offset <= summary.first_keyed_offset
