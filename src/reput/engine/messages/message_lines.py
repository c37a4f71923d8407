"""Write many messages at once as JSON lines, in the form of `reput.engine.messages.codec`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.core import LocatedRecord
from reput.engine.messages.decode import Records
from reput.engine.messages.json_columns import (
    NULL,
    Base64,
    Integers,
    JsonColumn,
    JsonTexts,
    Raw,
    Runs,
    column_of,
    label_of,
    render,
    runs_of,
    text_or_base64,
)
from reput.engine.messages.schema import BATCH_BYTES, BODY_ERROR, room
from reput.format.commit_log import PHYSICAL_OFFSET_POSITION
from reput.format.message_fields import JSON_FIELDS, MessageField
from reput.kernels import json_rows as kernel
from reput.kernels import record_columns
from reput.kernels.json_rows import MISSING, PRESENT

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_AT_ONCE = 1 << 12
"""Number of messages whose lines are built at once. These lines fit into the processor's cache."""

_TRANSACTIONS = (b"none", b"prepared", b"commit", b"rollback")


def log_lines(
    data: Bytes,
    positions: Offsets,
    offsets: Offsets | None = None,
    on_wrong_crc: Callable[[int], None] = lambda offset: None,
) -> Iterator[memoryview]:
    """Yield the lines of the records that begin at `positions` of `data`, with line ends, many lines at a time.

    Args:
        data: uint8, bytes of the log.
        positions: int64[n], the starts of records. Their lengths must have been checked (`reput.core.log.scan`).
        offsets: int64[n], the physical offsets of these records; None for the offsets that the records themselves
            state.
        on_wrong_crc: Called with the physical offset of each record whose body does not match the CRC in the record.
    """
    for start in range(0, len(positions), _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        some = np.ascontiguousarray(positions[rows])
        places = _stated_offsets(data, some) if offsets is None else offsets[rows]
        for records in Records(data, some, places, "", True).by_bodies(BATCH_BYTES):
            matches = records.column("body_crc_ok").to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(~matches):
                on_wrong_crc(records.physical_offset(int(row)))
            yield render(_fields(records, matches), len(records), b"}\n").data.data


def record_lines(records: Sequence[LocatedRecord]) -> Iterator[memoryview]:
    """Yield the lines of records that were read one by one."""
    for start in range(0, len(records), _AT_ONCE):
        some = records[start : start + _AT_ONCE]
        parts = [record.record() for record in some]
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        offsets = np.fromiter((record.physical_offset for record in some), np.int64, len(parts))
        data = np.frombuffer(b"".join(parts), np.uint8)
        yield from log_lines(data, np.cumsum(sizes) - sizes, offsets)


def _stated_offsets(data: Bytes, positions: Offsets) -> Offsets:
    out = np.empty(len(positions), np.int64)
    record_columns.gather_i64(data, positions, PHYSICAL_OFFSET_POSITION, out)
    return out


def _fields(records: Records, have_crc: npt.NDArray[np.bool_]) -> list[JsonColumn]:
    # Decode `properties` first: this also finds the tags, keys and unique keys, which are then not searched again.
    properties = records.column("properties")
    columns: list[JsonColumn] = []
    for field in JSON_FIELDS:
        label = label_of(b"," if columns else b"{", field.json_name)
        if field.name == "properties":
            columns.append(column_of(properties, label))
            columns += _properties_string(records, properties)
        elif field.name == "body":
            columns += _body(records)
        elif field.name == "body_crc_ok":
            columns.append(_one_of((b"false", b"true"), _bodies_match(records, have_crc), label))
        elif field.name != BODY_ERROR.name:
            columns.append(_field(records, field, label))
    return columns


def _field(records: Records, field: MessageField, label: bytes) -> JsonColumn:
    """Return a field that every line has. The fields of bodies and properties are in the callers."""
    name = field.name
    if name == "topic":
        return JsonTexts(_runs(records, name), label)
    if name in ("unique_key", "tags"):
        return _property(records, name, label)
    if name == "transaction":
        return _one_of(_TRANSACTIONS, records.numbers("sys_flag") >> 2 & 3, label + b'"', b'"')
    # Hosts and ids need no escapes.
    if field.type == "host" or name == "message_id":
        return Raw(runs_of(records.column(name)), label + b'"', b'"')
    if field.type == "time":
        return Integers(records.numbers(name), np.ones(len(records), np.uint8), label)
    return column_of(records.column(name), label)


def _property(records: Records, name: str, label: bytes) -> JsonTexts:
    spans = records.spans
    starts, counts = np.ascontiguousarray(spans[name]), spans[f"{name}_bytes"]
    kinds = np.where(counts > 0, PRESENT, MISSING).astype(np.uint8)
    return JsonTexts(Runs(records.data, starts, starts + counts, kinds), label, label + NULL)


def _runs(records: Records, part: str) -> Runs:
    starts, counts = records.part(part), records.part(f"{part}_bytes")
    return Runs(records.data, starts, starts + counts, np.ones(len(records), np.uint8))


def _one_of(
    texts: Sequence[bytes], which: npt.NDArray[np.int32], label: bytes, end: bytes = b""
) -> Raw:
    stops = np.cumsum([len(text) for text in texts])
    starts = stops - [len(text) for text in texts]
    data = np.frombuffer(b"".join(texts), np.uint8)
    return Raw(Runs(data, starts[which], stops[which], np.ones(len(which), np.uint8)), label, end)


def _bodies_match(records: Records, have_crc: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Return for each record whether its body has the CRC that the record states. An empty body has the CRC 0.

    have_crc  the result of a broker's check for each record. A broker accepts any CRC for an empty body. This function
              does not.
    """
    empty = records.part("body_bytes") == 0
    if not empty.any():
        return have_crc.astype(np.int32)
    return np.where(empty, records.crcs() == 0, have_crc).astype(np.int32)


def _properties_string(records: Records, properties: pa.MapArray) -> list[JsonColumn]:
    """Return a column with the stored properties strings, for the rows whose map is not enough to restore the string.

    The map `properties` is enough if a message that is put with these properties gets the same string. If the maps of
    all rows are enough, return no column. Strings that are not UTF-8 are in a second column, in base64.
    """
    runs = _runs(records, "properties")
    valid, ordered = room(len(records), np.uint8), room(len(records), np.uint8)
    kernel.are_utf8(runs.data, runs.starts, runs.stops, valid)
    names, values = runs_of(properties.keys), runs_of(properties.items)
    maps = properties.offsets.to_numpy()
    kernel.are_in_hash_map_order(names.data, names.starts, names.stops, maps, ordered)
    # The expected length of a properties string: all names and values, one separator in each pair, and one separator
    # after each pair except the last.
    counts = np.diff(maps)
    ends = np.concatenate(
        [[0], np.cumsum(names.stops - names.starts + values.stops - values.starts)]
    )
    lengths = ends[maps[1:]] - ends[maps[:-1]] + 2 * counts - 1
    is_whole = lengths == runs.stops - runs.starts
    has_unique_key = records.spans["unique_key_bytes"] > 0
    # If a message is put with its properties as a map, a missing UNIQ_KEY is added, and the properties are written in
    # the order of Java's HashMap. So a map cannot restore a properties string that lacks UNIQ_KEY, or whose properties
    # are in another order.
    needed = ~(is_whole & has_unique_key & valid.view(np.bool_) & ordered.view(np.bool_))
    return (
        text_or_base64(runs.only(needed), b",", "properties_string", "properties_base64")
        if needed.any()
        else []
    )


def _body(records: Records) -> list[JsonColumn]:
    """Return the body as it was sent.

    For a compressed body, also return the stored bytes. If it cannot be decompressed, return the stored bytes as the
    body, and the reason.
    """
    runs = _runs(records, "body")
    if not records.stored.compressed:
        return text_or_base64(runs, b",", "body")
    errors = records.column("body_error")
    was_compressed = np.zeros(len(records), np.bool_)
    was_compressed[records.stored.compressed] = True
    was_compressed &= errors.is_null().to_numpy(zero_copy_only=False)
    reasons = runs_of(errors)
    return [
        *text_or_base64(runs_of(records.column("body")), b",", "body"),
        Base64(runs.only(was_compressed), b',"body_stored_base64":'),
        JsonTexts(reasons.only(reasons.kinds == PRESENT), b',"body_error":'),
    ]
