"""Plain lines read by a kernel give the same result as the reader of single lines."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.engine.messages.codec import message_line
from reput.engine.messages.json_lines import LineError, read_message
from reput.engine.messages.put_lines import LineColumns
from reput.engine.writer.put.columns import BORN_NOW, PutColumns
from reput.engine.writer.put.message import Message, properties_string
from reput.errors import MessageRefusedError
from reput.format.host import Host, encode_host
from reput.testing.builders import MESSAGE
from reput.testing.strategies import messages

HOST = Host("10.0.0.9", 10911)
KEY = "M" * 32
ODD = 'a"\\/ \n\t\x00\x01\x02\x1f\x7fé中\u200b\U0001f600'
TEXTS = st.one_of(st.text(ODD, max_size=20), st.text(max_size=6), st.just(""))
NAMES = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER", "DELAY", "a", "b", "é", ""])
VALUES = st.text('xyz 1"\\é\x02', max_size=8)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["T", "orders", "", "a/b", "x" * 128, "é"]),
    "body": TEXTS,
    "body_base64": st.sampled_from(
        ["", "AA==", "AB==", "AAA=", "AAAA", "AAAB/w==", "A", "!!!!", "AA=A"]
    ),
    "body_stored_base64": st.just("AAAA"),
    "queue_id": st.sampled_from([0, 3, -1, 1 << 31, 1.5, True]),
    "flag": st.sampled_from([0, -7, 1 << 31, "1"]),
    "sys_flag": st.sampled_from([0, 1, 4, 8, 16]),
    "born_timestamp": st.sampled_from([0, -5, 1_700_000_000_000, 1 << 62, 1 << 64]),
    "born_host": st.sampled_from(["1.2.3.4:5", "[::1]:9", "1.2.3.4", "", "é"]),
    "reconsume_times": st.integers(-3, 3),
    "prepared_transaction_offset": st.integers(-3, 1 << 62),
    "unique_key": st.sampled_from(["U", "", "u\x02", "Ü"]),
    "tags": st.sampled_from(["t", "", 'q"']),
    "keys": st.lists(st.sampled_from(["k", "l", "a b", "", "é"]), max_size=3),
    "properties": st.dictionaries(NAMES, VALUES, max_size=5),
    "properties_string": st.just("KEYS\x01k"),
    "properties_base64": st.just("S0VZUwFr"),
    "body_crc_ok": st.booleans(),
    "body_error": st.just("bad"),
    "message_id": st.sampled_from(["0A", "é", 'x"']),
    "queue_offset": st.integers(-1, 1 << 40),
    "physical_offset": st.integers(0, 1 << 40),
    "size_bytes": st.integers(0, 1 << 20),
    "store_timestamp": st.integers(0, 1 << 44),
    "store_host": st.just("1.2.3.4:5"),
    "transaction": st.just("none"),
    "surprise": st.just(1),
}


class _Keys:
    """Always returns the same unique key."""

    def next(self, now_ms: int) -> str:
        return KEY


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """Objects with some of the fields, sometimes null or repeated, in any order and layout."""
    names = ["topic", *draw(st.lists(st.sampled_from(list(FIELDS)), max_size=7))]
    names.insert(draw(st.integers(0, len(names))), "body")
    pairs = []
    for name in draw(st.permutations(list(dict.fromkeys(names)))):
        value = draw(FIELDS[name]) if draw(st.integers(0, 19)) else None
        is_ascii = draw(st.booleans())
        pairs.append(f"{json.dumps(name)}:{json.dumps(value, ensure_ascii=is_ascii)}")
    if not draw(st.integers(0, 19)):
        pairs.append(draw(st.sampled_from(pairs)))
    comma = draw(st.sampled_from([",", ", ", " ,\t"]))
    return (draw(st.sampled_from(["{", " { "])) + comma.join(pairs) + "}").encode()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A line in which a byte is changed or missing."""
    line = bytearray(draw(lines()))
    at = draw(st.integers(0, len(line) - 1))
    line[at : at + 1] = draw(
        st.sampled_from([b"", b'"', b"\\", b"\xff", b"\xc3", b"}", b",", b"0", b" ", b"\\u"])
    )
    return bytes(line).replace(b"\n", b"")


def _taken(reader: LineColumns, data: bytes) -> PutColumns | None:
    """Return the columns of one line; None if it is not plain, or refused."""
    reader.begin(data, data.count(b"\n"))
    if reader.read(0).messages != 1:
        return None
    try:
        return reader.columns()
    except ValueError:
        return None


