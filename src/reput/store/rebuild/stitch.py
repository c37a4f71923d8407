"""Stitching: the scanned splits must join as one serial walk, each beginning exactly where the last ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from reput.store.damage import Damage
from reput.store.rebuild.scan_split import ScanTask
from reput.store.rebuild.splits import Split, SplitSummary


@dataclass(slots=True)
class LogSummary:
    """The whole log, as a serial walk would have found it.

    splits    the summaries that count, in log order, those without a record left out
    damage    bytes lost before the end of the log, in order
    begin, end  physical offsets of the log; `torn` when bytes that are no record stand behind its end
    """

    splits: list[SplitSummary]
    begin: int
    end: int
    torn: bool = False
    damage: list[Damage] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(split.messages for split in self.splits)

    @property
    def keys(self) -> int:
        return sum(split.keys for split in self.splits)


class Stitcher:
    """Holds the newest summary of each split and says which must be scanned again.

    A split whose beginning was a wrong guess (a forged record inside a body, say) is scanned again from where
    the walk before it ended; so is one that was told wrongly what is indexed already, which takes messages whose
    PHYSICALOFFSET goes backwards.
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
        """Walk over the summaries; return the scans to repeat, at most one a file, none when all join."""
        self._walk, tasks, end_offset = [], [], 0
        for splits in self._by_file.values():
            expected = splits[0].file.start
            for place, split in enumerate(splits):
                if expected >= split.stop:
                    continue
                summary = self._summaries[split.number]
                if not _joins(summary, expected, end_offset):
                    following = tuple(
                        (later, self._summaries[later.number].start)
                        for later in splits[place + 1 :]
                    )
                    tasks.append(ScanTask(split, expected, end_offset, following))
                    break
                self._walk.append(summary)
                expected = summary.end
                end_offset = max(end_offset, summary.end_offset_out)
                if summary.finished:
                    break
        return tasks

    def log(self) -> LogSummary:
        """The log, once `rescans` has returned none."""
        files = [splits[0].file for splits in self._by_file.values()]
        last_data = max(
            (n for n, summary in enumerate(self._walk) if summary.messages or summary.data_follows),
            default=-1,
        )
        log = LogSummary([s for s in self._walk if s.messages], files[0].start, files[-1].end)
        for before, after in pairwise(files):
            if before.end < after.start:
                reason = "no file holds these offsets"
                log.damage.append(Damage(before.end, after.start - before.end, after.path, reason))
        for n, summary in enumerate(self._walk):
            if n < last_data or summary.data_follows:
                log.damage += summary.damage + self._lost_rest(summary)
            else:
                self._end_log(log, summary, has_data=n == last_data)
        log.damage.sort()
        return log

    def _lost_rest(self, summary: SplitSummary) -> list[Damage]:
        """What stands behind an unreadable place of a file that is not the log's last: lost with it."""
        if not summary.unreadable:
            return []
        file = self._splits[summary.number].file
        return [Damage(summary.end, file.end - summary.end, file.path, summary.unreadable)]

    def _end_log(self, log: LogSummary, summary: SplitSummary, has_data: bool) -> None:
        """The last split with messages, and those behind it: a torn tail is the end of the log, not damage."""
        log.torn = log.torn or summary.torn
        if has_data:
            log.damage += [d for d in summary.damage if d.physical_offset + d.length < summary.end]
            tail = [d for d in summary.damage if d.physical_offset + d.length >= summary.end]
            log.end = min([summary.end, *(d.physical_offset for d in tail)])
            log.torn = log.torn or bool(tail)
        elif not log.splits:
            log.end = min(log.end, summary.end)


def _joins(summary: SplitSummary, expected: int, end_offset: int) -> bool:
    if summary.start != expected:
        return False
    if summary.end_offset_in == end_offset or summary.first_keyed_offset is None:
        return True
    return summary.end_offset_in <= end_offset <= summary.first_keyed_offset
