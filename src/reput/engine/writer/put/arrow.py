"""Put messages from named columns: an Arrow RecordBatch or Table, or a mapping of names to arrays.

    topic            string (required)
    body             binary or string (required)
    queue_id         integer; default 0
    keys             string as it is stored, or list of strings
    tags             string
    unique_key       string; created if missing
    delay_level      integer; default 0. Level of delay, see `reput.engine.writer.put.routing.delayed`
    flag, sys_flag, reconsume_times   integer; default 0
    born_timestamp   integer, ms since 1970 in UTC; by default the store timestamp
    born_host        string, `address:port`; by default the store's host
    properties       string: the complete properties string, stored unchanged; cannot be combined with keys, tags,
                     unique_key and delay_level

In a mapping, a single value in place of an array applies to all rows. A null has the same effect in its row as a
missing column.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.engine.writer.put.columns import BORN_NOW, PropertyTexts, PutColumns, Texts
from reput.engine.writer.put.message import check_queue_id
from reput.engine.writer.put.record_form import FORM_OF_FOUR, RecordForm
from reput.engine.writer.put.routing import DEFAULT_DELAY_LEVEL_COUNT
from reput.errors import MessageRefusedError, UsageError
from reput.format.commit_log import SYS_FLAG_PREPARED
from reput.format.host import Host, encode_host, parse_host
from reput.format.java_string import encode_utf8, hash_map_order
from reput.format.message_id import UNIQUE_KEY_BYTES
from reput.format.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    PROPERTY_SEPARATOR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TAGS,
    UNIQ_KEY,
)
from reput.kernels.jit import new_rows
from reput.kernels.record_layout import PUT_DTYPE

_PROPERTIES = {"keys": KEYS, "tags": TAGS, "unique_key": UNIQ_KEY}
_OF_DELAYED = {"delay_level": DELAY, "real_topic": REAL_TOPIC, "real_queue_id": REAL_QUEUE_ID}
_NUMBERS = {"flag": 0, "sys_flag": 0, "reconsume_times": 0, "born_timestamp": BORN_NOW}
_NEEDED = ("topic", "body")
_WHOLE, _HOST = "properties", "born_host"
_NAMES = {*_NEEDED, "queue_id", "delay_level", *_PROPERTIES, *_NUMBERS, _WHOLE, _HOST}


def from_columns(
    columns: Any,
    store_host: Host,
    delay_levels: int = DEFAULT_DELAY_LEVEL_COUNT,
    form: RecordForm = FORM_OF_FOUR,
) -> PutColumns:
    """Return the columns of a put. Raises UsageError for invalid columns, MessageRefusedError for invalid values."""
    arrays, count = _arrays(columns)
    rows = new_rows(count, PUT_DTYPE)
    try:
        if "delay_level" in arrays:
            arrays |= _delayed(arrays, count, delay_levels, form)
        topics, rows["topic"] = _encoded(arrays["topic"])
        queue_ids = _numbers(arrays.get("queue_id"), 0, count)
        for name, missing in _NUMBERS.items():
            rows[name] = _numbers(arrays.get(name), missing, count)
        bodies = _texts(arrays["body"], pa.large_binary())
        properties = _properties(arrays)
        hosts, rows["born_host"] = _hosts(arrays.get(_HOST), store_host, count)
    except (pa.ArrowException, OverflowError) as error:
        raise UsageError(f"columns: {error}") from None
    rows["prepared_transaction_offset"] = 0
    return PutColumns(
        rows=rows,
        bodies=bodies,
        properties=properties,
        topics=Texts.of([form.encode_topic(topic) for topic in topics]),
        hosts=Texts.of(hosts),
        queues=PutColumns.number_queues(rows, topics, queue_ids),
        form=form,
    )


def _arrays(columns: Any) -> tuple[dict[str, Any], int]:
    """Return contiguous Arrow arrays by name, and their common length."""
    if isinstance(columns, pa.Table | pa.RecordBatch):
        named: dict[str, Any] = dict(zip(columns.schema.names, columns.columns, strict=True))
    elif isinstance(columns, Mapping):
        named = dict(columns)
    else:
        raise UsageError(f"columns must be a table or a mapping, not a {type(columns).__name__}")
    unknown, missing = named.keys() - _NAMES, set(_NEEDED) - named.keys()
    if unknown or missing:
        raise UsageError(
            f"columns: unknown names {sorted(unknown)}, missing names {sorted(missing)}"
        )
    if _WHOLE in named and (others := {"delay_level", *_PROPERTIES} & named.keys()):
        raise UsageError(f"columns: {_WHOLE} excludes {sorted(others)}; pass one or the other")
    lengths = {len(value) for value in named.values() if not _is_scalar(value)}
    if len(lengths) > 1:
        raise UsageError(f"columns must have one length, not {sorted(lengths)}")
    count = lengths.pop() if lengths else 1
    return {name: _array(value, count) for name, value in named.items()}, count


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | bytes | int)


def _array(value: Any, count: int) -> Any:
    if _is_scalar(value):
        return pa.repeat(pa.scalar(value), count)
    try:
        array = value if isinstance(value, pa.Array | pa.ChunkedArray) else pa.array(value)
    except pa.ArrowException as error:
        raise UsageError(f"columns: {error}") from None
    if not isinstance(array, pa.ChunkedArray):
        return array
    # A plain array has offsets of 32 bits, so it cannot hold the values of all chunks if they exceed 2 GiB.
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        array = array.cast(
            pa.large_string() if pa.types.is_string(array.type) else pa.large_binary()
        )
    return array.combine_chunks()


def _numbers(array: Any, missing: int, count: int) -> npt.NDArray[np.int64]:
    if array is None:
        return np.full(count, missing, np.int64)
    numbers: npt.NDArray[np.int64] = (
        array.cast(pa.int64()).fill_null(missing).to_numpy(zero_copy_only=False)
    )
    if missing != BORN_NOW and len(numbers) and abs(numbers).max() >= 1 << 31:
        raise OverflowError("a number does not fit its field of four bytes in the record")
    return numbers


def _encoded(array: Any) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return the distinct strings of a column, and for each row the index of its string."""
    if array.null_count:
        raise MessageRefusedError("column topic: a message has no topic")
    is_text = pa.types.is_large_string(array.type)
    encoded = (array if is_text else array.cast(pa.string())).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _hosts(
    array: Any, store_host: Host, count: int
) -> tuple[list[bytes], npt.NDArray[np.integer[Any]]]:
    """Return the distinct hosts, and for each row the index of its host. Raises MessageRefusedError."""
    if array is None:
        return [encode_host(store_host)], np.zeros(count, np.int32)
    texts = array.cast(pa.string()).fill_null(str(store_host)).dictionary_encode()
    try:
        hosts = [encode_host(parse_host(text)) for text in texts.dictionary.to_pylist()]
    except ValueError as error:
        raise MessageRefusedError(f"{_HOST}: {error}") from None
    return hosts, texts.indices.to_numpy()


