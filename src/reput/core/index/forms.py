"""The register of the forms in which a store has its index of keys.

    form      used by                                   index
    files     stores                                    IndexFiles
    rocksdb   stores with a database of messages (5.4)  the keys in the database, beside IndexFiles
    archive   archives                                  the archive's own index
    joined    stores joined with their archive          the index of the store, continued by that of the archive

A form is one object. It opens a KeyIndex of a store, in addition to those of the forms before it. It is loaded when a
store has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from reput.base import late
from reput.core.index.key_index import KeyIndex
from reput.core.index.proofs import Judge
from reput.core.index.set_reader import IndexFileSetReader
from reput.core.log.reader import CommitLogReader
from reput.io import Storage


@dataclass(frozen=True, slots=True)
class IndexOf:
    """The parts of a store from which its index is opened.

    Attributes:
        storage: Storage of the log.
        files: IndexFiles of the store.
        databases: Local databases of messages, which may have keys.
        log: The log, with archived files if the store is joined with its archive.
        own_log: The log without archived files.
        judge: Decides which parts of the log an IndexFile covers.
    """

    storage: Storage
    files: IndexFileSetReader
    databases: Sequence[str]
    log: CommitLogReader
    own_log: CommitLogReader
    judge: Judge


class IndexForm(Protocol):
    """One form of an index of keys."""

    def open(self, source: IndexOf, others: Sequence[KeyIndex]) -> KeyIndex:
        """Return the index of a store. `others` has the one of the forms before, if the store has such a form.

        Raises StoreAccessError.
        """
        ...


class _RegisteredIndex(NamedTuple):
    """An entry of the register: whether a store has the form, and a function that returns the form."""

    is_in: Callable[[IndexOf], bool]
    load: Callable[[], IndexForm]


_forms: dict[str, _RegisteredIndex] = {
    "files": _RegisteredIndex(
        lambda source: not source.storage.is_archive,
        late("reput.core.index.index_files", "FILE_INDEX"),
    ),
    "rocksdb": _RegisteredIndex(
        lambda source: bool(source.databases),
        late("reput.engine.five.rocksdb_index", "ROCKSDB_INDEX"),
    ),
    "archive": _RegisteredIndex(
        lambda source: source.storage.is_archive,
        late("reput.wings.archive.key_search", "ARCHIVE_INDEX"),
    ),
    "joined": _RegisteredIndex(
        lambda source: source.storage.is_joined,
        late("reput.wings.archive.key_search", "JOINED_INDEX"),
    ),
}


def register_index_form(name: str, form: IndexForm, is_in: Callable[[IndexOf], bool]) -> None:
    """Add a form. `is_in` returns whether a store has it."""
    _forms[name] = _RegisteredIndex(is_in, lambda: form)


def index_form(name: str) -> IndexForm:
    """Return the form with this name. Raises KeyError."""
    return _forms[name].load()


def open_index(source: IndexOf) -> KeyIndex:
    """Return the index of a store, in all forms that it has. Raises StoreAccessError."""
    index: list[KeyIndex] = []
    for entry in _forms.values():
        if entry.is_in(source):
            index = [entry.load().open(source, index)]
    return index[0]
