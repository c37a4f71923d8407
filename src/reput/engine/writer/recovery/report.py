"""The report of a recovery."""

from __future__ import annotations

from dataclasses import dataclass, field

from reput.base import Finding, ShownAsTable, counted


@dataclass(slots=True)
class RecoveryReport(ShownAsTable):
    """The findings and changes of a recovery. Offsets are physical.

    Attributes:
        is_clean: Whether the store was shut down cleanly, that is, without a file `abort`.
        log_begin, log_end: The log after recovery.
        checked_from: Records from here on were read, and their CRCs compared.
        truncated_bytes: Bytes after the last record that were cleared, from `log_end` on.
        deleted_files: Files after the end of the log.
        empty_files: Deleted files that were preallocated and never written.
        queues_end: End of the ConsumeQueues before recovery. If it lies after `log_end`, stored messages are missing
            from the log.
        compared_from: Messages from here on were compared with ConsumeQueues and IndexFiles.
        queues_from: Messages from here on were dispatched again to ConsumeQueues.
        index_from: Messages from here on were dispatched again to IndexFiles.
        entries_written: Number of entries that were written because they were missing or wrong. Only entries before the
            last entry of their ConsumeQueue are counted.
        entries_kept: Number of entries that lead to unreadable parts of the log. They stay unchanged.
        damage: Unreadable ranges of the log, and messages that have neither an entry nor a fitting queue offset. Both
            lie before `checked_from`.
        expired_unindexed: Range of messages that expired before they were dispatched, and have no index entries.
        kept: Folder with a copy of readable messages that were cut off the log; an empty string if there were none.
        kept_messages: Number of these messages.
        notes: Problems, one line each.
    """

    is_clean: bool = True
    log_begin: int = 0
    log_end: int = 0
    checked_from: int = 0
    truncated_bytes: int = 0
    deleted_files: list[str] = field(default_factory=list)
    empty_files: list[str] = field(default_factory=list)
    queues_end: int = -1
    compared_from: int = 0
    queues_from: int = 0
    index_from: int = 0
    entries_written: int = 0
    entries_kept: int = 0
    damage: list[Finding] = field(default_factory=list)
    expired_unindexed: Finding | None = None
    kept: str = ""
    kept_messages: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def lost_messages(self) -> bool:
        """Return whether bytes were cut off the log, or the queues had entries after its end."""
        cut = self.truncated_bytes > 0 or len(self.deleted_files) > len(self.empty_files)
        return cut or self.queues_end > self.log_end

    @property
    def losses(self) -> list[Finding]:
        """Return the damage, and the finding for messages that expired before they got entries."""
        lost = self.expired_unindexed
        return self.damage if lost is None else [*self.damage, lost]

    def __str__(self) -> str:
        how = "shut down cleanly" if self.is_clean else "not shut down cleanly"
        return (
            f"log {self.log_begin} to {self.log_end} ({how}, checked from {self.checked_from}, "
            f"{self.truncated_bytes} bytes truncated, {counted(len(self.deleted_files), 'file')} deleted); "
            f"indexes compared from {self.compared_from}, dispatched again from "
            f"{self.queues_from} (ConsumeQueue) and {self.index_from} (IndexFile); "
            f"{counted(self.entries_written, 'entry', 'entries')} written, {self.entries_kept} kept for unreadable "
            f"messages"
        )
