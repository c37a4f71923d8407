"""Frames and headers: encoder and decoder agree with a table of examples, and invalid bytes raise RemotingError."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import RemotingError
from reput.wings.serve.broker.limits import Limits
from reput.wings.serve.remoting.commands import Command, FieldError
from reput.wings.serve.remoting.frames import FrameReader, Serialization, encode_frame
from reput.wings.serve.remoting.session import Session
from tests.remoting.frames import CASES

BY_NAME = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@pytest.mark.every_case
@BY_NAME
def test_a_command_is_encoded_as_the_table_has_it(case):  # type: ignore[no-untyped-def]
    assert Session().send(case.command) == case.frame


@pytest.mark.every_case
@BY_NAME
def test_a_frame_is_decoded_as_the_table_has_it_whole_in_bytes_and_with_more_behind(case):  # type: ignore[no-untyped-def]
    assert Session().receive(case.frame) == [case.command]
    session = Session()
    got = [
        command
        for at in range(len(case.frame))
        for command in session.receive(case.frame[at : at + 1])
    ]
    assert got == [case.command]
    assert session.buffered_bytes == 0
    session = Session()
    assert session.receive(case.frame + case.frame[:5]) == [case.command]
    assert session.buffered_bytes == 5
    assert session.receive(case.frame[5:]) == [case.command]


def test_a_stream_of_all_frames_in_any_pieces_is_the_same_commands() -> None:
    stream = b"".join(case.frame for case in CASES)
    for size in (1, 2, 3, 7, 64, 1000):
        session = Session()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        got = [command for piece in pieces for command in session.receive(piece)]
        assert got == [case.command for case in CASES]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", 3), "a frame of 3 bytes"),
        (struct.pack(">i", 1 << 24), "a frame of 16777216 bytes"),
        (struct.pack(">ii", 4, 1), "a header of 1 bytes"),
        (struct.pack(">iI", 6, 2 << 24 | 2) + b"{}", "header type 2"),
        (struct.pack(">ii", 6, 2) + b"{}", "JSON header"),
        (struct.pack(">ii", 4, 0), "JSON header"),
        (encode_frame(Serialization.JSON, b'{"code":1,"opaque":4294967296}'), "32 bits"),
        (encode_frame(Serialization.JSON, b"[" * 100_000), "JSON header"),
        (encode_frame(Serialization.ROCKETMQ, bytes(12)), "ROCKETMQ header"),
        (encode_frame(Serialization.ROCKETMQ, bytes(13) + b"\xff\xff\xff\xff" + bytes(4)), "-1 bytes"),
        (encode_frame(Serialization.ROCKETMQ, bytes(13) + b"\0\0\1\0" + bytes(4)), "256 bytes"),
        (encode_frame(Serialization.ROCKETMQ, bytes(21) + b"x"), "1 bytes too many"),
        (encode_frame(Serialization.ROCKETMQ, bytes(13) + b"\0\0\0\1\xff" + bytes(4)), "ROCKETMQ header"),
    ],
)  # fmt: skip
def test_what_is_not_the_protocol_is_a_remoting_error(frame: bytes, reason: str) -> None:
    with pytest.raises(RemotingError, match=reason):
        Session().receive(frame)


def test_commands_before_a_bad_frame_are_returned_in_whatever_pieces_they_arrive() -> None:
    good, bad = CASES[0], encode_frame(Serialization.JSON, b"[]")
    for size in (1, 7, 1 << 20):
        session, found = Session(), []
        data = good.frame + bad + good.frame
        for at in range(0, len(data), size):
            if session.error is None:
                with suppress(RemotingError):
                    found += session.receive(data[at : at + size])
        assert found == [good.command]
        with pytest.raises(RemotingError, match="JSON header"):
            session.receive(good.frame)


def test_a_frame_longer_than_the_limit_is_refused_before_it_arrives() -> None:
    for begin, reason in (
        (struct.pack(">i", 96), None),
        (struct.pack(">i", 97), "97 bytes"),
        (struct.pack(">ii", 96, 50), None),
        (struct.pack(">ii", 96, 51), "51 bytes"),
    ):
        frames = FrameReader(100, 50)
        frames.feed(begin)
        if reason is None:
            assert frames.next() is None
        else:
            with pytest.raises(RemotingError, match=reason):
                frames.next()


def test_a_header_has_a_limit_of_fields() -> None:
    for count in (128, 129):
        frame = Session().send(Command(1, fields=dict.fromkeys(map(str, range(count)), "x")))
        if count == 128:
            assert len(Session().receive(frame)) == 1
        else:
            with pytest.raises(RemotingError, match="129 fields"):
                Session().receive(frame)


@given(st.binary(max_size=200), st.integers(1, 64))
def test_any_bytes_are_commands_or_a_remoting_error(data: bytes, size: int) -> None:
    session = Session(Limits(frame_bytes=1 << 16))
    try:
        for at in range(0, len(data), size):
            for command in session.receive(data[at : at + size]):
                assert isinstance(command, Command)
    except RemotingError:
        pass


_texts = st.text(max_size=20)


@given(
    st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1), st.none() | _texts.filter(bool),
    st.dictionaries(_texts, _texts, max_size=5), st.binary(max_size=50), st.sampled_from(Serialization),
)  # fmt: skip
def test_every_command_comes_back_as_it_was_sent(
    code: int,
    opaque: int,
    remark: str | None,
    fields: dict[str, str],
    body: bytes,
    how: Serialization,
) -> None:
    command = Command(code, opaque, 1, remark, fields, body, "JAVA", 399, how)
    assert Session().receive(Session().send(command)) == [command]


def test_fields_are_read_whichever_way_a_client_writes_them() -> None:
    asked = Command(
        1,
        fields={
            "a": 7,
            "b": "7",
            "c": True,
            "d": "1",
            "e": "TRUE",
            "f": "0",
            "g": False,
            "h": 2**40,
        },
    )
    assert [asked.int32(name) for name in "ab"] == [7, 7]
    assert [asked.text(name) for name in "abc"] == ["7", "7", "true"]
    assert [asked.boolean(name) for name in "cdefg"] == [True, True, True, False, False]
    assert asked.int64("h") == 2**40
    assert asked.int32("missing", 3) == 3
    assert asked.optional_text("missing") is None


@pytest.mark.parametrize("value", ["", "x", "1.0", 1.5, 2**31, str(2**31), [1], {}, True])
def test_a_field_that_is_not_its_number_fails_the_request_alone(value: object) -> None:
    with pytest.raises(FieldError, match="<n>"):
        Command(1, fields={"n": value}).int32("n")
    with pytest.raises(FieldError, match="<m> is null"):
        Command(1).text("m")
