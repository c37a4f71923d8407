"""A store that this process owns: it answers all queries of a store, and accepts puts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from reput.base import Closing, StoreConfig, Time, check_fields, checked, milliseconds
from reput.core import MessageStore
from reput.engine.writer.expiry import ExpiryReport, plan_by_time
from reput.engine.writer.put.columns import PutColumns, PutColumnsResult
from reput.engine.writer.put.message import Message, PutResult
from reput.engine.writer.put.record_form import RecordForm
from reput.engine.writer.put.results import PutResults
from reput.engine.writer.recovery.report import RecoveryReport
from reput.engine.writer.shared_store import SharedStore
from reput.engine.writer.store_writer import StoreWriter
from reput.engine.writer.subscribers import Arrival, Dispatcher, Subscription
from reput.engine.writer.writer_settings import BrokerSettings, WriterOptions, WriterSettings
from reput.errors import MessageRefusedError, ReputError, UsageError
from reput.format.host import Host

_log = logging.getLogger("reput.store")
_Given = TypeVar("_Given")
_Put = TypeVar("_Put")


class WritableStore(SharedStore, Closing):
    """A store open for writing, returned by `open_store(path, mode="rw")`. The end of its context closes it.

    Any thread may put, query, and wait. A message can be read immediately by its offset or by key, because queries scan
    messages that are not indexed yet. It can be read by queue after its dispatch (`wait_dispatched`).

    Attributes:
        ignored_settings: settings in `broker_config` that concern a store but have no counterpart here
    """

    is_writable = True

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self.ignored_settings: tuple[str, ...] = ()
        super().__init__(writer.path, config=writer.config)
        # Recovery has just found the end of the log that a broker would find, so readers need not search for it.
        with self.reader() as reader:
            self._known_end.state = reader.commit_log.files, writer.end_offset
        writer.retention.on_expired.append(self.drop_expired)

    @classmethod
    @checked
    def open(
        cls,
        path: str | PathLike[str],
        config: StoreConfig | None = None,
        broker_config: str | PathLike[str] | None = None,
        **settings: Unpack[WriterOptions],
    ) -> Self:
        """Open a store as `open_store` does. Explicit settings override `broker_config`."""
        if config is not None and broker_config is not None:
            raise UsageError("pass config or broker_config, not both")
        how = WriterSettings()
        ignored: tuple[str, ...] = ()
        if broker_config is not None:
            broker = BrokerSettings.read(broker_config)
            config, how, ignored = broker.config, broker.writer, broker.ignored
            if ignored:
                _log.warning("%s: not used: %s", fspath(broker_config), ", ".join(ignored))
        writer = StoreWriter(Path(path), config, how.changed(settings))
        try:
            store = cls(writer)
            store.ignored_settings = ignored
            return store
        except BaseException:
            # After an error, release the lock of the store. Otherwise, this process would keep the lock until it ends.
            writer.close()
            raise

    @property
    def recovery(self) -> RecoveryReport:
        """Return the result of the recovery that ran when the store was opened."""
        return self._writer.recovery

    @property
    def store_host(self) -> Host:
        """Return the store host that is written into records.

        It is also the born host of messages that are put without a born host.
        """
        return self._writer.settings.store_host

    @property
    def form(self) -> RecordForm:
        """Return the record format of this store's version, which decides how properties are written."""
        return self._writer.form

    @property
    def syncs(self) -> int:
        """Return the number of syncs of log files. With many threads, one sync serves many puts."""
        return self._writer.syncs

    @checked
    def put(self, message: Message) -> PutResult:
        """Put one message. With flush='sync', it is durable when this returns.

        Raises MessageRefusedError for a message that could not be read back unchanged. Raises StoreFailedError after a
        failed write or sync, and StoreAccessError, for example for a full disk.
        """
        return _explained(self._writer.put, message, (message,))

    def put_run(self, messages: Sequence[Message]) -> list[PutResult | ReputError]:
        """Put several messages at once. Their properties must be bytes, and none of them may be delayed.

        Return for each message its place, or the reason why it was refused. Raises StoreFailedError, StoreAccessError.
        """
        return self._writer.put_run(messages)

    @checked
    def put_many(self, messages: Iterable[Message]) -> PutResults:
        """Put messages in their order, some thousands at a time.

        Raises as `put` does; earlier messages may then be stored.
        """
        return _explained(self._writer.put_many, messages, messages)

    @checked
    def put_batch(self, messages: Sequence[Message]) -> PutResults:
        """Put a batch as a broker does: adjacent in one file, all or none. Raises as `put` does.

        All messages must have the same topic and queue. No message may be delayed, belong to a transaction, or go to
        further queues. Together the messages must not exceed the maximum size of one message (maxMessageSize).
        """
        return _explained(self._writer.put_batch, messages, messages)

    def put_columns(self, columns: Any) -> PutColumnsResult:
        """Put an Arrow RecordBatch or Table, or a mapping of names to arrays, all with the same store timestamp.

        See `reput.engine.writer.put.arrow.from_columns` for the columns; `PutColumns` are used unchanged. Raises as
        `put` does. If a message is refused, nothing is put.
        """
        self.check_open()
        writer = self._writer
        if isinstance(columns, PutColumns):
            return writer.put_columns(columns)
        from reput.engine.writer.put.arrow import from_columns

        return writer.put_columns(
            from_columns(columns, writer.settings.store_host, writer.delay_levels, writer.form)
        )

    def flush(self) -> None:
        """Make all messages put so far durable. Raises StoreFailedError, StoreAccessError."""
        self._writer.flush()

    @checked
    def wait_dispatched(
        self, physical_offset: int | None = None, timeout_s: float | None = None
    ) -> bool:
        """Wait until the messages before an offset, or all put so far, are in ConsumeQueue and IndexFile.

        Return whether they are. Raises StoreFailedError if this has become impossible.
        """
        return self._writer.wait_dispatched(physical_offset, timeout_s)

    @property
    def dispatched_to(self) -> int:
        """Return the physical offset before which all messages are in ConsumeQueue and IndexFile.

        In RocketMQ: reputFromOffset.
        """
        return self._writer.dispatcher.position

    @property
    def dispatch_lag_bytes(self) -> int:
        """Return the bytes of the log that are not dispatched yet (`DefaultMessageStore.dispatchBehindBytes`).

        In RocketMQ: isCommitLogAvailable.
        """
        return max(self._writer.end_offset - self.dispatched_to, 0)

    def bytes_behind(self) -> tuple[int, int]:
        """Return the number of log bytes that are not durable, and the number that are not dispatched."""
        unflushed = max(self._writer.end_offset - self._writer.flusher.flushed, 0)
        return unflushed, self.dispatch_lag_bytes

    def subscribe(self, callback: Arrival) -> Subscription:
        """Call `callback(topic, queue_id, max_offset)` whenever a queue has grown, until the store is closed.

        The callback runs in the thread of dispatch, which waits for it. Its exceptions are logged and otherwise
        ignored.
        """
        self.check_open()
        return self._writer.dispatcher.subscribe(callback)

    def add_dispatcher(self, dispatcher: Dispatcher) -> Subscription:
        """Call `dispatcher.dispatch(batch)` after ConsumeQueue and IndexFile have received a batch.

        Dispatchers are called in the order of registration, in the thread of dispatch, until the store is closed. The
        returned subscription has `begins_at`, the physical offset of the first message passed to this dispatcher. The
        dispatcher must read earlier messages itself. A dispatcher that raises is detached: it receives no more batches,
        and the subscription has the `error`.
        """
        self.check_open()
        if isinstance(dispatcher, type) or not callable(getattr(dispatcher, "dispatch", None)):
            raise UsageError(
                f"dispatcher must be an object with a method dispatch, not {dispatcher!r}",
                arguments=["dispatcher"],
            )
        return self._writer.dispatcher.add(dispatcher)

    @checked
    def expire(self, before: Time, dry_run: bool = False, until: int | None = None) -> ExpiryReport:
        """Delete the CommitLog files whose last message was stored before a time (ms since 1970); return the files.

        ConsumeQueue files and IndexFiles that lead only to deleted files are deleted as well. Files are deleted whole,
        oldest first. The last file is never deleted.

        With `until`, only files that end at or before this physical offset are deleted. With `dry_run`, nothing is
        deleted. Raises StoreFailedError, StoreAccessError.
        """
        self.check_open()
        time = milliseconds(before)
        if dry_run:
            return plan_by_time(Path(self.path), time, until)
        return self._writer.expire(time, until)

    def end_offset(self) -> int:
        """Return the lowest physical offset at which the next message can begin."""
        self.check_open()
        return self._writer.end_offset

    def close(self) -> None:
        """Dispatch and sync everything, and release the store. A put in progress ends first; no other put begins.

        In a forked child this does nothing, because the store belongs to the parent.

        Raises:
            StoreFailedError, StoreAccessError: a write or sync failed; acknowledged messages are safe.
            UsageError: called by an arrival callback.
        """
        self._writer.check_may_close()
        if not self._writer.is_forked:
            super().close()
            self._writer.close()

    def check_open(self) -> None:
        """Raise UsageError if the store is closed, or if this process is a forked child of its owner."""
        self._writer.check_open()
        super().check_open()

    @contextmanager
    def reader(self) -> Iterator[MessageStore]:
        """See SharedStore.reader."""
        # Check this before taking a lock. If another thread of the parent held the lock during the fork, no thread of
        # the child ever releases it.
        self._writer.check_open()
        with super().reader() as reader:
            yield reader


def _explained(put: Callable[[_Given], _Put], given: _Given, messages: Iterable[Message]) -> _Put:
    """Put messages. If a field of a message has a wrong type, name the field in the error.

    Fields are checked only after a failure, so valid messages cost nothing extra.
    """
    try:
        return put(given)
    except ReputError as error:
        if isinstance(error, MessageRefusedError):
            _check(messages)
        raise
    except (TypeError, AttributeError, ValueError):
        _check(messages)
        raise


def _check(messages: Iterable[Message]) -> None:
    """Raise UsageError for the first item that is not a message, or has a field of a wrong type.

    An iterator is not checked, because the put has already consumed it.
    """
    for number, message in enumerate(messages if isinstance(messages, Collection) else ()):
        if not isinstance(message, Message):
            raise UsageError(f"messages: number {number} must be a Message, not {message!r}")
        check_fields(message, of=f"message {number}: ")
