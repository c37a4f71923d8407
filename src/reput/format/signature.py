"""JSON with an Ed25519 signature, in its stored form: an object with the signed JSON, and the signature or null."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

_Content = TypeVar("_Content")


class Signature(msgspec.Struct, frozen=True):
    """A signature and the key that verifies it.

    Attributes:
        public_key: 32 bytes in hexadecimal digits
        ed25519: the signature, 64 bytes in hexadecimal digits
    """

    public_key: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    ed25519: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$")]


def encode_signed(field: str, content: bytes, signature: Signature | None) -> bytes:
    """Return the stored form of signed JSON, which becomes the field with this name."""
    return msgspec.json.encode({field: msgspec.Raw(content), "signature": signature})


def decode_signed(
    data: bytes, field: str, kind: type[_Content], name: str
) -> tuple[_Content, bytes, Signature | None]:
    """Return three values: the signed content, its JSON bytes, and the signature of these bytes.

    Args:
        data: The stored form.
        field: The field that has the content.
        kind: The type of the content.
        name: What the data should be, for the error.

    Raises:
        ValueError: The data have another form.
    """
    # Keep the raw JSON, because encoding the content again could produce other bytes than were signed.
    fields: list[Any] = [(field, msgspec.Raw), ("signature", Signature | None, None)]
    try:
        stored: Any = msgspec.json.decode(data, type=msgspec.defstruct("Stored", fields))
        raw = bytes(getattr(stored, field))
        return msgspec.json.decode(raw, type=kind), raw, stored.signature
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"not {name}: {error}") from None
