"""Messages in JSON lines: all printed lines are read back, and errors are reported."""

import json
import re
import zlib
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.engine.messages.codec import message_fields, message_line
from reput.engine.messages.json_lines import Block, LineError, read_message, read_messages
from reput.engine.writer.put.message import Message, properties_string
from reput.format.commit_log import body_crc
from reput.format.host import Host
from reput.format.message_fields import PUT_NAMES
from reput.format.message_id import UniqueKeys
from reput.format.properties import decode_properties
from reput.testing.builders import MESSAGE
from reput.testing.strategies import hosts, int32, int64

EXPORTED = message_fields(replace(MESSAGE, body_crc=body_crc(MESSAGE.body)))
NAMES = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER", "", "\u00e9"])
CHUNKS = st.one_of(
    st.builds(lambda name, value: f"{name}\x01{value}".encode(), NAMES, st.text(max_size=5)),
    st.binary(max_size=6),
)
STRINGS = st.lists(CHUNKS, max_size=6).map(b"\x02".join)


def as_put(message: Message) -> bytes:
    """Return the properties string that a put stores."""
    return properties_string(message, UniqueKeys("0A" * 10), 0)


def line(**fields: object) -> bytes:
    return json.dumps({"topic": "T", "body": "b", **fields}).encode()


@given(STRINGS, st.binary(max_size=40), hosts, int32, int64)
def test_what_is_printed_is_read_back(
    properties: bytes, body: bytes, host: Host, number: int, time: int
) -> None:
    message = replace(
        MESSAGE, properties_bytes=properties, body=body, born_host=host, flag=number,
        born_timestamp=time, body_crc=body_crc(body),
    )  # fmt: skip
    read = read_message(message_line(message))
    assert as_put(read) == properties
    assert (read.body, read.born_host, read.flag) == (body, host, number)
    assert (read.born_timestamp, read.topic, read.queue_id) == (time, "T", 0)


@pytest.mark.parametrize("sent", [b"text", b"\xff", b""])
def test_a_compressed_body_is_printed_as_sent_and_put_as_stored(sent: bytes) -> None:
    stored = zlib.compress(sent, 1)
    message = replace(MESSAGE, body=stored, sys_flag=1, body_crc=body_crc(stored))
    fields = message_fields(message)
    assert sent == (
        fields["body"].encode() if "body" in fields else b64decode(fields["body_base64"])
    )
    assert read_message(message_line(message)).body == stored
    alone = line(body_base64=b64encode(stored).decode(), sys_flag=1).replace(b'"body": "b", ', b"")
    assert read_message(alone).body == stored, "compressed bytes alone will do"


def test_a_body_that_cannot_be_decompressed_goes_back_as_it_was() -> None:
    message = replace(MESSAGE, body=b"plain", sys_flag=1, body_crc=body_crc(b"plain"))
    fields = message_fields(message)
    assert (fields["body"], "zlib data is damaged" in fields["body_error"]) == ("plain", True)
    assert read_message(message_line(message)).body == b"plain"


def test_a_line_as_people_write_it() -> None:
    read = read_message(line(keys=["a", "b"], tags="t", properties={"WAIT": "true"}))
    assert read == Message("T", b"b", properties={"WAIT": "true", "TAGS": "t", "KEYS": "a b"})
    assert list(decode_properties(as_put(read).decode())) == ["KEYS", "UNIQ_KEY", "WAIT", "TAGS"]
    assert read_message(b'{"topic":"T","body_base64":"/w=="}') == Message("T", b"\xff")
    own = read_message(line(unique_key="u", keys=[], tags=None, born_host="[::1]:80"))
    assert own.properties == {"UNIQ_KEY": "u"}
    assert own.born_host == ("::1", 80)


