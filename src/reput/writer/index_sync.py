"""Making ConsumeQueues and IndexFiles durable, and writing down how far they reach: checkpoint and reput.known.

Mirrors `DefaultMessageStore.FlushConsumeQueueService` and `StoreCheckpoint.flush` (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from reput.config import StoreConfig
from reput.files.disk import Disk
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from reput.format.file_names import CHECKPOINT_FILE
from reput.recovery.recovery_point import RecoveryPoint, RecoveryPointWriter
from reput.writer.dispatch import DispatchService
from reput.writer.recover import Recovered


class IndexSync:
    """Of one open store."""

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
        """`durable_timestamp` returns the store timestamp (ms) of a message up to which the log is durable, or 0.

        `check_in_place` raises StoreFailedError if another process displaced a file that must not change.
        """
        self._path, self._disk, self._checkpoint = store / CHECKPOINT_FILE, disk, checkpoint
        self._queues, self._index = recovered.queues, recovered.index_files
        self._dispatcher: DispatchService = recovered.dispatcher
        self._durable_timestamp, self._nothing_expires = durable_timestamp, nothing_expires
        self._check_in_place = check_in_place
        self._recovery_point = RecoveryPointWriter(store, config, disk)
        self._known: RecoveryPoint | None = None

    def run(self, log_end: int | None = None) -> None:
        """Sync them. `log_end` is given when the store is closed: nothing comes after that.

        Raises StoreAccessError, StoreFailedError.
        """
        with self._dispatcher.between_batches:
            name, count = self._index.end
            reached = RecoveryPoint(
                self._dispatcher.taken, self._queues.positions(), name, count,
                batches=self._queues.batch_ends(), lost=self._queues.lost_ranges(),
                refused=self._queues.refused_bytes(),
            )  # fmt: skip
        physic, logics = self._durable_timestamp(), self._dispatcher.store_timestamp
        if not self._queues.has_logics_timestamp:
            logics = 0
        self._queues.sync()
        self._index.sync()
        self._check_in_place()  # before anything says that they are durable
        known = self._checkpoint
        self._write_checkpoint(
            known._replace(
                physic_msg_timestamp=physic or known.physic_msg_timestamp,
                logics_msg_timestamp=logics or known.logics_msg_timestamp,
                index_msg_timestamp=max(self._index.full_timestamp, known.index_msg_timestamp),
            )
        )
        if log_end is not None or reached != self._known:
            with self._nothing_expires:  # what is looked at must not go meanwhile
                self._recovery_point.write(reached, reached.end == log_end)
            self._known = reached
        if log_end is not None:
            self._check_in_place()

    def run_partly(self, least_pages: int) -> None:
        """Sync the queues that have so many dirty pages, and IndexFiles that are full.

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
