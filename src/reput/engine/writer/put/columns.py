"""Columns of messages to put. All rows are checked before the first one is put.

The columns come from messages (`reput.engine.writer.put.gather`) or from Arrow columns
(`reput.engine.writer.put.arrow`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import Queue
from reput.engine.writer.put.message import check_queue_id
from reput.engine.writer.put.record_form import FORM_OF_FOUR, RecordForm
from reput.errors import MessageRefusedError
from reput.format.commit_log import FIXED_BYTES, MAX_TOPIC_BYTES, SYS_FLAG_INNER_BATCH
from reput.format.java_string import encode_utf8
from reput.format.message_id import UNIQUE_KEY_BYTES, UniqueKeys
from reput.kernels.record_layout import joined_bytes, write_unique_keys

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
_MOST_NUMBERS = 1 << 16
BORN_NOW = -(1 << 63)
"""A born timestamp that the store replaces by the store timestamp."""


class Texts(NamedTuple):
    """A column of strings: text n is data[at[n]:at[n + 1]].

    If `data` is None, the texts are unique keys, created later.
    """

    data: Bytes | None
    at: Offsets

    @staticmethod
    def bounds_of(lengths: npt.NDArray[np.int64]) -> Offsets:
        """Return the bounds of texts of these lengths in their joined text: int64[n + 1]."""
        at = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=at[1:])
        return at

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> Texts:
        return cls(np.frombuffer(bytearray().join(texts), np.uint8), ends_of(texts))

    def spread(self, rows: Sequence[int], count: int) -> Texts:
        """Return a column of `count` rows with these texts at `rows`, and empty texts elsewhere."""
        lengths = np.zeros(count, np.int64)
        lengths[rows] = np.diff(self.at)
        return Texts(self.data, Texts.bounds_of(lengths))


PropertyTexts = tuple[bytes, Texts]


def ends_of(texts: Sequence[bytes] | Sequence[str]) -> Offsets:
    """Return the bounds of `n` texts in their joined text: int64[n + 1].

    Text i begins at bound i, and ends before bound i + 1.
    """
    return Texts.bounds_of(np.fromiter(map(len, texts), np.int64, len(texts)))


class PutColumnsResult(NamedTuple):
    """Physical offset and queue offset of each row, int64[n], and the store timestamp (ms) of all rows."""

    physical_offset: Offsets
    queue_offset: Offsets
    store_timestamp: int

    @classmethod
    def of(cls, count: int, store_timestamp: int) -> PutColumnsResult:
        return cls(np.zeros(count, np.int64), np.zeros(count, np.int64), store_timestamp)


@dataclass
class PutColumns:
    """Columns of messages.

    Attributes:
        rows: PUT_DTYPE[n]. `queue`, `topic` and `born_host` are indexes into `queues`, `topics` and `hosts`.
        form: Form of the records.
        properties: (name, values) in order. Empty values are omitted. If a name is empty, its values are complete
            properties strings.
    """

    rows: npt.NDArray[np.void]
    bodies: Texts
    properties: list[PropertyTexts]
    topics: Texts
    hosts: Texts
    queues: list[Queue]
    form: RecordForm = FORM_OF_FOUR

    @staticmethod
    def number_queues(
        rows: npt.NDArray[np.void], topics: Sequence[str], queue_ids: npt.NDArray[np.int64]
    ) -> list[Queue]:
        """Set `queue_id` and `queue` of all rows. Return the queues.

        In each row, `topic` is an index into `topics`, and `queue` becomes an index into the returned queues. Raises
        MessageRefusedError.
        """
        if not len(queue_ids):
            return []
        check_queue_id(int(queue_ids.min()))
        most = check_queue_id(int(queue_ids.max()))
        rows["queue_id"] = queue_ids
        # Give each pair of topic and queue id one number.
        place = rows["topic"] * np.int64(most + 1) + queue_ids
        # Counting is faster than sorting, but needs memory for each possible pair of topic and queue id.
        if len(topics) * (most + 1) <= _MOST_NUMBERS:
            places = np.flatnonzero(np.bincount(place))
            number = np.empty(len(topics) * (most + 1), np.int32)
            number[places] = np.arange(len(places))
            rows["queue"] = number[place]
        else:
            places, rows["queue"] = np.unique(place, return_inverse=True)
        return [Queue(topics[at // (most + 1)], at % (most + 1)) for at in places.tolist()]

    def check(self, store_host_bytes: int, max_message_bytes: int) -> int:
        """Return the total size of all records. Raises MessageRefusedError for the first row that is too large."""
        count = len(self.rows)
        if self.form.is_five and (self.rows["sys_flag"] & SYS_FLAG_INNER_BATCH).any():
            raise MessageRefusedError("an inner batch must be put by itself, as a message")
        properties = np.zeros(count, np.int64)
        joined_bytes(self._property_offsets(), self._names().at, self.form.is_five, properties)
        most = self.form.most_properties_bytes
        if count and properties.max() > most:
            row = int(np.argmax(properties > most))
            raise MessageRefusedError(
                f"message {row}: properties of {properties[row]} bytes: at most {most} bytes fit into a record"
            )
        sizes = np.diff(self.bodies.at) + properties
        topics = np.diff(self.topics.at)
        # The length prefix of a topic above 127 bytes (5.x) has two bytes instead of one.
        sizes += (topics + (topics > MAX_TOPIC_BYTES))[self.rows["topic"]]
        sizes += np.diff(self.hosts.at)[self.rows["born_host"]]
        sizes += FIXED_BYTES + store_host_bytes + 1 + self.form.crc_bytes
        if count and sizes.max() > max_message_bytes:
            row = int(np.argmax(sizes > max_message_bytes))
            raise MessageRefusedError(
                f"message {row}: {sizes[row]} bytes: at most {max_message_bytes} bytes fit "
                "(maxMessageSize, and the size of a CommitLog file)"
            )
        return int(sizes.sum())

    def finish(self, unique_keys: UniqueKeys, now_ms: int) -> tuple[Any, ...]:
        """Create missing unique keys and born timestamps. Return arrays for the kernel `lay_out_records`.

        They are consecutive arguments of the kernel: the argument `bodies` is the first, `host_at` the last.
        """
        born = self.rows["born_timestamp"]
        born[born == BORN_NOW] = now_ms
        values = [
            _unique_keys(texts, unique_keys, now_ms) if texts.data is None else texts.data
            for _, texts in self.properties
        ]
        offsets, names = self._property_offsets(), self._names()
        starts = np.cumsum([0, *map(len, values)])[:-1]
        offsets += starts[:, np.newaxis]
        data = values[0] if len(values) == 1 else np.concatenate([*values, np.zeros(1, np.uint8)])
        return (*self.bodies, data, offsets, *names, *self.topics, *self.hosts)

    def next_offsets(self, queue_offsets: Mapping[tuple[str, int], int]) -> Offsets:
        return np.array([queue_offsets.get(queue, 0) for queue in self.queues], np.int64)

    def _names(self) -> Texts:
        return Texts.of([name for name, _ in self.properties])

    def _property_offsets(self) -> Offsets:
        count = len(self.rows)
        offsets = np.empty((len(self.properties), count + 1), np.int64)
        for number, (_, texts) in enumerate(self.properties):
            offsets[number] = texts.at
        return offsets


def _unique_keys(texts: Texts, unique_keys: UniqueKeys, now_ms: int) -> Bytes:
    out = np.empty(int(texts.at[-1]), np.uint8)
    elapsed_ms, counter = unique_keys.take(len(out) // UNIQUE_KEY_BYTES, now_ms)
    write_unique_keys(out, as_array(encode_utf8(unique_keys.prefix)), elapsed_ms, counter)
    return out


def as_array(data: bytes) -> Bytes:
    """Return bytes as a writable array, which kernels require."""
    return np.frombuffer(bytearray(data), np.uint8)
