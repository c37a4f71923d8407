"""CommitLog records: the oracle's bytes, the broker's bytes, and invalid bytes."""

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.format import commit_log
from reput.format.commit_log import (
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MIN_RECORD_BYTES,
    MessageExt,
    RecordError,
    SizeMismatchError,
    decode,
    encode,
    encode_blank,
    is_proven,
    locate,
    read_size_and_magic,
    read_size_and_physical_offset,
)
from reput.format.host import Host
from reput.format.java_string import encode_utf8
from reput.testing.strategies import messages
from tests.golden.stores import SHIPPED, GoldenStore
from tests.oracle import records as oracle
from tests.oracle.forge import Host as OracleHost
from tests.oracle.forge import RecordFields, encode_record
from tests.oracle.random_logs import LogOptions, random_log
from tests.oracle.walk import read_log

Golden = Callable[[str], GoldenStore]
FIELDS = RecordFields("topic", b"body" * 20, {"KEYS": "K1 K2", "TAGS": "t"}, physical_offset=640)
RECORD = encode_record(FIELDS)


def oracle_host(host: Host) -> OracleHost:
    return ip_address(host.address).packed, host.port


def oracle_record(message: MessageExt) -> bytes:
    return encode_record(
        RecordFields(
            topic=encode_utf8(message.topic),
            body=message.body,
            properties=message.properties_bytes,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            physical_offset=message.physical_offset,
            sys_flag=message.sys_flag,
            flag=message.flag,
            born_timestamp=message.born_timestamp,
            born_host=oracle_host(message.born_host),
            store_timestamp=message.store_timestamp,
            store_host=oracle_host(message.store_host),
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            magic=message.magic & 0xFFFFFFFF,
        )
    )


@given(messages())
def test_records_are_the_oracles_and_come_back(message: MessageExt) -> None:
    record = encode(message)
    assert record == oracle_record(message)
    assert len(record) == message.size_bytes
    decoded = decode(record)
    assert decoded == message
    assert decoded.body_crc_ok
    assert is_proven(record, 0, len(record), message.physical_offset)
    assert not is_proven(record, 0, len(record), message.physical_offset ^ 1)


@given(messages(), st.binary(max_size=9), st.binary(max_size=9))
def test_a_record_may_lie_anywhere_in_a_buffer(
    message: MessageExt, before: bytes, after: bytes
) -> None:
    record = encode(message)
    buffer = memoryview(before + record + after)
    assert decode(buffer, len(before)) == message
    with pytest.raises(RecordError):
        decode(buffer, len(before), len(before) + len(record) - 1)


def outcome(data: bytes) -> tuple[str, object]:
    """Return what `locate` and `decode` find in bytes, in the oracle's terms."""
    try:
        layout = locate(data, 0, len(data))
    except SizeMismatchError as mismatch:
        return "mismatch", mismatch.part_bytes
    except RecordError:
        return "unreadable", None
    message = decode(data)
    assert layout.total_bytes == message.size_bytes <= len(data)
    return "record", oracle_view(message)


def oracle_outcome(data: bytes) -> tuple[str, object]:
    try:
        item = oracle.decode(data)
    except oracle.UnreadableError as error:
        return ("delay" if "delay level" in str(error) else "unreadable"), None
    if isinstance(item, oracle.SizeMismatch):
        return "mismatch", item.length
    if isinstance(item, oracle.Blank):
        return "unreadable", None
    return "record", oracle_fields(item)


def oracle_fields(item: oracle.Record) -> tuple[object, ...]:
    return (
        item.total_size, item.body_crc, item.queue_id, item.flag, item.queue_offset,
        item.physical_offset, item.sys_flag, item.born_timestamp, item.born_host,
        item.store_timestamp, item.store_host, item.reconsume_times,
        item.prepared_transaction_offset, item.body, item.topic, item.properties,
    )  # fmt: skip


def oracle_view(message: MessageExt) -> tuple[object, ...]:
    return (
        message.size_bytes, message.body_crc, message.queue_id, message.flag, message.queue_offset,
        message.physical_offset, message.sys_flag, message.born_timestamp,
        oracle_host(message.born_host), message.store_timestamp, oracle_host(message.store_host),
        message.reconsume_times, message.prepared_transaction_offset, message.body, message.topic,
        message.properties,
    )  # fmt: skip


@st.composite
def damaged_records(draw: st.DrawFn) -> bytes:
    """A record in which some bytes are overwritten, and which may be cut off or followed by other bytes."""
    data = bytearray(encode(draw(messages())))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + 1] = draw(st.binary(min_size=1, max_size=4))
    return bytes(data[: draw(st.integers(0, len(data)))] + draw(st.binary(max_size=100)))


