"""Define the report of an erasure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reput.base import Report, counted, format_size, printable


@dataclass(frozen=True, slots=True)
class ErasedMessages:
    """The erased messages of one topic and role.

    Attributes:
        role: Role of the messages: message, retry, dead_letter, scheduled, timer, half, trace, or another role of
            `reput.trace`.
        topic: Topic of the messages.
        messages: Number of messages.
    """

    role: str
    topic: str
    messages: int


@dataclass(frozen=True, slots=True)
class Mention:
    """Records of one topic that were not erased but contain an erased key or body.

    Attributes:
        topic: Topic of the records.
        records: Number of records.
        first: Physical offset of the first record.
    """

    topic: str
    records: int
    first: int


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a lake table that have the content of erased messages.

    Attributes:
        table: Path of the table.
        rows: Number of rows.
    """

    table: str
    rows: int


@dataclass(frozen=True, slots=True, repr=False)
class EraseReport(Report):
    """The messages that `reput.erase` erased, or would erase.

    Attributes:
        source: The store or archive.
        destination: The new store; None for an archive, and for a plan.
        is_done: Whether messages were erased; false for a plan.
        id: Id of the erasure, which tombstones contain; empty for a plan.
        messages: Erased messages, including copies, by role and topic.
        records: Number of erased records of the log.
        record_bytes: Size of these records.
        files: Number of log files with these records.
        bare: Number of messages whose body and properties are too short for a tombstone.
        mentions: Remaining records that contain an erased key or body.
        tables: Rows of lake tables with erased content.
        audit: Path of the record of the erasure; empty for a plan.
        is_signed: Whether the record is signed.
        left_out: Parts of the store that were not copied.
        notes: Remaining work.
    """

    source: str
    destination: str | None
    is_done: bool
    id: str
    messages: tuple[ErasedMessages, ...]
    records: int
    record_bytes: int
    files: int
    bare: int = 0
    mentions: tuple[Mention, ...] = ()
    tables: tuple[TableRows, ...] = ()
    audit: str = ""
    is_signed: bool = False
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return False if content of erased messages was found in other records of the log, or in table rows."""
        return not self.mentions and not any(part.rows for part in self.tables)

    def lines(self) -> Iterator[str]:
        count = sum(part.messages for part in self.messages)
        what = counted(count, "message")
        if not self.is_done:
            yield f"{printable(self.source)}: {what} would be erased; nothing was changed"
        else:
            into = f" in the copy {printable(self.destination)}" if self.destination else ""
            yield f"Erased {what} of {printable(self.source)}{into}"
        for part in self.messages:
            yield f"  {part.messages:>9,}  {part.role.replace('_', ' '):<11}  {printable(part.topic)}"
        records, files = counted(self.records, "record"), counted(self.files, "log file")
        yield f"  {records}, {format_size(self.record_bytes)}, in {files}"
        if self.bare:
            yield f"note: {counted(self.bare, 'message', verb='is')} too short for a tombstone, with zeros as body"
        for mention in self.mentions:
            is_single = mention.records == 1
            what = counted(mention.records, "other record")
            holds, stays = ("contains", "stays") if is_single else ("contain", "stay")
            yield (
                f"warning: {what} of {printable(mention.topic)} {holds} an erased key or body and "
                f"{stays if self.is_done else 'would stay'}; the first is at physical offset {mention.first:,}"
            )
        for table in self.tables:
            if table.rows:
                rows = counted(table.rows, "row")
                yield f"warning: {printable(table.table)} has {rows} of these messages; delete them there"
            else:
                yield f"  {printable(table.table)}: has no rows of these messages"
        for name in self.left_out:
            yield f"note: {printable(name)} was not copied"
        for note in self.notes:
            yield f"note: {printable(note)}"
        if self.audit:
            yield f"  {'signed ' if self.is_signed else ''}record  {printable(self.audit)}"


@dataclass(frozen=True, slots=True, repr=False)
class VerifyErasureReport(Report):
    """The result of `reput.verify_erasure`.

    Attributes:
        record: The path or URL of the record.
        store: The store or archive with which it was compared; None if it was not.
        id: Id of the erasure, which tombstones contain.
        erased_at: Time of the erasure, in UTC.
        by, reason: The person and the reason, as the record states them.
        source: The store or archive from which messages were erased.
        records, files: Number of erased records of the log, and of log files with them.
        signed_by: The public key of the signature in hexadecimal digits; empty if the record is not signed.
        tombstones: Number of erased records that have no content in `store`.
        expired: Number of erased records that have expired there.
        problems: A line per problem.
    """

    record: str
    store: str | None
    id: str
    erased_at: str
    by: str
    reason: str
    source: str
    records: int
    files: int
    signed_by: str
    tombstones: int
    expired: int
    problems: tuple[str, ...]

    @property
    def is_valid(self) -> bool:
        """Return whether the signature, if there is one, and all compared messages agree with the record."""
        return not self.problems

    def lines(self) -> Iterator[str]:
        state = "Verified" if self.signed_by else "Not signed:"
        yield f"{state if self.is_valid else 'Not verified:'} {printable(self.record)}"
        yield f"  erasure    {printable(self.id)} of {printable(self.source)}, {printable(self.erased_at)}"
        yield f"  by         {printable(self.by)}"
        if self.reason:
            yield f"  reason     {printable(self.reason)}"
        yield f"  erased     {counted(self.records, 'record')} in {counted(self.files, 'log file')}"
        if self.signed_by:
            yield f"  signed by  {self.signed_by}"
        else:
            yield "  signed by  nobody: anyone may have written it"
        if self.store is not None:
            expired = f", {self.expired:,} expired" if self.expired else ""
            tombstones = counted(self.tombstones, "record", verb="is")
            yield f"  {printable(self.store)}: {tombstones} without content{expired}"
        for problem in self.problems:
            yield f"damage: {printable(problem)}"
