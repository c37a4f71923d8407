"""Notify subscribers of dispatched messages. Subscribers are arrival callbacks and additional dispatchers.

Mirrors `MessageArrivingListener` and `DefaultMessageStore.getDispatcherList` (tag rocketmq-all-4.9.3). Subscribers run
in the thread of dispatch, which waits for them, so they must be quick.

Failures of subscribers never stop the dispatch to ConsumeQueues and IndexFiles. If a callback raises an error, the
error is logged, and the callback is called again for the next message. If a dispatcher raises an error, it has missed a
batch. Then the error is logged and kept in its `Subscription`, and the dispatcher is detached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any, Protocol

import numpy.typing as npt

from reput.base import Closing
from reput.core import CommitLogFile, DispatchBatch, Queue
from reput.format.commit_log import MessageExt, RecordError, decode
from reput.io import FileReader

Arrival = Callable[[str, int, int], None]
"""A function that is called with topic, queue id and the queue's new end."""

_log = logging.getLogger("reput.dispatch")


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view that a dispatcher cannot change, because all dispatchers share the array."""
    view = array.view()
    view.flags.writeable = False
    return view


class Dispatcher(Protocol):
    """Receives messages after their dispatch to ConsumeQueue and IndexFile, batch by batch, in log order.

    In RocketMQ: CommitLogDispatcher.
    """

    def dispatch(self, batch: DispatchBatch) -> None:
        """Receive a batch. Its arrays and its `requests` are valid until `dispatch` returns."""


class BatchRecords(Closing):
    """The records of a batch, which lie in one file of the log. The file is opened at the first read."""

    def __init__(self, file: CommitLogFile) -> None:
        self._file = file
        self._reader: FileReader | None = None

    def read(self, physical_offset: int, size: int) -> MessageExt:
        """Return the message of a record. Raises StoreAccessError, CorruptMessageError."""
        if self._reader is None:
            self._reader = FileReader(self._file.path)
        data = self._reader.read(physical_offset - self._file.start, size)
        try:
            return decode(data)
        except RecordError as error:
            raise self._file.corrupt(physical_offset, str(error)) from None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class Subscription(Closing):
    """A subscriber, until it is closed. Subscriptions are context managers.

    Attributes:
        begins_at: Physical offset of the first message that the subscriber receives.
        error: The error that detached the subscriber, or None while it is attached.
    """

    def __init__(self, subscribers: Subscribers, begins_at: int) -> None:
        self._subscribers, self.begins_at = subscribers, begins_at
        self.error: BaseException | None = None

    def close(self) -> None:
        """End the subscription. A call in progress may end later."""
        self._subscribers.remove(self)


class Subscribers:
    """The subscribers of one open store.

    Each change replaces a whole collection, so concurrent readers keep a consistent copy.
    """

    def __init__(self) -> None:
        self._changing = Lock()
        self.arrivals: tuple[tuple[Subscription, Arrival], ...] = ()
        self.dispatchers: tuple[tuple[Subscription, Dispatcher], ...] = ()

    def add_arrival(self, callback: Arrival, begins_at: int) -> Subscription:
        subscription = Subscription(self, begins_at)
        with self._changing:
            self.arrivals = (*self.arrivals, (subscription, callback))
        return subscription

    def add_dispatcher(self, dispatcher: Dispatcher, begins_at: int) -> Subscription:
        subscription = Subscription(self, begins_at)
        with self._changing:
            self.dispatchers = (*self.dispatchers, (subscription, dispatcher))
        return subscription

    def remove(self, subscription: Subscription) -> None:
        with self._changing:
            self.arrivals = tuple(pair for pair in self.arrivals if pair[0] is not subscription)
            self.dispatchers = tuple(
                pair for pair in self.dispatchers if pair[0] is not subscription
            )

    def tell(
        self,
        batch: DispatchBatch,
        grown: list[tuple[Queue, int]],
        dispatchers: tuple[tuple[Subscription, Dispatcher], ...],
        file: CommitLogFile,
    ) -> None:
        """Pass a batch to the given dispatchers, then call the callbacks of the queues that grew.

        `file` is the log file with the messages of the batch.
        """
        if dispatchers:
            with BatchRecords(file) as records:
                view = replace(
                    batch, messages=_read_only(batch.messages), key_hash=_read_only(batch.key_hash),
                    multi=_read_only(batch.multi), read=records.read,
                )  # fmt: skip
                self._dispatch(view, dispatchers)
        for _, callback in self.arrivals:
            for queue, end in grown:
                try:
                    callback(queue.topic, queue.queue_id, end)
                except BaseException:
                    _log.exception("an arrival callback failed")

    def _dispatch(
        self, batch: DispatchBatch, dispatchers: tuple[tuple[Subscription, Dispatcher], ...]
    ) -> None:
        for subscription, dispatcher in dispatchers:
            try:
                dispatcher.dispatch(batch)
            except BaseException as error:  # Not even SystemExit may end dispatch.
                _log.exception("a dispatcher failed, and receives no more messages")
                subscription.error = error
                self.remove(subscription)
