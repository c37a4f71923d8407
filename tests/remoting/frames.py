"""The table of frames: the bytes of each command. It drives the tests of the encoder and of the decoder."""

import struct
from typing import NamedTuple

from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.frames import Serialization

JSON, BINARY = Serialization.JSON, Serialization.ROCKETMQ


class Case(NamedTuple):
    """A command, and its frame in hexadecimal groups."""

    name: str
    command: Command
    frame: bytes


def _json(text: str, body: bytes = b"") -> bytes:
    header = text.encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


CASES = (
    Case(
        "a request without fields",
        Command(206, 1, 0, None, {}, b"", "JAVA", 399, JSON),
        _json(
            '{"code":206,"opaque":1,"flag":0,"version":399,"language":"JAVA","serializeTypeCurrentRPC":"JSON"}'
        ),
    ),
    Case(
        "a request with fields and a body",
        Command(310, 258, 2, None, {"b": "orders", "e": "3"}, b"\x00body", "CPP", 64, JSON),
        _json(
            '{"code":310,"opaque":258,"flag":2,"version":64,"language":"CPP",'
            '"extFields":{"b":"orders","e":"3"},"serializeTypeCurrentRPC":"JSON"}',
            b"\x00body",
        ),
    ),
    Case(
        "an answer with a remark",
        Command(17, 2**31 - 1, 1, 'no "topic" é', {}, b"", "JAVA", 399, JSON),
        _json(
            '{"code":17,"opaque":2147483647,"flag":1,"version":399,"language":"JAVA",'
            '"remark":"no \\"topic\\" é","serializeTypeCurrentRPC":"JSON"}'
        ),
    ),
    Case(
        "a binary request with one field",
        Command(105, 7, 0, None, {"topic": "T"}, b"", "JAVA", 399, BINARY),
        bytes.fromhex(
            "00000025 01000021"  # 37 bytes follow: ROCKETMQ, and a header of 33
            "0069 00 018f 00000007 00000000"  # code 105, JAVA, version 399, opaque, flag
            "00000000"  # no remark
            "0000000c 0005 746f706963 00000001 54"
        ),
    ),
    Case(
        "a binary answer with a remark and a body",
        Command(-1, -2, 1, "é", {}, b"xy", "GO", 1, BINARY),
        bytes.fromhex(
            "0000001d 01000017"  # 29 bytes follow: ROCKETMQ, and a header of 23
            "ffff 09 0001 fffffffe 00000001 00000002 c3a9 00000000"
        )
        + b"xy",
    ),
)