def _properties(arrays: dict[str, Any]) -> list[PropertyTexts]:
    """Return the columns of properties, in a broker's order."""
    if (whole := arrays.get(_WHOLE)) is not None:
        return [(b"", _texts(whole, pa.large_string()))]
    values: dict[str, list[Texts]] = {}
    for column, name in (_PROPERTIES | _OF_DELAYED).items():
        array = arrays.get(column)
        if array is not None:
            if column == "keys" and _is_list(array.type):
                array = _joined_keys(array)
            values[name] = [_checked(_texts(array, pa.large_string()), column)]
        if name == UNIQ_KEY:
            # A row whose unique key is null gets a new one, in a second column. This column is empty in all other rows.
            missing = np.ones(len(arrays["body"])) if array is None else _is_null(array)
            lengths = missing.astype(np.int64) * UNIQUE_KEY_BYTES
            values.setdefault(name, []).append(Texts(None, Texts.bounds_of(lengths)))
    order = hash_map_order(tuple(values))
    return [(encode_utf8(name), texts) for name in order for texts in values[name]]


def _is_null(array: Any) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _delayed(arrays: dict[str, Any], count: int, levels: int, form: RecordForm) -> dict[str, Any]:
    """Return the changed columns of delayed messages. `reput.engine.writer.put.routing.delayed` has the rules."""
    level = _numbers(arrays["delay_level"], 0, count)
    queue_ids = _numbers(arrays.get("queue_id"), 0, count)
    topics = arrays["topic"].cast(pa.string())
    waits = pc.equal(topics, SCHEDULE_TOPIC).to_numpy(zero_copy_only=False)
    prepared = _numbers(arrays.get("sys_flag"), 0, count) & SYS_FLAG_PREPARED != 0
    is_delayed = (level > 0) & ~waits & ~prepared
    if is_delayed.any():
        check_queue_id(int(queue_ids[is_delayed].min()))
    mask, none = pa.array(is_delayed), pa.scalar(None, pa.string())
    for topic in pc.unique(topics.filter(mask)).to_pylist():
        form.encode_topic(topic)
    stored_level = np.where(is_delayed, np.minimum(level, levels), level)
    return {
        "topic": pc.if_else(mask, SCHEDULE_TOPIC, topics),
        "queue_id": pa.array(np.where(is_delayed, stored_level - 1, queue_ids)),
        "delay_level": pc.if_else(level != 0, pa.array(stored_level).cast(pa.string()), none),
        "real_topic": pc.if_else(mask, topics, none),
        "real_queue_id": pc.if_else(mask, pa.array(queue_ids).cast(pa.string()), none),
    }


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _joined_keys(array: Any) -> Any:
    # If all lists are empty, Arrow cannot infer the element type.
    array = array.cast(pa.list_(pa.string()))
    keys = array.flatten()
    bad = pc.or_(pc.match_substring(keys, KEY_SEPARATOR), pc.equal(pc.binary_length(keys), 0))
    if pc.any(bad).as_py():
        raise MessageRefusedError(
            "column keys: a key must not be empty or contain a space, which separates keys"
        )
    return pc.binary_join(array, KEY_SEPARATOR)


def _checked(texts: Texts, column: str) -> Texts:
    if texts.data is not None and (
        ord(PROPERTY_SEPARATOR) in texts.data[texts.at[0] : texts.at[-1]]
    ):
        raise MessageRefusedError(
            f"column {column}: a value contains \\x02, which separates properties"
        )
    return texts


def _texts(array: Any, kind: Any) -> Texts:
    """Return the texts of a column, in the column's own memory. They are copied only if the column has nulls."""
    array = array.cast(kind)
    if array.null_count:
        array = array.fill_null("" if kind == pa.large_string() else b"")
    _, offsets, data = array.buffers()
    at = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return Texts(_view(data), at.copy())


def _view(buffer: Any) -> npt.NDArray[np.uint8]:
    """Return the buffer as an array that kernels accept: it is declared writable, although no kernel writes."""
    if buffer is None or not buffer.size:
        return np.zeros(1, np.uint8)
    view = (ctypes.c_uint8 * buffer.size).from_address(buffer.address)
    view._owner = buffer  # The reference keeps the memory alive as long as the array exists.
    return np.frombuffer(view, np.uint8)
