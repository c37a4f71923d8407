"""The two message ids of RocketMQ.

The offset id (`MessageDecoder.createMessageId`, `.decodeMessageId`) identifies a broker and a physical offset. It is
the store host's address (4 or 16 bytes), its port (4) and the offset (8), in upper-case hexadecimal. The unique key
(UNIQ_KEY, `MessageClientIDSetter`) is created by the client, and found through the index.
"""

from __future__ import annotations

import re
import struct
from binascii import unhexlify
from typing import NamedTuple

from reput.format.host import HOST_V4_BYTES, HOST_V6_BYTES, Host, decode_host, encode_host

_OFFSET = struct.Struct(">q")
_LENGTHS = {2 * (HOST_V4_BYTES + _OFFSET.size), 2 * (HOST_V6_BYTES + _OFFSET.size)}

# Ids have 32 or 40 (unique keys of IPv4 and IPv6 clients), or 32 or 56 (offset ids) digits.
_ID = re.compile("[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{56}")


class OffsetMessageId(NamedTuple):
    """The host that stored a message, and the message's physical offset there."""

    store_host: Host
    physical_offset: int


def encode_offset_id(store_host: Host, physical_offset: int) -> str:
    return (encode_host(store_host) + _OFFSET.pack(physical_offset)).hex().upper()


def spellings(text: str) -> tuple[str, ...]:
    """Return the spellings in which a store may have this id: the text itself and, for an id, the text in upper case.

    Stores have ids in upper case, but other tools print some in lower case. A text in lower case may also be a key.
    """
    return tuple(dict.fromkeys((text, text.upper() if _ID.fullmatch(text) else text)))


def decode_offset_id(text: str) -> OffsetMessageId:
    """Decode an offset id, which has 32 (IPv4) or 56 (IPv6) hexadecimal digits. Raises ValueError for any other text.

    A unique key also has 32 digits, so it can be decoded as if it were an offset id. Only the record at the decoded
    offset shows which of the two ids the text is.
    """
    if len(text) not in _LENGTHS:
        raise ValueError(
            f"an offset id has 32 or 56 hexadecimal digits, not {len(text)} characters"
        )
    data = unhexlify(text)
    return OffsetMessageId(
        decode_host(data[: -_OFFSET.size]), _OFFSET.unpack_from(data, len(data) - _OFFSET.size)[0]
    )
