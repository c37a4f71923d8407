"""Choose the messages to erase: the requested messages, and all their copies in the log.

The whole log is read, once to find the requested messages and once or more to find copies. Indexes cannot find them,
because retries, rolled-back messages and messages inside a batch have no index entries. An index only shows whether a
record has lost a requested key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.base import Progress, silent
from reput.core import LogListing
from reput.engine.messages import CORRUPT_REASON
from reput.engine.tables import IndexBesideLog, dataset, find_logs
from reput.errors import StoreError, UsageError
from reput.format.commit_log import SYS_FLAG_COMPRESSED, SYS_FLAG_INNER_BATCH
from reput.format.message_id import spellings
from reput.format.pop import REVIVE_TOPIC_PREFIX
from reput.format.properties import (
    DEAD_LETTER_ORIGIN_ID,
    HALF_TOPICS,
    OP_TOPICS,
    ORIGIN_MESSAGE_ID,
    TRACE_TOPIC,
    TRACE_TOPIC_PREFIX,
)
from reput.wings.inspect.api import Role, role_of_topic
from reput.wings.serve import compile_filter

_COLUMNS = (
    "physical_offset", "queue_offset", "topic", "queue_id", "size", "sys_flag", "transaction",
    "prepared_transaction_offset", "keys", "unique_keys", "message_id", "store_timestamp", "properties",
    CORRUPT_REASON.name,
)  # fmt: skip
# Maximum number of passes over the log. Each pass finds copies of the copies that the previous pass found. Real chains
# of copies are short, so a few passes find all of them.
_MOST_PASSES = 20
Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Choice:
    """The conditions of an erasure. A message must meet all of them.

    Attributes:
        topics: Topics of the messages to erase; empty for all topics.
        keys: Keys or unique keys, of which a message must have one; empty for all messages. Unique keys may be in
            lower case.
        query: An SQL92 expression of RocketMQ that the properties must match.
        begin_ms, end_ms: Earliest and latest store time, in ms since 1970.
    """

    topics: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    query: str | None = None
    begin_ms: int | None = None
    end_ms: int | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the keys, and each id in upper case."""
        return spellings(*self.keys)

    def check(self) -> None:
        """Raise UsageError if there is no condition, or a condition is invalid."""
        if not self.topics and not self.keys and self.query is None:
            raise UsageError(
                "select the messages to erase with topics, key or query",
                arguments=["topics", "key", "query"],
            )
        for topic in self.topics:
            if _is_internal(topic):
                raise UsageError(
                    f"{topic}: is an internal topic of the broker, without messages of users",
                    arguments=["topics"],
                )
        if self.query is not None:
            compile_filter(self.query, True)

    def keeps(self, rows: pa.RecordBatch) -> Mask:
        """Select the messages to erase: return a mask of the rows that meet all conditions of this choice."""
        met = np.ones(len(rows), np.bool_)
        if self.topics:
            met &= _mask(pc.is_in(rows.column("topic"), pa.array(self.topics, pa.string())))
        if self.begin_ms is not None or self.end_ms is not None:
            times = rows.column("store_timestamp").cast(pa.int64())
            for bound, compare in ((self.begin_ms, pc.greater_equal), (self.end_ms, pc.less_equal)):
                if bound is not None:
                    met &= _mask(compare(times, pa.scalar(bound * 1000, pa.int64())))
        if self.keys:
            # In KEYS, case matters: a text in another case is another key.
            keys, ids = (pa.array(texts, pa.string()) for texts in (self.keys, self.ids))
            met &= _has_a_value(rows.column("keys"), keys) | _has_a_value(
                rows.column("unique_keys"), ids
            )
        if self.query is not None and met.any():
            met[met] = _matching(rows.filter(pa.array(met)).column("properties"), self.query)
        return met


def _mask(array: pa.Array) -> Mask:
    return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _has_a_value(lists: pa.ListArray, values: pa.Array) -> Mask:
    met = np.zeros(len(lists), np.bool_)
    matches = pc.is_in(lists.flatten(), values)
    met[pc.list_parent_indices(lists).filter(matches).to_numpy()] = True
    return met


