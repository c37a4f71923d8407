"""Delete the oldest files of a live store automatically, if limits are set.

Mirrors `DefaultMessageStore.CleanCommitLogService` and `.CleanConsumeQueueService` (tag rocketmq-all-4.9.3), but sets
no limits by default.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from threading import Event, Lock, Thread

from reput.base import check_fields
from reput.core import CommitLogFile, CommitLogReader, StoreLog
from reput.engine.writer import expiry
from reput.engine.writer.threads import join_thread
from reput.errors import StoreError, UsageError
from reput.io import Disk

_log = logging.getLogger("reput.retention")
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """Limits beyond which the oldest CommitLog files are deleted; None for no limit. Raises UsageError.

    Attributes:
        file_reserved_hours: Maximum age in hours of a file's last message (fileReservedTime).
        disk_max_used_space_ratio: Maximum used space of the file system, in percent. It applies to files of any age
            (diskMaxUsedSpaceRatio).
        max_commit_log_bytes: Maximum total size of all CommitLog files.
        delete_when: Hours of the day, in local time, at which files expire by age: '04' or '04;16' (deleteWhen). None
            for any hour.
    """

    file_reserved_hours: float | None = None
    disk_max_used_space_ratio: float | None = None
    max_commit_log_bytes: int | None = None
    delete_when: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        hours, ratio, size = (
            self.file_reserved_hours, self.disk_max_used_space_ratio, self.max_commit_log_bytes,
        )  # fmt: skip
        if hours is not None and not hours >= 0:
            raise UsageError(f"file_reserved_hours must be at least 0, not {hours}")
        if ratio is not None and not 1 <= ratio <= 100:
            raise UsageError(
                f"disk_max_used_space_ratio must be a percentage from 1 to 100, not {ratio}"
            )
        if size is not None and size < 1:
            raise UsageError(f"max_commit_log_bytes must be at least 1, not {size}")
        self.hours()

    def hours(self) -> frozenset[int]:
        """Return the hours of `delete_when`, or all hours if it is not set."""
        if self.delete_when is None:
            return frozenset(range(24))
        parts = [part.strip() for part in self.delete_when.split(";")]
        if not all(part.isdecimal() and int(part) < 24 for part in parts):
            raise UsageError(
                f"delete_when must be hours from 00 to 23, joined by ';', not {self.delete_when!r}"
            )
        return frozenset(map(int, parts))

    @property
    def are_of_space(self) -> bool:
        return self.disk_max_used_space_ratio is not None or self.max_commit_log_bytes is not None

    @property
    def are_set(self) -> bool:
        return self.file_reserved_hours is not None or self.are_of_space


class Retention:
    """Deletes expired files: on request from any thread, and in its own thread when a limit is exceeded.

    Attributes:
        on_expired: Called after files were deleted, in the thread that deleted them.
        paused: A lock. While a caller owns it, nothing is deleted. An expiry takes it for each file that it deletes.
    """

    def __init__(
        self,
        store: Path,
        disk: Disk,
        limits: RetentionLimits,
        interval_s: float,
        until: Callable[[], int],
        clock_ms: Callable[[], int],
    ) -> None:
        """Watch a store. `until` returns the physical offset before which all messages are dispatched."""
        self._store, self._disk, self._limits = store, disk, limits
        self._interval_s, self._until, self._clock_ms = interval_s, until, clock_ms
        self.on_expired: list[Callable[[], None]] = []
        self._ages: dict[CommitLogFile, int] = {}
        self.paused = Lock()
        # One expiry at a time. Others need not wait while it reads the log, so this is not `paused`.
        self._turn = Lock()
        self._is_closing = Event()
        self._is_tidy = False
        self._thread = Thread(target=self._run, name="reput-retention", daemon=True)

    def start(self) -> None:
        if self._limits.are_set:
            self._thread.start()

    def stop(self) -> None:
        """End the thread, if it has not ended."""
        self._is_closing.set()
        if self._thread.ident is not None:
            join_thread(self._thread)

    def expire(self, before: int, until: int | None = None) -> expiry.ExpiryReport:
        """Delete files whose last message was stored before a time (ms). Raises StoreAccessError.

        `until` is a physical offset: files that end after this offset are not deleted.
        """
        with self._turn, closing(CommitLogReader(StoreLog(self._store))) as log:
            most = self._until() if until is None else min(self._until(), until)
            return self._delete(log, self._files_before(log, before, most))

    def clean(self) -> expiry.ExpiryReport | None:
        """Delete files beyond the limits. Return the report, or None if nothing was done. Raises StoreAccessError."""
        with self._turn, closing(CommitLogReader(StoreLog(self._store))) as log:
            expired = max(self._too_old(log), self._too_many(log), key=len)
            # The first call also deletes index files that an interrupted deletion has left.
            return self._delete(log, expired) if expired or not self._is_tidy else None

    def make_room(self) -> bool:
        """Delete log files when the disk is full, and return whether any was deleted.

        If no space limit is set, delete nothing.
        """
        if not self._limits.are_of_space:
            return False
        with self._turn, closing(CommitLogReader(StoreLog(self._store))) as log:
            # The disk is full. If the store exceeds no limit, files of other programs fill the disk. Delete one log
            # file in this case.
            expired = self._too_many(log) or list(expiry.deletable_files(log, self._until()))[:1]
            if expired:
                self._delete(log, expired)
            return bool(expired)

    def _delete(self, log: CommitLogReader, expired: list[CommitLogFile]) -> expiry.ExpiryReport:
        report = expiry.plan_expiry(self._store, log, expired)
        expiry.carry_out(report, self._disk, self.paused)
        self._is_tidy = True
        if report.freed_bytes:
            _log.info("%s: expired: %s", self._store, report)
        for call in self.on_expired:
            call()
        return report

    def _too_old(self, log: CommitLogReader) -> list[CommitLogFile]:
        hours, now = self._limits.file_reserved_hours, self._clock_ms()
        if hours is None or time.localtime(now / 1000).tm_hour not in self._limits.hours():
            return []
        before = now - int(hours * _HOUR_MS)
        return self._files_before(log, before, self._until())

    def _files_before(self, log: CommitLogReader, before: int, until: int) -> list[CommitLogFile]:
        ages = self._ages
        self._ages = {file: ages[file] for file in log.files if file in ages}
        return expiry.files_before(log, before, until, self._age)

    def _too_many(self, log: CommitLogReader) -> list[CommitLogFile]:
        """Return the files to delete so that the space limits are kept."""
        excess_bytes = self._excess_bytes(log.files)

        def is_needed(file: CommitLogFile) -> bool:
            nonlocal excess_bytes
            before, excess_bytes = excess_bytes, excess_bytes - file.size
            return before > 0

        return list(takewhile(is_needed, expiry.deletable_files(log, self._until())))

    def _excess_bytes(self, files: Iterable[CommitLogFile]) -> int:
        ratio, most = self._limits.disk_max_used_space_ratio, self._limits.max_commit_log_bytes
        excess = 0
        if most is not None:
            excess = sum(file.size for file in files) - most
        if ratio is not None:
            used, usable = self._disk.usage(self._store)
            excess = max(excess, used - int((used + usable) * ratio / 100))
        return excess

    def _age(self, log: CommitLogReader, file: CommitLogFile) -> int:
        """Return `newest_timestamp` from a cache. All files except the last one never change."""
        age = self._ages.get(file)
        if age is None:
            age = self._ages[file] = expiry.newest_timestamp(log, file)
        return age

    def _run(self) -> None:
        while not self._is_closing.wait(self._interval_s):
            try:
                self.clean()
            except StoreError as error:  # Try again after the next interval.
                _log.warning("%s: files could not be expired: %s", self._store, error)
