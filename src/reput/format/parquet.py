"""Checks of what a Parquet file states (Thrift, compact protocol), before pyarrow reads it.

pyarrow describes row groups and columns in C++ code that ends the process if the footer contradicts itself: a column
without metadata, more columns than the schema has, or a statistic that is shorter than its type. So a hostile file must
be refused before. Some sizes are limited as well: a file of a few bytes can state a number of rows, or of bytes, that
takes hours, or all memory. The footer also states how much memory a column takes, but readers of pages allocate what
the header of each page states. So the headers of pages are read, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from reput.format.thrift import BINARY, I32, I64, LIST, STRUCT, Items, Reader, Struct

MAGIC = b"PAR1"
TAIL_BYTES = 8
"""The length of the footer, and `MAGIC`."""

MOST_FOOTER_BYTES = 64 << 20
MOST_GROUP_BYTES = 1 << 30
"""Maximum size of a row group after decompression. Writers begin a row group after about 128 MiB."""
_LEAST_ROWS, _ROWS_PER_BYTE = 1 << 20, 1024
"""A column may have a million values, plus this number for each byte of its file. Equal values take nearly no bytes."""
_MOST_DEPTH = 16
# Bytes of a value of each physical type; None for any number of bytes. Fixed-length values state it in the schema.
_VALUE_BYTES: dict[int, int | None] = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: None}
_BYTE_ARRAY, _FIXED_LENGTH = 6, 7
# Fields of the structs of parquet.thrift.
_SCHEMA, _ROW_GROUPS = 2, 4
_ELEMENT_TYPE, _ELEMENT_LENGTH, _ELEMENT_REPETITION, _ELEMENT_NAME, _ELEMENT_CHILDREN = (
    1,
    2,
    3,
    4,
    5,
)
_OTHER_LISTS = (5, 7)
_COLUMNS, _ROWS, _SORTING = 1, 3, 4
_COLUMN_METADATA, _CRYPTO, _ENCRYPTED = 3, 8, 9
_TYPE, _CODEC, _STATISTICS, _SIZE_STATISTICS = 1, 4, 12, 16
_VALUES, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 5, 6, 7, 9, 11
_SIZES = (_VALUES, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE)
_LISTS_OF_COLUMN = {2: I32, 3: BINARY, 8: STRUCT, 13: STRUCT}
"""Fields of ColumnMetaData that are lists, and the kinds of their items."""
_LIMITS = (1, 2, 5, 6)
"""Fields of Statistics: the largest and the smallest value, in an old and a new form."""
_BYTES_OF_VALUES, _REPETITION_LEVELS, _DEFINITION_LEVELS = 1, 2, 3
"""Fields of SizeStatistics."""
_REQUIRED, _REPEATED = 0, 2
_PAGE_KIND, _PAGE_UNCOMPRESSED, _PAGE_COMPRESSED = 1, 2, 3
"""Fields of PageHeader: the kind of the page, and the sizes of its content."""
_DICTIONARY = 2
"""The kind of a page with the different values of a column."""
_HEADER_BYTES = 512
_MOST_HEADER_BYTES = 1 << 20
"""Maximum size of a page header. It contains the least and the greatest value of the page."""
_MOST_PAGES = 1 << 17
"""Maximum number of pages of a column chunk. Writers begin a page after about 20,000 rows, or 1 MiB."""


def footer_bytes(tail: bytes, file_bytes: int) -> int | None:
    """Return the length of the footer from the last `TAIL_BYTES` of a file; None if it is no Parquet file."""
    length = int.from_bytes(tail[:4], "little")
    is_parquet = len(tail) == TAIL_BYTES and tail[4:] == MAGIC and length <= file_bytes - TAIL_BYTES
    return length if is_parquet else None


class _Leaf(NamedTuple):
    """A column of the schema.

    Attributes:
        kind: Its physical type.
        value_bytes: Bytes per value; None if they differ.
        repetition_level, definition_level: Its largest levels.
    """

    kind: int
    value_bytes: int | None
    repetition_level: int
    definition_level: int


class Chunk(NamedTuple):
    """Where the pages of a column lie in the file."""

    start: int
    stop: int


def check_footer(footer: bytes | memoryview, file_bytes: int) -> list[list[Chunk]]:
    """Check a footer (without its length), and return the column chunks of each row group.

    Raises ValueError for a footer at which pyarrow could end the process, or that states more than the limits above.
    """
    file = Reader(footer).struct()
    groups, rows, most_rows = [], 0, _LEAST_ROWS + _ROWS_PER_BYTE * file_bytes
    leaves = _leaves(_items(file, _SCHEMA, STRUCT))
    for number in _OTHER_LISTS:
        _items(file, number, STRUCT)
    for group in _items(file, _ROW_GROUPS, STRUCT):
        columns = _items(group, _COLUMNS, STRUCT)
        _items(group, _SORTING, STRUCT)
        if len(columns) != len(leaves):
            raise ValueError(
                f"a row group has {len(columns)} columns, but the schema has {len(leaves)}"
            )
        rows += max(group.get(_ROWS, I64) or 0, 0)
        if rows > most_rows:
            raise ValueError(f"it states more than {most_rows:,} rows in {file_bytes:,} bytes")
        chunks = [_metadata(column, leaf) for column, leaf in zip(columns, leaves, strict=True)]
        if any(chunk.get(_VALUES, I64) > most_rows for chunk in chunks):
            raise ValueError(f"a column states more than {most_rows:,} values")
        if sum(chunk.get(_UNCOMPRESSED, I64) for chunk in chunks) > MOST_GROUP_BYTES:
            raise ValueError(f"a row group states more than {MOST_GROUP_BYTES:,} bytes")
        groups.append([_place(chunk, file_bytes) for chunk in chunks])
    return groups


def _place(metadata: Struct, file_bytes: int) -> Chunk:
    start = metadata.get(_DATA_PAGE, I64)
    dictionary = metadata.get(_DICTIONARY_PAGE, I64)
    # As in pyarrow: some writers state 0 for a column without a dictionary.
    if dictionary is not None and 0 < dictionary < start:
        start = dictionary
    stop = start + metadata.get(_COMPRESSED, I64)
    if not 0 <= start <= stop <= file_bytes:
        raise ValueError("a column lies outside the file")
    return Chunk(start, stop)


def _metadata(column: Struct, leaf: _Leaf) -> Struct:
    """Return the metadata of a column. Raises ValueError."""
    metadata: Struct | None = column.get(_COLUMN_METADATA, STRUCT)
    if metadata is None or column.has(_CRYPTO) or column.has(_ENCRYPTED):
        raise ValueError("a column has no metadata, or is encrypted")
    if metadata.get(_TYPE, I32) != leaf.kind:
        raise ValueError("a column has another type than in the schema")
    sizes = [metadata.get(number, I64) for number in _SIZES]
    if metadata.get(_CODEC, I32) is None or any(size is None or size < 0 for size in sizes):
        raise ValueError("a column has no sizes")
    for number, kind in _LISTS_OF_COLUMN.items():
        _items(metadata, number, kind)
    statistics: Struct = metadata.get(_STATISTICS, STRUCT) or Struct()
    for limit in (statistics.get(number, BINARY) for number in _LIMITS):
        if limit is not None and leaf.value_bytes not in (None, len(limit)):
            raise ValueError("a statistic of a column has another length than its type")
    own: Struct = metadata.get(_SIZE_STATISTICS, STRUCT) or Struct()
    if own.has(_BYTES_OF_VALUES) and leaf.kind != _BYTE_ARRAY:
        raise ValueError("a statistic of a column does not fit its type")
    for number, level in (
        (_REPETITION_LEVELS, leaf.repetition_level), (_DEFINITION_LEVELS, leaf.definition_level),
    ):  # fmt: skip
        if len(_items(own, number, I64)) not in (0, level + 1):
            raise ValueError("a column has another number of levels than in the schema")
    return metadata


def _leaves(schema: list[Struct]) -> list[_Leaf]:
    """Return the columns of a schema. Raises ValueError if its elements do not form one tree or have other names."""
    leaves: list[_Leaf] = []
    # For each open group: the number of elements that are still to come, and its levels. The first element is the root.
    groups = [(1, 0, 0)]
    for element in schema:
        while groups and groups[-1][0] == 0:
            groups.pop()
        if not groups:
            raise ValueError("the schema has elements outside of its root")
        # pyarrow decodes names when somebody asks for them.
        (element.get(_ELEMENT_NAME, BINARY) or b"").decode()
        left, repetition, definition = groups[-1]
        groups[-1] = (left - 1, repetition, definition)
        if len(groups) > 1:
            kind = element.get(_ELEMENT_REPETITION, I32) or _REQUIRED
            if kind not in range(_REPEATED + 1):
                raise ValueError("the schema has an element of an unknown repetition type")
            repetition += kind == _REPEATED
            definition += kind != _REQUIRED
        children = element.get(_ELEMENT_CHILDREN, I32)
        if children and children > 0 and len(groups) < _MOST_DEPTH:
            groups.append((children, repetition, definition))
            continue
        kind = element.get(_ELEMENT_TYPE, I32)
        if children or len(groups) == 1 or kind not in (*_VALUE_BYTES, _FIXED_LENGTH):
            raise ValueError("the schema has an element that is no column")
        size = element.get(_ELEMENT_LENGTH, I32) if kind == _FIXED_LENGTH else _VALUE_BYTES[kind]
        leaves.append(_Leaf(kind, size, repetition, definition))
    if any(left for left, _, _ in groups):
        raise ValueError("the schema has fewer elements than it states")
    return leaves


def _items(struct: Struct, number: int, kind: int) -> list[Any]:
    """Return the items of a list; empty if it is missing. Raises ValueError for items of another kind.

    pyarrow does not compare the kind, so it would read other items than this module.
    """
    items: Items | None = struct.get(number, LIST)
    if items is None:
        return []
    if items.values and items.kind != kind:
        raise ValueError(f"the list in field {number} has items of the kind {items.kind}")
    return items.values


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
        header, header_bytes = _page_header(read, at, length - at)
        uncompressed, compressed = (
            header.get(_PAGE_UNCOMPRESSED, I32),
            header.get(_PAGE_COMPRESSED, I32),
        )
        if uncompressed is None or compressed is None or min(uncompressed, compressed) < 0:
            raise ValueError("a page has no size")
        # The content of a page follows its header. The next header follows the content.
        at += header_bytes + compressed
        if at > length:
            raise ValueError("a page ends after its column")
        yield Page(header.get(_PAGE_KIND, I32) == _DICTIONARY, uncompressed)


def _page_header(
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
