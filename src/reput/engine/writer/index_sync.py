"""Flush ConsumeQueues and IndexFiles, record how far they reach (checkpoint, reput.known), and prove IndexFiles.

A recovery point (`reput.known`) states the physical offset before which the indexes have all messages. A proof states
that a look-up in an IndexFile finds all keys of a range of the log.

Mirrors `DefaultMessageStore.FlushConsumeQueueService`, `StoreCheckpoint.flush`, and the thread with which
`IndexService.getAndCreateLastIndexFile` flushes a full file (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from threading import Thread

from reput.base import StoreConfig
from reput.core import CommitLogReader, IndexFileReader, IndexFileSetWriter, StoreLog, index_paths
from reput.engine.compare import prove_all
from reput.engine.writer.dispatch import DispatchService
from reput.engine.writer.recover import Recovered
from reput.engine.writer.recovery.recovery_point import RecoveryPoint, RecoveryPointWriter
from reput.engine.writer.threads import Health, Waiters, join_thread
from reput.errors import FormatError, ReputError, StoreNotFoundError
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from reput.format.file_names import CHECKPOINT_FILE, INDEX_FOLDER
from reput.io import Disk

_log = logging.getLogger("reput.flush")
# A recovery point is written after this many bytes of the log. Recovery after a crash compares only the log after the
# recovery point with the indexes.
_NOTED_BYTES = 2 << 30
_store_log = logging.getLogger("reput.store")


class IndexSync:
    """Syncs the queues and IndexFiles of one open store, and then writes the checkpoint and the recovery point."""

    def __init__(
        self,
        store: Path,
        config: StoreConfig,
        disk: Disk,
        recovered: Recovered,
        checkpoint: Checkpoint,
        durable_timestamp: Callable[[], int],
        nothing_expires: AbstractContextManager[object],
        check_in_place: Callable[[], None],
    ) -> None:
        """Prepare to sync.

        `durable_timestamp` returns the store timestamp (ms) up to which the log is durable, or 0 if unknown.
        `nothing_expires` is a lock: while this object holds it, no file is deleted. `check_in_place` raises
        StoreFailedError if another process deleted or renamed a file.
        """
        self._path, self._disk, self._checkpoint = store / CHECKPOINT_FILE, disk, checkpoint
        self._queues, self._index = recovered.queues, recovered.index_files
        self._dispatcher: DispatchService = recovered.dispatcher
        self._durable_timestamp, self._nothing_expires = durable_timestamp, nothing_expires
        self._check_in_place = check_in_place
        self._recovery_point = RecoveryPointWriter(store, config, disk)
        self._point: RecoveryPoint | None = None

    def run(self, log_end: int | None = None) -> None:
        """Sync all queues and IndexFiles.

        `log_end` is the final end of the log if the store is being closed, else None.

        Raises StoreAccessError, StoreFailedError.
        """
        # Before the sync, record how far queues and index reach: the sync may miss entries that are added during the
        # sync.
        with self._dispatcher.between_batches:
            name, count = self._index.end
            reached = RecoveryPoint(
                self._dispatcher.taken, self._queues.positions(), name, count,
                batches=self._queues.batch_ends(), lost=self._queues.lost_ranges(),
                refused=self._queues.refused_bytes(), database=self._queues.database,
            )  # fmt: skip
        physic, logics = self._durable_timestamp(), self._dispatcher.store_timestamp
        if not self._queues.has_logics_timestamp:
            logics = 0
        self._queues.sync()
        self._index.sync()
        # The checkpoint states that all files are durable. So check first that no other process has deleted or renamed
        # a file.
        self._check_in_place()
        checkpoint = self._checkpoint
        self._write_checkpoint(
            checkpoint._replace(
                physic_msg_timestamp=physic or checkpoint.physic_msg_timestamp,
                logics_msg_timestamp=logics or checkpoint.logics_msg_timestamp,
                index_msg_timestamp=max(self._index.full_timestamp, checkpoint.index_msg_timestamp),
            )
        )
        if log_end is not None or reached != self._point:
            # A recovery point that names a deleted file is invalid, so no file may expire during the write.
            with self._nothing_expires:
                self._recovery_point.write(reached, reached.end == log_end)
            self._point = reached
        if log_end is not None:
            self._check_in_place()

    def run_partly(self, least_pages: int) -> None:
        """Sync queues with at least `least_pages` dirty pages, and full IndexFiles.

        Raises StoreAccessError, StoreFailedError.
        """
        self._queues.sync(least_pages)
        self._index.sync_full()
        full = self._index.full_timestamp
        if full > self._checkpoint.index_msg_timestamp:
            self._write_checkpoint(self._checkpoint._replace(index_msg_timestamp=full))

    def _write_checkpoint(self, fresh: Checkpoint) -> None:
        if fresh != self._checkpoint or not self._path.exists():
            self._disk.replace(self._path, encode_checkpoint(fresh))
            self._checkpoint = fresh


class IndexFlusher:
    """Syncs ConsumeQueues and IndexFiles in its own thread.

    At short intervals, the thread syncs queues with many dirty pages. At longer intervals, it syncs all queues and
    IndexFiles. An IndexFile is also synced as soon as the file is full.
    """

    def __init__(
        self,
        sync: IndexSync,
        prove_full: Callable[[], None],
        log_flushed: Callable[[], int],
        health: Health,
        interval_s: float,
        least_pages: int,
        thorough_interval_s: float,
    ) -> None:
        """Prepare the thread.

        `prove_full` proves that the full files agree with the log (`IndexProver.prove_full`). `log_flushed` returns the
        offset up to which the log is durable.
        """
        self._sync, self._prove_full = sync, prove_full
        self._log_flushed, self._health = log_flushed, health
        self._interval_s, self._least_pages = interval_s, least_pages
        self._thorough_interval_s = thorough_interval_s
        self._work = Waiters()
        self._is_closing = self._has_rolled = False
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._run, name="reput-flush-indexes", daemon=True)
        self._thread.start()

    def notify_rolled(self) -> None:
        """Wake the thread, because an IndexFile is full and the next one was created.

        In RocketMQ: FlushIndexFileThread.
        """
        self._has_rolled = True
        self._work.notify_all()

    def stop(self) -> None:
        """End the thread, if it has not ended. The caller must then sync all queues and IndexFiles."""
        self._is_closing = True
        self._work.notify_all()
        if self._thread is not None:
            join_thread(self._thread)

    def _run(self) -> None:
        thorough_at = time.monotonic() + self._thorough_interval_s
        noted = self._log_flushed()
        while self._pause():
            try:
                with self._health.guarding():
                    if (
                        time.monotonic() >= thorough_at
                        or self._log_flushed() - noted >= _NOTED_BYTES
                    ):
                        self._sync.run()
                        thorough_at = time.monotonic() + self._thorough_interval_s
                        noted = self._log_flushed()
                    else:
                        self._sync.run_partly(self._least_pages)
                self._prove_full()
            except BaseException as error:  # Threads that put messages must receive any error.
                self._health.fail(error)
                _log.error("flushing ConsumeQueues and IndexFiles has stopped: %s", error)

    def _pause(self) -> bool:
        """Wait for the interval, or for a full file. Return False when the thread must end."""
        self._work.wait_for(lambda: self._is_closing or self._has_rolled, self._interval_s)
        self._has_rolled = False
        return not self._is_closing and self._health.reason is None


class IndexProver:
    """Proves that IndexFiles agree with the log: each file once it is full and durable, the last when the store closes.

    A proof states for which range of the log the file has a reachable item for every key
    (`reput.core.index.proofs.Proof`). It is valid only while the log files to which the items lead do not change. An
    opened store appends to the last log file. So the proofs of IndexFiles with items for this log file become invalid.
    These IndexFiles, and all later ones, are proved again.
    """

    def __init__(
        self, store: Path, config: StoreConfig, index: IndexFileSetWriter, log_begin: int
    ) -> None:
        """Prepare the proofs.

        When the store was opened, the last log file began at the physical offset `log_begin`.
        """
        self._store, self._config, self._index = store, config, index
        self._log_begin = log_begin
        self._began = index.end
        self._last = self._since = self._began[0]
        self._is_ready = False

    def prove_full(self) -> None:
        """Prove that the full IndexFiles agree with the log, if one has become full since the last call.

        The first call after this writer has added items proves all files, even files that are not full. That call also
        imports modules, which takes longer than most proofs. Without that call, `prove` would do this work later, while
        the caller of `prove` waits.
        """
        # Do not store a proof of a file that is open for writing: the file could change without a trace. A file that
        # became full after the last sync is still open, and is proved after the next sync.
        first_open, (name, count) = self._index.first_open, self._index.end
        if not self._is_ready and count > 1 and (name, count) != self._began:
            self._prove()
            self._is_ready = True
        elif first_open != self._last:
            # Once more those of the last call: log files that had just changed may have settled since.
            self._prove(self._since, first_open)
            self._since = self._last
        self._last = first_open

    def prove(self) -> None:
        """Prove that all IndexFiles agree with the log, including the last one. Do nothing if no item was written.

        After this call, the caller must not add items.
        """
        if self._index.end != self._began:
            self._prove()

    def _prove(self, since: str | None = None, before: str | None = None) -> None:
        """Prove the files from the name `since` on, and before the name `before`."""
        try:
            with ExitStack() as stack:
                files = [
                    file
                    for path in index_paths(self._store / INDEX_FOLDER)
                    if (since or "") <= path.name and (before is None or path.name < before)
                    if (file := self._open(path, stack)) is not None
                ]
                log = stack.enter_context(closing(CommitLogReader(StoreLog(self._store))))
                for file, proof in zip(files, prove_all(log, files), strict=True):
                    for problem in proof.problems:
                        _store_log.warning("%s: %s", file.path, problem)
        except ReputError as error:
            # The store is valid without proofs, so the error is only logged.
            _store_log.warning(
                "%s: no proofs, so queries will check the index: %s", self._store, error
            )

    def _open(self, path: Path, stack: ExitStack) -> IndexFileReader | None:
        """Open an IndexFile; None if it is none, or has only items of log files that did not change."""
        try:
            file = IndexFileReader(str(path), self._config.hash_slots, self._config.index_items)
        except (FormatError, StoreNotFoundError):
            return None
        stack.callback(file.close)
        return file if file.offset(file.next_item - 1) >= self._log_begin else None
