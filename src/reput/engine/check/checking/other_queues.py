"""Compare queues other than ConsumeQueue files (RocksDB, batch queues) with the log, through their readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from reput import core, errors
from reput.base import Finding, Kind, counted
from reput.engine import compare
from reput.engine.check.checking.checked_store import CheckedStore
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.dtypes import ENTRY_DTYPE

# Maximum number of records to read one by one. If the RocksDB database with the queue entries belongs to another log,
# all its entries are wrong, and the check must not read a record for each of them.
_MOST_CLAIMS = 100_000


class _Claims:
    """Recognizes entries in RocksDB that are shared by several messages with the same queue offset.

    A broker stores an entry under the queue offset of its message. In a light queue (LMQ), several messages can have
    the same queue offset after a restart, and then share one entry. The entry leads to the message dispatched last, or
    to the first message if all were dispatched together (`RocksDBConsumeQueueStore.putMessagePosition0`).

    Attributes:
        count: Number of messages whose shared entry leads to another message.
    """

    def __init__(self, log: core.CommitLogReader) -> None:
        self._log, self._budget, self.count = log, _MOST_CLAIMS, 0

    def is_of_another(
        self, queue: core.Queue, queue_offset: int, place: compare.EntryPlace, message_offset: int
    ) -> bool:
        """Return whether an entry leads to another message that has the same queue offset.

        Args:
            queue: The queue of the entry.
            queue_offset: The queue offset under which the entry is stored.
            place: The place to which the entry leads.
            message_offset: Physical offset of the message to which the entry should lead.
        """
        if place[0] == message_offset or self._budget == 0:
            return False
        self._budget -= 1
        try:
            record = self._log.locate(*place[:2], in_place=False)
        except errors.StoreError:
            return False
        is_claimed = record.queue_offset_in(*queue) == queue_offset
        self.count += is_claimed
        return is_claimed


class OtherQueues:
    """The queues of a store that are not in ConsumeQueue files, form by form.

    If a store has queues in files and in RocksDB, a broker writes each topic into one of them, or into both. It may
    have begun with the second one later, or have ended it. So a queue that is also in files is compared only in the
    part of the log that its database has: from its first entry up to the offset that the database states.

    Attributes:
        queues: All queues that were found, including damaged ones, each with the part of the log to compare.
        cannot_tell: The reason why queues cannot be listed at all, or None if they can.
    """

    def __init__(self, store: CheckedStore) -> None:
        self._store = store
        self.queues: dict[core.Queue, core.OffsetRange] = {}
        self.cannot_tell: Finding | None = None

    def findings(self) -> Iterator[Finding]:
        """Yield at most one finding of each kind for each queue. Raises StoreAccessError."""
        path = str(self._store.path)
        where = replace(core.QueuesOf.of(path), config=self._store.config)
        for form in core.queue_forms(path):
            with closing(form.open(where)) as index:
                try:
                    queues = self._listed(form, index, where)
                except (errors.StoreError, errors.MissingExtraError) as error:
                    errors.raise_if_refused(error)
                    kind = Kind.QUEUE_FILE_SIZE if form.has_all else Kind.MISSING_QUEUE
                    self.cannot_tell = Finding(kind, form.folder(path), f"cannot be read: {error}")
                    yield self.cannot_tell
                    return
                self.queues |= queues
                yield from self._compare(index, queues)

    def _listed(
        self, form: core.QueueForm, index: core.QueueIndex, where: core.QueuesOf
    ) -> dict[core.Queue, core.OffsetRange]:
        """Return the queues of a form to compare. Raises StoreError, MissingExtraError."""
        in_files, whole = self._store.queues, core.OffsetRange(0, self._store.end)
        queues = {core.Queue(*queue) for queue in index.list()}
        if not form.states_end or not in_files:
            return dict.fromkeys(queues - in_files.keys(), whole)
        # The index also lists queues whose messages the database lacks so far, such as those that are only in files.
        topics, stop = form.topics(where), form.end(where.store)
        queues = {queue for queue in queues if queue.topic in topics}
        return {
            queue: core.OffsetRange(_first_offset(index, queue), stop)
            if queue in in_files
            else whole
            for queue in queues
        }

    def _compare(
        self, index: core.QueueIndex, queues: Mapping[core.Queue, core.OffsetRange]
    ) -> Iterator[Finding]:
        rules = compare.rocksdb_rules(tuple(self._store.config.delay_table_ms()))
        scanned = compare.NumberedLog(self._store.files, self._store.end, rules)
        findings: dict[tuple[Kind, core.Queue], Finding] = {}
        expected: Counter[core.Queue] = Counter()
        with closing(core.CommitLogReader(core.StoreLog(self._store.path))) as log:
            size_of, claims = core.batch_size_in(log), _Claims(log)
            for messages in scanned.messages(queues):
                queue, claimed = messages.queue, claims.count
                expected[queue] += len(messages.expected.numbers)
                try:
                    reader = index.queue(*queue)
                    explanations = list(_explain(messages, reader, size_of, claims, self._store))
                # A file of the log or the queue has expired since it was listed.
                except (errors.StoreNotFoundError, errors.MessageNotFoundError):
                    continue
                for finding in explanations:
                    if finding.kind is Kind.MISSING_QUEUE_ENTRY:
                        expected[queue] -= finding.count
                    _add(findings, queue, finding)
                # Several messages of a light queue (LMQ) can share one entry, so expect fewer entries.
                expected[queue] -= claims.count - claimed
        every = [*findings.values(), *self._too_many(index, queues, expected, scanned.readable)]
        in_files = {
            f"{index.folder}/{queue.topic}/{queue.queue_id}"
            for queue in queues.keys() & self._store.queues.keys()
        }
        yield from (finding for finding in every if finding.file not in in_files)
        yield from _second([finding for finding in every if finding.file in in_files], index.folder)

    def _too_many(
        self,
        index: core.QueueIndex,
        queues: Mapping[core.Queue, core.OffsetRange],
        expected: Counter[core.Queue],
        readable: list[core.OffsetRange],
    ) -> Iterator[Finding]:
        """Yield findings for entries to which no message belongs.

        One finding counts the entries that lead beyond the end of the log. Each other finding is for a queue that has
        more entries than messages. Entries that lead into unreadable parts of the log are not counted.
        """
        store = self._store
        if store.is_live:
            return
        beyond = 0
        for queue, part in sorted(queues.items()):
            try:
                reader = index.queue(*queue)
                offsets = _stored_offsets(reader, max(store.begin, part.start))
            # `_compare` has reported the error.
            except errors.StoreError:
                continue
            offsets.sort()
            # Entries after the part that is compared lead beyond the log, or nothing shows whether they are right.
            if part.stop < store.end:
                offsets = offsets[: np.searchsorted(offsets, part.stop)]
            edges = np.searchsorted(offsets, np.array(readable, np.int64).reshape(-1, 2))
            beyond += len(offsets) - int(np.searchsorted(offsets, store.end))
            if (count := int((edges[:, 1] - edges[:, 0]).sum()) - expected[queue]) > 0:
                detail = "entries without a message of this queue"
                yield Finding(Kind.FOREIGN_QUEUE_ENTRY, reader.folder, detail, count=count)
        if beyond:
            yield store.lost_end(beyond)


def _second(findings: Sequence[Finding], folder: str) -> Iterator[Finding]:
    """Yield one finding for these findings of queues that are also in files, which a broker reads."""
    if findings:
        first = min(findings, key=lambda finding: finding.physical_offset or 0)
        count = sum(finding.count for finding in findings)
        queues = counted(len({finding.file for finding in findings}), "queue")
        yield Finding(
            Kind.SECOND_QUEUES, folder,
            f"{counted(count, 'entry', 'entries')} of {queues} missing or wrong; the first: {first.file}: "
            f"{first.detail}",
            physical_offset=first.physical_offset, count=count,
        )  # fmt: skip


def _first_offset(index: core.QueueIndex, queue: core.Queue) -> int:
    """Return the physical offset to which the first entry of a queue leads. Raises StoreError."""
    reader = index.queue(*queue)
    with suppress(errors.MessageNotFoundError, errors.FormatError):
        return reader.entry(reader.min_queue_offset(0)).physical_offset
    return 0


def _add(
    findings: dict[tuple[Kind, core.Queue], Finding], queue: core.Queue, finding: Finding
) -> None:
    """Add a finding. For each kind and queue, keep only the first finding, and add the counts of the others to it."""
    first = findings.get((finding.kind, queue))
    if first is not None:
        finding = replace(first, count=first.count + finding.count)
    findings[finding.kind, queue] = finding


def _stored_offsets(reader: core.QueueReader, begin: int) -> npt.NDArray[np.int64]:
    """Return physical offsets of a queue's entries from physical offset `begin` on. Raises StoreError."""
    first, stop = reader.min_queue_offset(begin), reader.max_queue_offset()
    parts = [np.empty(0, np.int64)]
    for data in reader.entry_bytes(first, stop):
        parts.append(np.frombuffer(data, ENTRY_DTYPE)["physical_offset"].astype(np.int64))
    offsets = np.concatenate(parts)
    return offsets[offsets >= begin]