def _check(columns: PutColumns, row: int, message: Message) -> None:
    stored = columns.rows[row]
    data, at = columns.bodies
    assert data is not None
    assert data[at[row] : at[row + 1]].tobytes() == message.body
    assert columns.queues[stored["queue"]] == (message.topic, message.queue_id)
    born = BORN_NOW if message.born_timestamp is None else message.born_timestamp
    assert [int(stored[name]) for name in ("flag", "sys_flag", "reconsume_times")] == [
        message.flag, message.sys_flag, message.reconsume_times,
    ]  # fmt: skip
    assert int(stored["prepared_transaction_offset"]) == message.prepared_transaction_offset
    assert (int(stored["born_timestamp"]), int(stored["queue_id"])) == (born, message.queue_id)
    for texts, name, expected in (
        (columns.hosts, "born_host", encode_host(message.born_host or HOST)),
        (columns.topics, "topic", message.topic.encode()),
    ):
        assert texts.data is not None
        place = texts.at[stored[name]], texts.at[stored[name] + 1]
        assert texts.data[place[0] : place[1]].tobytes() == expected
    parts = []
    for label, (values, ends) in columns.properties:
        if ends[row] < ends[row + 1]:
            value = KEY.encode() if values is None else values[ends[row] : ends[row + 1]].tobytes()
            parts.append((label + b"\x01" if label else b"") + value)
    assert b"\x02".join(parts) == properties_string(message, _Keys(), 0)  # type: ignore[arg-type]


@given(st.one_of(lines(), damaged()))
@example(b'{"topic":"T","body":"\\ud83d\\ude00\\u00e9\\u4e2d\\/"}')
@example(b'{"topic":"T","body":"\\ud83d"}')
@example(
    b'{"topic":"T","body":"b","properties":{"UNIQ_KEY":"U","a":"1"},"unique_key":"U","tags":"t"}'
)
def test_what_is_taken_is_what_a_reader_of_single_lines_makes_of_it(line: bytes) -> None:
    reader = LineColumns(HOST)
    columns = _taken(reader, line)
    if columns is not None:
        _check(columns, 0, read_message(line))
        again = _taken(reader, line + b" \r\n")
        assert again is not None
        _check(again, 0, read_message(line))


@given(st.lists(messages(), min_size=1, max_size=4))
def test_what_is_printed(given: list[Any]) -> None:
    """Lines of any messages, some of which are not plain."""
    printed = [message_line(message) for message in given]
    data = b"".join(line + b"\n" for line in printed)
    reader = LineColumns(HOST)
    reader.begin(data, len(printed))
    plain = reader.read(0)
    assert plain.stop == len(b"".join(line + b"\n" for line in printed[: plain.lines]))
    if plain.messages:
        try:
            columns = reader.columns()
        except MessageRefusedError:
            return
        for row, line in enumerate(printed[: plain.messages]):
            _check(columns, row, read_message(line))


def test_what_brokers_and_hands_write_is_plain() -> None:
    """Check that usual lines are plain: only plain lines are parsed by the kernel."""
    properties = b"KEYS\x01o-1\x02UNIQ_KEY\x010A\x02CLUSTER\x01c\x02TAGS\x01paid"
    fields = {name: getattr(MESSAGE, name) for name in MESSAGE.__dataclass_fields__}
    stored = type(MESSAGE)(
        **{**fields, "properties_bytes": properties, "body": b'{"a": "\xc3\xa9\\n"}'}
    )
    data = message_line(stored).replace(b'"body_crc_ok":false', b'"body_crc_ok":true') + b"\n"
    data += (
        b'{"topic": "orders", "body": "{\\"total\\": 12}", "keys": ["o-17"], "tags": "created"}\n\n'
    )
    data += b'{"topic":"T","body_base64":"/w=="}'
    reader = LineColumns(HOST)
    reader.begin(data, 3)
    assert reader.read(0) == (3, 4, len(data))
    lines = [line for line in data.split(b"\n") if line]
    for row, line in enumerate(lines):
        _check(reader.columns(), row, read_message(line))


@pytest.mark.parametrize(
    "line", [b"[]", b"x", b'{"topic":"T"}', b'{"topic":"T","body":"b"}{}', b"{}"]
)
def test_a_line_that_is_not_plain_ends_the_run(line: bytes) -> None:
    good = b'{"topic":"T","body":"b"}\n'
    reader = LineColumns(HOST)
    reader.begin(good * 2 + line + b"\n" + good, 4)
    assert reader.read(0) == (2, 2, 2 * len(good))
    assert reader.read(2 * len(good) + len(line) + 1).messages == 1
    with pytest.raises(LineError):
        read_message(line)
