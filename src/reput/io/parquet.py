"""Open Parquet files that others may have written, after a check of their footers and the headers of their pages.

pyarrow ends the process at some footers that contradict themselves, and allocates what the header of a page states.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from reput.base import first_line
from reput.errors import FormatError, ReputError
from reput.format.parquet import (
    MAGIC,
    MOST_FOOTER_BYTES,
    MOST_GROUP_BYTES,
    TAIL_BYTES,
    Chunk,
    check_footer,
    footer_bytes,
    pages_of,
)
from reput.io.reader import FileReader

_Read = Callable[[int, int], bytes]
"""A function that returns bytes of a file, given a position and a length."""


@contextmanager
def opened_parquet(
    path: str | Path, written: pq.FileMetaData | None = None
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file. Refuse a FIFO, because pyarrow would wait for a writer for ever.

    Args:
        path: The file.
        written: The metadata of the file, if this process has just written it. If the footer still has these bytes,
            it is not checked further: a check takes longer than writing a small row group.

    Raises:
        StoreNotFoundError, StoreAccessError: The file cannot be opened or is not a regular file.
        FormatError: The file is damaged, or states more than the limits. Also raised if the `with` block fails to read
            it.
    """
    with FileReader(str(path)) as reader:
        if written is None or not _has_footer(reader, written):
            _check(reader.read, reader.size, reader.path)
        # The path may have changed since the check, so pyarrow opens the checked file by its descriptor.
        try:
            with pq.ParquetFile(f"/dev/fd/{reader.fileno}") as file:
                yield file
        except ReputError:
            raise
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = f"cannot be decoded: {first_line(error)}"
            raise FormatError(reader.path, 0, reason) from error


def _has_footer(reader: FileReader, written: pq.FileMetaData) -> bool:
    """Return whether a file ends with a footer of these bytes."""
    sink = io.BytesIO()
    written.write_metadata_file(sink)
    # A file of metadata begins with the magic number of Parquet, and continues with the footer.
    footer = sink.getvalue()[len(MAGIC) :]
    return (
        len(footer) <= reader.size and reader.read(reader.size - len(footer), len(footer)) == footer
    )


def parquet_dataset(
    place: str | Path | Sequence[str],
    system: pa.fs.FileSystem | None = None,
    *,
    partitioning: Any = None,
) -> Any:
    """Return a dataset of the Parquet files in a folder, of one file, or of a list of files.

    Args:
        place: Paths in the file system.
        system: A file system of a bucket; None for this machine's.
        partitioning: As for `pyarrow.dataset.dataset`.

    Raises as `check_dataset` does.
    """
    open_dataset = partial(
        ds.dataset, place, filesystem=system, format="parquet", partitioning=partitioning
    )
    # With a schema, pyarrow only lists the files. Without, it also opens one of them.
    check_dataset(open_dataset(schema=pa.schema([])), has_pages=system is None)
    return open_dataset()


class CheckedFiles(NamedTuple):
    """What a check learned about the files of a dataset.

    Attributes:
        file_bytes: Their size.
        dictionary_bytes: Size of the largest dictionary of a column. Each row can refer to a value of this size.
    """

    file_bytes: int
    dictionary_bytes: int


def check_dataset(dataset: Any, *, has_pages: bool) -> CheckedFiles:
    """Check all files of a dataset before they are read.

    Args:
        dataset: A dataset of files.
        has_pages: Whether to check page headers as well. In a bucket, each of them would be a request. Without,
            dictionaries are not measured.

    Raises StoreNotFoundError, StoreAccessError, FormatError, pa.ArrowException, OSError.
    """
    size = largest = 0
    for path in dataset.files:
        if isinstance(dataset.filesystem, pa.fs.LocalFileSystem):
            with FileReader(path) as reader:
                largest = max(largest, _check(reader.read, reader.size, path, has_pages=has_pages))
                size += reader.size
        else:
            with dataset.filesystem.open_input_file(path) as file:
                read = partial(_read_at, file)
                largest = max(largest, _check(read, file.size(), path, has_pages=has_pages))
                size += file.size()
    return CheckedFiles(size, largest)


def _read_at(file: Any, position: int, length: int) -> bytes:
    data: bytes = file.read_at(length, position)
    return data


def _check(read: _Read, size: int, path: str, *, has_pages: bool = True) -> int:
    """Return the size of the largest dictionary. Raises FormatError for a file that pyarrow must not open."""
    start = max(size - TAIL_BYTES, 0)
    length = footer_bytes(read(start, size - start), size)
    # pyarrow explains why a file is not a Parquet file.
    if length is None:
        return 0
    at = start - length
    try:
        if length > MOST_FOOTER_BYTES:
            raise ValueError(f"it has {length:,} bytes, more than {MOST_FOOTER_BYTES:,}")
        groups = check_footer(read(at, length), size)
    except ValueError as error:
        raise FormatError(path, at, f"the footer is damaged: {error}") from None
    return max((_check_pages(read, group, path) for group in groups if has_pages), default=0)


def _check_pages(read: _Read, chunks: Sequence[Chunk], path: str) -> int:
    """Return the size of the largest dictionary of a row group. Raises FormatError."""
    unpacked = largest = 0
    for start, stop in chunks:

        def part(at: int, length: int, start: int = start) -> bytes:
            return read(start + at, length)

        try:
            for page in pages_of(part, stop - start):
                unpacked += page.unpacked_bytes
                if page.is_dictionary:
                    largest = max(largest, page.unpacked_bytes)
        except ValueError as error:
            raise FormatError(path, start, f"a column is damaged: {error}") from None
        if unpacked > MOST_GROUP_BYTES:
            raise FormatError(
                path,
                start,
                f"a row group has more than {MOST_GROUP_BYTES:,} bytes after decompression",
            )
    return largest


class Parquet:
    """Parquet files that others may have written; each is checked before pyarrow reads it."""

    opened = staticmethod(opened_parquet)
    dataset = staticmethod(parquet_dataset)
    check = staticmethod(check_dataset)