@given(damaged_records())
def test_damaged_records_are_judged_as_the_oracle_judges_them(data: bytes) -> None:
    expected = oracle_outcome(data)
    if expected[0] != "delay":  # `tags_code` finds these
        assert outcome(data) == expected


def test_every_byte_of_a_record_can_be_anything() -> None:
    for at in range(len(RECORD)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            data = RECORD[:at] + bytes([value]) + RECORD[at + 1 :]
            assert outcome(data) == oracle_outcome(data), f"{value} at {at}"


def test_a_record_can_be_cut_anywhere() -> None:
    for length in range(len(RECORD)):
        with pytest.raises(RecordError):
            locate(RECORD[:length], 0, length)
        with pytest.raises(RecordError):
            locate(RECORD, 0, length)  # bytes after the end are not read


@pytest.mark.parametrize("seed", range(6))
def test_random_logs_hold_the_oracles_records(seed: int) -> None:
    log = random_log(seed, LogOptions(irregular=True, multi_dispatch=True))
    files = dict(log.files)
    for offset in log.offsets:
        start = max(s for s in files if s <= offset)
        item = oracle.decode(files[start], offset - start)
        assert isinstance(item, oracle.Record)
        message = decode(files[start], offset - start)
        assert oracle_view(message) == oracle_fields(item)
        # Malformed UTF-8 in a topic is not restored; everything else is.
        if "\ufffd" not in message.topic:
            assert encode(message) == files[start][offset - start :][: message.size_bytes]


@pytest.mark.parametrize("name", [*SHIPPED, "git"])
def test_the_brokers_records_come_back_to_the_byte(golden: Golden, name: str) -> None:
    store = golden(name)
    files = [(start, bytes(data)) for start, data in read_log(store.path)]
    size = store.commit_log_file_bytes
    for row in store.messages:
        data = files[row.physical_offset // size][1]
        message = decode(data, row.physical_offset % size)
        assert message.size_bytes == row.size
        assert (message.topic, message.queue_id) == (row.topic, row.queue_id)
        assert message.body_crc_ok
        at = row.physical_offset % size
        assert encode(message) == data[at : at + row.size]
    for blank in store.blanks:
        data, at = files[blank.physical_offset // size][1], blank.physical_offset % size
        assert read_size_and_magic(data, at) == (blank.declared_size, BLANK_MAGIC)
        assert encode_blank(blank.declared_size) == data[at : at + 8]


def test_a_record_of_another_offset_or_another_body_proves_nothing() -> None:
    end = len(RECORD)
    assert is_proven(RECORD, 0, end, 640)
    body_at = RECORD.index(b"body")
    flipped = RECORD[:body_at] + b"B" + RECORD[body_at + 1 :]
    assert decode(flipped).body_crc_ok is False
    assert not is_proven(flipped, 0, end, 640)
    assert not is_proven(RECORD, 0, end - 1, 640)
    assert not is_proven(RECORD, 1, end, 640)


def test_an_empty_body_has_no_crc_to_prove() -> None:
    record = bytearray(encode_record(replace(FIELDS, body=b"")))
    record[8:12] = b"\1\2\3\4"
    assert is_proven(bytes(record), 0, len(record), 640)


def test_the_head_is_read_without_the_rest() -> None:
    assert read_size_and_magic(RECORD, 0) == (len(RECORD), MESSAGE_MAGIC)
    assert read_size_and_physical_offset(RECORD[:MIN_RECORD_BYTES], 0) == (len(RECORD), 640)


@pytest.mark.parametrize(
    ("sys_flag", "name"), [(0, "none"), (4, "prepared"), (8, "commit"), (12, "rollback")]
)
def test_transactions_have_names(sys_flag: int, name: str) -> None:
    # The other flags have no effect.
    message = decode(encode_record(replace(FIELDS, sys_flag=sys_flag | 1 | 2)))
    assert message.transaction == name


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": "t" * 128}, "topic of 128 bytes"),
        ({"topic": "主" * 43}, "topic of 129 bytes"),
        ({"topic": "t" * 32768, "magic": commit_log.MESSAGE_MAGIC_V2}, "topic of 32768 bytes"),
        ({"properties_bytes": bytes(32768)}, "properties of 32768 bytes"),
    ],
)
def test_what_does_not_fit_its_length_field_is_refused(
    changes: dict[str, object], reason: str
) -> None:
    message = replace(decode(RECORD), **changes)  # type: ignore[arg-type]
    with pytest.raises(RecordError, match=reason):
        encode(message)


def test_the_host_flags_follow_the_hosts() -> None:
    message = replace(decode(RECORD), sys_flag=48)
    assert decode(encode(message)).sys_flag == 0
    message = replace(message, store_host=Host("::1", 1))
    assert decode(encode(message)).sys_flag == 32
