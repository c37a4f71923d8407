"""A store that is alive: one process owns it, puts, dispatches, flushes, and closes it in order.

Mirrors `DefaultMessageStore.start`, `.shutdown` (tag rocketmq-all-4.9.3): `lock` is held while it is open, `abort` is
there until it was closed in order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path

from reput.config import StoreConfig
from reput.errors import StoreError, StoreNotFoundError, UsageError
from reput.files.disk import Disk
from reput.files.lock import locked
from reput.format.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from reput.format.file_names import ABORT_FILE, CHECKPOINT_FILE, COMMIT_LOG_FOLDER, LOCK_FILE
from reput.format.unique_key import UniqueKeys
from reput.store.expiry import ExpiryReport
from reput.store.flush import Flusher
from reput.store.health import Health
from reput.store.put.batch import check_batch
from reput.store.put.columns import PutColumns, PutColumnsResult
from reput.store.put.commit_log_writer import CommitLogWriter
from reput.store.put.gather import from_messages, shapes_of
from reput.store.put.log_files import LogFiles
from reput.store.put.message import Message, PutResult
from reput.store.put.process import process_prefix
from reput.store.put.results import PutPart, PutResults, part_of
from reput.store.put.routing import may_have_further_queues
from reput.store.rebuild.existing import config_of
from reput.store.recovery.known_good import KnownGood, KnownGoodWriter
from reput.store.recovery.log import log_files
from reput.store.recovery.queue_files import find_queues
from reput.store.recovery.recover import Recovery
from reput.store.retention import Retention
from reput.store.writer_settings import WriterSettings

__all__ = ["StoreWriter", "WriterSettings", "now_ms"]

_log = logging.getLogger("reput.store")
_MANY = 4096
_ROOM_PATIENCE_S = 10.0
_BUSY = "another process, a broker for instance, owns this store; stop it, or open with mode 'r'"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class StoreWriter:
    """An open store to put into, from any thread.

    recovery   what was found when it was opened
    health     whether it may still be written
    retention  what deletes its oldest files
    """

    def __init__(
        self,
        path: Path,
        config: StoreConfig | None = None,
        settings: WriterSettings | None = None,
        disk: Disk | None = None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """Open a store, or make one where there is none. Sizes are those of its files; `config` is for a new one.

        Raises StoreLockedError, StoreError for files that cannot be gone on with, StoreAccessError.
        """
        self.path, self.settings = path, settings or WriterSettings()
        self._disk, self._clock_ms = disk or Disk(), clock_ms
        self.health = Health()
        self._is_closed = False
        self._is_sync = self.settings.flush == "sync"
        self._disk.make_folder(path)
        with ExitStack() as stack:
            stack.enter_context(locked(path / LOCK_FILE, _BUSY))
            self._open(config)
            self._lock = stack.pop_all()

    def _open(self, config: StoreConfig | None) -> None:
        files = log_files(self.path, self._disk)
        self.config = _fitting(self.path, config, files[0].size if files else None)
        self._checkpoint = self._read_checkpoint()
        queues = find_queues(self.path, self.config)
        abort = self.path / ABORT_FILE
        is_clean = not abort.exists()
        self._disk.open(abort, 0).close()
        self._disk.sync_folder(self.path)
        recovery = Recovery(
            self.path, files, queues, self.config, self._disk, self.health, self._checkpoint,
            self._clock_ms,
        )  # fmt: skip
        recovered = recovery.run(is_clean)
        self.recovery, self._queues, self._index, self.dispatcher, offsets = recovered
        self._known_good = KnownGoodWriter(self.path, self.config, self._disk)
        _log.info("%s: %s", self.path, self.recovery)
        end = self.recovery.log_end
        file_bytes = self.config.commit_log_file_bytes
        self._files = LogFiles(
            self._disk, self.path / COMMIT_LOG_FOLDER, file_bytes, end - end % file_bytes
        )
        self._unique_keys = UniqueKeys(process_prefix())
        self._log = CommitLogWriter(
            self._files, end, offsets, self.config, self.health, self._unique_keys,
            self.settings.store_host, self._clock_ms, self.dispatcher.notify,
        )  # fmt: skip
        self.flusher = Flusher(
            self._files.sync, self._end_to_flush, self._sync_indexes, self.health, end,
            self.settings.flush_interval_s, self.settings.flush_least_pages,
            self.settings.flush_thorough_interval_s,
        )  # fmt: skip
        self._log.store_timestamp = self.dispatcher.store_timestamp  # of what recovery made durable
        self._last_flush = 0, end
        self._known: KnownGood | None = None
        self.retention = Retention(
            self.path, self._disk, self.settings.limits(), self.settings.clean_interval_s,
            lambda: self.dispatcher.position, self._clock_ms,
        )  # fmt: skip
        self._files.make_room = self._make_room
        self.dispatcher.start()
        self.flusher.start()
        self.retention.start()

    @property
    def end_offset(self) -> int:
        """Physical offset at which the next message begins, at the earliest."""
        return self._log.position

    @property
    def delay_levels(self) -> int:
        """How many levels of delay there are (messageDelayLevel)."""
        return self._log.delay_levels

    @property
    def syncs(self) -> int:
        """How many times a file of the log was synced."""
        return self._files.syncs

    def put(self, message: Message) -> PutResult:
        """Put one message; durable when this returns if flushing is synchronous.

        Raises MessageRefusedError, StoreFailedError, StoreAccessError.
        """
        if self._is_closed:
            self.check_open()
        result = self._log.put(message)
        if self._is_sync:
            self._wait_durable()
        return result

    def put_many(self, messages: Iterable[Message]) -> PutResults:
        """Put messages in their order, some thousands at a time; raises as `put` does, and then some may be put."""
        self.check_open()
        parts: list[PutPart] = []
        source = iter(messages)
        while some := list(islice(source, _MANY)):
            if self.config.enable_multi_dispatch and any(
                map(may_have_further_queues, shapes_of(some))
            ):
                parts.append(part_of([self._log.put(message) for message in some]))
            else:
                parts.append(self._log.put_columns(self._columns(some)))
        self._wait_durable()
        return PutResults.joined(parts, self._log.id_prefix)

    def put_batch(self, messages: Sequence[Message]) -> PutResults:
        """Put a batch: one behind the other in one file, all or none; raises as `put` does.

        All are of one topic and queue; none is delayed, of a transaction, or goes to further queues.
        """
        self.check_open()
        check_batch(messages, self._log.delay_levels, self.config.enable_multi_dispatch)
        part = self._log.put_columns(self._columns(messages), in_one_file=True)
        self._wait_durable()
        return PutResults.joined([part], self._log.id_prefix)

    def _columns(self, messages: Sequence[Message]) -> PutColumns:
        return from_messages(
            messages, self._unique_keys, self._clock_ms(), self.settings.store_host,
            self._log.delay_levels,
        )  # fmt: skip

    def put_columns(self, columns: PutColumns) -> PutColumnsResult:
        """Put columns of messages; raises as `put` does."""
        self.check_open()
        result = self._log.put_columns(columns)
        self._wait_durable()
        return result

    def flush(self) -> None:
        """Make all that was put durable. Raises StoreFailedError, StoreAccessError."""
        self.check_open()
        self.flusher.flush()

    def expire(self, before: int) -> ExpiryReport:
        """See `Retention.expire`. Raises StoreFailedError, StoreAccessError."""
        self.check_open()
        self.health.check()
        self.dispatcher.wait(self._log.position, None)
        return self.retention.expire(before)

    def check_open(self) -> None:
        if self._is_closed:
            raise UsageError(f"{self.path}: the store is closed")

    def close(self) -> None:
        """Dispatch and sync everything; only then is the end in order. The lock is given back in any case.

        Raises StoreFailedError, StoreAccessError where that was not possible; the next to open the store recovers it.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.retention.close()
            self.dispatcher.close()
            self.flusher.close()
            self.flusher.flush()
            with self.health.guarding():
                self._sync_indexes(closing=True)
                self._index.close(sync=False)
                self._queues.close(sync=False)
                self._disk.delete(self.path / ABORT_FILE)
                self._disk.sync_folder(self.path)
        finally:
            if self.health.reason is not None:
                self._index.close(sync=False)
                self._queues.close(sync=False)
            self._files.close()
            self._lock.close()

    def _end_to_flush(self) -> int:
        timestamp = self._log.store_timestamp  # of a message that lies before the end read next
        self._last_flush = timestamp, self._log.position
        return self._last_flush[1]

    def _make_room(self) -> bool:
        """For the next file of the log; called by whoever puts."""
        self.dispatcher.notify(self._log.position)
        self.dispatcher.wait(self._log.position, _ROOM_PATIENCE_S)
        return self.retention.make_room()

    def _wait_durable(self) -> None:
        if self._is_sync:
            self.flusher.wait(self._log.position)

    def _sync_indexes(self, closing: bool = False) -> None:
        """Sync ConsumeQueues and IndexFiles, and write down how far they reach."""
        with self.dispatcher.between_batches:
            name, count = self._index.end
            reached = KnownGood(self.dispatcher.taken, self._queues.positions(), name, count)
        timestamp, end = self._last_flush
        physic = timestamp if self.flusher.flushed >= end else 0
        logics = self.dispatcher.store_timestamp
        self._queues.sync()
        self._index.sync()
        known = self._checkpoint
        fresh = Checkpoint(
            physic or known.physic_msg_timestamp,
            logics or known.logics_msg_timestamp,
            max(self._index.full_timestamp, known.index_msg_timestamp),
        )
        if fresh != known or not (self.path / CHECKPOINT_FILE).exists():
            self._disk.replace(self.path / CHECKPOINT_FILE, encode_checkpoint(fresh))
            self._checkpoint = fresh
        if closing or reached != self._known:
            with self.retention.paused:  # what is looked at must not go meanwhile
                self._known_good.write(reached, closing and reached.end == self._log.position)
            self._known = reached

    def _read_checkpoint(self) -> Checkpoint:
        try:
            return decode_checkpoint((self.path / CHECKPOINT_FILE).read_bytes())
        except (OSError, ValueError):
            return Checkpoint()


def _fitting(store: Path, config: StoreConfig | None, log_file_bytes: int | None) -> StoreConfig:
    """The settings to go on with: those given, or those that the store's files show; the log's size as it is."""
    if log_file_bytes is None:
        return config or StoreConfig()
    if config is None:
        try:
            config = config_of(store)
        except StoreNotFoundError:
            config = StoreConfig()
    elif config.commit_log_file_bytes != log_file_bytes:
        raise StoreError(
            f"{store}: its CommitLog files have {log_file_bytes} bytes, "
            f"not the {config.commit_log_file_bytes} of the settings (mappedFileSizeCommitLog)"
        )
    return replace(config, commit_log_file_bytes=log_file_bytes)