def _explain(
    messages: compare.NumberedMessages,
    reader: core.QueueReader,
    size_of: core.BatchSizeOf,
    claims: _Claims,
    store: CheckedStore,
) -> Iterator[Finding]:
    """Yield one finding for the missing entries of these messages, and one for the wrong entries."""
    expected, numbered = messages.expected, dict[int, ConsumeQueueEntry]()
    position, stop = int(expected.numbers[0]), int(expected.numbers[-1]) + 1
    while position < stop:
        try:
            numbered.update(reader.numbered(position, stop))
            break
        except core.LostEntriesError as error:
            # Continue after the gap, but advance by at least one entry, so that the loop ends.
            detail, position = error.reason, max(error.resume_offset, position + 1)
            yield Finding(Kind.QUEUE_GAP, reader.folder, detail)
        except errors.StoreError as error:
            errors.raise_if_refused(error)
            if store.is_live and isinstance(
                error, (errors.StoreNotFoundError, errors.MessageNotFoundError)
            ):
                raise
            yield Finding(Kind.QUEUE_FILE_SIZE, reader.folder, f"cannot be read: {error}")
            return

    def finding(kind: Kind, row: int, count: int, detail: str) -> Finding:
        text = f"queue offset {expected.numbers[row]} {detail}"
        at = int(expected.offsets[row])
        return Finding(kind, reader.folder, text, physical_offset=at, count=count)

    def is_shared(row: int, place: compare.EntryPlace) -> bool:
        """Return whether the entry belongs to another message with the same queue offset."""
        if messages.is_of_earlier(row, place):
            return True
        is_by_key = reader.kind.numbering is core.Numbering.KEY
        message_offset, number = int(expected.offsets[row]), int(expected.numbers[row])
        return is_by_key and claims.is_of_another(messages.queue, number, place, message_offset)

    run = messages.compare(compare.NumberedEntries.of(numbered, reader.kind), size_of)
    missing = run.missing
    if len(missing):
        # If the broker has deleted the message's log file, it may also have deleted the entry.
        missing = missing[expected.offsets[missing] >= store.begin_now()]
    if len(missing):
        yield finding(Kind.MISSING_QUEUE_ENTRY, int(missing[0]), len(missing), "has no entry")
    different = zip(run.different.tolist(), run.places, strict=True)
    wrong = [row for row, place in different if not is_shared(row, place)]
    if wrong:
        entry = tuple(numbered[int(expected.numbers[wrong[0]])])
        detail = f"has the entry {entry}, but its message has {messages.place(wrong[0])}"
        yield finding(Kind.WRONG_QUEUE_ENTRY, wrong[0], len(wrong), detail)
