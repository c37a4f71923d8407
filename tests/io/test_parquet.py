"""Parquet files of others: no changed byte ends the process, and few bytes do not take much memory or time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reput.engine.lookup.keys import Keys
from reput.errors import FormatError, UsageError
from reput.format.parquet import MOST_FOOTER_BYTES, check_footer
from reput.io.parquet import opened_parquet, parquet_dataset
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import FORMATS, export

Golden = Callable[[str], GoldenStore]
_TABLE = pa.table(
    {
        "topic": ["a", "b", "a", None] * 100,
        "key": [str(n * 7919) for n in range(400)],
        "number": pa.array([n if n % 5 else None for n in range(400)]),
        "time": pa.array(range(400), pa.timestamp("ms", "UTC")),
        "list": pa.array([[n, n + 1] if n % 3 else None for n in range(400)]),
        "map": pa.array([[("k", str(n))] for n in range(400)], pa.map_(pa.string(), pa.string())),
    }
)
_KINDS: dict[str, dict[str, Any]] = {
    "plain": {"compression": "none", "use_dictionary": False},
    "snappy": {"compression": "snappy", "data_page_version": "2.0", "write_page_index": True},
    "zstd": {"compression": "zstd"},
}


def _flip(reader: str, path: Path, folder: Path, count: int, seed: int) -> None:
    name = str(path.relative_to(folder))
    command = [
        sys.executable,
        "-m",
        "tests.io.flipping",
        reader,
        str(folder),
        name,
        str(count),
        str(seed),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(done.stdout)
    assert outcomes.keys() == {"read", "refused"}, outcomes
    assert min(outcomes.values()) > count // 10


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["keys", "merge"])
@pytest.mark.parametrize("kind", _KINDS)
def test_no_changed_byte_ends_a_reader_of_a_file(tmp_path: Path, reader: str, kind: str) -> None:
    path = tmp_path / "keys.parquet"
    pq.write_table(_TABLE, path, row_group_size=150, **_KINDS[kind])
    _flip(reader, path, tmp_path, 1000, 1)


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["compare", "count"])
@pytest.mark.parametrize("layout", FORMATS)
def test_no_changed_byte_ends_a_reader_of_a_table(
    golden: Golden, tmp_path: Path, reader: str, layout: str
) -> None:
    export(golden("lmq").path, tmp_path / "out", layout)
    path = max((tmp_path / "out").rglob("*.parquet"), key=lambda file: file.stat().st_size)
    _flip(reader, path, tmp_path / "out", 500, 2)


def _write(path: Path, data: dict[str, Any], **options: Any) -> None:
    pq.write_table(pa.table(data), path, **{"row_group_size": 1 << 26, **options})


def test_rows_that_take_no_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, nulls = tmp_path / "keys.parquet", pa.nulls(500_000, pa.string())
    _write(path, {"topic": nulls, "key": nulls})
    parquet_dataset(path)
    monkeypatch.setattr("reput.format.parquet._LEAST_ROWS", 1000)
    monkeypatch.setattr("reput.format.parquet._ROWS_PER_BYTE", 100)
    assert path.stat().st_size < 4900
    with pytest.raises(UsageError, match=r"states more than [\d,]+ rows"):
        Keys.read(str(path))
    with pytest.raises(FormatError, match=r"states more than [\d,]+ rows"):
        parquet_dataset(path)


@pytest.mark.parametrize("where", ["reput.format.parquet", "reput.io.parquet"])
def test_a_row_group_that_takes_all_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    path = tmp_path / "keys.parquet"
    text = ["0" * (1 << 20)] * 5
    _write(path, {"topic": text, "key": text}, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 10_000
    with opened_parquet(path):
        pass
    monkeypatch.setattr(f"{where}.MOST_GROUP_BYTES", 9 << 20)
    with (
        pytest.raises(FormatError, match=r"row group (has|states) more than"),
        opened_parquet(path),
    ):
        pass


def test_a_long_text_in_all_rows_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "reput.engine.lookup.keys"
    monkeypatch.setattr(f"{module}._BATCH_BYTES", 16 << 20)
    monkeypatch.setattr(f"{module}._LEAST_BYTES", 64 << 20)
    path = tmp_path / "keys.parquet"
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 200_000, pa.int32()), ["0" * (1 << 20)])
    _write(
        path,
        {"topic": texts, "key": ["k"] * 200_000},
        compression="zstd",
        dictionary_pagesize_limit=1 << 22,
    )
    assert path.stat().st_size < 100_000
    keys, most = Keys.read(str(path)), 0

    def measure() -> None:
        nonlocal most
        for batch in keys.batches:
            most = max(most, batch.nbytes, pa.total_allocated_bytes())

    with pytest.raises(UsageError, match=r"contain more than [\d,]+ bytes of keys"):
        measure()
    assert 1 << 20 < most < 150 << 20


def test_a_footer_of_many_values_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.parquet"
    # A list (field 5) of two million empty structs.
    footer = b"\x59\xfc\x80\x89\x7a" + bytes(2_000_000)
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(UsageError, match="damaged"):
        Keys.read(str(path))
    with path.open("wb") as file:
        file.truncate(MOST_FOOTER_BYTES + 100)
        file.seek(-8, 2)
        file.write((MOST_FOOTER_BYTES + 1).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(UsageError, match="more than"):
        Keys.read(str(path))


def test_a_file_as_it_was_written_needs_no_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, written = tmp_path / "a.parquet", list[pq.FileMetaData]()
    with pq.ParquetWriter(path, _TABLE.schema, metadata_collector=written) as writer:
        writer.write_table(_TABLE)
    checked: list[int] = []

    def counting(footer: bytes, size: int) -> Any:
        checked.append(size)
        return check_footer(footer, size)

    monkeypatch.setattr("reput.io.parquet.check_footer", counting)
    with opened_parquet(path, written[0]) as file:
        assert file.read().equals(_TABLE)
    assert not checked
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    with suppress(FormatError), opened_parquet(path, written[0]):
        pass
    assert checked == [len(data)]
    path.write_bytes(data[-4:])
    with pytest.raises(FormatError), opened_parquet(path, written[0]):
        pass
