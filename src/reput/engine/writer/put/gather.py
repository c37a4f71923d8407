"""Convert messages to columns. For each attribute, one pass over all messages collects the attribute's values.

Messages whose properties have the same names share columns. If the properties cannot be put into columns, or may be
invalid, the properties string of each message is encoded separately. This encoding also refuses invalid messages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from numbers import Integral
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from reput.engine.writer.put.columns import BORN_NOW, PropertyTexts, PutColumns, Texts, ends_of
from reput.engine.writer.put.message import (
    Message,
    encode_born_host,
    joined_keys,
    properties_string,
)
from reput.engine.writer.put.record_form import FORM_OF_FOUR, RecordForm
from reput.engine.writer.put.routing import delayed, may_be_delayed
from reput.errors import MessageRefusedError
from reput.format.commit_log import CRC_PROPERTY
from reput.format.host import Host
from reput.format.java_string import encode_utf8, hash_map_order
from reput.format.message_id import UNIQUE_KEY_BYTES, UniqueKeys
from reput.format.properties import (
    KEY_SEPARATOR,
    KEYS,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    TAGS,
    UNIQ_KEY,
)
from reput.kernels.jit import new_rows
from reput.kernels.record_layout import PUT_DTYPE

_Value = TypeVar("_Value", bound=Hashable)
_Names = tuple[str, ...] | None
_MOST_NAMES = 12
"""Maximum number of properties of a message whose properties are put as columns, one per property.

