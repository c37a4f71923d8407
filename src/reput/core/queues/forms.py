"""The register of the forms in which a store has queues.

    form      sign in a store                   queues
    files     none                              ConsumeQueue files, with extension files
    batch     the folder batchconsumequeue/     those of topics with batch queues, beside another form
    rocksdb   CURRENT in the database's folder  all queues of the store

A form is one object. It opens a reader of the queues, and tells how far into the log they lead. It also has what other
rooms need to know of it: `engine.writer` asks it for a recovery, which returns a writer (`QueueRecovery`), and
`engine.rebuild` for a plan that writes the queues anew (`QueueBuild`). Checks compare any form with the log through its
reader.

The register knows forms by name, and imports the module of a form when a store shows a sign of it. So a query loads
only the forms that the store has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from reput.base import Finding, StoreConfig, late
from reput.core.log.files import CommitLogFile
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.queues.queue_index import QueueIndex
from reput.errors import FormatError, MessageNotFoundError, UsageError
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CONSUME_QUEUE_FOLDER,
    DATABASE_SIGN,
    QUEUE_DATABASE_FOLDER,
)
from reput.io import LOCAL, Storage

# Import these only for typing, because a query by key must not load NumPy.
if TYPE_CHECKING:
    from reput.core.log.verdict import DispatchRules
    from reput.core.queues.set_writer import QueueSetWriter


@dataclass(frozen=True, slots=True)
class QueuesOf:
    """The place of a store's queues, and what readers of some forms need besides.

    Attributes:
        store: Folder with the queues.
        storage: Storage of this folder.
        open_log: Opens the log of the queues.
        config: The broker's settings.
    """

    store: str
    storage: Storage
    open_log: Callable[[], CommitLogReader]
    config: StoreConfig

    @classmethod
    def of(cls, store: str, storage: Storage = LOCAL) -> QueuesOf:
        """Return the queues of a store with its own log, and with the settings of a new broker."""
        return cls(store, storage, lambda: CommitLogReader(StoreLog(store, storage)), StoreConfig())


class LastEntry(NamedTuple):
    """The last queue offset of a queue, the physical offset of this message, and its entry; None if it is missing."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    entry: ConsumeQueueEntry | None

    @property
    def expired(self) -> ConsumeQueueEntry:
        """The entry of an expired message. If it is missing, its size is 1, because no reader uses it."""
        if self.entry is not None and self.entry.is_written:
            return self.entry
        return ConsumeQueueEntry(self.physical_offset, 1, 0)


class RecoveredQueues(NamedTuple):
    """The queues of a store that is opened for writing.

    Attributes:
        writer: The writer of the queues.
        rules: Which messages get entries.
        dispatch_from: Physical offset from which messages are to be dispatched to the writer.
    """

    writer: QueueSetWriter
    rules: DispatchRules
    dispatch_from: int


class QueueRecovery(Protocol):
    """Recovers the queues of a store that is opened for writing."""

    def look(self, files: Sequence[CommitLogFile], log_end: int) -> list[Finding]:
        """Compare the queues with the log up to its end, without changes. Return the damage of the log that they show.

        Raises StoreError, MissingExtraError.
        """
        ...

    def run(self, log_begin: int, log_end: int) -> RecoveredQueues:
        """Create missing queues, remove the entries of messages that the log does not have, and open a writer.

        Raises StoreError, MissingExtraError.
        """
        ...


