"""The sizes of the pages of a Parquet column, from their headers (Thrift, compact protocol).

The footer of a Parquet file states how much memory a column takes, but readers of pages allocate what the header of
each page states. So only the page headers show how much memory it takes to read a hostile file.
"""

from __future__ import annotations

from collections.abc import Iterator

_UNCOMPRESSED, _COMPRESSED = 2, 3
"""Fields of PageHeader: the sizes of the page's content."""
_BYTE, _VARINTS, _DOUBLE, _BINARY, _STRUCT = 3, (4, 5, 6), 7, 8, 12
_BOOLEANS = (1, 2)
_MOST_DEPTH = 8
_MOST_VARINT_BYTES = 10


def uncompressed_sizes(column: bytes | memoryview) -> Iterator[int]:
    """Yield the uncompressed size of each page of a column.

    Args:
        column: all bytes of a column chunk

    Raises:
        ValueError: a header is not a page header, or a page ends after the column.
    """
    at = 0
    while at < len(column):
        header = _Header(column, at)
        sizes = header.fields()
        if not {_UNCOMPRESSED, _COMPRESSED} <= sizes.keys() or min(sizes.values()) < 0:
            raise ValueError("a page has no size")
        # The content of a page follows its header. The next header follows the content.
        at = header.at + sizes[_COMPRESSED]
        if at > len(column):
            raise ValueError("a page ends after its column")
        yield sizes[_UNCOMPRESSED]


class _Header:
    """Reads a page header from bytes. `at` is the position up to which it was read."""

    def __init__(self, data: bytes | memoryview, at: int) -> None:
        self._data, self.at = data, at

    def fields(self, depth: int = 0) -> dict[int, int]:
        """Read a struct. Return its fields `_UNCOMPRESSED` and `_COMPRESSED`, by number. Raises ValueError."""
        if depth > _MOST_DEPTH:
            raise ValueError("a page header is nested too deeply")
        found: dict[int, int] = {}
        number = 0
        while head := self._byte():
            # If the difference from the previous field's number fits in four bits, only the difference is stored.
            kind, delta = head & 15, head >> 4
            number = number + delta if delta else self._integer()
            if kind in _VARINTS:
                value = self._integer()
                if number in (_UNCOMPRESSED, _COMPRESSED):
                    found[number] = value
            elif kind == _STRUCT:
                self.fields(depth + 1)
            elif kind == _BYTE:
                self.at += 1
            elif kind == _DOUBLE:
                self.at += 8
            elif kind == _BINARY:
                length = self._varint()
                self.at += length
            elif kind not in _BOOLEANS:  # page headers have no lists, sets or maps
                raise ValueError(f"a page header has a field of an unexpected type ({kind})")
        return found

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise ValueError("a page header is cut off")
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = 0
        for count in range(_MOST_VARINT_BYTES):
            byte = self._byte()
            value |= (byte & 127) << 7 * count
            if byte < 128:
                return value
        raise ValueError("a page header has an integer of too many bytes")

    def _integer(self) -> int:
        value = self._varint()
        # Zigzag encoding: the lowest bit is the sign.
        return value >> 1 ^ -(value & 1)
