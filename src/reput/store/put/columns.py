"""Messages to put as columns, checked as a whole before one is put.

From messages (`from_messages`), or from named columns as Arrow has them (`reput.store.put.arrow`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import MessageRefusedError
from reput.format.commit_log import MAX_PROPERTIES_BYTES
from reput.format.host import Host, encode_host
from reput.format.java_string import encode_utf8
from reput.format.record_parts import FIXED_BYTES
from reput.format.unique_key import UNIQUE_KEY_BYTES, UniqueKeys
from reput.kernels.record_layout import PUT_DTYPE, joined_bytes, write_unique_keys
from reput.kernels.rows import new_rows
from reput.store.dispatch_batch import Queue
from reput.store.put.message import Message, check_queue_id, encode_topic, properties_string

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
BORN_NOW = -(1 << 63)
"""A born timestamp that stands for the store timestamp."""


class Texts(NamedTuple):
    """A column of strings: text n is data[at[n]:at[n + 1]]."""

    data: Bytes
    at: Offsets

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> Texts:
        at = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=at[1:])
        return cls(as_array(b"".join(texts)), at)


class PutColumnsResult(NamedTuple):
    """physical_offset and queue_offset int64[n] by row, and when all were stored (ms)."""

    physical_offset: Offsets
    queue_offset: Offsets
    store_timestamp: int

    @classmethod
    def of(cls, count: int, store_timestamp: int) -> PutColumnsResult:
        return cls(np.zeros(count, np.int64), np.zeros(count, np.int64), store_timestamp)


@dataclass
class PutColumns:
    """Columns of messages.

    rows        PUT_DTYPE[n]; `queue` counts `queues`, `topic` and `born_host` the texts of that name
    properties  (name, values) in order; an empty value is left out, values without a name are whole strings;
                None in place of the values are unique keys to be made
    """

    rows: npt.NDArray[np.void]
    bodies: Texts
    properties: list[tuple[bytes, Texts | None]]
    topics: Texts
    hosts: Texts
    queues: list[Queue]

    def check(self, store_host_bytes: int, max_message_bytes: int) -> int:
        """Bytes of all records. Raises MessageRefusedError for the first row that is too large."""
        count = len(self.rows)
        properties = np.zeros(count, np.int64)
        joined_bytes(self._property_offsets(), self._names().at, properties)
        if count and properties.max() > MAX_PROPERTIES_BYTES:
            row = int(np.argmax(properties > MAX_PROPERTIES_BYTES))
            raise MessageRefusedError(
                f"message {row}: properties of {properties[row]} bytes: "
                f"a record has room for {MAX_PROPERTIES_BYTES}"
            )
        sizes = np.diff(self.bodies.at) + properties
        sizes += np.diff(self.topics.at)[self.rows["topic"]]
        sizes += np.diff(self.hosts.at)[self.rows["born_host"]]
        sizes += FIXED_BYTES + store_host_bytes + 1
        if count and sizes.max() > max_message_bytes:
            row = int(np.argmax(sizes > max_message_bytes))
            raise MessageRefusedError(
                f"message {row}: {sizes[row]} bytes in all: the limit is {max_message_bytes} "
                "(maxMessageSize, and what a CommitLog file can hold)"
            )
        return int(sizes.sum())

    def finish(self, unique_keys: UniqueKeys, now_ms: int) -> tuple[Any, ...]:
        """The kernel's arrays from `bodies` to `host_at`, unique keys made and born timestamps set."""
        born = self.rows["born_timestamp"]
        born[born == BORN_NOW] = now_ms
        values = [
            self._make_unique_keys(unique_keys, now_ms) if texts is None else texts.data
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
            offsets[number] = np.arange(count + 1) * UNIQUE_KEY_BYTES if texts is None else texts.at
        return offsets

    def _make_unique_keys(self, unique_keys: UniqueKeys, now_ms: int) -> Bytes:
        count = len(self.rows)
        elapsed_ms, counter = unique_keys.take(count, now_ms)
        out = np.empty(count * UNIQUE_KEY_BYTES, np.uint8)
        prefix = as_array(encode_utf8(unique_keys.prefix))
        write_unique_keys(out, prefix, elapsed_ms, counter)
        return out


def from_messages(
    messages: Sequence[Message], unique_keys: UniqueKeys, now_ms: int, store_host: Host
) -> PutColumns:
    """The same messages as columns. Raises MessageRefusedError."""
    queues: dict[tuple[str, int], int] = {}
    topics: dict[str, int] = {}
    hosts: dict[Host, int] = {}
    rows = new_rows(len(messages), PUT_DTYPE)
    rows["queue"] = [queues.setdefault((m.topic, m.queue_id), len(queues)) for m in messages]
    rows["topic"] = [topics.setdefault(m.topic, len(topics)) for m in messages]
    rows["born_host"] = [hosts.setdefault(m.born_host or store_host, len(hosts)) for m in messages]
    for _, queue_id in queues:
        check_queue_id(queue_id)
    try:
        _fill_numbers(rows, messages)
    except OverflowError as error:
        raise MessageRefusedError(f"a number that does not fit its field: {error}") from None
    strings = [properties_string(m, unique_keys.next(now_ms)) for m in messages]
    return PutColumns(
        rows=rows,
        bodies=Texts.of([m.body for m in messages]),
        properties=[(b"", Texts.of(strings))],
        topics=Texts.of([encode_topic(topic) for topic in topics]),
        hosts=Texts.of([encode_host(host) for host in hosts]),
        queues=[Queue(*queue) for queue in queues],
    )


def _fill_numbers(rows: npt.NDArray[np.void], messages: Sequence[Message]) -> None:
    rows["queue_id"] = [m.queue_id for m in messages]
    rows["born_timestamp"] = [
        BORN_NOW if m.born_timestamp is None else m.born_timestamp for m in messages
    ]
    for name in ("flag", "sys_flag", "reconsume_times", "prepared_transaction_offset"):
        rows[name] = [getattr(m, name) for m in messages]


def as_array(data: bytes) -> Bytes:
    """The same bytes in an array as the kernels want it."""
    return np.frombuffer(bytearray(data), np.uint8)