With more properties, a Java HashMap has more buckets, and so another order.
"""
# Number of messages of a put that are searched first for rare fields, such as a host or a flag. If any message has such
# a field, usually one of the first messages has one, and the other messages need not be searched.
_PROBED = 1 << 6
_NUMBERS: tuple[tuple[str, Callable[[Sequence[Message]], list[int]]], ...] = (
    ("flag", lambda messages: [m.flag for m in messages]),
    ("sys_flag", lambda messages: [m.sys_flag for m in messages]),
    ("reconsume_times", lambda messages: [m.reconsume_times for m in messages]),
    (
        "prepared_transaction_offset",
        lambda messages: [m.prepared_transaction_offset for m in messages],
    ),
)


class _DoubtError(Exception):
    """Raised if the properties of several messages cannot be encoded together, or may be invalid.

    The caller then encodes each message's properties separately.
    """


def from_messages(
    messages: Sequence[Message],
    unique_keys: UniqueKeys,
    now_ms: int,
    store_host: Host,
    delay_levels: int,
    form: RecordForm = FORM_OF_FOUR,
) -> PutColumns:
    """Return the messages as columns. Messages with a DELAY are converted to the form in which they are stored.

    Raises MessageRefusedError.
    """
    shapes = shapes_of(messages)
    if any(map(may_be_delayed, shapes)):
        messages = [delayed(m, delay_levels, form) for m in messages]
        shapes = shapes_of(messages)
    rows = new_rows(len(messages), PUT_DTYPE)
    topics, rows["topic"] = _numbered([m.topic for m in messages])
    if _are_plain(messages):
        hosts, rows["born_host"] = [store_host], 0
        for name, _ in _NUMBERS:
            rows[name] = 0
        rows["born_timestamp"] = BORN_NOW
    else:
        hosts, rows["born_host"] = _numbered([m.born_host or store_host for m in messages])
        try:
            _fill_numbers(rows, messages)
        except OverflowError as error:
            raise MessageRefusedError(
                f"a number does not fit its field of the record: {error}"
            ) from None
    encoded_topics = Texts.of([form.encode_topic(topic) for topic in topics])
    queue_ids = np.fromiter(_integers([m.queue_id for m in messages]), np.int64, len(messages))
    queues = PutColumns.number_queues(rows, topics, queue_ids)
    return PutColumns(
        rows=rows,
        bodies=Texts.of([m.body for m in messages]),
        properties=_properties(messages, shapes, unique_keys, now_ms, form),
        topics=encoded_topics,
        hosts=Texts.of([encode_born_host(host) for host in hosts]),
        queues=queues,
        form=form,
    )


def _are_plain(messages: Sequence[Message]) -> bool:
    """Return whether no message sets a host, time, flag or count.

    One pass over all fields is faster than one per field.
    """
    for some in (messages[:_PROBED], messages[_PROBED:]):
        if [
            True
            for m in some
            if m.flag != 0
            or m.sys_flag != 0
            or m.reconsume_times != 0
            or m.prepared_transaction_offset != 0
            or m.born_timestamp is not None
            or m.born_host is not None
        ]:
            return False
    return True


def _numbered(values: list[_Value]) -> tuple[list[_Value], npt.NDArray[np.int32] | int]:
    """Return the distinct values, and for each element the index of its value."""
    if values and values.count(values[0]) == len(values):
        return values[:1], 0
    number = {value: at for at, value in enumerate(dict.fromkeys(values))}
    return list(number), np.fromiter(map(number.__getitem__, values), np.int32, len(values))


def _fill_numbers(rows: npt.NDArray[np.void], messages: Sequence[Message]) -> None:
    """Set the integer columns. Raises OverflowError."""
    count = len(messages)
    for name, values_of in _NUMBERS:
        values = _integers(values_of(messages))
        rows[name] = 0 if values.count(0) == count else values
    born = [m.born_timestamp for m in messages]
    _integers([time for time in born if time is not None])
    rows["born_timestamp"] = (
        BORN_NOW
        if born.count(None) == count
        else [BORN_NOW if time is None else time for time in born]
    )


def _integers(values: list[int]) -> list[int]:
    """Check that all values are integers, and return them.

    Raises TypeError for other values, because NumPy would silently convert strings and fractions.
    """
    types = set(map(type, values)) - {int}
    if any(not issubclass(kind, Integral) for kind in types):
        raise TypeError
    return values


def _properties(
    messages: Sequence[Message],
    shapes: dict[_Names, list[int]],
    unique_keys: UniqueKeys,
    now_ms: int,
    form: RecordForm,
) -> list[PropertyTexts]:
    columns: list[PropertyTexts] = []
    for names, members in shapes.items():
        group = messages if len(shapes) == 1 else [messages[row] for row in members]
        try:
            texts_of = _shared_columns(names, group)
        except _DoubtError:
            strings = [properties_string(m, unique_keys, now_ms, form) for m in group]
            texts_of = [(b"", Texts.of(strings))]
        if len(shapes) > 1:
            texts_of = [(name, texts.spread(members, len(messages))) for name, texts in texts_of]
        columns += texts_of
    return columns


def shapes_of(messages: Sequence[Message]) -> dict[_Names, list[int]]:
    """Group messages by the names of their properties, and return the rows of each group.

    The group None has the messages whose properties are given as a string. If there is only one group, an empty list
    stands for all rows.
    """
    properties = [m.properties for m in messages]
    if not any(properties) and set(map(type, properties)).isdisjoint((str, bytes)):
        return {(): []}
    names: list[_Names] = [
        None if isinstance(value, str | bytes) else tuple(value) for value in properties
    ]
    shapes: dict[_Names, list[int]] = {name: [] for name in names}
    if len(shapes) > 1:
        for row, name in enumerate(names):
            shapes[name].append(row)
    return shapes


def _shared_columns(names: _Names, messages: Sequence[Message]) -> list[PropertyTexts]:
    """Return one column per property. All messages have properties with exactly the names `names`.

    Raises _DoubtError if the properties cannot be put into columns, or may be invalid. Raises MessageRefusedError.
    """
    if names is None or len(names) + len((KEYS, TAGS, UNIQ_KEY)) > _MOST_NAMES:
        raise _DoubtError
    if CRC_PROPERTY in names:
        raise _DoubtError
    if "" in names or NAME_SEPARATOR in "".join(names) or PROPERTY_SEPARATOR in "".join(names):
        raise _DoubtError
    columns: dict[str, Texts] = {}
    for name in names:
        # `names` is not None here, so all properties are mappings.
        columns[name] = _texts([m.properties[name] for m in messages])  # type: ignore[index,call-overload]
        # Messages with an empty value are encoded one by one, by `properties_string`. That function decides whether the
        # empty value is allowed.
        if not np.diff(columns[name].at).all():
            raise _DoubtError
    for name, texts in (
        (KEYS, _keys([m.keys for m in messages])),
        (TAGS, _tags([m.tags for m in messages])),
    ):
        if texts is not None:
            # A message may give keys (or tags) twice: in its attribute and in `properties`. `properties_string` decides
            # which of them are stored.
            if name in columns:
                raise _DoubtError
            columns[name] = texts
    if UNIQ_KEY not in columns:
        columns[UNIQ_KEY] = Texts(None, np.arange(len(messages) + 1) * UNIQUE_KEY_BYTES)
    return [(encode_utf8(name), columns[name]) for name in hash_map_order(tuple(columns))]


def _keys(rows: Sequence[Sequence[str] | None]) -> Texts | None:
    """Return the KEYS column, or None if no message has keys."""
    try:
        # The most frequent case: each message has one key. A message without keys (None) raises TypeError here, and a
        # message with several keys raises ValueError.
        single = [key for (key,) in rows]  # type: ignore[misc]
    except (TypeError, ValueError):
        if not any(rows):
            return None
        return _texts([keys if isinstance(keys, str) else joined_keys(keys) for keys in rows])
    joined = "".join(single)
    texts = _joined_texts(single, joined)
    if KEY_SEPARATOR in joined or not np.diff(texts.at).all():
        raise _DoubtError
    return texts


def _tags(tags: Sequence[str | None]) -> Texts | None:
    if tags.count("") == len(tags):
        return None
    return _texts([tag or "" for tag in tags]) if any(tags) else None


def _texts(values: list[str]) -> Texts:
    return _joined_texts(values, "".join(values))


def _joined_texts(values: list[str], joined: str) -> Texts:
    if PROPERTY_SEPARATOR in joined:
        raise _DoubtError
    if joined.isascii():
        return Texts(np.frombuffer(bytearray(joined, "ascii"), np.uint8), ends_of(values))
    return Texts.of([encode_utf8(value) for value in values])
