"""Define requests and answers (`RemotingCommand`, tag rocketmq-all-4.9.3).

Each field of a header has a name and a value. Clients write values differently: a number may be a JSON number or a
string, a boolean may be `true`, `"true"`, `1` or `"1"`. The methods of `Command` accept all forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import msgspec

from reput.errors import RemotingError
from reput.format.java_string import parse_int32, parse_int64
from reput.wings.serve.remoting.frames import Serialization
from reput.wings.serve.remoting.rights import FREE, Rights

VERSION = 399
"""The number that stands for version 4.9.3 in requests and answers (`MQVersion.Version.V4_9_3`). Clients behave
according to the version in answers.
"""
_IS_RESPONSE, _IS_ONE_WAY = 1, 2
_FEW_DIGITS, _MOST_DIGITS = 9, 19
_TRUE = {"true", "1"}
_encoder = msgspec.json.Encoder(order="deterministic")


class ResponseCode(IntEnum):
    """Codes of answers (`ResponseCode`, `RemotingSysResponseCode`)."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    ILLEGAL_OPERATION = 604


class FieldError(RemotingError):
    """A field of a request is missing or has the wrong type. The request fails, but the connection stays."""


class Refusal(RemotingError):
    """A request is refused with a code. Requests that fail for other errors are answered with SYSTEM_ERROR as well."""

    def __init__(self, remark: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR) -> None:
        super().__init__(remark)
        self.code = code


class Command(msgspec.Struct):
    """A request, or an answer to one.

    Attributes:
        code: Code of the request (RequestCode) or of its outcome (ResponseCode).
        opaque: Number of the request, which its answer repeats.
        flag: Bit 0 is set in answers, bit 1 in requests that need no answer.
        remark: A text for people.
        fields: The fields of this code (`extFields`).
        language: Name of the client's language.
        serialization: Form of the header. An answer has the same form as its request.
        content: The decoded body, or None before it is decoded.
        rights: Rights of the sender.
        begun_s: Time at which the request arrived, by the monotonic clock; 0 for a pull that has waited for messages.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    fields: dict[str, Any] = {}
    body: bytes = b""
    language: str = "JAVA"
    version: int = VERSION
    serialization: Serialization = Serialization.JSON
    content: dict[str, Any] | None = None
    rights: Rights = FREE
    begun_s: float = 0.0

    @property
    def is_response(self) -> bool:
        return bool(self.flag & _IS_RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether the client expects no answer."""
        return bool(self.flag & _IS_ONE_WAY)

    def answer(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        fields: Mapping[str, Any] | None = None,
        body: bytes = b"",
    ) -> Command:
        """Return the answer to this request."""
        return Command(
            code, self.opaque, _IS_RESPONSE, remark, {**fields} if fields else {}, body,
            serialization=self.serialization,
        )  # fmt: skip

    def answer_json(self, content: object) -> Command:
        """Return the successful answer to this request whose body is JSON."""
        return self.answer(body=encode_body(content))

    def text(self, name: str) -> str:
        """Return a field. Raises FieldError if it is missing."""
        value = self.fields.get(name)
        if value is None:
            raise FieldError(f"the custom field <{name}> is null")
        return value if type(value) is str else _as_text(value)

    def optional_text(self, name: str) -> str | None:
        """Return a field, or None if it is missing."""
        value = self.fields.get(name)
        return value if value is None or type(value) is str else _as_text(value)

    def int32(self, name: str, default: int | None = None) -> int:
        """Return a field. Raises FieldError if it is not a 32-bit integer, or is missing and has no default."""
        return self._number(name, default, 31)

    def int64(self, name: str, default: int | None = None) -> int:
        """Return a 64-bit field. Raises as `int32` does."""
        return self._number(name, default, 63)

    def boolean(self, name: str) -> bool:
        """Return a field that is true or false; false if it is missing."""
        return (self.optional_text(name) or "").lower() in _TRUE

    def _number(self, name: str, default: int | None, bits: int) -> int:
        value = self.fields.get(name)
        # The usual case: a short decimal text needs no check of its range.
        if type(value) is str and len(value) <= _FEW_DIGITS and value.isascii() and value.isdigit():
            return int(value)
        if value is None and default is not None:
            return default
        if type(value) is int and -(1 << bits) <= value < 1 << bits:
            return value
        text = self.text(name)
        try:
            if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit():
                number = int(text)
                if number < 1 << bits:
                    return number
            return parse_int32(text) if bits == 31 else parse_int64(text)
        except ValueError:
            raise FieldError(
                f"the custom field <{name}> is {text[:32]!r}, not a whole number of {bits + 1} bits"
            ) from None


def encode_body(content: object) -> bytes:
    """Return a body as JSON, with sorted names in objects."""
    return _encoder.encode(content)


def request(code: int, fields: Mapping[str, Any] | None = None, body: bytes = b"") -> Command:
    """Return a request from this server to a client. It needs no answer."""
    return Command(code, 0, _IS_ONE_WAY, None, dict(fields) if fields else {}, body)


def _as_text(value: Any) -> str:
    if value is True or value is False:
        return str(value).lower()
    return str(value)