class QueueForm:
    """One form in which a store has queues. Subclasses state what differs.

    Attributes:
        name: Name of the form in the register, and as an argument of a rebuild.
        title: Name of the form in messages.
        signs: Paths in a store. If one of them exists, the store has queues of this form. A path with `/` at its end
            stands for a folder.
        has_all: Whether a store can have all its queues in this form. Other forms have those of some topics, beside
            such a form.
        has_logics_timestamp: Whether a broker states the time of the newest entry in `checkpoint`.
        states_end: Whether the queues state the physical offset up to which they have entries. In other forms, their
            last entries show it.
    """

    name = title = ""
    signs: tuple[str, ...] = ()
    has_all = states_end = False
    has_logics_timestamp = True

    def open(self, queues: QueuesOf) -> QueueIndex:
        """Return a reader of the queues. Raises StoreAccessError."""
        raise NotImplementedError

    def folder(self, store: str) -> str:
        """Return the folder with the queues of a store on this machine, for messages."""
        return os.path.join(store, self.signs[0].partition("/")[0])

    def end(self, store: str) -> int:
        """Return the greatest physical offset in the queues of a store on this machine; -1 without entries.

        Raises StoreAccessError, FormatError, MissingExtraError.
        """
        entries = (last.entry for last in self.last_entries(store))
        return max((self._end_of(entry) for entry in entries if entry), default=-1)

    def _end_of(self, entry: ConsumeQueueEntry) -> int:
        return entry.physical_offset + entry.size

    def last_entries(self, store: str) -> Iterator[LastEntry]:
        """Yield the last entry of each queue of a store on this machine. Raises as `end` does."""
        with closing(self.open(QueuesOf.of(store))) as index:
            for topic, queue_id in index.list():
                queue = index.queue(topic, queue_id)
                with suppress(MessageNotFoundError, FormatError):
                    number = queue.max_queue_offset() - 1
                    entry = queue.entry(number)
                    yield LastEntry(topic, queue_id, number, entry.physical_offset, entry)

    def topics(self, queues: QueuesOf) -> Collection[str]:
        """Return the topics with queues, perhaps without the newest ones. Raises as `end` does."""
        with closing(self.open(queues)) as index:
            return index.topics()

    def settings(self, config: StoreConfig) -> StoreConfig:
        """Return the settings with which a broker writes such queues."""
        return config

    def require(self) -> None:
        """Raise MissingExtraError if a package that the form needs is not installed."""

    def expired_files(self, store: str, log_begin: int) -> Iterator[str]:
        """Yield the files whose entries all lead to messages before the log's beginning. Raises StoreAccessError.

        Those of a database are not listed, because its library deletes them.
        """
        return iter(())

    def recovery(
        self, store: Path, config: StoreConfig, batch_topics: frozenset[str]
    ) -> QueueRecovery:
        """Return the recovery of a store's queues. `batch_topics` are the topics with inner batches."""
        raise UsageError(f"{store}: has queues in a form that is only read: {self.title}")


class _RegisteredForm(NamedTuple):
    """An entry of the register: the signs of a form, and a function that returns it."""

    signs: tuple[str, ...]
    load: Callable[[], QueueForm]


FILES, ROCKSDB, BOTH = "files", "rocksdb", "both"
"""The names of two forms, and the name under which a rebuild writes both (`rocksdbCQDoubleWriteEnable`)."""
# The forms of a broker. If a store has several, readers prefer earlier ones.
_forms: dict[str, _RegisteredForm] = {
    FILES: _RegisteredForm((), late("reput.core.queues.store_queues", "FILE_FORM")),
    "batch": _RegisteredForm(
        (BATCH_QUEUE_FOLDER + "/",), late("reput.core.queues.store_queues", "BATCH_FORM")
    ),
    ROCKSDB: _RegisteredForm(
        tuple(
            f"{folder}/{DATABASE_SIGN}" for folder in (QUEUE_DATABASE_FOLDER, CONSUME_QUEUE_FOLDER)
        ),
        late("reput.engine.five.rocksdb_form", "ROCKSDB_FORM"),
    ),
}


def register_queue_form(form: QueueForm) -> None:
    """Add a form. From now on, a store with one of its signs is read, written, rebuilt and checked through it."""
    _forms[form.name] = _RegisteredForm(form.signs, lambda: form)


def queue_form(name: str) -> QueueForm:
    """Return the form with this name. Raises KeyError."""
    return _forms[name].load()


def configured_form(config: StoreConfig) -> QueueForm:
    """Return the form in which a broker with these settings creates queues."""
    return queue_form(ROCKSDB if config.queues_in_rocksdb else FILES)


def form_names() -> tuple[str, ...]:
    """Return the names of all forms."""
    return tuple(_forms)


def sign_names() -> set[str]:
    """Return the names of the files and folders in a store that are signs of forms, or contain one."""
    return {sign.partition("/")[0] for entry in _forms.values() for sign in entry.signs}


def queue_forms(store: str, storage: Storage = LOCAL) -> list[QueueForm]:
    """Return the forms of which a store shows a sign, in the order of the register. Raises StoreAccessError."""
    return [
        entry.load()
        for entry in _forms.values()
        if any(_exists(os.path.join(store, sign), storage) for sign in entry.signs)
    ]


def _exists(path: str, storage: Storage) -> bool:
    entry = storage.entry(path.rstrip("/"))
    return entry is not None and (entry.is_dir() or not path.endswith("/"))
