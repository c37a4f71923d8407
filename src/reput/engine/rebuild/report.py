"""The reports of a rebuild, and of a follower's run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from reput.base import (
    Finding,
    Report,
    Sealable,
    ShownAsTable,
    StoreConfig,
    counted,
    format_size,
    printable,
)

_MOST_DAMAGE_LINES = 50
_LABEL_WIDTH = 14


@dataclass(slots=True, repr=False)
class RebuildReport(Sealable, ShownAsTable, Report):
    """The result of a rebuild. Times are in seconds, sizes in bytes, offsets are physical."""

    store: str
    output: str
    log_begin: int = 0
    log_end: int = 0
    log_bytes: int = 0
    torn_tail: bool = False
    messages: int = 0
    keys: int = 0
    queues: int = 0
    queue_entries: int = 0
    queue_entries_dropped: int = 0
    queue_entries_renumbered: int = 0
    queue_blanks: int = 0
    queue_files: int = 0
    index_files: int = 0
    index_entries: int = 0
    index_end_timestamp: int = 0
    bytes_written: int = 0
    splits: int = 0
    rescanned: int = 0
    damage: Sequence[Finding] = field(default_factory=list)
    notes: Sequence[str] = field(default_factory=list)
    scan_s: float = 0.0
    write_s: float = 0.0
    commit_s: float = 0.0
    total_s: float = 0.0
    config: StoreConfig = field(default_factory=StoreConfig)

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.total_s if self.total_s else 0.0

    def note(self, *lines: str) -> None:
        """Append lines to the notes."""
        self.notes = [*self.notes, *lines]

    @property
    def is_complete(self) -> bool:
        """Return whether the whole log could be read."""
        return not self.damage

    def as_dict(self) -> dict[str, Any]:
        damage = [finding.as_json() for finding in self.damage]
        return {**asdict(self), "damage": damage, "messages_per_s": self.messages_per_s}

    def lines(self) -> Iterator[str]:
        steps = {"read": self.scan_s, "write": self.write_s, "commit": self.commit_s}
        times = ", ".join(f"{step} {seconds:,.1f} s" for step, seconds in steps.items())
        yield f"Rebuilt {printable(self.output)} in {self.total_s:,.1f} s ({times})"
        for label, value in _summary_rows(self):
            yield f"  {label:<{_LABEL_WIDTH}}{value}"


def _summary_rows(report: RebuildReport) -> Iterator[tuple[str, str]]:
    rate = format_size(report.log_bytes / report.scan_s if report.scan_s else 0.0)
    torn = ", with a torn end" if report.torn_tail else ""
    log = f"{report.log_begin:,} to {report.log_end:,}, {format_size(report.log_bytes)} at {rate}/s"
    yield "CommitLog", log + torn
    yield (
        "messages",
        f"{report.messages:,} ({report.messages_per_s:,.0f}/s), {counted(report.keys, 'key')}",
    )
    if report.queue_files:
        dropped = report.queue_entries_dropped
        left_out = f", {dropped:,} repeated ones left out" if dropped else ""
        queues, files = counted(report.queues, "queue"), counted(report.queue_files, "file")
        entries = counted(report.queue_entries, "entry", "entries")
        yield "ConsumeQueue", f"{queues}, {files}, {entries}{left_out}"
    if report.index_files:
        slots, items = report.config.hash_slots, report.config.index_items
        files = counted(report.index_files, "file")
        yield "IndexFile", f"{files} of {slots:,} slots and {items:,} items"
    if report.index_entries:
        yield "index", f"{counted(report.index_entries, 'key')} in RocksDB"
    yield "written", format_size(report.bytes_written)
    for note in report.notes:
        yield "note", printable(note)
    yield "damage", _damage_in_words(report)


def _damage_in_words(report: RebuildReport) -> str:
    if not report.damage:
        return "none"
    lost = sum(damage.length for damage in report.damage)
    return f"{counted(len(report.damage), 'place')}, {counted(lost, 'byte')} of the CommitLog could not be read"


def damage_lines(damage: Sequence[Finding]) -> Iterator[str]:
    """Yield one line per damaged place, at most fifty, and a last line with the number of further places."""
    for finding in damage[:_MOST_DAMAGE_LINES]:
        yield printable(str(finding))
    if len(damage) > _MOST_DAMAGE_LINES:
        yield f"… and {counted(len(damage) - _MOST_DAMAGE_LINES, 'more damaged place')}"


@dataclass(slots=True, repr=False)
class FollowReport(Report):
    """The results of a follower since its start. Offsets are physical.

    output          folder of the indexes
    log_begin       present beginning of the followed log
    compared_from   offset from which the run compared the indexes with the log when it started
    position        offset before which the indexes have every message
    messages, keys  numbers of messages and keys that the run indexed first. Those that its start indexed again are not
                    counted
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
        new = f"{counted(self.messages, 'message')}, {counted(self.keys, 'key')}"
        yield (
            f"Followed the CommitLog to {self.position:,}: {printable(self.output)} has every message before that. "
            f"{new if self.messages else 'No new message'} since the start."
        )
        if self.expired_files:
            files = counted(self.expired_files, "file")
            yield (
                f"The CommitLog begins at {self.log_begin:,} now: deleted {files} of the indexes with only expired "
                "messages."
            )
        yield from (f"Note: {printable(note)}" for note in self.notes)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "damage": [finding.as_json() for finding in self.damage]}
