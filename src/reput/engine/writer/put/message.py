"""A message to put, and the result of a put.

Mirrors `MessageExtBrokerInner`, the checks of `DefaultMessageStore.checkMessage`, and the order of a HashMap, in which
`MessageDecoder.messageProperties2String` encodes properties (tag rocketmq-all-4.9.3). Messages that a broker would
accept but could not return unchanged are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Self

from reput.engine.writer.put.record_form import FORM_OF_FOUR, RecordForm
from reput.errors import MessageRefusedError
from reput.format.commit_log import CRC_PROPERTY, MessageExt, without_record_crc
from reput.format.file_names import is_folder_name
from reput.format.host import Host, encode_host
from reput.format.java_string import encode_utf8, hash_map_order
from reput.format.message_id import UniqueKeys
from reput.format.properties import (
    INNER_MULTI_QUEUE_OFFSET,
    KEY_SEPARATOR,
    KEYS,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    TAGS,
    UNIQ_KEY,
)

_MOST_QUEUE_ID = (1 << 31) - 1
# If the attribute `properties` has one of these types, it is a complete properties string.
_WHOLE = (str, bytes)
_PLAIN = {str, bytes, list, tuple, dict, type(None)}
_KEYS_IS = KEYS + NAME_SEPARATOR
_AND_UNIQ_KEY_IS = PROPERTY_SEPARATOR + UNIQ_KEY + NAME_SEPARATOR


@dataclass(slots=True)
class Message:
    """A message to put. Times are milliseconds since 1970 in UTC.

    Attributes:
        keys: Business keys. A string is stored unchanged; it has keys separated by spaces.
        tags: The tag, or None for a message without a tag.
        properties: Further properties. UNIQ_KEY is created if missing. A string or bytes is a complete properties
            string, which is stored unchanged; `keys` and `tags` must then be omitted.
        sys_flag: Compression and transaction bits. The store sets the bits of the hosts.
        born_timestamp: Time when the client created the message, by default now.
        born_host: The client's address, by default the store's.
    """

    topic: str
    body: bytes = b""
    keys: Sequence[str] | str | None = ()
    tags: str | None = ""
    queue_id: int = 0
    properties: Mapping[str, str] | str | bytes = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: Host | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @classmethod
    def of(cls, stored: MessageExt) -> Self:
        """Return a message that repeats a stored message. After its put, only its place and store time differ."""
        return cls(
            topic=stored.topic,
            body=stored.body,
            queue_id=stored.queue_id,
            properties=stored.properties_bytes,
            flag=stored.flag,
            sys_flag=stored.sys_flag,
            born_timestamp=stored.born_timestamp,
            born_host=stored.born_host,
            reconsume_times=stored.reconsume_times,
            prepared_transaction_offset=stored.prepared_transaction_offset,
        )


class PutResult(NamedTuple):
    """The result of a put: physical offset, queue offset, offset id, store timestamp (ms).

    In RocketMQ: AppendMessageResult.
    """

    physical_offset: int
    queue_offset: int
    message_id: str
    store_timestamp: int


def as_plain(message: Message) -> Message:
    """Return the message with keys and properties of built-in types.

    Methods of other types may run any code, even during the put.
    """
    keys, properties = message.keys, message.properties
    if type(keys) in _PLAIN and type(properties) in _PLAIN:
        return message
    return replace(
        message,
        keys=keys if keys is None or isinstance(keys, str) else tuple(keys),
        properties=properties if isinstance(properties, _WHOLE) else {**properties},
    )


def check_message(message: Message) -> None:
    """Raise MessageRefusedError if no store would take the topic, the keys or the properties of a message."""
    if not is_folder_name(message.topic):
        raise MessageRefusedError(f"topic {message.topic!r} cannot be the name of a folder")
    properties_string(message, UniqueKeys(""), 0)


def properties_string(
    message: Message, unique_keys: UniqueKeys, now_ms: int, form: RecordForm = FORM_OF_FOUR
) -> bytes:
    """Return the properties string of a message, in a broker's order, with a new unique key if it has none.

    Excludes the property for the record's CRC. Raises MessageRefusedError.
    """
    given, keys = message.properties, message.keys
    # Most messages have no property except KEYS. For them, this special case takes half the time of the general case.
    if keys and not given and not message.tags and not isinstance(given, _WHOLE):
        text = _KEYS_IS + _joined_at_once(keys) + _AND_UNIQ_KEY_IS + unique_keys.next(now_ms)
        # The text must have exactly one separator, the one before UNIQ_KEY. If a key contains another separator, the
        # general case below refuses the message.
        if text.count(PROPERTY_SEPARATOR) == 1:
            return form.check_properties(encode_utf8(text + form.ending))
    if isinstance(given, _WHOLE):
        if message.keys or message.tags:
            raise MessageRefusedError(
                "properties given as a string must be complete: put keys and tags into the string"
            )
        data = given if isinstance(given, bytes) else encode_utf8(given)
        return form.check_properties(without_record_crc(data))
    joined = keys if isinstance(keys, str) else joined_keys(keys)
    # The store computes the record's CRC itself.
    properties = {name: given[name] for name in given if name != CRC_PROPERTY}
    if joined:
        properties[KEYS] = joined
    if message.tags:
        properties[TAGS] = message.tags
    if UNIQ_KEY not in properties:
        properties[UNIQ_KEY] = unique_keys.next(now_ms)
    heads = _heads(tuple(properties))
    text = PROPERTY_SEPARATOR.join([head + properties[name] for name, head in heads])
    if text.count(PROPERTY_SEPARATOR) != len(heads) - 1:
        raise MessageRefusedError("a property contains \\x02, which separates properties")
    if "" in properties.values() and not _is_of_no_queue(properties):
        raise MessageRefusedError("a property without a name or a value would be lost; omit it")
    return form.check_properties(encode_utf8(text + form.ending))


def _is_of_no_queue(properties: Mapping[str, str]) -> bool:
    """Return whether INNER_MULTI_QUEUE_OFFSET is the only empty property.

    Properties must not be empty, with this exception: a 5.x broker leaves this property empty if INNER_MULTI_DISPATCH
    names only one queue, and this is not a light queue (%LMQ%...).
    """
    empty = [name for name, value in properties.items() if not value]
    return empty == [INNER_MULTI_QUEUE_OFFSET]


@lru_cache(4096)
def _heads(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return (name, head) for each property, in a broker's order. The head is the name and the separator after it.

    `names` are in insertion order.
    """
    for name in names:
        if NAME_SEPARATOR in name or PROPERTY_SEPARATOR in name:
            raise MessageRefusedError(f"property {name!r}: a name cannot contain \\x01 or \\x02")
    if "" in names:
        raise MessageRefusedError("a property without a name or a value would be lost; omit it")
    return [(name, name + NAME_SEPARATOR) for name in hash_map_order(names)]


