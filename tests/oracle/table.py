"""The table of messages, row by row: every column, from the records as the oracle reads them."""

import ipaddress
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.oracle.java_text import split
from tests.oracle.records import STORE_HOST_V6, Buffer, Record
from tests.oracle.walk import Damage, LogListing, Walk, has_data, proven_records, walk

Row = dict[str, Any]
_TRANSACTIONS = ("none", "prepared", "commit", "rollback")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPRESSED = 1
_MICROS = 1 << 63


def row_of(offset: int, record: Record, store: str, *, decompressed: bool = True) -> Row:
    """Return the row of a record at that log offset. Times are microseconds since 1970."""
    return {
        "store": store,
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": offset,
        "size": record.total_size,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "born_timestamp": _micros(record.born_timestamp),
        "born_host": _host(record.born_host),
        "store_timestamp": _micros(record.store_timestamp),
        "store_host": _host(record.store_host),
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "transaction": _TRANSACTIONS[record.transaction_type >> 2],
        "unique_key": record.properties.get("UNIQ_KEY"),
        "keys": [key for key in split(record.properties.get("KEYS", ""), " ") if key],
        "tags": record.properties.get("TAGS"),
        "properties": record.properties,
        "body": _body(record) if decompressed else record.body,
        "body_crc_ok": not record.body or record.body_crc == zlib.crc32(record.body) & 0x7FFFFFFF,
        "message_id": _message_id(record, offset),
    }


def rows(files: LogListing, store: str, *, decompressed: bool = True) -> list[Row]:
    """Return the rows of a log without damage, in log order. A record that states another place has no row."""
    found = walk(files)
    assert found.damage == []
    placed = [
        (offset, record) for offset, record in found.records if record.physical_offset == offset
    ]
    return [row_of(*item, store, decompressed=decompressed) for item in placed]


def salvaged(files: LogListing) -> Walk:
    """Walk a damaged log, and continue after damage at the next verifiable record of the same file."""
    found = Walk()
    used = [number for number, (_, data) in enumerate(files) if has_data(data)]
    for start, data in files[: used[-1] + 1] if used else []:
        at = 0
        while at < len(data):
            at = _walk_to_damage(found, start, data, at)
    last_record = max((offset for offset, _ in found.records), default=-1)
    for lost in found.damage:
        if lost.offset > max(last_record, start) and not any(
            proven_records(start, data, lost.offset - start)
        ):
            found.damage = [item for item in found.damage if item.offset < lost.offset]
            break
    return found


def _walk_to_damage(found: Walk, start: int, data: Buffer, at: int) -> int:
    """Walk one file from a position; return where to continue after the first damage, or the file's end."""
    # This is not a torn end: data follows.
    part = walk([(start + at, bytes(data[at:])), (start + len(data), b"\1")])
    lost = next((d for d in part.damage if d.offset < start + len(data)), None)
    end = start + len(data) if lost is None else lost.offset
    found.records += [item for item in part.records if item[0] < end]
    if lost is None:
        return len(data)
    resume = lost.offset - start + lost.length
    proven = proven_records(start, data, lost.offset - start)
    resume = min([resume, *proven])
    found.damage.append(Damage(lost.offset, start + resume - lost.offset, lost.reason))
    return resume


def timestamp(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def _micros(milliseconds: int) -> int | None:
    """Return microseconds, or None if no 64-bit timestamp holds them."""
    return milliseconds * 1000 if -_MICROS < milliseconds * 1000 < _MICROS else None


def _host(host: tuple[bytes, int]) -> str:
    address = ipaddress.ip_address(host[0])
    return f"[{address}]:{host[1]}" if address.version == 6 else f"{address}:{host[1]}"


def _body(record: Record) -> bytes:
    """Return the body as sent, or as stored if it cannot be decompressed."""
    if not record.sys_flag & _COMPRESSED:
        return record.body
    try:
        return zlib.decompress(record.body)
    except zlib.error:
        return record.body


def _message_id(record: Record, offset: int) -> str:
    address, port = record.store_host
    assert len(address) == (16 if record.sys_flag & STORE_HOST_V6 else 4)
    place = address + port.to_bytes(4, "big", signed=True) + offset.to_bytes(8, "big")
    return place.hex().upper()
