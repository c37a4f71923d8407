"""Dispatch new messages of the CommitLog to ConsumeQueues and IndexFiles.

Mirrors `DefaultMessageStore.ReputMessageService` (tag rocketmq-all-4.9.3), with the same scan and writers as a rebuild.
Like the broker, it skips unreadable bytes of the log, so damage never delays later messages.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread, current_thread

from reput.base import Finding
from reput.core import (
    CommitLogFile,
    DispatchRules,
    FileScan,
    IndexFileSetWriter,
    OffsetRange,
    QueueSetWriter,
    ScanBuffers,
    ScanMode,
)
from reput.engine.writer.passed_file import PassedLog
from reput.engine.writer.subscribers import Arrival, Dispatcher, Subscribers, Subscription
from reput.engine.writer.threads import Health, Waiters, join_thread
from reput.errors import StoreFailedError, UsageError
from reput.format.file_names import offset_file_name

_log = logging.getLogger("reput.dispatch")
# The log is dispatched in steps of this size. Waiting callers are woken after each step.
_STEP_BYTES = 32 << 20
_PAUSE_S = 0.005
# If dispatch is further behind the log's end than this, each put sleeps for a moment.
_MOST_BEHIND_BYTES = 2 << 20
_MOMENT_S = 50e-6
_IDLE_S = 0.02
_MOST_TRIES = 30


class DispatchService:
    """Dispatches appended messages, in its own thread once it is started.

    position         physical offset at which the last dispatched message ends
    store_timestamp  store time of that message, ms
    taken            ConsumeQueues and IndexFiles have all messages before this physical offset. `position` reaches
                     `taken` after the callbacks (`subscribe`) and dispatchers (`add`) were called
    between_batches  a lock; while a thread owns it, ConsumeQueues and IndexFiles have no messages after `taken`
    damage           skipped unreadable ranges
    """

    def __init__(
        self,
        log_folder: Path,
        file_bytes: int,
        rules: DispatchRules,
        queues: QueueSetWriter,
        index: IndexFileSetWriter,
        health: Health,
        position: int,
        index_from: int,
    ) -> None:
        """Prepare to dispatch messages from `position` on. The index already has the messages before `index_from`."""
        self._log_folder, self._file_bytes = log_folder, file_bytes
        self._rules = rules
        self._queues, self._index, self._health = queues, index, health
        self.position, self._index_from = position, index_from
        self.store_timestamp = 0
        self.damage: list[Finding] = []
        self._subscribers = Subscribers()
        self._buffers = ScanBuffers()
        self._log_end: Callable[[], int] = lambda: position
        self._is_closing = self._is_abandoned = self._has_ended = False
        self._is_idle, self._is_dispatching = True, False
        self._work, self._done = Waiters(), Waiters()
        self._waiting, self._counting = 0, Lock()
        self._thread: Thread | None = None
        self.between_batches = Lock()
        self.taken = position
        self.passed = PassedLog()
        self.passed.resume(self._file_at(position))
        # Physical offsets of damaged messages, which get no entries.
        self.skipped: frozenset[int] = frozenset()

    def start(self, log_end: Callable[[], int], retry_pause_s: float) -> None:
        """Start the thread. It dispatches messages up to the offset that `log_end` returns.

        A failed append to a queue is repeated after `retry_pause_s`, at most 30 times.
        """
        self._log_end = log_end
        self._queues.try_again = lambda tries: (
            tries < _MOST_TRIES
            and not self._work.wait_for(lambda: self._is_abandoned, retry_pause_s)
        )
        self._thread = Thread(target=self._run, name="reput-dispatch", daemon=True)
        self._thread.start()

    def subscribe(self, callback: Arrival) -> Subscription:
        """Call `callback` whenever a queue has new entries."""
        with self.between_batches:
            return self._subscribers.add_arrival(callback, self.taken)

    def add(self, dispatcher: Dispatcher) -> Subscription:
        """Add a dispatcher, which receives every later batch. Waits until no batch is being dispatched.

        In RocketMQ: dispatcherList.
        """
        with self.between_batches:
            return self._subscribers.add_dispatcher(dispatcher, self.taken)

    @property
    def is_own_thread(self) -> bool:
        """Return whether the caller runs in a callback of dispatch."""
        return current_thread() is self._thread

    def notify(self, log_end: int) -> None:
        """Announce a new end of the log.

        Every put calls this, so it must be quick. A lost call delays dispatch only briefly.
        """
        # If two threads call this at the same time, one call may be lost. Then the dispatch thread wakes after _IDLE_S.
        if self._is_idle:
            self._is_idle = False
            self._work.notify_all()
        elif self._is_dispatching and log_end - self.position > _MOST_BEHIND_BYTES:
            # A thread that never waits keeps the interpreter's lock. Sleep, so that the dispatch thread can take the
            # lock.
            time.sleep(_MOMENT_S)

    def wait(self, physical_offset: int, timeout_s: float | None) -> bool:
        """Wait until all messages before an offset are dispatched. Return False after `timeout_s`.

        Raises:
            StoreFailedError: Dispatch has failed.
            UsageError: The caller is an arrival callback. Dispatch waits for callbacks, so the call would never
                return.
        """
        if self.position < physical_offset and timeout_s != 0:
            if self.is_own_thread:
                raise UsageError(
                    "a callback cannot wait for dispatch, which waits for the callback"
                )
            is_counted = False
            try:
                with self._counting:
                    self._waiting += 1
                    is_counted = True
                # While a caller waits, dispatch does not pause to collect more messages.
                self._work.notify_all()
                self._done.wait_for(
                    lambda: self.position >= physical_offset or self._is_over, timeout_s
                )
            finally:
                with self._counting:
                    self._waiting -= is_counted
        if self.position >= physical_offset:
            return True
        self._health.check()
        if self._has_ended:
            raise StoreFailedError(f"the store was closed; dispatch had reached {self.position}")
        return False

    def finish(self) -> None:
        """Dispatch the remaining messages, and end the thread.

        Raises StoreFailedError if dispatch does not reach the log's end.
        """
        self._is_closing = True
        self._work.notify_all()
        if self._thread is not None:
            self._thread.join()
        if self.position < self._log_end():
            self._health.check()
            raise StoreFailedError(
                f"dispatch ended at offset {self.position}, but the log ends at "
                f"{self._log_end()}; open the store again to dispatch the rest"
            )

    def stop(self) -> None:
        """End the thread after its present batch, and wake waiting callers."""
        self._is_closing = self._is_abandoned = True
        self._work.notify_all()
        if self._thread is not None:
            join_thread(self._thread)
        self._has_ended = True
        self._done.notify_all()

    @property
    def _is_over(self) -> bool:
        return self._health.reason is not None or self._has_ended

    def _run(self) -> None:
        while self._wait_for_more():
            try:
                self._is_dispatching = True
                with self._health.guarding():
                    self.dispatch(min(self._log_end(), self.position + _STEP_BYTES))
            except BaseException as error:  # Waiting threads must receive any error.
                self._health.fail(error)
                _log.exception("dispatch has stopped at offset %d", self.position)
            self._is_dispatching = False
            self._done.notify_all()
            # Pause, so that the next round has more messages: each round takes the interpreter's lock from threads that
            # put messages. A waiting caller ends the pause.
            self._work.wait_for(lambda: self._waiting > 0 or self._is_closing, _PAUSE_S)
        # If the store failed in another thread, nothing else wakes the waiting callers.
        self._done.notify_all()

    def _wait_for_more(self) -> bool:
        """Wait until there are messages to dispatch (return True), or dispatch must end (return False)."""
        while self._health.reason is None and not self._is_abandoned:
            if self.position < self._log_end():
                return True
            if self._is_closing:
                return False
            self._is_idle = True
            self._work.wait_for(
                lambda: self.position < self._log_end() or self._is_closing, _IDLE_S
            )
            self._is_idle = False
        return False

    def dispatch(self, target: int) -> None:
        """Dispatch the messages before `target`, which must be the end of a message. Raises StoreAccessError.

        Mirrors `ReputMessageService.doReput` and `DefaultMessageStore.doDispatch` (tag rocketmq-all-4.9.3).
        """
        # Scan one file at a time: a message never crosses the end of a file.
        while self.position < target:
            file = self._file_at(self.position)
            stop = min(target, file.end)
            # Messages before `_index_from` already have index entries, so the scan must yield no keys for them.
            scan = FileScan(
                file, self.position, stop, ScanMode.BROKER, self._rules,
                end_offset=self._index_from, buffers=self._buffers,
            )  # fmt: skip
            noted = 0
            for batch in scan.batches():
                noted = self._note_damage(scan.damage, noted)
                batch = batch.without(self.skipped)
                self.passed.add(file, batch)
                with self.between_batches:
                    grown = self._queues.append(batch)
                    self._index.put(batch)
                    self.store_timestamp = int(batch.messages["store_timestamp"][-1])
                    self.taken = scan.end.position
                    dispatchers = self._subscribers.dispatchers
                # Call subscribers outside the lock: they may take long, or use the store.
                self._subscribers.tell(batch, grown, dispatchers, file)
                if self._is_abandoned:
                    return
            self._note_damage(scan.damage, noted)
            if scan.damage or scan.misplaced or scan.end.unreadable or self.skipped:
                self.passed.lose()
            if scan.end.unreadable:
                lost = file.lost(scan.end.position, stop, scan.end.unreadable)
                self._note_damage([lost], 0)
                # Like a broker, skip the rest of the file, and continue with the next one.
                scan.end.position = stop
            with self.between_batches:
                self.position = self.taken = scan.end.position
            if self.position >= file.end:
                self.passed.end(file.end)
                self.passed.keep()

    def _file_at(self, physical_offset: int) -> CommitLogFile:
        start = physical_offset - physical_offset % self._file_bytes
        path = str(self._log_folder / offset_file_name(start))
        return CommitLogFile(start, self._file_bytes, path)

    def keep_passed(self) -> None:
        """Remember store times, queues and topics of the dispatched log. Call this after the log is closed."""
        self.passed.end(self.position)
        self.passed.keep()

    def _note_damage(self, findings: list[Finding], noted: int) -> int:
        """Add new findings to `damage`, which has the first `noted` of them already.

        Return the number of all findings.
        """
        if new := findings[noted:]:
            self.damage += new
            self._queues.add_lost(OffsetRange.of(new))
        return len(findings)