def joined_keys(keys: Sequence[str] | None) -> str:
    """Join keys into the value of the KEYS property.

    Raises MessageRefusedError for a key that readers would split or ignore.
    """
    if not keys:
        return ""
    text = KEY_SEPARATOR.join(keys)
    if text.count(KEY_SEPARATOR) != len(keys) - 1 or "" in keys:
        raise MessageRefusedError(
            f"keys {list(keys)!r}: keys must not be empty or contain spaces, which separate keys"
        )
    return text


def _joined_at_once(keys: Sequence[str]) -> str:
    """Return the value of the KEYS property for a string or a list of keys. Raises MessageRefusedError.

    To save time, only lists of several keys are joined: a string is the value itself, and so is the only key of a list.
    """
    if isinstance(keys, str):
        return keys
    if len(keys) == 1 and (key := keys[0]) and KEY_SEPARATOR not in key:
        return key
    return joined_keys(keys)


def check_queue_id(queue_id: int) -> int:
    if not 0 <= queue_id <= _MOST_QUEUE_ID:
        raise MessageRefusedError(f"queue_id {queue_id} is not between 0 and {_MOST_QUEUE_ID}")
    return queue_id


@lru_cache(1024)
def encode_born_host(host: Host) -> bytes:
    """Encode a host. Raises MessageRefusedError if it is not an address and a port."""
    try:
        return encode_host(host)
    except (ValueError, struct.error) as error:
        raise MessageRefusedError(f"born_host {host}: {error}") from None
