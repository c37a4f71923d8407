"""Host fields: 4 or 16 address bytes and a port of four bytes (MessageExt.socketAddress2ByteBuffer, 4.9.3)."""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

_PORT = struct.Struct(">i")
_PORT_TEXT = re.compile(r"-?[0-9]{1,10}")
HOST_V4_BYTES = 4 + _PORT.size
HOST_V6_BYTES = 16 + _PORT.size


class Host(NamedTuple):
    """A socket address: `address` in its usual text form, `port` as the stored signed integer."""

    address: str
    port: int

    def __str__(self) -> str:
        return (
            f"[{self.address}]:{self.port}"
            if ":" in self.address
            else f"{self.address}:{self.port}"
        )


# Cached, because an answer has many messages of few connections.
@lru_cache(1 << 14)
def decode_host(data: bytes) -> Host:
    """Return the host in 8 bytes (IPv4) or 20 bytes (IPv6). Raises ValueError for any other length."""
    if len(data) not in (HOST_V4_BYTES, HOST_V6_BYTES):
        raise ValueError(f"a host has {HOST_V4_BYTES} or {HOST_V6_BYTES} bytes, not {len(data)}")
    address = data[: -_PORT.size]
    return Host(_unpacked(address), _PORT.unpack_from(data, len(address))[0])


def encode_host(host: Host) -> bytes:
    """Return the bytes of a host, the inverse of `decode_host`. Raises ValueError for an invalid address."""
    return _packed(host.address) + _PORT.pack(host.port)


def parse_host(text: str) -> Host:
    """Return the host in `address:port` or `[address]:port`, the inverse of `str(host)`. Raises ValueError."""
    address, _, port = text.rpartition(":")
    bracketed = address.startswith("[") and address.endswith("]")
    try:
        if bracketed != (":" in address) or not _PORT_TEXT.fullmatch(port):
            raise ValueError
        packed = _packed(address[1:-1] if bracketed else address)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a host: write 10.0.0.1:10911 or [2001:db8::1]:10911"
        ) from None
    if not -(1 << 31) <= int(port) < 1 << 31:
        raise ValueError(f"{text!r} is not a host: its port does not fit in four bytes")
    return Host(_unpacked(packed), int(port))


# Addresses are cached without their ports: many messages come from few addresses, but each connection has its own port.
@lru_cache(1 << 14)
def _packed(address: str) -> bytes:
    return ip_address(address).packed


@lru_cache(1 << 14)
def _unpacked(address: bytes) -> str:
    return str(IPv4Address(address) if len(address) == 4 else IPv6Address(address))
