"""A store that this process owns: everything that can be asked of a store, and puts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reput.config import StoreConfig
from reput.errors import UsageError
from reput.query.shared_store import SharedStore
from reput.store.dispatch import Arrival
from reput.store.expiry import ExpiryReport, plan_by_time
from reput.store.put.columns import PutColumnsResult
from reput.store.put.message import Message, PutResult
from reput.store.put.results import PutResults
from reput.store.recovery.report import RecoveryReport
from reput.store.store_writer import StoreWriter, WriterSettings


class LivingStore(SharedStore):
    """An open store to put into, made by `open_store(path, mode="rw")`; a context manager.

    Any thread may put, ask, and wait. A message can be had by its offset at once, by queue when it was dispatched
    (`wait_dispatched`), by key at once: what is not in the index yet is scanned.
    """

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        super().__init__(writer.path, config=writer.config)
        writer.retention.on_expired.append(self.drop_expired)

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        config: StoreConfig | None = None,
        broker_config: str | PathLike[str] | None = None,
        **settings: Any,
    ) -> Self:
        """See `open_store`."""
        if config is not None and broker_config is not None:
            raise UsageError("config and broker_config are two answers to one question; give one")
        if broker_config is not None:
            config = StoreConfig.from_broker_config(broker_config)
        try:
            how = WriterSettings(**settings)
        except TypeError as error:
            raise UsageError(f"open_store: {error}") from None
        writer = StoreWriter(Path(path), config, how)
        try:
            return cls(writer)
        except BaseException:
            writer.close()
            raise

    @property
    def recovery(self) -> RecoveryReport:
        """What was found, and done, when the store was opened."""
        return self._writer.recovery

    @property
    def syncs(self) -> int:
        """How many times a file of the log was synced: with many threads, few for many puts."""
        return self._writer.syncs

    def put(self, message: Message) -> PutResult:
        """Put one message; durable when this returns if the store was opened with flush='sync'.

        Raises MessageRefusedError for what could not be given back as it was put, StoreFailedError once a write or a
        sync has failed, StoreAccessError, for a full disk for instance.
        """
        return self._writer.put(message)

    def put_many(self, messages: Iterable[Message]) -> PutResults:
        """Put messages in their order, some thousands at a time; raises as `put` does, and then some may be put."""
        return self._writer.put_many(messages)

    def put_batch(self, messages: Sequence[Message]) -> PutResults:
        """Put a batch as a broker does: one behind the other in one file, all or none; raises as `put` does.

        All are of one topic and queue; none is delayed, of a transaction, or goes to further queues. Together they
        are no longer than one message may be (maxMessageSize).
        """
        return self._writer.put_batch(messages)

    def put_columns(self, columns: Any) -> PutColumnsResult:
        """Put an Arrow RecordBatch or Table, or a mapping of names to arrays: all with one store timestamp.

        See `reput.store.put.arrow.from_columns` for the columns. Raises as `put` does, before anything is put
        where a message is refused.
        """
        from reput.store.put.arrow import from_columns

        self.check_open()
        writer = self._writer
        return writer.put_columns(
            from_columns(columns, writer.settings.store_host, writer.delay_levels)
        )

    def flush(self) -> None:
        """Make all that was put durable. Raises StoreFailedError, StoreAccessError."""
        self._writer.flush()

    def wait_dispatched(
        self, physical_offset: int | None = None, timeout_s: float | None = None
    ) -> bool:
        """Wait until the messages before that offset, or all put so far, are in ConsumeQueue and IndexFile.

        Returns whether they are; raises StoreFailedError where they cannot be any more.
        """
        offset = self._writer.end_offset if physical_offset is None else physical_offset
        return self._writer.dispatcher.wait(offset, timeout_s)

    def on_arrival(self, callback: Arrival) -> None:
        """Have `callback(topic, queue_id, max_offset)` called whenever a queue has grown, in another thread."""
        self._writer.dispatcher.arrivals.append(callback)

    def expire(self, before: int, dry_run: bool = False) -> ExpiryReport:
        """Delete the CommitLog files whose last message was stored before that time (ms since 1970), and the
        ConsumeQueue files and IndexFiles that only point into them: whole files, oldest first, never the last.

        With `dry_run` nothing is deleted. Returns what was, or would be. Raises StoreFailedError, StoreAccessError.
        """
        self.check_open()
        return plan_by_time(Path(self.path), before) if dry_run else self._writer.expire(before)

    def end_offset(self) -> int:
        """Physical offset at which the next message begins, at the earliest."""
        self.check_open()
        return self._writer.end_offset

    def close(self) -> None:
        """Dispatch and sync everything, and give the store back.

        Raises StoreFailedError, StoreAccessError where that was not possible; what was acknowledged is not lost by it.
        """
        super().close()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
