"""The live driver: follows the end of the CommitLog into ConsumeQueues and IndexFiles.

Mirrors `DefaultMessageStore.ReputMessageService` (tag rocketmq-all-4.9.3), with the scan, the append and the put that
the rebuild uses. What cannot be read in the log is passed over as there, and never holds up what follows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Lock, Thread

from reput.config import StoreConfig
from reput.format.file_names import offset_file_name
from reput.store.commit_log_files import CommitLogFile
from reput.store.damage import Damage
from reput.store.dispatch_batch import Queue
from reput.store.health import Health
from reput.store.index_writer import IndexWriter
from reput.store.queues_writer import QueuesWriter
from reput.store.scan import FileScan, ScanBuffers

Arrival = Callable[[str, int, int], None]
"""Called with topic, queue id and the queue's new end; in the dispatcher's thread, so it must be quick."""

_log = logging.getLogger("reput.dispatch")
_STEP_BYTES = 32 << 20
_PAUSE_S = 0.005
_MOST_BEHIND_BYTES = 2 << 20
_MOMENT_S = 50e-6


class Dispatcher:
    """Dispatches what was appended, in a thread of its own once it is started.

    position         physical offset behind the last message dispatched
    store_timestamp  of that message, ms
    between_batches  whoever holds it finds ConsumeQueues and IndexFiles with the messages before `taken`, no others
    damage           what was passed over
    """

    def __init__(
        self,
        log_folder: Path,
        file_bytes: int,
        config: StoreConfig,
        queues: QueuesWriter,
        index: IndexWriter,
        health: Health,
        position: int,
        index_from: int,
    ) -> None:
        """Messages before `position` are dispatched; those before `index_from` are in the index."""
        self._log_folder, self._file_bytes, self._config = log_folder, file_bytes, config
        self._queues, self._index, self._health = queues, index, health
        self.position, self._index_from = position, index_from
        self.store_timestamp = 0
        self.damage: list[Damage] = []
        self.arrivals: list[Arrival] = []
        self._buffers = ScanBuffers()
        self._changed = Condition()
        self._target = position
        self._is_closing = False
        self._is_idle, self._is_dispatching = True, False
        self._waiting = 0
        self._thread: Thread | None = None
        self.between_batches = Lock()
        self.taken = position

    def start(self) -> None:
        self._thread = Thread(target=self._run, name="reput-dispatch", daemon=True)
        self._thread.start()

    def notify(self, target: int) -> None:
        """Records end at `target` now. Quick, for it comes with every put."""
        self._target = target
        if self._is_idle:
            self._is_idle = False
            with self._changed:
                self._changed.notify_all()
        elif self._is_dispatching and target - self.position > _MOST_BEHIND_BYTES:
            # A thread that never waits gets the interpreter again and again: let dispatch have it.
            time.sleep(_MOMENT_S)

    def wait(self, physical_offset: int, timeout_s: float | None) -> bool:
        """Whether all messages before that offset were dispatched in time. Raises StoreFailedError."""
        with self._changed:
            if timeout_s != 0:  # who only asks keeps no one from gathering
                self._waiting += 1
                self._changed.notify_all()
            done = self._changed.wait_for(
                lambda: self.position >= physical_offset or self._health.reason is not None,
                timeout_s,
            )
            self._waiting -= timeout_s != 0
        if self.position < physical_offset:
            self._health.check()
        return done

    def close(self) -> None:
        """Dispatch what is left, and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wait_for_more():
            try:
                self._is_dispatching = True
                with self._health.guarding():
                    self.dispatch(min(self._target, self.position + _STEP_BYTES))
            except Exception as error:  # whoever waits must learn of it, whatever it is
                self._health.fail(error)
                _log.exception("dispatch has stopped at offset %d", self.position)
            self._is_dispatching = False
            with self._changed:
                self._changed.notify_all()
                # Let some gather, unless someone waits: each round takes the interpreter from those who put.
                self._changed.wait_for(lambda: self._waiting or self._is_closing, _PAUSE_S)

    def _wait_for_more(self) -> bool:
        """Whether there is something to dispatch; waits until there is, or the store is closing."""
        with self._changed:
            while self._health.reason is None:
                if self.position < self._target:
                    return True
                if self._is_closing:
                    return False
                self._is_idle = True
                # A target may be set between the look at it and this: look again soon.
                self._changed.wait(0.02)
                self._is_idle = False
        return False

    def dispatch(self, target: int) -> None:
        """Dispatch the messages before `target`, at which one ends. Raises StoreAccessError."""
        while self.position < target:
            start = self.position - self.position % self._file_bytes
            path = str(self._log_folder / offset_file_name(start))
            file = CommitLogFile(start, self._file_bytes, path)
            stop = min(target, file.end)
            scan = FileScan(
                file, self.position, stop, self._config,
                end_offset=self._index_from, buffers=self._buffers,
            )  # fmt: skip
            for batch in scan.batches():
                with self.between_batches:
                    grown = self._queues.append(batch)
                    self._index.put(batch)
                    self.store_timestamp = int(batch.messages["store_timestamp"][-1])
                    self.taken = scan.end.position
                self._tell(grown)
            self.damage += scan.damage
            if scan.end.unreadable:
                lost = stop - scan.end.position
                self.damage.append(Damage(scan.end.position, lost, path, scan.end.unreadable))
                scan.end.position = stop
            with self.between_batches:
                self.position = self.taken = scan.end.position

    def _tell(self, grown: list[tuple[Queue, int]]) -> None:
        for arrival in self.arrivals:
            for queue, end in grown:
                try:
                    arrival(queue.topic, queue.queue_id, end)
                except Exception:
                    _log.exception("an arrival callback failed")
