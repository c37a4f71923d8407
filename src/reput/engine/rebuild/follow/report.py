"""Define the report of a follower's run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from reput.base import Finding, Report, printable


@dataclass(slots=True, repr=False)
class FollowReport(Report):
    """The results of a follower since its start. Offsets are physical.

    output          folder of the indexes
    log_begin       present beginning of the followed log
    compared_from   offset from which the run compared the indexes with the log when it started
    position        offset before which the indexes have every message
    messages, keys  numbers of messages and keys that the run indexed. A few of the messages may have been indexed
                    before, and were indexed again when the run started
    expired_files   number of deleted files of the indexes, whose messages have expired
    """

    output: str = ""
    log_begin: int = 0
    compared_from: int = 0
    position: int = 0
    messages: int = 0
    keys: int = 0
    expired_files: int = 0
    damage: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return not self.damage

    def lines(self) -> Iterator[str]:
        if not self.position:
            yield "No message arrived, so nothing was indexed."
            return
        yield (
            f"Followed the CommitLog to {self.position:,}: {printable(self.output)} has every message before that. "
            f"{self.messages:,} messages, {self.keys:,} keys since the start."
        )
        if self.expired_files:
            yield (
                f"The CommitLog begins at {self.log_begin:,} now: {self.expired_files:,} index "
                f"files covered only expired messages and were deleted."
            )
        yield from (f"Note: {printable(note)}" for note in self.notes)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "damage": [finding.as_json() for finding in self.damage]}
