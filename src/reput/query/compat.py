"""Queries by key exactly as a 4.9.3 broker answers them.

Cap, whole seconds, order, early stops, collisions and all.

Mirrors `IndexService.queryOffset`, `IndexFile.selectPhyOffset`, `DefaultMessageStore.queryMessage`
and the filter of the client's `MQAdminImpl.queryMessage` (tag rocketmq-all-4.9.3). Where a chain
would lead the broker round in circles for ever, it is cut after as many steps as the file has
items.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from reput.errors import MessageNotFoundError, ReputError, UsageError
from reput.format.index_file import IndexHeader, index_key, key_hash
from reput.format.java_integer import wrap_int64
from reput.format.properties import KEY_SEPARATOR, KEYS
from reput.index.reader import IndexFileReader
from reput.query.broker_view import BrokerView, UnreadableError
from reput.store.answers import QueryMessageResult, QueryOffsetResult
from reput.store.store_reader import StoreReader

_PASSES = 3


def query_offset(
    store: StoreReader, topic: str, key: str, max_num: int, begin: int, end: int
) -> QueryOffsetResult:
    """IndexService.queryOffset. Raises UsageError where the broker throws: a negative `max_num`."""
    if max_num < 0:
        raise UsageError(f"max_num must be at least 0, not {max_num}", arguments=["max_num"])
    max_num = min(max_num, store.config.max_query_messages)
    wanted = key_hash(index_key(topic, key))
    offsets: list[int] = []
    last: IndexHeader | None = None
    for file in reversed(store.index.current()):
        header = file.header()
        last = last or header
        if _is_time_matched(header, begin, end):
            _select(file, header, wanted, max_num, begin, end, offsets)
        if header.begin_timestamp < begin or len(offsets) >= max_num:
            break
    if last is None:
        return QueryOffsetResult(())
    return QueryOffsetResult(tuple(offsets), last.end_timestamp, last.end_physical_offset)


def _is_time_matched(header: IndexHeader, begin: int, end: int) -> bool:
    first, last = header.begin_timestamp, header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


def _select(
    file: IndexFileReader,
    header: IndexHeader,
    wanted: int,
    max_num: int,
    begin: int,
    end: int,
    offsets: list[int],
) -> None:
    """IndexFile.selectPhyOffset: add to `offsets` what the chain of the hash has in the window."""
    item, count = file.slot(wanted % file.hash_slots), header.next_item
    if not 0 < item <= count or count <= 1:
        return
    for _ in range(count):
        if len(offsets) >= max_num or item >= file.index_items:
            return
        found_hash, offset, time_diff_s, previous = file.item(item)
        if time_diff_s < 0:
            return
        timestamp = wrap_int64(header.begin_timestamp + time_diff_s * 1000)
        if found_hash == wanted and begin <= timestamp <= end:
            offsets.append(offset)
        if not 0 < previous <= count or previous == item or timestamp < begin:
            return
        item = previous


def query_message(
    store: StoreReader, view: BrokerView, topic: str, key: str, max_num: int, begin: int, end: int
) -> QueryMessageResult:
    """DefaultMessageStore.queryMessage: what the index points to, collisions of the hash included.

    Raises UsageError where the broker throws, StoreAccessError.
    """
    view.begin()
    answer = QueryMessageResult(())
    for _ in range(_PASSES):
        found = query_offset(store, topic, key, max_num, begin, end)
        if not found.physical_offsets:
            break
        handed_out, size_bytes, end = _read(view, sorted(found.physical_offsets), end)
        answer = QueryMessageResult(
            answer.physical_offsets + tuple(handed_out),
            found.index_last_update_timestamp,
            found.index_last_update_physical_offset,
        )
        if size_bytes > 0 or end < begin:
            break
    return answer


def query_records(
    store: StoreReader, view: BrokerView, topic: str, key: str, max_num: int, begin: int, end: int
) -> tuple[QueryMessageResult, list[bytes]]:
    """The same with the records, but for those that expired meanwhile. Raises CorruptMessageError, too."""
    found = query_message(store, view, topic, key, max_num, begin, end)
    records = []
    for offset in found.physical_offsets:
        with suppress(MessageNotFoundError):
            records.append(view.record(offset))
    return found, records


def _read(view: BrokerView, offsets: list[int], end: int) -> tuple[list[int], int, int]:
    """(offsets of messages to hand out, their bytes, the end of the next pass's window)."""
    handed_out, size_bytes = [], 0
    for number, offset in enumerate(offsets):
        try:
            if number == 0:
                timestamp = view.store_timestamp(offset)
                if timestamp is None:
                    continue  # the broker trips over what it did not get, for this offset alone
                end = timestamp
            size = view.message_size(offset)
        except UnreadableError:
            continue
        if size is not None:
            handed_out.append(offset)
            size_bytes += size
    return handed_out, size_bytes, end


def client_matched(
    store: StoreReader, physical_offsets: Iterable[int], topic: str, key: str
) -> tuple[int, ...]:
    """The offsets whose messages a client keeps: its own topic, and the key among KEYS."""
    kept = []
    for offset in physical_offsets:
        try:
            message = store.get(offset)
        except ReputError:
            continue
        keys = message.properties.get(KEYS)
        if keys is not None and message.topic == topic and key in _split(keys):
            kept.append(offset)
    return tuple(kept)


def _split(keys: str) -> list[str]:
    """Java's `keys.split(" ")`: empty parts at the end do not count."""
    return keys.rstrip(KEY_SEPARATOR).split(KEY_SEPARATOR) if keys.strip(KEY_SEPARATOR) else []
