"""What a 4.9.3 broker would do to a store at its next start, worked out without starting one.

Mirrors `DefaultMessageStore.load`, `IndexService.load` and `CommitLog.recoverAbnormally` (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reput.findings import Finding, Kind
from reput.format.file_names import ABORT_FILE, CHECKPOINT_FILE
from reput.verify.checking.checked_store import CheckedStore
from reput.verify.checking.words import counted

if TYPE_CHECKING:  # a quick check does without numba
    from reput.verify.checking.index_table import IndexTable

UNNOTICED = "does not notice it: it never looks whether an IndexFile is right"


def next_start(store: CheckedStore, tables: Sequence[IndexTable]) -> Iterator[Finding]:
    """The findings that follow from the markers of the store and from its IndexFiles."""
    if store.is_live:
        yield Finding(
            Kind.STORE_IN_USE, str(store.path),
            f"a broker or another writer owns it; it was checked up to physical offset {store.end}",
        )  # fmt: skip
        return
    yield from _checkpoint(store)
    if not store.has_abort:
        return
    again = store.checked
    deleted = [table for table in tables if is_deleted(store, table)]
    kept = [table for table in tables if table.items and table not in deleted]
    twice = "; the last message of the IndexFiles that it keeps is indexed twice"
    deletes = f"deletes {counted(len(deleted), 'IndexFile')} and " if deleted else ""
    yield Finding(
        Kind.UNCLEAN_SHUTDOWN, str(store.path / ABORT_FILE),
        "the last owner of the store did not shut it down",
        at_next_start=f"{deletes}dispatches again from {again}"
        f"{twice if kept and kept[-1].last >= again else ''}",
    )  # fmt: skip
    file = [file.start for file in store.files].index(again)
    lost = sum(
        span.total
        for table in deleted
        for number, span in table.spans.items()
        if 0 <= number < file
    )
    if lost:
        yield Finding(
            Kind.CRASH_LOSES_INDEX, deleted[0].path,
            f"ends after the checkpoint's time {store.checkpoint.index_msg_timestamp}",
            count=len(deleted),
            cost=f"{counted(lost, 'key')} of messages before offset {again} will not be found by key",
            at_next_start=f"deletes the file and indexes again from {again} only",
        )  # fmt: skip


def is_deleted(store: CheckedStore, table: IndexTable) -> bool:
    """Whether the next start deletes this IndexFile: after a crash, one that ends after the checkpoint's time."""
    ends_later = table.header.end_timestamp > store.checkpoint.index_msg_timestamp
    return store.has_abort and not store.is_live and ends_later


def of_index_file(store: CheckedStore, table: IndexTable) -> str:
    """What the next start does about damage in an IndexFile."""
    if is_deleted(store, table):
        return f"deletes the file, as it is after a crash, and indexes again from {store.checked}"
    return UNNOTICED


def indexed_again(store: CheckedStore, tables: Sequence[IndexTable]) -> int | None:
    """Physical offset from which the next start adds the index entries of messages that are dispatched; None for never.

    A broker indexes nothing that lies before the end of its last IndexFile.
    """
    if store.is_live or not store.has_abort:
        return None
    kept = [table.last for table in tables if table.items and not is_deleted(store, table)]
    return max([store.checked, *kept[-1:]])


def _checkpoint(store: CheckedStore) -> Iterator[Finding]:
    path = str(store.path / CHECKPOINT_FILE)
    if store.has_checkpoint:
        return
    all_again = "deletes every IndexFile and dispatches the whole log again"
    yield Finding(
        Kind.CHECKPOINT_MISSING, path, "there is no such file",
        cost=f"after a crash a broker {all_again}",
        at_next_start=all_again if store.has_abort else "writes one with zeros",
    )  # fmt: skip


def checkpoint_ahead(store: CheckedStore, latest: int | None) -> Iterator[Finding]:
    """The checkpoint held against the store timestamp of the latest message, ms; None where there is none."""
    if latest is None or store.is_live:
        return
    for number, (name, stated) in enumerate(store.checkpoint._asdict().items()):
        if stated > latest:
            yield Finding(
                Kind.CHECKPOINT_AHEAD, str(store.path / CHECKPOINT_FILE),
                f"{name} is {stated}, the last message was stored at {latest}", 8 * number,
                cost="after a crash a broker takes files for durable that may not be",
                at_next_start="believes it: checks and dispatches again from the last file only"
                if store.has_abort
                else "believes it, and keeps it until later messages are flushed",
            )  # fmt: skip
            return
