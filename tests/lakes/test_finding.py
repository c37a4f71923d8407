"""A reader that does not know reput finds one key without reading the whole table: the bytes it reads are counted."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from reput.format.commit_log import MESSAGE_MAGIC, MessageExt, encode
from reput.format.file_names import offset_file_name
from reput.format.host import Host
from tests.lakes.exporting import export

MESSAGES = 60_000
FILE_BYTES = 8 << 20


class CountingFiles(LocalFileSystem):  # type: ignore[misc]
    """Local files under `counted://`. Counts the bytes that are read."""

    protocol = "counted"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super().open(path, mode, **options)
        whole = self

        class Counted:
            def read(self, size: int = -1) -> bytes:
                data: bytes = file.read(size)
                whole.bytes_read += len(data)
                return data

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

        return Counted()


def write_store(store: Path) -> None:
    """A log of messages with random unique keys, orders of three messages each, and bodies that do not compress."""
    folder, random = store / "commitlog", np.random.default_rng(1)
    folder.mkdir(parents=True)
    data, start = bytearray(), 0
    for number in range(MESSAGES):
        unique = random.bytes(16).hex().upper()
        properties = f"KEYS\x01order-{number // 3:06d}\x02UNIQ_KEY\x01{unique}\x02TAGS\x01paid"
        record = encode(
            MessageExt(
                topic=f"topic-{number % 3}", queue_id=0, queue_offset=number, physical_offset=start + len(data),
                size_bytes=0, flag=0, sys_flag=0, body_crc=0, born_timestamp=1_700_000_000_000 + number,
                born_host=Host("10.0.0.1", 40001), store_timestamp=1_700_000_000_000 + number,
                store_host=Host("10.0.0.2", 10911), reconsume_times=0, prepared_transaction_offset=0,
                body=random.bytes(200), properties_bytes=properties.encode(), magic=MESSAGE_MAGIC,
            )
        )  # fmt: skip
        data += record
    (folder / offset_file_name(0)).write_bytes(data)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finding")
    write_store(folder / "store")
    export(
        folder / "store", folder / "out",
        partition_by=("topic",), split_bytes=3 << 20,
        target_file_bytes=1 << 20,  # for many row groups, as a large table has
    )  # fmt: skip
    return folder / "out"


def ask(table: Path, where: str) -> tuple[list[tuple[int, ...]], int, int]:
    """Return the offsets that DuckDB finds, the bytes that it read, and the table's size."""
    counting = CountingFiles()
    with duckdb.connect() as connection:
        connection.register_filesystem(counting)
        connection.execute("SET threads = 1")
        found = connection.execute(
            f"SELECT physical_offset, body FROM read_parquet('counted://{table}/topic=*/*.parquet') WHERE {where}"
        ).fetchall()
    size = sum(path.stat().st_size for path in table.rglob("*.parquet"))
    return [row[:1] for row in found], counting.bytes_read, size


def test_a_sorted_key_is_found_without_reading_the_table(table: Path) -> None:
    found, bytes_read, size = ask(table, "topic = 'topic-1' AND key = 'order-012345'")
    assert len(found) == 1
    assert bytes_read < size / 20, (bytes_read, size)


def test_a_unique_key_is_found_by_its_bloom_filters(table: Path) -> None:
    paths = sorted(table.rglob("*.parquet"))
    assert len(paths) >= 15, "several files, any of which may hold a random key"
    wanted = pq.read_table(paths[3], columns=["unique_key", "physical_offset"]).slice(77, 1)
    found, bytes_read, size = ask(table, f"unique_key = '{wanted['unique_key'][0]}'")
    assert found == [(wanted["physical_offset"][0].as_py(),)]
    assert bytes_read < size / 4, (bytes_read, size)


def test_a_key_that_is_not_there_reads_next_to_nothing(table: Path) -> None:
    found, bytes_read, size = ask(table, "unique_key = 'no such key'")
    assert found == []
    assert bytes_read < size / 20, (bytes_read, size)


def test_row_groups_are_sorted_and_have_a_page_index(table: Path) -> None:
    for path in table.rglob("*.parquet"):
        file = pq.ParquetFile(path)
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            keys = file.read_row_group(number, columns=["key"])["key"].to_pylist()
            assert keys == sorted(keys)
            column = next(
                group.column(n)
                for n in range(group.num_columns)
                if group.column(n).path_in_schema == "key"
            )
            assert column.has_offset_index
            assert column.has_column_index
            assert len(group.sorting_columns) == 2
