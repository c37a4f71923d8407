"""Cut a CommitLog into splits, and summarize scanned splits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reput.base import Finding
from reput.core import CommitLogFile
from reput.engine.rebuild.growing import DEFAULT_SPLIT_BYTES
from reput.format.commit_log import MIN_RECORD_BYTES

_MAX_DEFAULT_SPLITS = 4096


@dataclass(frozen=True, slots=True)
class Split:
    """The records that begin at physical offsets [begin, stop) of one file."""

    number: int
    file: CommitLogFile
    begin: int
    stop: int

    @property
    def opens_file(self) -> bool:
        """Return whether the split begins at the start of its file, and so with a record.

        In any other split, the scan must search for the first record.
        """
        return self.begin == self.file.start


@dataclass(slots=True)
class SplitSummary:
    """The result of a scanned split, without its messages, which are in the staged file.

    staged              name of the staged file
    start, end          physical offsets of the scan; start is None if no record begins in the split
    finished, unreadable, data_follows, torn   see log.scan.ScanEnd
    entries             number of ConsumeQueue entries
    end_offset_in       physical offset of the message that was indexed last before the scan. Messages before this
                        offset get no index entries
    end_offset_out      physical offset of the last indexed message when the scan has ended
    first_keyed_offset  physical offset of the first message with index entries; None if no such message exists
    keyless_tail        whether messages without keys follow the last message with index entries
    hiding              see log.scan.FileScan
    """

    number: int
    staged: str
    start: int | None
    end: int
    finished: bool = False
    unreadable: str = ""
    data_follows: bool = False
    torn: bool = False
    messages: int = 0
    keys: int = 0
    entries: int = 0
    end_offset_in: int = 0
    end_offset_out: int = 0
    first_keyed_offset: int | None = None
    keyless_tail: bool = False
    last_timestamp: int = 0
    misplaced: int = 0
    bad_multi: int = 0
    damage: list[Finding] = field(default_factory=list)
    hiding: list[int] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return {**values, "damage": [finding.as_json() for finding in self.damage]}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> SplitSummary:
        damage = [Finding.from_json(item) for item in fields["damage"]]
        return cls(**{**fields, "damage": damage})


def default_split_bytes(files: list[CommitLogFile]) -> int:
    """Return 64 MiB, or more for a very large log, because the driver holds the summaries of all splits in memory."""
    total = sum(file.size for file in files)
    return max(DEFAULT_SPLIT_BYTES, -(-total // _MAX_DEFAULT_SPLITS))


def plan_splits(files: list[CommitLogFile], data_ends: list[int], split_bytes: int) -> list[Split]:
    """Cut files into splits, in log order. No split spans two files or begins after the file's data (`data_ends`)."""
    step = max(split_bytes, MIN_RECORD_BYTES)
    splits: list[Split] = []
    for file, data_end in zip(files, data_ends, strict=True):
        parts = file.cut(file.start, file.end, step, data_end)
        splits += [Split(number, file, *part) for number, part in enumerate(parts, len(splits))]
    return splits
