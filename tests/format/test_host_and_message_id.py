"""Hosts, and the offset message id that contains a host."""

from collections.abc import Callable

import pytest
from hypothesis import given

from reput.format.host import Host, decode_host, encode_host, parse_host
from reput.format.message_id import OffsetMessageId, decode_offset_id, encode_offset_id
from reput.testing.strategies import hosts, int64
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@given(hosts)
def test_hosts_come_back(host: Host) -> None:
    data = encode_host(host)
    assert len(data) == (20 if ":" in host.address else 8)
    assert decode_host(data) == host


@pytest.mark.parametrize("length", [0, 4, 7, 9, 19, 21])
def test_a_host_has_8_or_20_bytes(length: int) -> None:
    with pytest.raises(ValueError, match=f"not {length}"):
        decode_host(bytes(length))


def test_a_host_prints_as_people_write_it() -> None:
    assert str(decode_host(bytes([10, 0, 0, 7, 0, 0, 0x2A, 0x9F]))) == "10.0.0.7:10911"
    assert str(decode_host(bytes(15) + b"\1" + b"\0\0\0\x50")) == "[::1]:80"


@given(hosts)
def test_what_is_printed_is_read_back(host: Host) -> None:
    assert parse_host(str(host)) == host


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.1", ":80", "10.0.0.1:", "::1:80", "[10.0.0.1]:80", "10.0.0.1:8 0", "10.0.0.1:2147483648",
     "[::1:80", "10.0.0.256:1", "10.0.0.1:+1", "10.0.0.1:\u0661"],
)  # fmt: skip
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match="is not a host"):
        parse_host(text)


@given(hosts, int64)
def test_offset_ids_come_back(host: Host, offset: int) -> None:
    text = encode_offset_id(host, offset)
    assert len(text) in (32, 56)
    assert text == text.upper()
    assert decode_offset_id(text) == decode_offset_id(text.lower()) == (host, offset)


def test_offset_ids_are_the_brokers(golden: Golden) -> None:
    store = golden("tricky")
    hosts_of = {row.physical_offset: row.store_host for row in store.messages}
    texts = [text for put in store.puts for text in (put.message_id or "").split(",") if text]
    found = [(text, decode_offset_id(text)) for text in texts]
    known = [
        (text, message_id) for text, message_id in found if message_id.physical_offset in hosts_of
    ]
    assert len(known) > 1500
    assert {len(text) for text, _ in known} == {32, 56}
    for text, message_id in known:
        assert isinstance(message_id, OffsetMessageId)
        assert encode_offset_id(*message_id) == text
        host = message_id.store_host
        if len(text) == 32:
            assert str(host) == hosts_of[message_id.physical_offset]


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "0" * 55, "G" * 32, "é" * 32, " " * 56])
def test_other_texts_are_no_offset_id(text: str) -> None:
    with pytest.raises(ValueError, match=r"digits|hex|string"):
        decode_offset_id(text)
