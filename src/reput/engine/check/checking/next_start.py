"""Predict what a broker of the store's version does when it starts next. No broker is started.

Mirrors `DefaultMessageStore.load`, `IndexService.load`, `CommitLog.recoverNormally` and `.recoverAbnormally` (tags
rocketmq-all-4.9.3, rocketmq-all-5.3.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress

from reput import core
from reput.base import Finding, Kind, counted
from reput.engine.check.checking.checked_store import CheckedStore, IndexTable
from reput.engine.check.checking.checkpoint import checkpoint_missing
from reput.engine.check.checking.index_database import has_key_database
from reput.errors import FormatError, MessageNotFoundError, StoreError
from reput.format import file_names
from reput.format.commit_log import SYS_FLAG_COMMIT, SYS_FLAG_TRANSACTION_MASK, MessageExt
from reput.format.file_names import ABORT_FILE
from reput.format.properties import lite_topic_of
from reput.format.timer_log import WHEEL_BYTES

UNNOTICED = "does not notice it: it never verifies an IndexFile"


def next_start(store: CheckedStore, tables: Sequence[IndexTable]) -> Iterator[Finding]:
    """Yield findings about the next start of a broker, from the store's lock, `abort`, checkpoint and IndexFiles."""
    if store.is_live:
        yield Finding(
            Kind.STORE_IN_USE, str(store.path),
            f"a broker or another writer owns the store; it was checked up to physical offset "
            f"{store.end}",
        )  # fmt: skip
        return
    yield from checkpoint_missing(store)
    yield from _wheel_size(store)
    if not store.facts.has_abort:
        yield from _skipped(store)
        return
    again = store.broker_start
    deleted = [table for table in tables if is_deleted(store, table)]
    remaining = [table for table in tables if table.items and table not in deleted]
    # A broker skips only messages that begin before the offset in the header of its newest IndexFile (endPhyOffset).
    # The last indexed message begins at this offset, so it is indexed again.
    twice = "; the last message of the IndexFiles that it keeps is indexed twice"
    deletes = f"deletes {counted(len(deleted), 'IndexFile')} and " if deleted else ""
    yield Finding(
        Kind.UNCLEAN_SHUTDOWN, str(store.path / ABORT_FILE),
        "the last owner of the store did not shut it down cleanly",
        at_next_start=f"{deletes}dispatches again from {again}"
        f"{twice if remaining and remaining[-1].last >= again else ''}",
    )  # fmt: skip
    file = [file.start for file in store.files].index(again)
    # The broker's next start deletes IndexFiles, but indexes again only messages from the physical offset `again` on.
    # So the keys of earlier messages in the deleted files are lost.
    lost = sum(
        span.total
        for table in deleted
        for number, span in table.spans.items()
        if 0 <= number < file
    )
    if lost:
        yield Finding(
            Kind.CRASH_LOSES_INDEX, deleted[0].path,
            f"ends after the checkpoint's time {store.facts.checkpoint.index_msg_timestamp}",
            count=len(deleted),
            cost=f"{counted(lost, 'key')} of messages before offset {again} will not be found by key",
            at_next_start=f"deletes the file and indexes again from {again} only",
        )  # fmt: skip


def _wheel_size(store: CheckedStore) -> Iterator[Finding]:
    """Yield a finding for a timer wheel (5.x) with which a broker does not start."""
    path = store.path / file_names.TIMER_WHEEL_FILE
    with suppress(FileNotFoundError):
        size = path.stat().st_size
        # A broker writes a new wheel if the file is missing or empty.
        if size not in (0, WHEEL_BYTES):
            yield Finding(
                Kind.TIMER_WHEEL, str(path), f"has {size:,} bytes, not {WHEEL_BYTES:,}",
                cost="a broker refuses the store", at_next_start="does not start",
            )  # fmt: skip


def absent(
    store: CheckedStore,
    without_queue: Mapping[core.Queue, tuple[int, int]],
    without_index: int,
    has_queues: bool,
) -> Iterator[Finding]:
    """Yield findings for missing queues and missing indexes."""
    missing = {q: n for q, n in without_queue.items() if file_names.is_folder_name(q.topic)}
    if missing and not has_queues:
        messages = sum(count for count, _ in missing.values())
        yield Finding(
            Kind.QUEUES_DELETED, str(store.path / file_names.CONSUME_QUEUE_FOLDER),
            "the log has messages, but there is no ConsumeQueue",
            count=len(missing),
            cost=f"{counted(messages, 'message')} cannot be consumed",
            at_next_start=f"dispatches again from {store.broker_start if store.facts.has_abort else store.begin}",
        )  # fmt: skip
        missing = {}
    topics = core.topic_names(str(store.path)) if missing else frozenset()
    for queue, (count, first) in sorted(missing.items()):
        if lite_topic_of(queue.topic) is not None:
            yield Finding(
                Kind.TOPIC_DELETED, str(store.path / file_names.CONSUME_QUEUE_FOLDER / queue.topic),
                "has no queue, but the log has messages of this Lite topic, which has expired or lost its queue",
                physical_offset=first, count=count,
                cost=f"{counted(count, 'message')} cannot be consumed",
                at_next_start="leaves the messages in the log and in their parent topic until they expire",
            )  # fmt: skip
            continue
        if topics and queue.topic not in topics and not core.is_light(queue.topic):
            yield Finding(
                Kind.TOPIC_DELETED, str(store.path / core.TOPICS_PATH),
                f"{queue.topic} is not in it, but the log has messages of its queue {queue.queue_id}",
                physical_offset=first, count=count,
                cost=f"{counted(count, 'message')} cannot be consumed",
                at_next_start="leaves the messages in the log until they expire",
            )  # fmt: skip
            continue
        folder = store.path / file_names.CONSUME_QUEUE_FOLDER / queue.topic / str(queue.queue_id)
        yield Finding(
            Kind.MISSING_QUEUE, str(folder), "the log has messages of this queue",
            physical_offset=first, count=count,
            cost=f"{counted(count, 'message')} cannot be consumed",
            at_next_start=f"rebuilds it from {store.broker_start} on"
            if store.facts.has_abort
            else "dispatches only messages after the last entry of all other queues",
        )  # fmt: skip
    # A broker of 5.4 may keep its keys in RocksDB instead of IndexFiles.
    if without_index and not has_key_database(store):
        yield Finding(
            Kind.INDEX_DELETED, str(store.path / file_names.INDEX_FOLDER), "no IndexFile has an entry",
            cost=f"{counted(without_index, 'key')} cannot be found",
            at_next_start=f"indexes again from {store.broker_start} only"
            if store.facts.has_abort
            else "indexes new messages only",
        )  # fmt: skip


