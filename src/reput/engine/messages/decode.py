"""Decode many CommitLog records at once into columns of `reput.engine.messages.schema`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.core import NO_NAMES, BrokerNames
from reput.engine.messages.schema import (
    ALL_COLUMNS,
    BODY_ERROR,
    CORRUPT_REASON,
    booleans,
    integers,
    nested,
    room,
    select,
    strings,
    texts,
    validity,
)
from reput.format.bodies import BodyError, BodyTooLargeError, decompress
from reput.format.commit_log import BODY_CRC_POSITION, SYS_FLAG_COMPRESSED
from reput.format.host import HOST_V4_BYTES, HOST_V6_BYTES, decode_host
from reput.format.java_string import decode_utf8
from reput.format.message_fields import NAMED_FIELDS, Place
from reput.format.properties import decode_properties
from reput.format.real_queue import is_meant_for_another, real_queue
from reput.kernels import property_columns as properties_kernel
from reput.kernels import record_columns as kernel
from reput.kernels.jit import new_rows

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_TRANSACTIONS = ("none", "prepared", "commit", "rollback")
_WORD_BYTES = 8  # Kernels copy texts 8 bytes at a time, so buffers need this much extra room.
_OF_BODIES = {"body", BODY_ERROR.name}


class BadBody(NamedTuple):
    """A row whose body could not be decompressed. The row contains the body as stored.

    reason: the reason
    is_too_large: whether the body is valid but exceeds the limit
    """

    row: int
    reason: str
    is_too_large: bool


class SentBodies(NamedTuple):
    """The decompressed bodies of some consecutive rows of `StoredBodies`, as the producers sent them.

    stop: the next row of the `StoredBodies` after these rows
    bodies: the decompressed bodies by row, where 0 is the first of these rows; bodies stored without compression are
    missing, and a body that cannot be decompressed is as stored
    """

    stop: int
    bodies: dict[int, bytes]
    bad: list[BadBody]


class StoredBodies:
    """Stored bodies in a buffer. Arrays with one row per message contain their positions, lengths and system flags."""

    def __init__(
        self,
        data: npt.NDArray[np.uint8],
        starts: Offsets,
        counts: Offsets,
        sys_flags: npt.NDArray[np.int32],
    ) -> None:
        self._data, self._starts, self._counts, self._sys_flags = data, starts, counts, sys_flags

    @cached_property
    def compressed(self) -> list[int]:
        """Return the rows with compressed bodies."""
        rows: list[int] = np.flatnonzero(self._sys_flags & SYS_FLAG_COMPRESSED).tolist()
        return rows

    def decompress(self, start: int, most_bytes: float) -> SentBodies:
        """Decompress bodies from row `start` on, at least one, until their total size reaches `most_bytes`."""
        bodies: dict[int, bytes] = {}
        bad: list[BadBody] = []
        total = 0
        for row in self.compressed[np.searchsorted(self.compressed, start) :]:
            if total >= most_bytes:
                return SentBodies(row, bodies, bad)
            place = self._starts[row]
            data = self._data[place : place + self._counts[row]].data
            try:
                body = decompress(data, int(self._sys_flags[row]))
            except BodyError as error:
                body = bytes(data)
                reason = f"the body is shown as stored: {error}"
                bad.append(BadBody(row - start, reason, isinstance(error, BodyTooLargeError)))
            bodies[row - start] = body
            total += len(body)
        return SentBodies(len(self._sys_flags), bodies, bad)


def decode_batch(
    data: Bytes,
    positions: Offsets,
    columns: Iterable[str] | None = None,
    *,
    base: int = 0,
    store: str = "",
    decompressed: bool = True,
) -> tuple[pa.RecordBatch, list[BadBody]]:
    """Decode columns of the records that begin at `positions` in `data`, as one batch.

    Args:
        data: uint8, bytes of a CommitLog file.
        positions: int64[n], starts of records. Their lengths must have been checked (`reput.core.log.scan`).
        columns: Names of `reput.engine.messages.schema`, in the requested order; None for `COLUMNS`.
        base: Physical offset of the first byte of `data`.
        store: Value of the column `store`.
        decompressed: Whether to decompress bodies. This function does not limit their total size, so the caller must
            ensure that it is at most 2 GiB, as `Records.batches` does.

    Returns:
        The batch, and the rows whose bodies could not be decompressed and stay as stored.

    Raises:
        UsageError: a column is unknown.
    """
    schema = select(columns)
    records = Records(data, positions, positions + base, store, decompressed)
    return records.batch(schema), records.bad_bodies


class Records:
    """Records in a buffer. Each column is decoded when it is requested.

    `offsets` are the physical offsets of the records. `names` has the values of the columns `broker` and `cluster`.
    `decode_batch` describes the other arguments.
    """

    def __init__(
        self,
        data: Bytes,
        positions: Offsets,
        offsets: Offsets,
        store: str,
        decompressed: bool,
        names: BrokerNames = NO_NAMES,
    ) -> None:
        self.data, self._positions, self._offsets = data, positions, offsets
        self._store, self._decompressed, self._names = store, decompressed, names
        self._part_columns: dict[str, Offsets] = {"record": np.ascontiguousarray(positions)}
        self.bad_bodies: list[BadBody] = []

    def __len__(self) -> int:
        return len(self._positions)

    def physical_offset(self, row: int) -> int:
        """Return the physical offset of a row's record."""
        return int(self._offsets[row])

    def batches(
        self, schema: pa.Schema, most_bytes: int
    ) -> Iterator[tuple[Records, pa.RecordBatch]]:
        """Yield batches with at most about `most_bytes` of decompressed bodies each, together with their records.

        The peak of memory is the compressed records, `most_bytes` of bodies, and one further body.
        """
        if not _OF_BODIES & set(schema.names):
            yield self, self.batch(schema)
            return
        for part in self.by_bodies(most_bytes):
            yield part, part.batch(schema)
            del part  # Free the memory of this part before the next batch is created.

    def by_bodies(self, most_bytes: int) -> Iterator[Records]:
        """Yield the records in parts with at most about `most_bytes` of decompressed bodies."""
        if not (self._decompressed and self.stored.compressed):
            yield self
            return
        start = 0
        while start < len(self):
            sent = self.stored.decompress(start, most_bytes)
            rows = slice(start, sent.stop)
            places = self._positions[rows], self._offsets[rows]
            part = Records(self.data, *places, self._store, True, self._names)
            part.sent = sent
            start = sent.stop
            yield part
            del part, sent  # Free the memory of this part before the next part is created.

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the columns of `schema` in one batch."""
        # Decode `properties` first: splitting them also finds the tags, keys and unique keys of the other columns.
        order = sorted(schema.names, key=lambda name: name != "properties")
        arrays = {name: self.column(name) for name in order}
        return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)

    def column(self, name: str) -> pa.Array:
        """Return the column of this name."""
        place, stop = NAMED_FIELDS[name].place, NAMED_FIELDS[name].stop
        if place is not None and stop is not None:
            return self._hosts(place, stop)
        if NAMED_FIELDS[name].type == "time":
            return self._times(name)
        if place is not None:
            return integers(self.numbers(name))
        make: Callable[[], pa.Array] = getattr(self, f"_make_{name}")
        return make()

    @cached_property
    def _parts(self) -> npt.NDArray[np.void]:
        parts = new_rows(len(self), kernel.PARTS_DTYPE)
        kernel.locate_parts(self.data, self._positions, parts)
        return parts

    @cached_property
    def spans(self) -> npt.NDArray[np.void]:
        """Return the positions of tags, keys and unique keys in `data`.

        The positions are cached. `_make_properties` also finds the positions and adds them to the cache, so the
        properties are searched only once.
        """
        spans = new_rows(len(self), properties_kernel.SPANS_DTYPE)
        properties_kernel.find_spans(self.data, self._parts, spans)
        return spans

    def part(self, name: str) -> Offsets:
        """Return one field of `PARTS_DTYPE` for all records: the position of a part of the record, or its length."""
        if name not in self._part_columns:
            self._part_columns[name] = np.ascontiguousarray(self._parts[name])
        return self._part_columns[name]

    @cached_property
    def _properties_room(self) -> int:
        """Return an upper limit for the UTF-8 bytes of the properties of all records together.

        It is also a limit for texts that are part of the properties, such as tags and keys.
        """
        starts, counts = self.part("properties"), self.part("properties_bytes")
        return int(kernel.worst_text_bytes(self.data, starts, counts))

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Return a field of fixed size from each record: an integer, or a time in milliseconds."""
        field = NAMED_FIELDS[name]
        assert field.place is not None
        return self._numbers_at(field.place, np.int32 if field.type == "int32" else np.int64)

    def crcs(self) -> npt.NDArray[np.int32]:
        """Return the CRC of the body that each record states."""
        return self._numbers_at(Place("record", BODY_CRC_POSITION), np.int32)

    def _numbers_at(self, place: Place, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        out = room(len(self), kind)
        gather = kernel.gather_i32 if out.itemsize == 4 else kernel.gather_i64
        gather(self.data, self.part(place.part), place.step, out)
        return out

    def _times(self, name: str) -> pa.Array:
        place = NAMED_FIELDS[name].place
        assert place is not None
        micros, valid = room(len(self), np.int64), room(len(self), np.uint8)
        # A damaged time may not fit into 64 bits as microseconds. It becomes null.
        missing = kernel.gather_micros(self.data, self.part(place.part), place.step, micros, valid)
        kind = ALL_COLUMNS.field(name).type
        return pa.Array.from_buffers(
            kind, len(self), [validity(valid, missing), pa.py_buffer(micros)]
        )

    def _make_unique_key(self) -> pa.Array:
        return self._property("unique_key")

    def _make_tags(self) -> pa.Array:
        return self._property("tags")

    def _property(self, name: str) -> pa.Array:
        """Return texts from the properties; null for empty texts."""
        out = room(self._properties_room, np.uint8)
        return self._copied(self.spans[name], self.spans[f"{name}_bytes"], out)

    def _copied(self, starts: Offsets, counts: Offsets, out: Bytes) -> pa.Array:
        offsets, valid = room(len(self) + 1, np.int32), room(len(self), np.uint8)
        starts, counts = np.ascontiguousarray(starts), np.ascontiguousarray(counts)
        used, empty = kernel.copy_texts(self.data, starts, counts, offsets, out, valid)
        buffers = [validity(valid, empty), pa.py_buffer(offsets), pa.py_buffer(out[:used])]
        return pa.Array.from_buffers(pa.string(), len(self), buffers)

    def _make_topic(self) -> pa.Array:
        starts, counts = self.part("topic"), self.part("topic_bytes")
        most = int(kernel.worst_text_bytes(self.data, starts, counts))
        # `_copied` returns null for empty texts, which is right for a missing tag. But a topic is never null.
        topics = self._copied(starts, counts, room(most, np.uint8))
        return topics.fill_null("") if topics.null_count else topics

    def _make_keys(self) -> pa.Array:
        counts = np.ascontiguousarray(self.spans["keys_bytes"])
        lists = room(len(self) + 1, np.int32)
        # Each key takes at least two bytes: a character and a separator.
        offsets = room(int(((counts + 1) // 2).sum()) + 1, np.int32)
        out = room(self._properties_room, np.uint8)
        starts = np.ascontiguousarray(self.spans["keys"])
        keys, used = properties_kernel.split_keys(self.data, starts, counts, lists, offsets, out)
        return nested("keys", lists, [strings(offsets, keys, out, used)])

    def _make_unique_keys(self) -> pa.Array:
        starts, counts = self.part("properties"), self.part("properties_bytes")
        most = int(((counts + 1) // properties_kernel.LEAST_UNIQUE_KEY_BYTES).sum()) + 1
        lists, offsets = room(len(self) + 1, np.int32), room(most, np.int32)
        out = room(self._properties_room, np.uint8)
        ids, used = properties_kernel.split_unique_keys(
            self.data, starts, counts, lists, offsets, out
        )
        return nested("unique_keys", lists, [strings(offsets, ids, out, used)])

    def _make_properties(self) -> pa.Array:
        counts = self.part("properties_bytes")
        most = int(((counts + 1) // properties_kernel.LEAST_PROPERTY_BYTES).sum()) + 1
        maps = room(len(self) + 1, np.int32)
        name_offsets, value_offsets = room(most, np.int32), room(most, np.int32)
        names = room(self._properties_room + _WORD_BYTES, np.uint8)
        values = room(self._properties_room + _WORD_BYTES, np.uint8)
        self.spans = new_rows(len(self), properties_kernel.SPANS_DTYPE)
        progress = np.zeros(2, np.int64)
        out = (self.spans, maps, name_offsets, names, value_offsets, values, progress)
        properties_kernel.split_properties(self.data, self._parts, *out)
        # The fast kernel stops at properties with escapes or malformed UTF-8. A slower kernel continues there.
        if progress[0] < len(self):
            properties_kernel.split_any_properties(self.data, self._parts, *out)
        pairs = int(progress[1])
        kind = ALL_COLUMNS.field("properties").type
        entries = pa.StructArray.from_arrays(
            [
                strings(name_offsets, pairs, names, int(name_offsets[pairs])),
                strings(value_offsets, pairs, values, int(value_offsets[pairs])),
            ],
            fields=[kind.key_field, kind.item_field],
        )
        return nested("properties", maps, [entries])

    def _hosts(self, start: Place, stop: Place) -> pa.Array:
        # A host is 8 or 20 bytes long (IPv4, IPv6), so its end must be known as well as its beginning.
        starts, stops = self.part(start.part), self.part(stop.part) + stop.step
        # A batch has few different hosts. A hash table numbers them, and each is formatted only once.
        # The table is at most half full, so that searches in it are short.
        slots = np.zeros(1 << (2 * len(self)).bit_length(), np.int32)
        first, number = room(len(self), np.int64), room(len(self), np.int32)
        used = kernel.number_runs(self.data, starts, start.step, stops, slots, first, number)
        hosts = [
            str(decode_host(self.data[starts[row] + start.step : stops[row]].tobytes()))
            for row in first[:used].tolist()
        ]
        if used == 1:
            return pa.repeat(texts(hosts)[0], len(self))
        return texts(hosts).take(integers(number))

    @cached_property
    def _sys_flags(self) -> npt.NDArray[np.int32]:
        return self.numbers("sys_flag")

    @cached_property
    def stored(self) -> StoredBodies:
        return StoredBodies(self.data, self.part("body"), self.part("body_bytes"), self._sys_flags)

    @cached_property
    def sent(self) -> SentBodies:
        """Return the decompressed bodies."""
        return self.stored.decompress(0, float("inf"))

    def _make_body(self) -> pa.Array:
        starts, counts = self.part("body"), self.part("body_bytes")
        if self._decompressed and self.stored.compressed:
            view, sent = self.data.data, self.sent.bodies
            self.bad_bodies = self.sent.bad
            spans = enumerate(zip(starts.tolist(), counts.tolist(), strict=True))
            bodies = [
                sent[row] if row in sent else view[start : start + count]
                for row, (start, count) in spans
            ]
            return pa.array(bodies, pa.binary())
        offsets = room(len(self) + 1, np.int32)
        out = room(int(counts.sum()), np.uint8)
        kernel.copy_runs(self.data, starts, counts, offsets, out)
        return pa.Array.from_buffers(
            pa.binary(), len(self), [None, pa.py_buffer(offsets), pa.py_buffer(out)]
        )

    def _make_body_crc_ok(self) -> pa.Array:
        match = room(len(self), np.uint8)
        kernel.bodies_match(self.data, self._parts, match)
        return booleans(match)

    def _make_corrupt_reason(self) -> pa.Array:
        return pa.nulls(len(self), CORRUPT_REASON.type)

    def _make_body_error(self) -> pa.Array:
        if not (self._decompressed and self.sent.bad):
            return pa.nulls(len(self), BODY_ERROR.type)
        reasons: list[str | None] = [None] * len(self)
        for bad in self.sent.bad:
            reasons[bad.row] = bad.reason
        return pa.array(reasons, BODY_ERROR.type)

    def _make_message_id(self) -> pa.Array:
        starts = self.part("store_timestamp")
        # A message id is the hexadecimal form of the store host and of the physical offset (8 bytes).
        host, stop = NAMED_FIELDS["store_host"].place, NAMED_FIELDS["store_host"].stop
        assert host is not None
        assert stop is not None
        host_bytes = self.part(stop.part) + stop.step - host.step - starts
        widths = {HOST_V4_BYTES: 2 * (HOST_V4_BYTES + 8), HOST_V6_BYTES: 2 * (HOST_V6_BYTES + 8)}
        counts = np.where(host_bytes == HOST_V4_BYTES, widths[HOST_V4_BYTES], widths[HOST_V6_BYTES])
        offsets = np.zeros(len(self) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        out = room(int(offsets[-1]), np.uint8)
        kernel.put_message_ids(self.data, starts, self._offsets, offsets, out)
        return strings(offsets, len(self), out, len(out))

    def _make_physical_offset(self) -> pa.Array:
        return integers(self._offsets)

    def _make_size(self) -> pa.Array:
        return integers(self._numbers_at(Place("record", 0), np.int32).astype(np.int64))

    def _make_store(self) -> pa.Array:
        return self._repeated(self._store)

    def _make_broker(self) -> pa.Array:
        return self._repeated(self._names.broker)

    def _make_cluster(self) -> pa.Array:
        return self._repeated(self._names.cluster)

    def _repeated(self, text: str | None) -> pa.Array:
        if text is None:
            return pa.nulls(len(self), pa.string())
        return pa.repeat(texts([text])[0], len(self))

    def _make_real_topic(self) -> pa.Array:
        mask, queues = self._real_queues
        topics = [topic for topic, _ in queues]
        return pc.replace_with_mask(self.column("topic"), mask, pa.array(topics, pa.string()))

    def _make_real_queue_id(self) -> pa.Array:
        mask, queues = self._real_queues
        queue_ids = [queue_id for _, queue_id in queues]
        return pc.replace_with_mask(self.column("queue_id"), mask, pa.array(queue_ids, pa.int32()))

    @cached_property
    def _real_queues(self) -> tuple[pa.Array, list[tuple[str | None, int | None]]]:
        """Return which messages wait in an internal topic, and the topic and queue to which they will be delivered."""
        topics = self.column("topic")
        internal = [topic for topic in pc.unique(topics).to_pylist() if is_meant_for_another(topic)]
        mask = pc.is_in(topics, pa.array(internal, pa.string()))
        starts, counts = self.part("properties"), self.part("properties_bytes")
        queues = []
        for row in np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist():
            data = self.data[starts[row] : starts[row] + counts[row]].tobytes()
            properties = decode_properties(decode_utf8(data))
            queues.append(real_queue(topics[row].as_py(), properties))
        return mask, queues

    def _make_transaction(self) -> pa.Array:
        # Bits 2 and 3 of the system flag are the type of the transaction (MessageSysFlag).
        return texts(_TRANSACTIONS).take(integers((self._sys_flags >> 2 & 3).astype(np.int8)))
