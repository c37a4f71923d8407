"""Page sizes of real Parquet columns, and headers that no writer has written."""

import io
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reput.format.parquet import pages_of

_ROWS = 20_000


def _sizes(column: bytes) -> Iterator[int]:
    pages = pages_of(lambda at, length: column[at : at + length], len(column))
    return (page.unpacked_bytes for page in pages)


def _columns(**options: Any) -> list[tuple[bytes, int]]:
    """Write columns of several types; return the bytes of each, and its uncompressed size."""
    numbers = np.random.default_rng(1)
    table = pa.table(
        {
            "integer": numbers.integers(0, 1 << 40, _ROWS), "text": [f"text {n % 500}" for n in range(_ROWS)],
            "flag": [None if n % 7 == 0 else n % 2 == 0 for n in range(_ROWS)], "real": numbers.random(_ROWS),
            "list": [[n, n + 1] for n in range(_ROWS)],
        }
    )  # fmt: skip
    sink = io.BytesIO()
    pq.write_table(table, sink, data_page_size=20_000, **options)
    data, group = sink.getvalue(), pq.read_metadata(sink).row_group(0)
    found = []
    for number in range(group.num_columns):
        column = group.column(number)
        has_dictionary = column.has_dictionary_page
        start = column.dictionary_page_offset if has_dictionary else column.data_page_offset
        stop = start + column.total_compressed_size
        found.append((data[start:stop], column.total_uncompressed_size))
    return found


@pytest.mark.parametrize("compression", ["zstd", "none", "snappy"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_every_page_of_a_column_is_found(
    compression: str, version: str, use_dictionary: bool
) -> None:
    columns = _columns(
        compression=compression, data_page_version=version, use_dictionary=use_dictionary,
        write_page_checksum=True,
    )  # fmt: skip
    for column, size in columns:
        sizes = list(_sizes(column))
        assert len(sizes) > 1 or size < 20_000
        # The column's size includes the headers, which take less than 120 bytes each.
        assert sum(sizes) < size < sum(sizes) + 120 * len(sizes)


def test_changed_headers_have_sizes_or_are_refused() -> None:
    random, refused = Random(2), 0
    column, _ = _columns(compression="zstd")[0]
    for _ in range(2000):
        data = bytearray(column[: random.choice([20, 100, len(column)])])
        for _ in range(random.randint(0, 4)):
            data[random.randrange(20)] = random.randrange(256)
        try:
            assert all(size >= 0 for size in _sizes(bytes(data)))
        except ValueError:
            refused += 1
    assert refused > 1000


def test_nested_headers_are_refused() -> None:
    with pytest.raises(ValueError, match="nested"):
        list(_sizes(b"\x1c" * 10_000))
