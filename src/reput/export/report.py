"""What an export did, for people and programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from reput.findings import Finding
from reput.notebook import ShownAsTable


@dataclass(slots=True)
class ExportReport(ShownAsTable):
    """
    stores        name, first offset taken and the offset up to which the table has it now
    log_bytes     of the CommitLogs, that were to be read
    is_whole      whether all of the log behind the marks was read
    messages      that were looked at; rows and rejected rows are those of them that were asked for
    json_errors   rows whose bodies do not fit, where that costs fields and not the row
    reasons       why rows were rejected or have such fields: the most frequent ones, and how often
    json_changes  fields of JSON bodies that are new in the table, or wider
    bad_bodies    rows whose stored body has not the CRC that was stored with it
    missing       offsets that no file holds any more: expired, or lost
    damage        what could not be read of the log
    committed     False where there was nothing new
    """

    destination: str
    stores: dict[str, tuple[int, int]] = field(default_factory=dict)
    log_bytes: int = 0
    is_whole: bool = True
    messages: int = 0
    rows: int = 0
    rejects: int = 0
    json_errors: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    json_changes: list[str] = field(default_factory=list)
    bad_bodies: int = 0
    files: int = 0
    file_bytes: int = 0
    missing: list[Finding] = field(default_factory=list)
    damage: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    committed: bool = False
    read_s: float = 0.0
    total_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        lost = {
            name: [finding.as_json() for finding in getattr(self, name)]
            for name in ("missing", "damage")
        }
        return {**asdict(self), **lost}