def test_what_the_store_decides_is_left_alone() -> None:
    of_the_store = {
        "message_id", "queue_offset", "physical_offset", "size_bytes", "store_timestamp",
        "store_host", "transaction",
    }  # fmt: skip
    with_it = read_message(json.dumps(EXPORTED).encode())
    without = {name: value for name, value in EXPORTED.items() if name not in of_the_store}
    assert read_message(json.dumps(without).encode()) == with_it


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (line(colour="red"), "unknown field `colour`"),
        (b'{"body":"b"}', "missing required field `topic`"),
        (b'{"topic":"T"}', "either `body` or `body_base64`"),
        (line(body_base64="YQ=="), "either `body` or `body_base64`"),
        (line(queue_id="1"), "Expected `int`, got `str` in `queue_id`"),
        (line(queue_id=1.5), "Expected `int`, got `float` in `queue_id`"),
        (b'{"topic":"T","body_base64":"!"}', "Invalid base64 encoded string in `body_base64`"),
        (line(properties={"a": 1}), "Expected `str`, got `int`"),
        (line(keys=["a b"]), "has no space"),
        (line(keys=["a"], properties={"KEYS": "b"}), "but `properties` has KEYS 'b'; omit"),
        (
            line(tags="a", properties={"TAGS": "b"}),
            "`tags` is 'a', but `properties` has TAGS 'b'; omit one of them",
        ),
        (line(unique_key="a", properties={"UNIQ_KEY": "b"}), "`unique_key` is 'a', but"),
        (
            line(properties_string="a\x01b", properties={"a": "c"}),
            "`properties_string` contradicts `properties`, `tags`",
        ),
        (
            line(properties_string="a\x01b", tags="t"),
            "`properties_string` contradicts `properties`, `tags`",
        ),
        (line(born_host="nowhere"), "born_host: 'nowhere' is no host"),
        (line(born_host="1.2.3:4"), "born_host: "),
        (line(born_host="1.2.3.4:4294967296"), "does not fit in four bytes"),
        (line(body_crc_ok=False), "already damaged in the store"),
        (line(body_stored_base64="YQ=="), "`sys_flag` states no compression"),
        (
            line(sys_flag=1),
            "a compressed body needs `body_stored_base64`: its zlib data is truncated",
        ),
        (line(sys_flag=1, body_stored_base64="YQ=="), "the stored body: its zlib data is damaged"),
        (
            line(sys_flag=1, body_stored_base64=b64encode(zlib.compress(b"c")).decode()),
            "differs from `body_stored_base64`",
        ),
        (b"[1]", "Expected `object`, got `array`"),
        (b"hello", "not a JSON object"),
        (b'{"topic":"T","body":"b"', "not a JSON object"),
        (b'{"topic":"\xff","body":"b"}', "not UTF-8"),
        (b'{"topic":"T","body":"b"} {"topic":"T","body":"c"}', "not a JSON object"),
        (b'{"topic":' + b"[" * 100_000, "Expected `str`"),
        (b'{"topic":"T","properties":{"a":' + b'{"a":' * 100_000, "Expected `str`"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_a_line_that_is_no_message(bad: bytes, says: str) -> None:
    with pytest.raises(LineError) as caught:
        read_message(bad)
    assert says in str(caught.value)
    with pytest.raises(LineError):
        read_messages(Block(1, line() + b"\n" + bad + b"\n", 2))


def test_a_block_has_the_numbers_of_its_lines() -> None:
    data = line() + b"\n\n \t\r\n" + line(queue_id=1) + b"\r\n" + line(queue_id=2)
    numbers, messages = read_messages(Block(7, data, 4))
    assert list(numbers) == [7, 10, 11]
    assert [message.queue_id for message in messages] == [0, 1, 2]
    numbers, messages = read_messages(Block(3, (line() + b"\n") * 2, 2))
    assert (list(numbers), len(messages)) == ([3, 4], 2)


def test_the_documented_fields_are_those_that_are_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "message-json.md").read_text(encoding="utf-8")
    table, _, back = page.partition("## Back into a store")
    documented = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert documented == set(PUT_NAMES)
    example = re.search(r"^    (\{.*\})$", back, re.MULTILINE)
    assert example
    assert read_message(example[1].encode()) == Message(
        "orders", b'{"total": 12}', properties={"KEYS": "o-17", "TAGS": "created"}
    )


def test_the_properties_string_is_printed_only_where_it_says_more() -> None:
    def extra(properties: bytes) -> set[str]:
        printed = message_fields(replace(MESSAGE, properties_bytes=properties))
        return {"properties_string", "properties_base64"} & printed.keys()

    regular = as_put(Message("T", keys=["k"], tags="t", properties={"A": "b"}))
    assert extra(regular) == set()
    assert extra(b"") == {"properties_string"}  # there is no unique key, but a put would add one
    assert extra(regular + b"\x02") == {"properties_string"}
    assert extra(b"\x02".join(reversed(regular.split(b"\x02")))) == {"properties_string"}
    assert extra(regular + b"\x02A\x01\xff") == {"properties_base64"}
    assert len(decode_properties(regular.decode())) == 4
