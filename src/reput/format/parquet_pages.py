"""The sizes of the pages of a Parquet column, from their headers.

The footer of a Parquet file states how much memory a column takes, but readers of pages allocate what the header of
each page states. So only the page headers show how much memory it takes to read a hostile file.
"""

from __future__ import annotations

from collections.abc import Iterator

from reput.format.thrift import I32, Reader

_UNCOMPRESSED, _COMPRESSED = 2, 3
"""Fields of PageHeader: the sizes of the page's content."""


def uncompressed_sizes(column: bytes | memoryview) -> Iterator[int]:
    """Yield the uncompressed size of each page of a column.

    Args:
        column: all bytes of a column chunk

    Raises:
        ValueError: a header is not a page header, or a page ends after the column.
    """
    at = 0
    while at < len(column):
        reader = Reader(column, at)
        header = reader.struct()
        uncompressed, compressed = header.get(_UNCOMPRESSED, I32), header.get(_COMPRESSED, I32)
        if uncompressed is None or compressed is None or min(uncompressed, compressed) < 0:
            raise ValueError("a page has no size")
        # The content of a page follows its header. The next header follows the content.
        at = reader.at + compressed
        if at > len(column):
            raise ValueError("a page ends after its column")
        yield uncompressed