def _matching(properties: pa.MapArray, query: str) -> Mask:
    """Return a mask of the messages whose properties match `query`, an SQL92 expression of RocketMQ.

    The expression is evaluated once per distinct combination of the values that it uses, because evaluation in Python
    is slow.
    """
    matches, names = compile_filter(query, True)
    if not names:
        return np.full(len(properties), matches({}), np.bool_)
    columns = [pc.map_lookup(properties, pa.scalar(name), "last") for name in names]
    rows = pa.table(columns, names=[str(number) for number in range(len(names))])
    rows = rows.append_column("row", pa.array(np.arange(len(rows))))
    met = np.zeros(len(rows), np.bool_)
    for group in rows.group_by(rows.column_names[:-1]).aggregate([("row", "list")]).to_pylist():
        values = {
            name: group[str(number)]
            for number, name in enumerate(names)
            if group[str(number)] is not None
        }
        met[group["row_list"]] = matches(values)
    return met


@dataclass(slots=True)
class ChosenMessages:
    """The messages to erase.

    Attributes:
        sizes: The size of each record that is erased wholly or in part, by physical offset.
        inner: For inner batches (5.x) that are erased only in part: the queue offsets of the messages to erase, by the
            batch's physical offset. All other records in `sizes` are erased completely.
        counts: Number of messages by role (a `Role`) and topic.
        ids: Unique keys of the messages to erase.
        message_ids: Offset message ids of records that are erased completely.
        keys: KEYS of the messages to erase.
    """

    sizes: dict[int, int] = field(default_factory=dict)
    inner: dict[int, set[int]] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    ids: set[str] = field(default_factory=set)
    message_ids: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)

    @property
    def messages(self) -> int:
        return sum(self.counts.values())

    @property
    def offsets(self) -> Offsets:
        """Return the physical offsets of the records, int64, ascending."""
        return np.array(sorted(self.sizes), np.int64)


@dataclass(slots=True)
class _Links:
    """The identifiers of all messages found so far, by which their copies are found.

    If a 5.x client sends several messages in one call, as a list, each has two unique keys: first its own, then the
    list's. Copies of such a message have only the list's key.

    Attributes:
        ids: The first unique key of each message.
        lists: Unique keys of lists. All messages of a list share its key, so it does not identify copies.
        message_ids: Offset message ids of found messages. Copies name them as their origin.
        origins: Message ids that found messages name as their origin.
        halves: Physical offsets of found half messages. Committed messages name the offset of their half message.
        prepared: Physical offsets of half messages, as stated in the committed messages found so far.
    """

    ids: set[str] = field(default_factory=set)
    lists: set[str] = field(default_factory=set)
    message_ids: set[str] = field(default_factory=set)
    origins: set[str] = field(default_factory=set)
    halves: set[int] = field(default_factory=set)
    prepared: set[int] = field(default_factory=set)

    def count(self) -> int:
        identifiers: tuple[Collection[Any], ...] = (
            self.ids, self.message_ids, self.origins, self.halves, self.prepared,
        )  # fmt: skip
        return sum(map(len, identifiers))


