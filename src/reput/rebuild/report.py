"""What a rebuild tells when it is done."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from reput.config import StoreConfig
from reput.findings import Finding
from reput.notebook import ShownAsTable


@dataclass(slots=True)
class RebuildReport(ShownAsTable):
    """What a rebuild found and made. Times in seconds, sizes in bytes, offsets physical."""

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
    queue_files: int = 0
    index_files: int = 0
    index_end_timestamp: int = 0
    bytes_written: int = 0
    splits: int = 0
    rescanned: int = 0
    damage: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scan_s: float = 0.0
    write_s: float = 0.0
    commit_s: float = 0.0
    total_s: float = 0.0
    config: StoreConfig = field(default_factory=StoreConfig)

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.total_s if self.total_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """Everything, with the rate, as json.dumps takes it."""
        damage = [finding.as_json() for finding in self.damage]
        return {**asdict(self), "damage": damage, "messages_per_s": self.messages_per_s}
