"""Define the reports of archiving, verifying and restoring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reput.base import Report, agreeing, counted, format_size, printable


@dataclass(frozen=True, slots=True, repr=False)
class ArchiveReport(Report):
    """The result of `reput.archive`.

    Attributes:
        store, archive: The paths or URLs of the store and the archive.
        files: Number of added log files.
        messages: Number of messages in the added files.
        log_bytes: Size of the added files.
        stored_bytes: Size of their objects in the archive, including indexes.
        expired: Number of archived log files that were deleted because of `retention_days`.
        damaged: Paths of added files with damage. Queries must scan them.
        notes: Lines about parts that were not archived, with the reason.
    """

    store: str
    archive: str
    files: int
    messages: int
    log_bytes: int
    stored_bytes: int
    expired: int = 0
    damaged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Return whether no file has damage."""
        return not self.damaged

    def lines(self) -> Iterator[str]:
        yield f"Archived {counted(self.files, 'log file')} of {printable(self.store)} in {printable(self.archive)}"
        if self.files:
            share = f" ({100 * self.stored_bytes / self.log_bytes:.0f} %)" if self.log_bytes else ""
            yield f"  messages  {self.messages:,}"
            yield f"  log       {format_size(self.log_bytes)}"
            yield f"  archive   {format_size(self.stored_bytes)}{share}"
        if self.expired:
            yield f"  expired   {self.expired:,} archived log files were deleted"
        for path in self.damaged:
            yield f"damage: {printable(path)}; archived unchanged; `reput check` locates the damage"
        for note in self.notes:
            yield f"note: {printable(note)}"


@dataclass(frozen=True, slots=True)
class ProvenMessage:
    """A message that is unchanged since it was archived.

    Attributes:
        topic, queue_id, queue_offset: The place of the message in its queue.
        physical_offset, size: The place of the message in the log.
        sha256: The SHA-256 of its record.
        archive: The id of the archive.
        generation: Number of the archive's manifest at the time when the proof was written.
        chain: Last link of the hash chain over the archive's log files, as this manifest states it.
        signed_by: The public key of the signature in hexadecimal digits; empty if the proof is not signed.
        erasures: Names of the objects that document erasures in the message's log file. Always empty if the message
            was verified from a proof file, which does not contain these names.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    sha256: str
    archive: str
    generation: int
    chain: str
    signed_by: str = ""
    erasures: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        yield f"  message    {printable(self.topic)}/{self.queue_id}/{self.queue_offset}"
        yield f"  record     physical offset {self.physical_offset:,}, {self.size:,} bytes, SHA-256 {self.sha256}"
        yield f"  archive    {printable(self.archive)}, manifest {self.generation:,}, chain {self.chain}"
        yield f"  signed by  {self.signed_by}" if self.signed_by else "  not signed"
        for name in self.erasures:
            yield f"note: messages of its log file were erased; see {printable(name)}"


@dataclass(frozen=True, slots=True, repr=False)
class VerifyReport(Report):
    """The result of `reput.verify_archive`.

    Attributes:
        archive: The path or URL of the archive.
        files: Number of log files that were read.
        objects: Number of all objects that were read.
        read_bytes: Size of these objects.
        problems: A line per problem.
        unused: Names of objects that the manifest does not name.
        message: The verified message, if only one message was verified and it is unchanged.
    """

    archive: str
    files: int
    objects: int
    read_bytes: int
    problems: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    message: ProvenMessage | None = None

    @property
    def is_valid(self) -> bool:
        """Return whether every byte is unchanged since it was archived."""
        return not self.problems

    def lines(self) -> Iterator[str]:
        if self.message is not None:
            yield f"Verified {printable(self.archive)}: the message is unchanged"
            yield from self.message.lines()
            return
        yield f"Verified {printable(self.archive)}: {counted(self.objects, 'object')}, {format_size(self.read_bytes)}"
        if not self.problems:
            files = counted(self.files, "log file")
            whole = f"unchanged: {files} and {agreeing(self.files, 'its')} indexes"
            yield f"  {whole if self.files else 'no log file is archived yet'}"
        for problem in self.problems:
            yield f"damage: {printable(problem)}"
        if self.unused:
            count = counted(len(self.unused), "object is", "objects are")
            yield f"note: {count} unused; `reput archive` deletes unused objects that are a day old"


@dataclass(frozen=True, slots=True, repr=False)
class RestoreReport(Report):
    """The result of `reput.restore`.

    Attributes:
        archive, store: The paths or URLs of the archive and the store.
        files: Number of written log files.
        log_bytes: Size of the log files; for a filtered copy, of its messages.
        messages: Number of messages in the log files.
        begin, end: Physical offsets of the restored log.
        is_filtered: Whether this is a filtered copy: only some messages, with new offsets.
        left_out: Number of matching records that a filtered copy excludes: records of a broker's internal topics, or of
            open transactions.
        offsets_reset: Number of committed offsets that were lowered to the end of their restored queue.
    """

    archive: str
    store: str
    files: int
    log_bytes: int
    messages: int
    begin: int
    end: int
    is_filtered: bool = False
    left_out: int = 0
    offsets_reset: int = 0

    def lines(self) -> Iterator[str]:
        if self.is_filtered:
            yield f"Copied {counted(self.messages, 'message')} of {printable(self.archive)} to {printable(self.store)}"
            yield f"  log       {format_size(self.log_bytes)}"
            if self.left_out:
                records = f"{counted(self.left_out, 'record')} of a broker's internal topics, or of open transactions,"
                yield f"note: {records} {agreeing(self.left_out, 'was')} not copied"
            return
        yield f"Restored {counted(self.files, 'log file')} of {printable(self.archive)} to {printable(self.store)}"
        yield f"  messages  {self.messages:,}"
        yield f"  log       {format_size(self.log_bytes)}, from {self.begin:,} to {self.end:,}"
        if self.offsets_reset:
            offsets = counted(self.offsets_reset, "committed offset")
            was = agreeing(self.offsets_reset, "was")
            yield f"note: {offsets} beyond the end of a queue {was} lowered to it"