def _skipped(store: CheckedStore) -> Iterator[Finding]:
    """Yield a finding if a 5.3.3 broker that starts now skips a message.

    After a clean shutdown, such a broker dispatches only messages that begin after the physical offset at which the
    last message in the queues ends. So it skips a message that begins exactly at this offset. Such a message may exist
    in a copy of a running store. If the copy lacks the file `abort`, the broker assumes a clean shutdown.
    """
    at = store.facts.known_offset.physical_offset
    if not store.config.is_five or not store.begin <= at < store.end:
        return
    with closing(core.CommitLogReader(core.StoreLog(store.path))) as log, suppress(StoreError):
        message = log.get(at)
        # A prepared or rolled-back message gets no entry, so nothing is lost if it is skipped.
        kind = message.sys_flag & SYS_FLAG_TRANSACTION_MASK
        if kind not in (0, SYS_FLAG_COMMIT) or _is_queued(store, message):
            return
        queue = f"queue {message.queue_id} of {message.topic}"
        cost = "it gets no entry"
        if not store.facts.known_offset.is_stated:
            cost += ", and all later entries of its queue are one place too early"
        file = log.file_at(at)
        yield Finding(
            Kind.SKIPPED_AT_START, str(store.path) if file is None else file.path,
            f"{queue} lacks message {message.queue_offset}, which begins where the queues end, and there is no "
            f"{ABORT_FILE}: a copy of a running store must include it",
            physical_offset=at,
            cost=cost,
            at_next_start=f"dispatches messages that begin after {at}, without this one",
        )  # fmt: skip


def _is_queued(store: CheckedStore, message: MessageExt) -> bool:
    """Return whether a queue entry leads to this message.

    The message begins at the greatest physical offset that any queue states. ConsumeQueues state the offset at which
    their newest message ends, so a message that begins there has no entry. Batch queues state the offset at which their
    newest record begins, so this record has an entry.
    """
    if store.facts.known_offset.is_stated:
        # Queues in RocksDB state the physical offset after the last dispatched message. The message that begins at this
        # offset has no entry.
        return False
    with closing(core.open_queues(store.path)) as queues:
        try:
            entry = queues.queue(message.topic, message.queue_id).entry(message.queue_offset)
        except (MessageNotFoundError, FormatError):
            return False
    return entry.physical_offset == message.physical_offset


def dispatched_from(store: CheckedStore) -> int | None:
    """Return the physical offset from which the next start dispatches messages, or None if it dispatches none.

    After a crash, a broker dispatches from the beginning of the first file that its recovery checks. After a clean
    shutdown, a broker dispatches from the greatest physical offset that any queue states. A 5.3.3 broker skips a
    message that begins exactly at this offset.
    """
    if store.is_live:
        return None
    if store.facts.has_abort:
        return store.broker_start
    begin = max(store.facts.known_offset.physical_offset + store.config.is_five, store.begin)
    return begin if begin < store.end else None


def is_deleted(store: CheckedStore, table: IndexTable) -> bool:
    """Return whether the next start deletes this IndexFile.

    After a crash, a broker deletes files newer than the checkpoint.
    """
    ends_later = table.header.end_timestamp > store.facts.checkpoint.index_msg_timestamp
    return store.facts.has_abort and not store.is_live and ends_later


def of_index_file(store: CheckedStore, table: IndexTable) -> str:
    """Return a text that says what the next start does with a damaged IndexFile."""
    if is_deleted(store, table):
        return f"deletes the file, because it is newer than the checkpoint, and indexes again from {store.broker_start}"
    return UNNOTICED


def indexed_again(store: CheckedStore, tables: Sequence[IndexTable]) -> int | None:
    """Return the physical offset from which the next start adds index entries, or None if it adds none.

    A broker indexes no message that begins before the offset in the header of its newest IndexFile (endPhyOffset).
    """
    begin = dispatched_from(store)
    if begin is None:
        return None
    last_offsets = [table.last for table in tables if table.items and not is_deleted(store, table)]
    return max([begin, *last_offsets[-1:]])


def of_missing_keys(again: int | None, first: int, last: int) -> str:
    """Return a text that says what the next start does with messages whose keys have no index entry.

    Args:
        again: The result of `indexed_again`.
        first: Physical offset of the first of these messages.
        last: Physical offset of the last one.
    """
    if again is None or last < again:
        return "does not notice it, and never adds an entry to an index that lacks it"
    return "indexes them" if first >= again else f"indexes those from {again} on"
