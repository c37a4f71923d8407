"""The report of an export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from reput.base import (
    Finding,
    Report,
    Sealable,
    ShownAsTable,
    agreeing,
    counted,
    format_size,
    printable,
)
from reput.wings.lakes.reject_reasons import most_frequent

_MOST_CHANGES = 20
_LABEL_WIDTH = 14


@dataclass(slots=True, repr=False)
class ExportReport(Sealable, ShownAsTable, Report):
    """The result of an export.

    stores        for each store: name, first offset that was exported, and offset up to which its messages are in the
                  table
    log_bytes     bytes of the CommitLogs to read
    is_whole      whether the whole log after the end of the previous export was read
    messages      number of examined messages; the requested ones were exported (`rows`) or rejected (`rejects`)
    json_errors   rows with fields that are null because a value does not fit the type of its field
    reasons       number of rows for each reason of a rejection or a null field, most frequent first
    reason_examples  examples by reason, for reasons that an example helps to explain
    json_changes  fields of JSON bodies that are new in the table, or have a wider type now
    body_column   name of the column of typed bodies
    superseded    rows of the table that a newer message of their key has removed
    bad_bodies    rows whose stored body does not match its CRC
    missing       ranges of the log that no file contains: expired or lost
    damage        unreadable ranges of the log
    commits       number of commits; more than one if the run commits in steps
    committed     False if there was nothing new, or in a dry run
    is_dry_run    whether nothing was written: the report says what an export would read
    estimated_s   the processor time of the export in seconds, estimated by a dry run without the decoding of bodies
    """

    destination: str
    stores: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    log_bytes: int = 0
    is_whole: bool = True
    messages: int = 0
    rows: int = 0
    rejects: int = 0
    json_errors: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    reason_examples: Mapping[str, str] = field(default_factory=dict)
    json_changes: Sequence[str] = field(default_factory=list)
    body_column: str = "json"
    superseded: int = 0
    bad_bodies: int = 0
    files: int = 0
    file_bytes: int = 0
    missing: Sequence[Finding] = field(default_factory=list)
    damage: Sequence[Finding] = field(default_factory=list)
    notes: Sequence[str] = field(default_factory=list)
    commits: int = 0
    committed: bool = False
    read_s: float = 0.0
    total_s: float = 0.0
    is_dry_run: bool = False
    estimated_s: float = 0.0

    def note(self, *lines: str) -> None:
        """Add lines to the notes."""
        self.notes = [*self.notes, *lines]

    @property
    def is_complete(self) -> bool:
        """Return whether the whole log was present and readable."""
        return not (self.damage or self.missing)

    def as_dict(self) -> dict[str, Any]:
        lost = {
            name: [loss.as_json() for loss in getattr(self, name)] for name in ("missing", "damage")
        }
        return {**asdict(self), **lost}

    def lines(self) -> Iterator[str]:
        did = "Exported to" if self.committed else "Nothing new for"
        if self.is_dry_run:
            yield f"Would export to {printable(self.destination)}; nothing was written"
        else:
            yield f"{did} {printable(self.destination)} in {self.total_s:,.1f} s"
        for label, value in _rows(self):
            yield f"  {label:<{_LABEL_WIDTH}}{value}"


def _rows(report: ExportReport) -> Iterator[tuple[str, str]]:
    encoding = "JSON" if report.body_column == "json" else report.body_column
    for name, (start, stop) in report.stores.items():
        yield "store", f"{printable(name)}: {start:,} to {stop:,}"
    if report.committed:
        rate = f" ({report.rows / report.total_s:,.0f}/s)" if report.total_s else ""
        yield "messages", f"{report.rows:,} of {report.messages:,} {_where(report)}{rate}"
        if report.commits > 1:
            yield "commits", f"{report.commits:,}"
        yield "written", f"{_files(report)}{format_size(report.file_bytes)}"
    if report.superseded:
        yield (
            "superseded",
            f"{counted(report.superseded, 'row')} of the table, by newer messages of the same keys",
        )
    if report.rejects:
        yield "rejected rows", f"{report.rejects:,}; their column reason says why"
    if report.json_errors:
        yield (
            f"{encoding} errors",
            f"{counted(report.json_errors, 'row')}; {agreeing(report.json_errors, 'its')} column "
            f"{report.body_column}_error says why",
        )
    for reason in most_frequent(report.reasons, report.reason_examples):
        yield "reason", printable(reason)
    changes = report.json_changes if report.committed else []
    for change in changes[:_MOST_CHANGES]:
        yield f"{encoding} field", printable(change)
    if len(changes) > _MOST_CHANGES:
        yield f"{encoding} field", f"… and {len(changes) - _MOST_CHANGES:,} more"
    if report.bad_bodies:
        yield (
            "bad CRCs",
            f"the bodies of {report.bad_bodies:,} messages do not match their CRC; their column body_crc_ok is false"
            if report.bad_bodies > 1
            else "the body of 1 message does not match its CRC; its column body_crc_ok is false",
        )
    for note in report.notes:
        yield "plan" if report.is_dry_run else "note", printable(note)
    if report.is_dry_run:
        yield "time", f"about {report.estimated_s:,.1f} s of processor time, by a sample"
    lost = sum(damage.length for damage in (*report.damage, *report.missing))
    count = len(report.damage) + len(report.missing)
    yield "damage", f"{counted(count, 'place')}, {lost:,} bytes lost" if count else "none"


def _where(report: ExportReport) -> str:
    """Return a phrase that says whether the whole log was read, or only messages that indexes refer to."""
    return "in the log" if report.is_whole else "looked at"


def _files(report: ExportReport) -> str:
    if not report.files and report.file_bytes:  # JSON Lines were written to a stream.
        return ""
    return f"{counted(report.files, 'file')}, "
