"""Cut a CommitLog into splits, and summarize scanned splits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reput.findings import Finding
from reput.format.commit_log import MIN_RECORD_BYTES
from reput.log.files import CommitLogFile
from reput.log.splits import DEFAULT_SPLIT_BYTES, cut

_MAX_DEFAULT_SPLITS = 4096


@dataclass(frozen=True, slots=True)
class Split:
    """Records that begin in [begin, stop) of one file, physical offsets."""

    number: int
    file: CommitLogFile
    begin: int
    stop: int

    @property
    def opens_file(self) -> bool:
        """Return a file starts at a record; anywhere else a record must be searched."""
        return self.begin == self.file.start


@dataclass(slots=True)
class SplitSummary:
    """One small row about a scanned split; the rest is in its staged file.

    staged            name of that file
    entries           of ConsumeQueues
    start, end        physical offsets of the walk; start is None if no record begins in the split
    end_offset_in     the end of the indexed range before the walk
    end_offset_out    and after it
    first_keyed_offset  physical offset of the first message with index entries, None without any
    keyless_tail      whether messages follow the last that has index entries
    unreadable, data_follows, torn   see store.scan.ScanEnd; hiding, see FileScan
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
    def from_json(cls, stored: dict[str, Any]) -> SplitSummary:
        damage = [Finding.from_json(item) for item in stored["damage"]]
        return cls(**{**stored, "damage": damage})


def default_split_bytes(files: list[CommitLogFile]) -> int:
    """Return 64 MiB, or more for a log so large that the driver would hold too many summaries."""
    total = sum(file.size for file in files)
    return max(DEFAULT_SPLIT_BYTES, -(-total // _MAX_DEFAULT_SPLITS))


def plan_splits(files: list[CommitLogFile], data_ends: list[int], split_bytes: int) -> list[Split]:
    """Plan splits in log order. No split spans two files; after a file's data (`data_ends`) nothing is cut."""
    step = max(split_bytes, MIN_RECORD_BYTES)
    splits: list[Split] = []
    for file, data_end in zip(files, data_ends, strict=True):
        parts = cut(file, file.start, file.end, step, data_end)
        splits += [Split(number, file, *part) for number, part in enumerate(parts, len(splits))]
    return splits
