"""Making what was put durable: at intervals, or for every put that waits for it, many with one sync.

Mirrors `CommitLog.FlushRealTimeService`, `.GroupCommitService` and `DefaultMessageStore.FlushConsumeQueueService`
(tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

import logging
import mmap
import time
from collections.abc import Callable
from threading import Condition, Thread

from reput.store.health import Health

_log = logging.getLogger("reput.flush")

_LEAST_PATIENCE_S, _MOST_PATIENCE_S = 0.002, 0.02
_NOTED_BYTES = 2 << 30  # of the log: what recovery must read at most, and then some


class Flusher:
    """Syncs the log in a thread of its own; one sync serves all who wait.

    flushed  physical offset before which all is durable
    """

    def __init__(
        self,
        sync_log: Callable[[int, int], None],
        log_end: Callable[[], int],
        sync_indexes: Callable[[], None],
        health: Health,
        flushed: int,
        interval_s: float,
        least_pages: int,
        thorough_interval_s: float,
    ) -> None:
        self._sync_log, self._log_end, self._sync_indexes = sync_log, log_end, sync_indexes
        self._health, self.flushed = health, flushed
        self._interval_s, self._thorough_interval_s = interval_s, thorough_interval_s
        self._least_bytes = least_pages * mmap.PAGESIZE
        self._changed = Condition()
        self._waiting = self._arrived = self._expected = 0
        self._sync_s = 0.0
        self._is_closing = False
        self._thread = Thread(target=self._run, name="reput-flush", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, physical_offset: int) -> None:
        """Return when all before that offset is durable. Raises StoreFailedError."""
        with self._changed:
            self._waiting += 1
            self._arrived += 1
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self.flushed >= physical_offset or self._health.reason is not None
            )
            self._waiting -= 1
        if self.flushed < physical_offset:
            self._health.check()

    def close(self) -> None:
        """End the thread; what is not durable yet is the caller's to flush."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def flush(self) -> None:
        """Make the log durable as far as it is now. Raises StoreFailedError, StoreAccessError."""
        self._health.check()
        end = self._log_end()
        if end > self.flushed:
            begun = time.monotonic()
            with self._health.guarding():
                self._sync_log(self.flushed, end)
            self._sync_s = time.monotonic() - begun
            with self._changed:
                self.flushed = max(self.flushed, end)
                self._changed.notify_all()

    def _run(self) -> None:
        thorough_at = time.monotonic() + self._thorough_interval_s
        noted = self.flushed
        while self._pause():
            try:
                thorough = time.monotonic() >= thorough_at or self.flushed - noted >= _NOTED_BYTES
                if thorough or self._waiting or self._is_worth_it():
                    self._gather()
                    self.flush()
                if thorough:
                    with self._health.guarding():
                        self._sync_indexes()
                    thorough_at = time.monotonic() + self._thorough_interval_s
                    noted = self.flushed
            except Exception as error:  # whoever waits must learn of it, whatever it is
                self._health.fail(error)
                _log.error("flushing has stopped: %s", error)
            if self._health.reason is not None:
                with self._changed:
                    self._changed.notify_all()
                return

    def _gather(self) -> None:
        """Whoever the last sync served may come again at once: a moment's patience, and one sync serves all.

        The moment is short beside a sync, which the others would have to wait for.
        """
        patience_s = min(max(self._sync_s / 2, _LEAST_PATIENCE_S), _MOST_PATIENCE_S)
        with self._changed:
            self._changed.wait_for(lambda: self._arrived >= self._expected, patience_s)
            self._expected, self._arrived = self._arrived, 0

    def _is_worth_it(self) -> bool:
        return self._log_end() - self.flushed >= self._least_bytes

    def _pause(self) -> bool:
        """Wait for the interval or for someone who waits; whether to go on."""
        with self._changed:
            if not self._is_closing and not self._waiting_for_more():
                self._changed.wait_for(
                    lambda: self._is_closing or self._waiting_for_more(), self._interval_s
                )
            return not self._is_closing

    def _waiting_for_more(self) -> bool:
        return self._waiting > 0 and self._log_end() > self.flushed
