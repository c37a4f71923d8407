"""Flushing ConsumeQueues and IndexFiles at intervals, in its own thread.

Mirrors `DefaultMessageStore.FlushConsumeQueueService` and the thread that `IndexService.getAndCreateLastIndexFile`
starts to flush a full file (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Thread

from reput.writer.health import Health
from reput.writer.index_sync import IndexSync
from reput.writer.waiters import Waiters, join_thread

_log = logging.getLogger("reput.flush")
_NOTED_BYTES = 2 << 30  # of the log: what recovery must read at most, and then some


class IndexFlusher:
    """Each interval the queues that have enough dirty pages, now and then everything, a full IndexFile at once."""

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
        """`prove_full` proves the files that are full; `log_flushed` returns the physical offset up to which the log is
        durable.
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
        """An IndexFile is full and another begun."""
        self._has_rolled = True
        self._work.notify_all()

    def stop(self) -> None:
        """End the thread, if it has not ended; what is not durable yet is the caller's to sync."""
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
            except BaseException as error:  # whoever puts must learn of it, whatever it is
                self._health.fail(error)
                _log.error("flushing ConsumeQueues and IndexFiles has stopped: %s", error)

    def _pause(self) -> bool:
        """Wait for the interval, or for a file that is full; whether to continue."""
        self._work.wait_for(lambda: self._is_closing or self._has_rolled, self._interval_s)
        self._has_rolled = False
        return not self._is_closing and self._health.reason is None
