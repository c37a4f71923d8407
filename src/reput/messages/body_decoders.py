"""A decoder of bodies: turns a body of one encoding into a mapping of Python values.

Other packages register decoders as entry points of the group `reput.body_decoders`: the name is the encoding, the
object a function that takes the text after the colon.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:  # servers without exports do not load Arrow
    import pyarrow as pa


class UndecodableBodyError(ValueError):
    """A body that is not of its decoder's encoding.

    Attributes:
        reason: The reason without any value, because rows are counted by it.
        example: A value that explains it, or "".
    """

    def __init__(self, reason: str, example: object = "") -> None:
        super().__init__(f"{reason}: {example}" if example != "" else reason)
        self.reason, self.example = reason, str(example)


class BodyFields(NamedTuple):
    """The fields that a decoder finds.

    Attributes:
        schema: Their names and types.
        notes: A line for each field that has no column, or another type than its encoding says.
    """

    schema: pa.Schema
    notes: tuple[str, ...] = ()


class BodyDecoder(Protocol):
    """Decodes bodies of one encoding. Exports pickle it and send it to worker processes.

    Attributes:
        name: Name of the encoding: the text before the colon, and the column's name in a table.
        is_fixed: Whether `fields` ignores the sample.
    """

    name: str
    is_fixed: bool

    def fields(self, sample: Iterable[bytes | None]) -> BodyFields:
        """Return the fields of bodies; the sample shows some of them. Without any, the schema is empty.

        Raises:
            StoreAccessError: A registry does not answer.
        """

    def decode(self, body: bytes) -> Mapping[str, Any]:
        """Return the values of a body by field; fields without a value may be missing.

        Values are bool, int, float, str, bytes, Decimal, date, datetime with a time zone, list, dict or None.

        Raises:
            ValueError: The body is not of this encoding; an UndecodableBodyError says why.
            StoreAccessError: A registry does not answer.
        """


def json_text_of(value: Any) -> str:
    """Return a value as JSON, for a field that no type of a column fits; bytes are in base64."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
