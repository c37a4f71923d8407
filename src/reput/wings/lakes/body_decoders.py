"""Define the interface of body decoders, which turn a body of one encoding into a mapping of Python values.

Other packages can register decoders as entry points of the group `reput.body_decoders`. The name of the entry point is
the encoding. Its object is a function that takes the text after the colon (`ENCODING:text`) and returns the decoder.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

# Servers also decode bodies. They need Arrow only if they export, so importing this module must not load Arrow.
if TYPE_CHECKING:
    import pyarrow as pa


class UndecodableBodyError(ValueError):
    """Raised for a body that does not have the decoder's encoding.

    Attributes:
        reason: The reason, without values from the body: rejected rows are counted by reason.
        example: A value from the body that explains the reason, or "".
    """

    def __init__(self, reason: str, example: object = "") -> None:
        super().__init__(f"{reason}: {example}" if example != "" else reason)
        self.reason, self.example = reason, str(example)


class BodyFields(NamedTuple):
    """The fields that a decoder yields.

    Attributes:
        schema: Names and types of the fields.
        notes: A line for each field that has no column, or whose column has another type than the encoding defines.
    """

    schema: pa.Schema
    notes: tuple[str, ...] = ()


class BodyDecoder(Protocol):
    """Decodes bodies of one encoding. A decoder is pickled when an export sends it to worker processes.

    Attributes:
        name: The name of the encoding, and of the column in a table.
        is_fixed: Whether the fields are known without a sample.
    """

    name: str
    is_fixed: bool

    def fields(self, sample: Iterable[bytes | None]) -> BodyFields:
        """Return the fields that bodies have.

        If `is_fixed` is false, they are inferred from the sample, and an empty sample yields an empty schema.

        Raises:
            StoreAccessError: A registry does not answer.
        """

    def decode(self, body: bytes) -> Mapping[str, Any]:
        """Return the values of a body by field name. Fields without a value may be missing.

        Values are bool, int, float, str, bytes, Decimal, date, datetime with a time zone, list, dict or None.

        Raises:
            ValueError: The body does not have this encoding; UndecodableBodyError states the reason.
            StoreAccessError: A registry does not answer.
        """


def json_text_of(value: Any) -> str:
    """Return a value as JSON, for a field whose type no column can have. Bytes are in base64."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
