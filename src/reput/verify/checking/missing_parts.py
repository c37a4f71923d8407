"""What a store lacks as a whole: the end of its log, queues, its index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reput.compare.spans import BEYOND
from reput.findings import Finding, Kind
from reput.format.file_names import CONSUME_QUEUE_FOLDER, INDEX_FOLDER, is_folder_name
from reput.log.dispatch_batch import Queue
from reput.verify.checking.checked_store import CheckedStore
from reput.verify.checking.index_table import IndexTable
from reput.verify.checking.queue_table import CheckedQueue
from reput.verify.checking.words import counted


def beyond(
    store: CheckedStore, index: Sequence[IndexTable], queues: Sequence[CheckedQueue]
) -> Iterator[Finding]:
    """Entries from the end of the log on: its newest messages are lost."""
    if store.is_live:
        return
    queued = sum(table.spans[BEYOND].total for table in queues if BEYOND in table.spans)
    if queued:
        yield lost_log_end(store, queued)
    for table in index:
        if BEYOND in table.spans:
            count = table.spans[BEYOND].total
            yield Finding(
                Kind.INDEX_AHEAD_OF_LOG, table.path,
                f"leads to offsets up to {table.last}, the log ends at {store.end}",
                count=count,
                cost="new messages are not found by key until the log has grown past the file's end",
                at_next_start=f"keeps the entries, and indexes nothing before {table.last}",
            )  # fmt: skip


def lost_log_end(store: CheckedStore, queued: int) -> Finding:
    """So many entries of queues lead to messages from the end of the log on."""
    return Finding(
        Kind.LOST_LOG_END, store.files[store.last_file].path,
        "the log ends here, but ConsumeQueues lead to later messages",
        physical_offset=store.end, count=queued,
        cost=f"{counted(queued, 'message')} can no longer be read",
        at_next_start=f"ends the log at {store.end} and drops their ConsumeQueue entries",
    )  # fmt: skip


def absent(
    store: CheckedStore,
    without_queue: Mapping[Queue, tuple[int, int]],
    without_index: int,
    has_queues: bool,
) -> Iterator[Finding]:
    """Whole queues, and whole indexes, that are not there."""
    missing = {q: n for q, n in without_queue.items() if is_folder_name(q.topic)}
    if missing and not has_queues:
        messages = sum(count for count, _ in missing.values())
        yield Finding(
            Kind.QUEUES_DELETED, str(store.path / CONSUME_QUEUE_FOLDER),
            "the log has messages of queues, but no ConsumeQueue is here",
            count=len(missing),
            cost=f"{counted(messages, 'message')} cannot be consumed",
            at_next_start=f"dispatches again from {store.checked if store.has_abort else store.begin}",
        )  # fmt: skip
        missing = {}
    for queue, (count, first) in sorted(missing.items()):
        folder = store.path / CONSUME_QUEUE_FOLDER / queue.topic / str(queue.queue_id)
        yield Finding(
            Kind.MISSING_QUEUE, str(folder), "the log has messages of this queue",
            physical_offset=first, count=count,
            cost=f"{counted(count, 'message')} cannot be consumed",
            at_next_start=f"rebuilds it from {store.checked} on"
            if store.has_abort
            else "dispatches only what comes after the last entry of all other queues",
        )  # fmt: skip
    if without_index:
        yield Finding(
            Kind.INDEX_DELETED, str(store.path / INDEX_FOLDER), "no IndexFile has an entry",
            cost=f"{counted(without_index, 'key')} cannot be found",
            at_next_start=f"indexes again from {store.checked} only"
            if store.has_abort
            else "indexes new messages only",
        )  # fmt: skip
