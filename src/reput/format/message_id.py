"""The two message ids of RocketMQ (tag rocketmq-all-4.9.3).

The offset id (`MessageDecoder.createMessageId`, `.decodeMessageId`) identifies a broker and a physical offset. It is
the store host's address (4 or 16 bytes), its port (4) and the offset (8), in upper-case hexadecimal. The unique key
(UNIQ_KEY, `MessageClientIDSetter`) is created by the client, and found through the index. It is written as 32
upper-case hexadecimal digits:

    IPv4 address 4 | process id 2 | hash of the class loader 4 | ms since the month began, local time 4 | counter 2
"""

from __future__ import annotations

import re
import struct
from binascii import unhexlify
from datetime import datetime, timedelta
from threading import Lock
from typing import NamedTuple

from reput.format.host import HOST_V4_BYTES, HOST_V6_BYTES, Host, decode_host, encode_host

_OFFSET = struct.Struct(">q")
_LENGTHS = {2 * (HOST_V4_BYTES + _OFFSET.size), 2 * (HOST_V6_BYTES + _OFFSET.size)}

ID_PATTERN = "[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{56}"
"""A regular expression of ids: 32 or 40 digits (unique keys of IPv4 and IPv6 clients), or 32 or 56 (offset ids)."""
_ID = re.compile(ID_PATTERN)
UNIQUE_KEY_BYTES = 32
_PREFIX = struct.Struct(">4sHI")
# A key contains the time since the beginning of a month. The time is negative if the client's clock was set back to the
# previous month. Instead of a time from -999,999 to -1 ms, a client writes 0. A client writes an even lower time
# unchanged (`MessageClientIDSetter.createUniqIDBuffer`).
_LONGEST_STEP_BACK_MS = 1_000_000
_TWO_DIGITS = [f"{byte:02X}" for byte in range(256)]


class OffsetMessageId(NamedTuple):
    """The host that stored a message, and the message's physical offset there."""

    store_host: Host
    physical_offset: int


def encode_offset_id(store_host: Host, physical_offset: int) -> str:
    return (encode_host(store_host) + _OFFSET.pack(physical_offset)).hex().upper()


def spellings(*texts: str) -> tuple[str, ...]:
    """Return the spellings in which a store may have these ids: the texts and, for each id, the text in upper case.

    Stores have ids in upper case, but other tools print some in lower case. A text in lower case may also be a key.
    """
    upper = (text.upper() for text in texts if _ID.fullmatch(text))
    return tuple(dict.fromkeys((*texts, *upper)))


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


def unique_key_prefix(host: Host, process_id: int, loader_hash: int) -> str:
    """Return the first 20 digits of all keys of a process.

    Only the low 16 bits of the process id and the low 32 bits of the class loader's hash are used.
    """
    address = encode_host(host)[:4]
    return _PREFIX.pack(address, process_id & 0xFFFF, loader_hash & 0xFFFFFFFF).hex().upper()


class UniqueKeys:
    """A generator of keys. Each call of `next` or `take` advances the counter. Any thread may call it."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._counter = 0
        self._lock = Lock()
        self._month_begin_ms = self._month_end_ms = 0
        self._now_ms: int | None = None
        # The prefix of all keys of the current millisecond.
        self._now = ""

    def next(self, now_ms: int) -> str:
        with self._lock:
            counter = self._counter
            self._counter = counter + 1
            if now_ms != self._now_ms:
                self._now_ms, self._now = now_ms, f"{self.prefix}{self._elapsed(now_ms):08X}"
            return self._now + _TWO_DIGITS[counter >> 8 & 0xFF] + _TWO_DIGITS[counter & 0xFF]

    def take(self, count: int, now_ms: int) -> tuple[int, int]:
        """Reserve `count` keys. Return their milliseconds since the month began, and the counter of the first key."""
        with self._lock:
            counter = self._counter
            self._counter = counter + count
            return self._elapsed(now_ms), counter & 0xFFFF

    def _elapsed(self, now_ms: int) -> int:
        # If the clock is set back to an earlier month, continue to count from the begin of the later month, as the
        # client does.
        if now_ms >= self._month_end_ms:
            begin = datetime.fromtimestamp(now_ms // 1000).replace(
                day=1, hour=0, minute=0, second=0, microsecond=0
            )
            # The day 32 days after the first of a month lies in the next month.
            end = (begin + timedelta(days=32)).replace(day=1)
            self._month_begin_ms = int(begin.timestamp() * 1000)
            self._month_end_ms = int(end.timestamp() * 1000)
        elapsed = now_ms - self._month_begin_ms
        # The clock was set back a little, to a time before the month began.
        if -_LONGEST_STEP_BACK_MS < elapsed < 0:
            elapsed = 0
        return elapsed & 0xFFFFFFFF
