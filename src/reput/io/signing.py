"""Create and verify Ed25519 signatures, with a user's key file (PEM) and the library cryptography."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reput.base import require
from reput.errors import StoreAccessError, UsageError
from reput.format.signature import Signature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# A key file is much smaller than this. The limit avoids reading a large file that is not a key.
_MOST_KEY_BYTES = 1 << 16


class Signer:
    """Create signatures with one private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @property
    def public_key(self) -> str:
        """Return the 32 bytes of the public key as hexadecimal digits."""
        return self._key.public_key().public_bytes_raw().hex()

    def sign(self, data: bytes) -> Signature:
        return Signature(self.public_key, self._key.sign(data).hex())

    @classmethod
    def of(cls, path: str) -> Signer:
        """Return the signer for a key file. Raises UsageError, StoreAccessError, MissingExtraError."""
        _require()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            with Path(path).open("rb") as file:
                data = file.read(_MOST_KEY_BYTES)
        except OSError as error:
            raise StoreAccessError(f"{path}: cannot be read: {error.strerror}") from error
        try:
            key = load_pem_private_key(data, None)
        except TypeError:
            raise UsageError(f"{path}: is encrypted; pass a key without a password") from None
        except (ValueError, UnsupportedAlgorithm):
            raise UsageError(f"{path}: is not a private key in PEM format") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise UsageError(
                f"{path}: is not an Ed25519 key; create one: openssl genpkey -algorithm ed25519 -out {path}"
            )
        return cls(key)

    @staticmethod
    def has_signed(data: bytes, signature: Signature) -> bool:
        """Return whether a signature matches this data. Raises MissingExtraError."""
        _require()
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.public_key))
            key.verify(bytes.fromhex(signature.ed25519), data)
        except (InvalidSignature, ValueError):
            return False
        return True


def _require() -> None:
    require("cryptography", "signatures need cryptography: pip install 'reput[sign]'")
