"""The sizes of the pages of a Parquet column, from their headers.

The footer of a Parquet file states how much memory a column takes, but readers of pages allocate what the header of
each page states. So only the page headers show how much memory it takes to read a hostile file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from reput.format.thrift import I32, Reader, Struct

_KIND, _UNCOMPRESSED, _COMPRESSED = 1, 2, 3
"""Fields of PageHeader: the kind of the page, and the sizes of its content."""
_DICTIONARY = 2
"""The kind of a page with the different values of a column."""
_HEADER_BYTES = 512
_MOST_HEADER_BYTES = 1 << 20
"""Maximum size of a page header. It contains the least and the greatest value of the page."""
_MOST_PAGES = 1 << 17
"""Maximum number of pages of a column chunk. Writers begin a page after about 20,000 rows, or 1 MiB."""


class Page(NamedTuple):
    """A page of a column.

    Attributes:
        is_dictionary: Whether it has the values that later pages refer to.
        unpacked_bytes: Its size after decompression.
    """

    is_dictionary: bool
    unpacked_bytes: int


def pages_of(read: Callable[[int, int], bytes | memoryview], length: int) -> Iterator[Page]:
    """Yield the pages of a column.

    Args:
        read: returns bytes of the column chunk, given a position in it and a length
        length: length of the column chunk

    Raises:
        ValueError: a header is not a page header, or a page ends after the column.
    """
    at = count = 0
    while at < length:
        count += 1
        if count > _MOST_PAGES:
            raise ValueError(f"a column has more than {_MOST_PAGES:,} pages")
        header, header_bytes = _header(read, at, length - at)
        uncompressed, compressed = header.get(_UNCOMPRESSED, I32), header.get(_COMPRESSED, I32)
        if uncompressed is None or compressed is None or min(uncompressed, compressed) < 0:
            raise ValueError("a page has no size")
        # The content of a page follows its header. The next header follows the content.
        at += header_bytes + compressed
        if at > length:
            raise ValueError("a page ends after its column")
        yield Page(header.get(_KIND, I32) == _DICTIONARY, uncompressed)


def _header(
    read: Callable[[int, int], bytes | memoryview], at: int, most: int
) -> tuple[Struct, int]:
    """Return the page header at a position, and its length."""
    # Nearly all headers are short.
    for length in (_HEADER_BYTES, _MOST_HEADER_BYTES):
        reader = Reader(read(at, min(length, most)))
        try:
            return reader.struct(), reader.at
        except ValueError:
            if length >= min(_MOST_HEADER_BYTES, most):
                raise
    raise AssertionError("the last attempt returns or raises")
