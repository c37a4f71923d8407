"""What a walk that salvages could not read of a file."""

from __future__ import annotations

from reput.findings import Finding
from reput.log.files import CommitLogFile
from reput.log.scan import FileScan


def unread(scan: FileScan, file: CommitLogFile, log_end: int) -> list[Finding]:
    """Damage that the exhausted walk skipped, and the rest of the file where that is not merely after the log's end."""
    end = scan.end
    goes_on = file.end < log_end or (end.torn and end.position < log_end)
    if end.unreadable and goes_on:
        return [*scan.damage, file.lost(end.position, file.end, end.unreadable)]
    return scan.damage
