"""Flush the log to disk: at intervals, or at once if callers wait. One sync serves many callers.

Mirrors `CommitLog.FlushRealTimeService` and `.GroupCommitService` (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock, Thread

from reput.engine.writer.threads import Health, Waiters, join_thread
from reput.errors import StoreFailedError
from reput.io import MappedWriter

_log = logging.getLogger("reput.flush")

_LEAST_PATIENCE_S, _MOST_PATIENCE_S = 0.002, 0.02


class Flusher:
    """Syncs the log in its own thread. One sync serves all waiting callers.

    flushed  physical offset up to which all bytes are durable

    In RocketMQ: wrotePosition, committedPosition, flushedPosition, flushedWhere, committedWhere.
    """

    def __init__(
        self,
        sync_log: Callable[[int, int], None],
        check_in_place: Callable[[], None],
        log_end: Callable[[], int],
        file_bytes: int,
        health: Health,
        flushed: int,
        interval_s: float,
        least_pages: int,
        thorough_interval_s: float,
    ) -> None:
        """Prepare the thread.

        `check_in_place` raises StoreFailedError if another process deleted or renamed a file of the store.
        """
        self._sync_log, self._check_in_place = sync_log, check_in_place
        self._log_end, self._file_bytes = log_end, file_bytes
        self._health, self.flushed = health, flushed
        self._interval_s, self._thorough_interval_s = interval_s, thorough_interval_s
        self._least_pages = least_pages
        self._work, self._done = Waiters(), Waiters()
        self._counting = Lock()
        self._waiting = self._arrived = self._expected = 0
        self._sync_s = 0.0
        self._is_closing = self._has_ended = False
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._run, name="reput-flush", daemon=True)
        self._thread.start()

    def wait(self, physical_offset: int) -> None:
        """Wait until all bytes before an offset are durable.

        Raises StoreFailedError if these bytes can no longer become durable.
        """
        is_counted = False
        try:
            with self._counting:
                self._waiting += 1
                self._arrived += 1
                is_counted = True
            self._work.notify_all()
            self._done.wait_for(lambda: self.flushed >= physical_offset or self._is_over)
        finally:
            # If an interrupt came before the caller was counted, the caller must not be subtracted.
            with self._counting:
                self._waiting -= is_counted
        if self.flushed < physical_offset:
            self._health.check()
            raise StoreFailedError(
                f"the store was closed; messages up to offset {self.flushed} are durable"
            )

    @property
    def _is_over(self) -> bool:
        return self._health.reason is not None or self._has_ended

    def finish(self) -> None:
        """End the thread, and flush all bytes that are not durable yet. Raises StoreFailedError, StoreAccessError."""
        self._is_closing = True
        self._work.notify_all()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def stop(self) -> None:
        """End the thread, if it has not ended, and wake waiting callers."""
        self._is_closing = True
        self._work.notify_all()
        if self._thread is not None:
            join_thread(self._thread)
        self._has_ended = True
        self._done.notify_all()

    def flush(self) -> None:
        """Make the log durable up to its present end. Raises StoreFailedError, StoreAccessError."""
        self._health.check()
        # Take the end before the sync, because the sync may miss later messages.
        end = self._log_end()
        if end > self.flushed:
            begun = time.monotonic()
            with self._health.guarding():
                self._sync_log(self.flushed, end)
            self._sync_s = time.monotonic() - begun
            # Another thread may have flushed more during this sync.
            self.flushed = max(self.flushed, end)
            self._done.notify_all()

    def _run(self) -> None:
        thorough_at = time.monotonic() + self._thorough_interval_s
        check_at = time.monotonic() + self._interval_s
        while self._pause():
            try:
                # Check only at intervals whether the files are still in place. A check before each sync would delay
                # the callers that wait for the sync.
                if time.monotonic() >= check_at:
                    self._check_in_place()
                    check_at = time.monotonic() + self._interval_s
                thorough = time.monotonic() >= thorough_at
                if thorough or self._waiting or self._is_worth_it():
                    self._gather()
                    self.flush()
                if thorough:
                    thorough_at = time.monotonic() + self._thorough_interval_s
            except BaseException as error:  # Waiting threads must receive any error.
                self._health.fail(error)
                _log.error("flushing has stopped: %s", error)
            if self._health.reason is not None:
                self._done.notify_all()
                return

    def _gather(self) -> None:
        """Wait a moment for further callers, so that one sync serves all of them.

        Callers that waited for the last sync often put their next messages right after it, and wait for the next sync.
        Waiting for these callers here usually takes less time than a further sync.
        """
        patience_s = min(max(self._sync_s / 2, _LEAST_PATIENCE_S), _MOST_PATIENCE_S)
        self._work.wait_for(lambda: self._arrived >= self._expected, patience_s)
        with self._counting:
            self._expected, self._arrived = self._arrived, 0

    def _is_worth_it(self) -> bool:
        return MappedWriter.is_worth_a_flush(
            self.flushed, self._log_end(), self._least_pages, self._file_bytes
        )

    def _pause(self) -> bool:
        """Wait for the interval, or until a caller waits for a flush. Return False when the thread must end."""
        self._work.wait_for(lambda: self._is_closing or self._waiting_for_more(), self._interval_s)
        return not self._is_closing

    def _waiting_for_more(self) -> bool:
        return self._waiting > 0 and self._log_end() > self.flushed
