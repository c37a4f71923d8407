"""The settings of an open store that its bytes do not depend on (`MessageStoreConfig`, tag rocketmq-all-4.9.3)."""

from __future__ import annotations

from dataclasses import dataclass

from reput.errors import UsageError
from reput.format.host import Host
from reput.store.retention import RetentionLimits

_STORE_HOST = Host("127.0.0.1", 10911)


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What decides when puts are durable, what they say of this process, and when they are deleted.

    Raises UsageError for what cannot be right.

    flush                   'async': at intervals; 'sync': before a put returns (flushDiskType)
    flush_interval_s        between two flushes of the log (flushIntervalCommitLog)
    flush_least_pages       dirty pages that make one worth it (flushCommitLogLeastPages)
    flush_thorough_interval_s  after so long, whatever is dirty, ConsumeQueues too (flushCommitLogThoroughInterval)
    store_host              what records name as the host that stored them
    file_reserved_hours, disk_max_used_space_ratio, max_commit_log_bytes  see RetentionLimits: none set, none deleted
    clean_interval_s        between two looks at these limits (cleanResourceInterval)
    """

    flush: str = "async"
    flush_interval_s: float = 0.5
    flush_least_pages: int = 4
    flush_thorough_interval_s: float = 10.0
    store_host: Host = _STORE_HOST
    file_reserved_hours: float | None = None
    disk_max_used_space_ratio: float | None = None
    max_commit_log_bytes: int | None = None
    clean_interval_s: float = 10.0

    def __post_init__(self) -> None:
        if self.flush not in ("async", "sync"):
            raise UsageError(f"flush is 'async' or 'sync', not {self.flush!r}")
        if not self.clean_interval_s > 0:
            raise UsageError(f"clean_interval_s {self.clean_interval_s} must be above 0")
        self.limits()

    def limits(self) -> RetentionLimits:
        return RetentionLimits(
            self.file_reserved_hours, self.disk_max_used_space_ratio, self.max_commit_log_bytes
        )
