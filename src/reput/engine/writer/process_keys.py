"""Compute the prefix of this process's unique keys.

The module imports little, because servers that write nothing also need it.
"""

from __future__ import annotations

import os
import secrets
import socket

from reput.base import now_ms
from reput.format.host import Host
from reput.format.message_id import unique_key_prefix


def process_prefix() -> str:
    """Return the prefix of this process's unique keys."""
    return unique_key_prefix(Host(_own_address(), 0), os.getpid(), secrets.randbits(32))


def _own_address() -> str:
    """Return the IPv4 address from which this machine sends packets. Without a network, return bits of the clock."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Connecting a UDP socket sends nothing. The address is reserved for documentation.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
    except OSError:
        return socket.inet_ntoa((now_ms() & 0xFFFFFFFF).to_bytes(4, "big"))
