"""Every column of every record, as the oracle has it."""

import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reput.errors import UsageError
from reput.table import bodies
from reput.table.decode import decode_batch
from reput.table.schema import ALL_COLUMNS, COLUMNS
from tests.golden.stores import GoldenStore
from tests.oracle import table
from tests.oracle.forge import LogForge, RecordFields, encode_record, forge_log, write_store
from tests.oracle.random_logs import LogOptions, random_log
from tests.oracle.walk import read_log
from tests.table.reading import read, rows_of

Golden = Callable[[str], GoldenStore]
STORES = ("basic", "defaults", "extremes", "git", "lmq", "orders", "timed", "tricky")
SEEDS = 12


@pytest.mark.parametrize("name", STORES)
def test_a_golden_store_reads_as_the_oracle_decodes_it(name: str, golden: Golden) -> None:
    store = golden(name).path
    expected = table.rows(read_log(store), str(store))
    reasons = [None if row["body"] is not None else "the body cannot be read" for row in expected]
    found = read(store, ALL_COLUMNS.names, on_corrupt="row")
    assert [
        reason and reason.partition(":")[0] for reason in found["corrupt_reason"].to_pylist()
    ] == reasons
    assert rows_of(found.drop_columns(["corrupt_reason"])) == expected


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_log_reads_as_the_oracle_decodes_it(seed: int, tmp_path: Path) -> None:
    log = random_log(seed, LogOptions(records=150, irregular=True, multi_dispatch=True))
    store = write_store(tmp_path / "store", log.files)
    expected = table.rows(log.files, str(store), decompressed=False)
    for batch_bytes in (1, 3000, 1 << 20):
        found = read(store, decompressed=False, batch_bytes=batch_bytes)
        assert rows_of(found) == expected


def test_a_projection_has_the_columns_asked_for_in_their_order(golden: Golden) -> None:
    store = golden("basic").path
    everything = read(store)
    random = Random(4)
    for _ in range(20):
        names = random.sample(COLUMNS.names, random.randint(1, 6))
        assert read(store, names) == everything.select(names)


def test_columns_that_are_none_are_refused() -> None:
    data, positions = np.zeros(1, np.uint8), np.zeros(0, np.int64)
    with pytest.raises(UsageError, match=r"no column colour; there are store, topic"):
        decode_batch(data, positions, ["topic", "colour"])
    with pytest.raises(UsageError, match="asked for twice"):
        decode_batch(data, positions, ["topic", "topic"])


def test_no_records_are_a_batch_without_rows() -> None:
    batch, bad = decode_batch(np.zeros(1, np.uint8), np.zeros(0, np.int64))
    assert batch.schema == COLUMNS
    assert (len(batch), bad) == (0, [])


PROPERTIES = (
    b"a\x01b\x02a\x01c",
    b"a\x01b\x02\xff\x01c\x02a\x01d\x02\xfe\x01e",  # both names are one U+FFFD to Java
    b"\xed\xa0\x80\x01x\x02\xef\xbf\xbd\x01y",
    b"\x02".join(b"name-%d\x01value-%d" % (n % 40, n) for n in range(200)),
    b"\x02".join(b"%c\xff%d\x01%d" % (65 + n % 2, n % 30, n) for n in range(100)),
    b"\x02".join(b"n%d\x01" % n for n in range(100)),
    "名\x01值\x02é\x01\x01\x02KEYS\x01 a  b ".encode(),
    b"KEYS\x01" + b" ".join(b"%d" % n for n in range(5000)),
    b"\x02".join(b"%x\x011" % n for n in range(5000)),
)


@pytest.mark.parametrize("properties", PROPERTIES, ids=range(len(PROPERTIES)))
def test_properties_are_taken_as_java_takes_them(properties: bytes, tmp_path: Path) -> None:
    fields = [RecordFields(properties=given) for given in (b"", properties, b"z\x01z", properties)]
    forge = forge_log(fields, file_bytes=1 << 18)
    store = write_store(tmp_path / "store", forge.files())
    assert rows_of(read(store)) == table.rows(forge.files(), str(store))


def _compress(kind: str) -> Callable[[bytes], bytes]:
    def of_codec(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.output_stream(sink, compression=kind) as stream:
            stream.write(data)
        return bytes(sink.getvalue())

    return zlib.compress if kind == "zlib" else of_codec


COMPRESSIONS = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_bodies_are_decompressed_by_the_bits_of_the_system_flag(kind: int, tmp_path: Path) -> None:
    body = b"a body that is worth it " * 1000
    packed = _compress(COMPRESSIONS[kind])(body)
    flag = 1 | kind << 8
    forge = forge_log(
        [RecordFields(body=packed, sys_flag=flag), RecordFields(body=packed, sys_flag=kind << 8)],
        file_bytes=1 << 16,
    )
    store = write_store(tmp_path / "store", forge.files())
    assert read(store)["body"].to_pylist() == [body, packed]
    assert read(store)["body_crc_ok"].to_pylist() == [True, True]
    assert read(store, decompressed=False)["body"].to_pylist() == [packed, packed]


DAMAGED_BODIES: dict[str, tuple[int, bytes, str]] = {
    "zlib": (1, zlib.compress(b"x" * 100)[:-3], "its zlib data is cut off"),
    "not zlib": (1, b"plain", "its zlib data is damaged"),
    "lz4": (1 | 1 << 8, b"plain text, no frame", "its lz4 data is damaged"),
    "zstd": (1 | 2 << 8, b"plain text, no frame", "its zstd data is damaged"),
    "unknown": (1 | 5 << 8, b"x", "compression type 5 is none that RocketMQ has"),
    "bomb": (1, zlib.compress(bytes(20_000)), "larger than 10000 bytes"),
    "zstd bomb": (1 | 2 << 8, _compress("zstd")(bytes(20_000)), "larger than 10000 bytes"),
}


@pytest.mark.parametrize("name", DAMAGED_BODIES)
def test_a_body_that_cannot_be_decompressed_is_told(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, body, reason = DAMAGED_BODIES[name]
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 10_000)
    forge = LogForge(1 << 16)
    for _ in range(2):
        forge.put(RecordFields(body=b"fine"))
        forge.put(RecordFields(body=body, sys_flag=flag))
    store = write_store(tmp_path / "store", forge.files())
    found: list[dict[str, Any]] = read(
        store, ["physical_offset", "body", "corrupt_reason"], on_corrupt="row"
    ).to_pylist()
    assert [row["body"] for row in found] == [b"fine", None, b"fine", None]
    assert all(reason in found[row]["corrupt_reason"] for row in (1, 3))
    assert [row["physical_offset"] for row in found] == forge.offsets
    assert read(store, ["body"], on_corrupt="skip")["body"].to_pylist() == [b"fine"] * 2


def test_a_column_is_made_of_any_run_of_records() -> None:
    """Records need not follow each other, nor come in order."""
    records = [encode_record(RecordFields(topic=f"t{n}", body=bytes(n))) for n in range(5)]
    begins = np.cumsum([3, *map(len, records)])[:-1]
    data = np.frombuffer(bytearray(b"..." + b"".join(records)), np.uint8)
    wanted = begins[[4, 0, 2]].astype(np.int64)
    batch, _ = decode_batch(
        data, wanted, ["topic", "physical_offset", "store"], base=1000, store="s"
    )
    assert batch.to_pydict() == {
        "topic": ["t4", "t0", "t2"],
        "physical_offset": [1000 + int(begin) for begin in wanted],
        "store": ["s"] * 3,
    }
