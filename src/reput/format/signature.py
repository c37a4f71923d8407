"""Ed25519 signatures in their stored form."""

from __future__ import annotations

from typing import Annotated

import msgspec


class Signature(msgspec.Struct, frozen=True):
    """A signature and the key that verifies it.

    Attributes:
        public_key: 32 bytes in hexadecimal digits
        ed25519: the signature, 64 bytes in hexadecimal digits
    """

    public_key: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    ed25519: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$")]
