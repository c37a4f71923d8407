"""DLedger logs (`DLedgerEntryCoder`, `DLedgerMmapFileStore` of DLedger 0.3.1.2), for `enableDLegerCommitLog`.

The files lie in `dledger-<id>/data/` and have the names of CommitLog files. A big-endian header precedes each record.
It has these fields, with their lengths in bytes:

    magic 4 (always 1) | size 4 (header and record) | index 8 | term 8 | position 8 (of the header) | channel 4 |
    chain CRC 4 | body CRC 4 | size of the record 4

PHYSICALOFFSET, and the offsets in queues and IndexFiles, are positions of records. A record begins 48 bytes after the
position of its header. If the next header and record do not fit, the file ends with a magic of -1 and the number of
bytes left, 4 bytes each.

In RocketMQ: bufferSize, getBufferSize.
"""

from __future__ import annotations

import struct

_HEADER = struct.Struct(">iiqqqiiii")
LEDGER_HEADER_BYTES = _HEADER.size
_MAGIC, _END_MAGIC = 1, -1


def is_header(data: bytes, position: int) -> bool:
    """Return whether these bytes are the header of a record, with `position` in its position field."""
    if len(data) < LEDGER_HEADER_BYTES:
        return False
    magic, size, _, _, stated, _, _, _, record_bytes = _HEADER.unpack_from(data)
    own = magic == _MAGIC and stated == position and size == LEDGER_HEADER_BYTES + record_bytes
    return bool(own)


def is_end_mark(data: bytes, left: int) -> bool:
    """Return whether these bytes mark the end of a file of which `left` bytes remain, including the mark."""
    return len(data) >= 8 and struct.unpack_from(">ii", data) == (_END_MAGIC, left)


def encode_header(index: int, term: int, position: int, record_bytes: int) -> bytes:
    """Return the header of a record as a broker writes it. Its CRCs are 0."""
    size = LEDGER_HEADER_BYTES + record_bytes
    return _HEADER.pack(_MAGIC, size, index, term, position, 0, 0, 0, record_bytes)
