"""A writable store. One process owns it, puts and dispatches messages, flushes files, and shuts the store down cleanly.

Mirrors `DefaultMessageStore.start` and `.shutdown` (tag rocketmq-all-4.9.3). The file `lock` is locked while the store
is open. The file `abort` exists until the store is shut down cleanly.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Protocol
from weakref import WeakSet

from reput.base import StoreConfig, now_ms
from reput.core import batch_topics
from reput.engine.writer.expiry import ExpiryReport
from reput.engine.writer.flush import Flusher
from reput.engine.writer.index_sync import IndexFlusher, IndexProver, IndexSync
from reput.engine.writer.owner import Owner
from reput.engine.writer.process_keys import process_prefix
from reput.engine.writer.put.batches import check_batch, may_be_batch
from reput.engine.writer.put.columns import PutColumns, PutColumnsResult
from reput.engine.writer.put.commit_log_writer import CommitLogWriter
from reput.engine.writer.put.gather import from_messages, shapes_of
from reput.engine.writer.put.log_files import LogFiles
from reput.engine.writer.put.message import Message, PutResult
from reput.engine.writer.put.record_form import RecordForm
from reput.engine.writer.put.results import PutPart, PutResults, part_of
from reput.engine.writer.put.routing import may_have_further_queues
from reput.engine.writer.recover import Recovery
from reput.engine.writer.recovery.extended_queues import ExtendedQueueFiles
from reput.engine.writer.recovery.log import log_files
from reput.engine.writer.recovery.queue_files import QueueFiles
from reput.engine.writer.retention import Retention
from reput.engine.writer.store_checks import (
    check_places,
    fitting_config,
    form_to_write,
    mark_open,
    refuse_to_write,
    writes_extensions,
)
from reput.engine.writer.survey import survey_of
from reput.engine.writer.threads import Health
from reput.engine.writer.writer_settings import WriterSettings
from reput.errors import ReputError, StoreAccessError, UsageError, displaced
from reput.format.file_names import ABORT_FILE, COMMIT_LOG_FOLDER, LOCK_FILE
from reput.format.message_id import UniqueKeys
from reput.io import DISK, Disk, Mount, locked

__all__ = ["StoreWriter", "WriterSettings", "now_ms"]
_log = logging.getLogger("reput.store")
_MANY = 4096
# If the disk is full, a put deletes old log files, but never files with messages that are not dispatched. So the put
# first waits for dispatch, at most for this time.
_ROOM_PATIENCE_S = 10.0
_BUSY = "another process, such as a broker, owns this store; stop that process, or open the store with mode 'r'"


class Disownable(Protocol):
    """A resource that a forked child must not use."""

    def disown(self, parent: int) -> None:
        """In a forked child, stop using the resource. `parent` is the id of the process that owns the resource."""


_owned: WeakSet[Disownable] = WeakSet()


def disown_when_forked(owned: Disownable) -> None:
    """Call `owned.disown` in every forked child of this process, as long as the object `owned` exists."""
    _owned.add(owned)


def _disown_all() -> None:
    for owned in list(_owned):
        owned.disown(os.getppid())


os.register_at_fork(after_in_child=_disown_all)


class StoreWriter:
    """An open store that any thread may put messages into.

    recovery   report of the recovery when the store was opened
    health     refuses writes after a failure
    retention  deletes the oldest files
    """

    def __init__(
        self,
        path: Path,
        config: StoreConfig | None = None,
        settings: WriterSettings | None = None,
        disk: Disk | None = None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """Open a store, or create one. Existing files determine the sizes. `config` is for a new store.

        Raises StoreLockedError, StoreError for files that cannot be continued, StoreAccessError.
        """
        self.path, self.settings = path, settings or WriterSettings()
        self._disk, self._clock_ms = disk or Disk(), clock_ms
        self.health = Health()
        self._closed: str | None = None  # Why the store accepts no more messages.
        self._closing, self._is_let_go, self._is_forked = Lock(), False, False
        self._is_sync = self.settings.flush == "sync"
        # Refuse before the folder is created or locked, so that a refused store stays unchanged.
        refuse_to_write(survey_of(path))
        with DISK.writing_to(path):
            self._disk.make_folder(path)
        if (kind := Mount.local_locks_of(path)) is not None:
            _log.warning(
                "%s: is on a file system (%s) whose locks may not exclude a process with another view of the same "
                "files; make sure that only one process owns the store", path, kind,
            )  # fmt: skip
        with ExitStack() as stack:
            stack.enter_context(DISK.anchored(path))
            self._check_lock = stack.enter_context(locked(path / LOCK_FILE, _BUSY))
            self._open(config, stack)
            self._resources = stack.pop_all()
        disown_when_forked(self)

    def _open(self, config: StoreConfig | None, stack: ExitStack) -> None:
        """Recover the store and start its threads. The functions that end them are pushed on `stack`."""
        settings = self.settings
        if (log := check_places(self.path, settings.store_path_commit_log)) is not None:
            stack.enter_context(DISK.anchored(self.path / COMMIT_LOG_FOLDER, log))
        self._owner = Owner(self.path, self._disk)
        stack.callback(self._owner.withdraw)
        self._owner.claim()
        files = log_files(self.path, self._disk)
        facts = survey_of(self.path, config)
        self.config, odd = fitting_config(facts, files[0].size if files else None)
        is_extended = writes_extensions(facts, self.config)
        find = ExtendedQueueFiles.all_of if is_extended else QueueFiles.all_of
        queues = find(self.path, self.config)
        topics = batch_topics(str(self.path)) if self.config.is_five else frozenset()
        form = form_to_write(facts, self.config)
        recovery = Recovery(
            self.path, files, queues, self.config, self._disk, self.health,
            facts.checkpoint, self._clock_ms, topics, form, is_extended, settings.as_broker,
        )  # fmt: skip
        # The checks above may refuse the store, so `abort` and all other files change only from here on.
        recovery.look(is_clean=not facts.has_abort)
        mark_open(self.path, self.config, self._disk, is_clean=not facts.has_abort)
        recovered = recovery.run()
        self.recovery, self._queues, self._index, self.dispatcher, offsets = recovered
        stack.callback(self._queues.close, sync=False)
        stack.callback(self._index.close, sync=False)
        self.recovery.notes[:0] = odd
        for note in odd:
            _log.warning("%s", note)
        _log.info("%s: %s", self.path, self.recovery)
        for lost in self.recovery.losses:
            _log.warning("%s", lost)
        end = self.recovery.log_end
        # Recovery has synced the log.
        self._owner.confirm(end)
        file_bytes = self.config.commit_log_file_bytes
        self._files = LogFiles(
            self._disk, self.path / COMMIT_LOG_FOLDER, file_bytes, end - end % file_bytes
        )
        stack.callback(self._files.close)
        self._unique_keys = UniqueKeys(process_prefix())
        self._log = CommitLogWriter(
            self._files, end, offsets, self.config, self.health, self._unique_keys,
            settings.store_host, self._clock_ms, self.dispatcher.notify, topics,
        )  # fmt: skip
        # Recovery has made all messages durable, so the checkpoint may state the store time of the last message.
        self._log.store_timestamp = self.dispatcher.store_timestamp
        self._last_flush = 0, end
        self.retention = Retention(
            self.path, self._disk, settings.limits(), settings.clean_resource_interval_s,
            lambda: self.dispatcher.position, self._clock_ms,
        )  # fmt: skip
        self._index_sync = IndexSync(
            self.path, self.config, self._disk, recovered, facts.checkpoint, self._durable_timestamp,
            self.retention.paused, self._check_all_in_place,
        )  # fmt: skip
        self.health.find_cause = self._check_all_in_place
        self.health.on_failure = self._keep_readable
        self.flusher = Flusher(
            self._sync_log, self._check_in_place, self._end_to_flush, file_bytes, self.health, end,
            settings.flush_interval_commit_log_s, settings.flush_commit_log_least_pages,
            settings.flush_commit_log_thorough_interval_s,
        )  # fmt: skip
        self._index_prover = IndexProver(self.path, self.config, self._index, self._files.start)
        self._index_flusher = IndexFlusher(
            self._index_sync, self._index_prover.prove_full, lambda: self.flusher.flushed, self.health,
            settings.flush_interval_consume_queue_s, settings.flush_consume_queue_least_pages,
            settings.flush_consume_queue_thorough_interval_s,
        )  # fmt: skip
        self._index.on_roll = self._index_flusher.notify_rolled
        self._files.make_room = self._make_room
        # The stack ends the threads in reverse order. Retention ends first, so that nothing expires while the others
        # stop.
        for part in (self._index_flusher, self.dispatcher, self.flusher, self.retention):
            stack.callback(part.stop)
        self.dispatcher.start(lambda: self._log.position, settings.append_retry_pause_s)
        self.flusher.start()
        self._index_flusher.start()
        self.retention.start()

    @property
    def end_offset(self) -> int:
        """Physical offset at which the next message begins, unless it needs a new file."""
        return self._log.position

    @property
    def delay_levels(self) -> int:
        """Number of delay levels (messageDelayLevel)."""
        return self._log.delay_levels

    @property
    def form(self) -> RecordForm:
        """Form of the records that the store writes."""
        return self._log.form

    @property
    def syncs(self) -> int:
        """Number of syncs of log files so far."""
        return self._files.syncs

    def put(self, message: Message) -> PutResult:
        """Put one message. With synchronous flushing, the message is durable when the call returns.

        Raises MessageRefusedError, StoreFailedError, StoreAccessError.
        """
        if self._closed is not None:
            self.check_open()
        result = self._log.put(message)
        if self._is_sync or monotonic() > self._owner.fresh_until:
            self._wait_durable()
        return result

    def put_run(self, messages: Sequence[Message]) -> list[PutResult | ReputError]:
        """Put several messages in one call. `CommitLogWriter.put_run` describes which messages are allowed.

        With synchronous flushing, the messages are durable when the call returns.
        """
        self.check_open()
        if self._log.has_further_queues:
            results: list[PutResult | ReputError] = []
            for message in messages:
                try:
                    results.append(self._log.put(message))
                except ReputError as error:
                    results.append(error)
        else:
            results = self._log.put_run(messages)
        self._wait_durable()
        return results

    def put_many(self, messages: Iterable[Message]) -> PutResults:
        """Put messages in order, some thousands at a time.

        Raises as `put` does. In that case, earlier messages may have been put.
        """
        self.check_open()
        parts: list[PutPart] = []
        source = iter(messages)
        while some := list(islice(source, _MANY)):
            self.check_open()  # The caller's iterator may have closed the store.
            if self._are_put_singly(some):
                parts.append(part_of([self._log.put(message) for message in some]))
            else:
                parts.append(self._log.put_columns(self._columns(some)))
        self._wait_durable()
        return PutResults.joined(parts, self._log.id_prefix)

    def _are_put_singly(self, messages: Sequence[Message]) -> bool:
        """Return whether these messages must be put one by one, not together as columns (one array per attribute).

        This is the case if a message may take several queue offsets, or go to queues that INNER_MULTI_DISPATCH names.
        """
        log = self._log
        if log.has_further_queues and any(map(may_have_further_queues, shapes_of(messages))):
            return True
        return log.form.is_five and any(map(may_be_batch, messages))

    def put_batch(self, messages: Sequence[Message]) -> PutResults:
        """Put a batch: consecutive records of one file, all or none. Raises as `put` does.

        All messages must have the same topic and queue. None of them may have a delay, belong to a transaction, or also
        go to further queues (INNER_MULTI_DISPATCH).
        """
        self.check_open()
        check_batch(messages, self._log.delay_levels, self._log.has_further_queues)
        part = self._log.put_columns(self._columns(messages), in_one_file=True)
        self._wait_durable()
        return PutResults.joined([part], self._log.id_prefix)

    def _columns(self, messages: Sequence[Message]) -> PutColumns:
        return from_messages(
            messages, self._unique_keys, self._clock_ms(), self.settings.store_host,
            self._log.delay_levels, self._log.form,
        )  # fmt: skip

    def put_columns(self, columns: PutColumns) -> PutColumnsResult:
        """Put columns of messages. Raises as `put` does."""
        self.check_open()
        result = self._log.put_columns(columns)
        self._wait_durable()
        return result

    def flush(self) -> None:
        """Sync to the disk all messages that were put. Raises StoreFailedError, StoreAccessError."""
        self.check_open()
        self.flusher.flush()

    def expire(self, before: int, until: int | None = None) -> ExpiryReport:
        """See `Retention.expire`. Raises StoreFailedError, StoreAccessError."""
        self.check_open()
        self.health.check()
        # Dispatch first: files with messages that are not dispatched never expire.
        if not self.dispatcher.is_own_thread:
            self.dispatcher.wait(self._log.position, None)
        return self.retention.expire(before, until)

    def wait_dispatched(self, physical_offset: int | None, timeout_s: float | None) -> bool:
        """Wait until messages before an offset (None for all) are dispatched. Return whether all of them are.

        Raises:
            StoreFailedError: Dispatch has failed.
            UsageError: The store was closed, or the caller is an arrival callback.
        """
        self.check_open()
        offset = self._log.position if physical_offset is None else physical_offset
        return self.dispatcher.wait(offset, timeout_s)

    def check_open(self) -> None:
        """Raise UsageError if the store is closed, or belongs to the parent of this process."""
        if self._closed is not None:
            raise UsageError(f"{self.path}: {self._closed}")

    @property
    def is_forked(self) -> bool:
        """Return whether a fork copied this object to a child process. The parent process still owns the store."""
        return self._is_forked

    def check_may_close(self) -> None:
        """Raise UsageError if `close` would wait for its own caller."""
        if not self._is_forked and self.dispatcher.is_own_thread:
            raise UsageError(
                f"{self.path}: an arrival callback cannot close the store, which waits for the callback"
            )

    def close(self) -> None:
        """Dispatch and sync everything, and release the lock. The shutdown is clean only if all steps succeed.

        A put in flight ends first, and no further put begins. In a forked child, `close` does nothing, because
        the parent owns the store.

        Raises:
            StoreFailedError, StoreAccessError: Not everything could be dispatched and synced. Opening the store again
                recovers it.
            UsageError: The caller is an arrival callback.
        """
        self.check_may_close()
        if self._is_forked:
            return
        with self._closing:
            if self._is_let_go:
                return
            try:
                if self._closed is None:
                    self._closed = "the store is closed"
                    self._finish()
            finally:
                # Release the lock even after a failure. `abort` then stays, so that the next start recovers the store.
                self._resources.close()
                self._is_let_go = True

    def _finish(self) -> None:
        self._log.close()
        self.retention.stop()
        self.dispatcher.finish()
        self.flusher.finish()
        self._index_flusher.stop()
        with self.health.guarding():
            # A failed sync must not be repeated: the kernel may report the second one as a success.
            self.health.check()
            try:
                self._index_sync.run(self._log.position)
            except StoreAccessError:
                # Perhaps the disk is full. If nothing was written since the last clean shutdown, its files are still
                # right.
                if not self._is_unchanged():
                    raise
            self._index.close(sync=False)
            self._queues.close(sync=False)
            self._owner.release()
            # Delete `abort` last: a broker that finds no `abort` checks only the end of the log.
            self._disk.delete(self.path / ABORT_FILE)
            self._disk.sync_folder(self.path)
        # `prove` stores proofs that IndexFiles agree with the log. It requires that no process has these files open for
        # writing.
        self._files.close()
        self._index_prover.prove()
        self.dispatcher.keep_passed()

    def _is_unchanged(self) -> bool:
        """Return whether the store was clean when it was opened, and nothing was appended, removed or dispatched."""
        report, end = self.recovery, self._log.position
        is_written = report.truncated_bytes or report.deleted_files or report.entries_written
        ends = report.log_end, report.queues_from, report.index_from
        return report.is_clean and not is_written and all(place == end for place in ends)

    def disown(self, parent: int) -> None:
        """In a forked child, leave the store to the parent, whatever the parent's threads were doing at the fork."""
        self._is_forked = True
        self._closed = f"process {parent} owns the store, and this is a fork of it; open the store after the fork"
        self._log.disown()
        self._queues.disown()

    def _end_to_flush(self) -> int:
        # Read first the store time of the last message, and then the position (the end of the last record). If another
        # message is put between the two reads, the message with this store time still ends at or before the position.
        timestamp = self._log.store_timestamp
        self._last_flush = timestamp, self._log.position
        return self._last_flush[1]

    def _sync_log(self, begin: int, until: int) -> None:
        """Sync the log, and check that no other process writes to it.

        Callers acknowledge messages after this. Raises StoreAccessError, StoreFailedError.
        """
        self._files.sync(begin, until)
        self._owner.check()
        self._log.check_end()

    def _check_in_place(self) -> None:
        """Check that no other process owns the store, or deleted the lock, `abort`, a log file or an IndexFile.

        A renamed file counts as deleted. Raises StoreFailedError, StoreAccessError.
        """
        self._owner.check()
        self._check_lock()
        if not (self.path / ABORT_FILE).exists():
            raise displaced(self.path / ABORT_FILE, "deleted or renamed")
        self._files.check_in_place()
        self._index.check_in_place()

    def _check_all_in_place(self) -> None:
        """Check the files of `_check_in_place` and all queue files. Raises StoreFailedError, StoreAccessError."""
        self._check_in_place()
        self._queues.check_in_place()

    def _keep_readable(self) -> None:
        """Make sure that the next start finds every acknowledged message, even if another process deleted files."""
        try:
            mark_open(self.path, self.config, self._disk)
            self._log.put_back_files()
        except (StoreAccessError, OSError) as error:
            _log.error("%s", error)

    def _durable_timestamp(self) -> int:
        timestamp, end = self._last_flush
        return timestamp if self.flusher.flushed >= end else 0

    def _make_room(self) -> bool:
        """Delete log files to free space for the next one. Return whether any file was deleted.

        The thread that puts messages calls this.
        """
        if not self.dispatcher.is_own_thread:
            self.dispatcher.notify(self._log.position)
            self.dispatcher.wait(self._log.position, _ROOM_PATIENCE_S)
        return self.retention.make_room()

    def _wait_durable(self) -> None:
        """With synchronous flushing, wait for the sync; it compares the owner's token. Otherwise, compare it now."""
        if self._is_sync:
            self.flusher.wait(self._log.position)
        elif monotonic() > self._owner.fresh_until:
            with self.health.guarding():
                self._owner.check()