class _Messages:
    """Columns of a batch of rows, decoded on first use."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows

    def column(self, name: str) -> pa.Array:
        return self.rows.column(name)

    @cached_property
    def offsets(self) -> Offsets:
        return np.asarray(self.column("physical_offset").to_numpy())

    @cached_property
    def prepared(self) -> Offsets:
        return np.asarray(self.column("prepared_transaction_offset").to_numpy())

    @cached_property
    def is_batch(self) -> Mask:
        return np.asarray(self.column("sys_flag").to_numpy() & SYS_FLAG_INNER_BATCH != 0)

    @property
    def is_compressed(self) -> Mask:
        return np.asarray(self.column("sys_flag").to_numpy() & SYS_FLAG_COMPRESSED != 0)

    @cached_property
    def ids(self) -> pa.Array:
        """Return the unique key of each row; null if it has none.

        If a 5.x client sent several messages in one call, as a list, each has two unique keys: its own and the list's.
        Return the message's own unique key.
        """
        return self._unique(first=True)

    @cached_property
    def lists(self) -> pa.Array:
        """Return for each message the unique key of the list in which it was sent; null if not in a list.

        A 5.x client can send several messages in one call, as a list with a key (see `_Links`).
        """
        return self._unique(first=False)

    def _unique(self, *, first: bool) -> pa.Array:
        lists = self.column("unique_keys")
        bounds = lists.offsets.to_numpy()
        counts = np.diff(bounds)
        at = bounds[:-1] if first else bounds[1:] - 1
        exists = counts > (0 if first else 1)
        return lists.values.take(pa.array(np.where(exists, at, 0), mask=~exists))

    def origin(self, name: str) -> pa.Array:
        """Return the values of property `name`, in which a copy states the id of its original."""
        return pc.map_lookup(self.column("properties"), pa.scalar(name), "last")


def _among(array: pa.Array, values: pa.Array | Collection[Any]) -> Mask:
    if array.null_count == len(array) or not len(values):
        return np.zeros(len(array), np.bool_)
    if not isinstance(values, pa.Array):
        values = pa.array(list(values), array.type)
    # pc.is_in would match a null with a null, but `values` contains no null.
    return _mask(pc.is_in(array, values))


class Chooser:
    """Finds the messages to erase in one store or archive.

    Attributes:
        ends: For each log file, by the physical offset of its first byte: the physical offset after its last message.
    """

    def __init__(
        self, store: str, choice: Choice, options: Mapping[str, str] | None = None,
        progress: Progress = silent,
    ) -> None:  # fmt: skip
        choice.check()
        self._store, self._choice, self._options = store, choice, options
        self._progress = progress
        self._batch_sizes: dict[int, int] = {}
        self._compressed: set[int] = set()
        self._whole: set[int] = set()
        self._links, self._selection = _Links(), ChosenMessages()
        self._rows: set[tuple[int, int, bool]] = set()
        self._sought_counts: tuple[int, ...] = ()
        self._sought_ids: tuple[pa.Array, pa.Array] = pa.array([]), pa.array([])
        self._begins: list[int] = []
        self.ends: dict[int, int] = {}

    def find(self, *, copies: bool = True) -> ChosenMessages:
        """Read the log, and return the messages to erase.

        Raises:
            StoreError: A part of the log is unreadable, and may contain messages to erase.
            StoreNotFoundError, StoreAccessError, StoreChangedError.
        """
        (log,) = find_logs([self._store], self._options)
        self._begins = [file.start for file in log.files]
        self._check_keys(log)
        for rows, is_inner in self._read("choose"):
            self._take(rows, self._choice.keeps(rows.rows), is_inner)
        for _ in range(_MOST_PASSES if copies and self._rows else 0):
            before = self._links.count(), len(self._rows)
            for rows, is_inner in self._read("copies"):
                self._take(rows, self._copies(rows), is_inner)
            # This pass found neither a new message nor a new identifier, so another pass would find nothing.
            if (self._links.count(), len(self._rows)) == before:
                break
        # If a message was sent in a list of messages, its copies have only the unique key of the list (see `_Links`).
        # So `ids` may contain keys of lists. Do not erase by keys of lists, because a list may also contain messages
        # that are kept.
        self._selection.ids = self._links.ids - self._links.lists
        self._selection.message_ids = self._links.message_ids
        return self._selection

    def _check_keys(self, log: LogListing) -> None:
        """Raise StoreError if the index shows that a record has lost one of the keys of the choice."""
        if not self._choice.keys:
            return
        with IndexBesideLog(log) as index:
            keyed = index.find_by_key(self._choice.topics or None, self._choice.ids)
        for lost in () if keyed is None else keyed.damage:
            raise self._refused(lost.start, lost.detail)

    def _read(self, phase: str) -> Iterator[tuple[_Messages, bool]]:
        """Yield (rows, is_inner): the records of the log, and then the messages inside inner batches (5.x).

        `is_inner` is true for messages inside inner batches.
        """
        for rows in self._scan(phase, unwrap=False):
            sizes = rows.column("size").to_numpy()[rows.is_batch].tolist()
            self._batch_sizes.update(zip(rows.offsets[rows.is_batch].tolist(), sizes, strict=True))
            self._compressed.update(rows.offsets[rows.is_batch & rows.is_compressed].tolist())
            yield rows, False
        # The second scan reads only the messages inside inner batches.
        if not self._batch_sizes:
            return
        batches = np.array(list(self._batch_sizes), np.int64)
        for rows in self._scan(phase, unwrap=True):
            if rows.is_batch.any():
                at = int(rows.offsets[rows.is_batch][0])
                raise self._refused(at, "the messages of a batch cannot be read")
            inner = rows.rows.filter(pa.array(np.isin(rows.offsets, batches)))
            if len(inner):
                yield _Messages(inner), True

    def _scan(self, phase: str, *, unwrap: bool) -> Iterator[_Messages]:
        reader = dataset(
            self._store, _COLUMNS, on_corrupt="row", unwrap_batches=unwrap,
            storage_options=self._options,
        ).to_reader()  # fmt: skip
        done = 0
        for batch in reader:
            damaged = batch.filter(pc.is_valid(batch.column(CORRUPT_REASON.name)))
            if len(damaged):
                at = damaged.column("physical_offset")[0].as_py()
                raise self._refused(at, damaged.column(CORRUPT_REASON.name)[0].as_py())
            done += len(batch)
            self._progress(phase, done, done)
            if not unwrap and len(batch):
                self._note_ends(batch)
            if len(batch):
                yield _Messages(batch)

    def _note_ends(self, batch: pa.RecordBatch) -> None:
        """Note the physical offset after the last message of each log file."""
        starts = np.asarray(batch.column("physical_offset").to_numpy())
        ends = starts + np.asarray(batch.column("size").to_numpy())
        numbers = np.searchsorted(self._begins, starts, "right")
        for number in np.unique(numbers).tolist():
            begin = self._begins[number - 1]
            self.ends[begin] = max(self.ends.get(begin, begin), int(ends[numbers == number].max()))

    def _refused(self, offset: int, reason: str) -> StoreError:
        return StoreError(
            f"{self._store}: physical offset {offset:,}: {reason}; an unreadable range may "
            f"contain messages to erase; repair the store first"
        )

    def _copies(self, rows: _Messages) -> Mask:
        """Return a mask of the rows that are copies of found messages, or from which found messages were copied."""
        links = self._links
        if rows.lists.null_count < len(rows.lists):
            is_linked = _among(rows.lists, links.ids)
            links.lists.update(rows.lists.filter(pa.array(is_linked)).to_pylist())
        ids, origins = self._links_to_search()
        met = _among(rows.ids, ids)
        for name in (ORIGIN_MESSAGE_ID, DEAD_LETTER_ORIGIN_ID):
            met |= _among(rows.origin(name), origins)
        if links.origins:
            met |= _among(rows.column("message_id"), links.origins)
        topics = rows.column("topic")
        is_half = _mask(pc.is_in(topics, pa.array(HALF_TOPICS, topics.type)))
        if links.prepared:
            met |= is_half & np.isin(rows.offsets, list(links.prepared))
        if links.halves:
            met |= ~is_half & np.isin(rows.prepared, list(links.halves))
        is_trace = _mask(
            pc.or_(pc.equal(topics, TRACE_TOPIC), pc.starts_with(topics, TRACE_TOPIC_PREFIX))
        )
        if is_trace.any() and len(ids):
            met |= is_trace & _has_a_value(rows.column("keys"), ids)
        for topic in set(topics.unique().to_pylist()):
            if _is_internal(topic):
                met &= ~_mask(pc.equal(topics, topic))
        return met

    def _links_to_search(self) -> tuple[pa.Array, pa.Array]:
        """Return the unique keys that identify copies, and all ids that copies may name as their origin.

        Both are cached until new ids are found.
        """
        links = self._links
        counts = len(links.ids), len(links.lists), len(links.message_ids)
        if self._sought_counts != counts:
            ids = links.ids - links.lists
            every = (
                pa.array(list(ids), pa.string()),
                pa.array(list(ids | links.message_ids), pa.string()),
            )
            self._sought_counts, self._sought_ids = counts, every
        return self._sought_ids

    def _take(self, rows: _Messages, met: Mask, is_inner: bool) -> None:
        if is_inner and self._whole:
            met = met | np.isin(rows.offsets, list(self._whole))
        at = np.flatnonzero(met)
        if not len(at):
            return
        matches = _Messages(rows.rows.take(pa.array(at)))
        places = list(
            zip(matches.offsets.tolist(), matches.column("queue_offset").to_pylist(), strict=True)
        )
        is_new = np.array([(*place, is_inner) not in self._rows for place in places], np.bool_)
        if not is_new.any():
            return
        self._rows.update((*place, is_inner) for place in places)
        self._link(_Messages(matches.rows.filter(pa.array(is_new))), is_inner)

    def _link(self, rows: _Messages, is_inner: bool) -> None:
        """Add newly found rows, and their identifiers."""
        selection, links = self._selection, self._links
        offsets = rows.offsets.tolist()
        topics = rows.column("topic").to_pylist()
        if is_inner:
            for offset, number in zip(
                offsets, rows.column("queue_offset").to_pylist(), strict=True
            ):
                # Erase all messages of a compressed batch. The record must keep its length, but a compressed body
                # without some of the messages would have another length.
                if offset in self._compressed:
                    self._whole.add(offset)
                    selection.inner.pop(offset, None)
                elif offset not in self._whole:
                    selection.inner.setdefault(offset, set()).add(number)
            for offset in set(offsets) - set(selection.sizes):
                selection.sizes[offset] = self._batch_sizes[offset]
        else:
            selection.sizes.update(zip(offsets, rows.column("size").to_pylist(), strict=True))
            whole = rows.offsets[rows.is_batch].tolist()
            self._whole.update(whole)
            for offset in whole:
                selection.inner.pop(offset, None)
            links.message_ids.update(rows.column("message_id").to_pylist())
            links.halves.update(
                offset
                for offset, topic in zip(offsets, topics, strict=True)
                if topic in HALF_TOPICS
            )
            links.prepared.update(rows.prepared[rows.prepared > 0].tolist())
        # Take no identifiers from trace messages. Their KEYS may also name messages that are not erased. Their own
        # unique keys are not needed: unique keys serve to find copies of a message (such as retries), and trace
        # messages have no copies.
        is_trace = np.array([role_of_topic(topic) is Role.TRACE for topic in topics], np.bool_)
        messages = _Messages(rows.rows.filter(pa.array(~is_trace)))
        links.ids.update(messages.ids.drop_null().to_pylist())
        links.lists.update(messages.lists.drop_null().to_pylist())
        for name in (ORIGIN_MESSAGE_ID, DEAD_LETTER_ORIGIN_ID):
            links.origins.update(messages.origin(name).drop_null().to_pylist())
        selection.keys.update(messages.column("keys").flatten().to_pylist())
        single_topics = [
            topic
            for topic, is_batch in zip(topics, rows.is_batch.tolist(), strict=True)
            if not is_batch
        ]
        selection.counts.update((_role(topic), topic) for topic in single_topics)


def _is_internal(topic: str) -> bool:
    """Return whether a topic has internal records that a broker needs, because it would lose messages without them."""
    return topic in OP_TOPICS or topic.startswith(REVIVE_TOPIC_PREFIX)


def _role(topic: str) -> str:
    return str(role_of_topic(topic) or Role.MESSAGE)
