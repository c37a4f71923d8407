"""Preparing the log ahead of a writer in a hurry: taking fresh memory can take longer than filling it.

The counterpart of `AllocateMappedFileService` (tag rocketmq-all-4.9.3), which makes and warms up whole files.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread

from reput.errors import StoreAccessError
from reput.writer.waiters import join_thread

_HURRY_S = 0.2


class Preparer:
    """Calls `prepare_piece` in its own thread, for as long as that returns True, whenever it is asked to.

    There is no thread before the writer has come twice within a fifth of a second: what is prepared is also flushed.
    """

    def __init__(self, prepare_piece: Callable[[], bool]) -> None:
        self._prepare_piece = prepare_piece
        self._wanted = Event()
        self._asked_at = time.monotonic() - _HURRY_S
        self._is_closing = False
        self._thread: Thread | None = None

    def ask(self) -> None:
        now = time.monotonic()
        is_in_hurry, self._asked_at = now - self._asked_at < _HURRY_S, now
        if is_in_hurry:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="reput-prepare", daemon=True)
                self._thread.start()
            self._wanted.set()

    def close(self) -> None:
        self._is_closing = True
        self._wanted.set()
        if self._thread is not None and self._thread.ident is not None:
            join_thread(self._thread)

    def _run(self) -> None:
        try:
            while not self._is_closing:
                if not self._prepare_piece():
                    self._wanted.wait()
                    self._wanted.clear()
        except StoreAccessError:
            return  # the writer meets it in its turn, and can tell
