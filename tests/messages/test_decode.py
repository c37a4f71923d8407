"""Every column of every record, compared with the oracle."""

import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from reput.engine.messages.decode import decode_batch
from reput.engine.messages.schema import COLUMNS, DAMAGE_COLUMNS
from reput.engine.tables.filters import OnCorrupt
from reput.engine.tables.read import RangeBatches
from reput.errors import UsageError
from reput.format import bodies
from tests.golden.stores import GoldenStore
from tests.oracle import table
from tests.oracle.forge import LogForge, RecordFields, encode_record, forge_log, write_store
from tests.oracle.random_logs import LogOptions, random_log
from tests.oracle.walk import read_log
from tests.tables.reading import plan, read, rows_of

Golden = Callable[[str], GoldenStore]
STORES = ("basic", "defaults", "extremes", "git", "lmq", "orders", "timed", "tricky")
SEEDS = 12


@pytest.mark.parametrize("name", STORES)
def test_a_golden_store_reads_as_the_oracle_decodes_it(name: str, golden: Golden) -> None:
    store = golden(name).path
    expected = table.rows(read_log(store), str(store))
    found = read(store, DAMAGE_COLUMNS.names, on_corrupt="row")
    assert found["corrupt_reason"].null_count == len(expected)
    assert rows_of(found.drop_columns(["corrupt_reason"])) == expected


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_log_reads_as_the_oracle_decodes_it(seed: int, tmp_path: Path) -> None:
    log = random_log(seed, LogOptions(records=150, irregular=True, multi_dispatch=True))
    store = write_store(tmp_path / "store", log.files)
    expected = table.rows(log.files, str(store), decompressed=False)
    for batch_bytes in (1, 3000, 1 << 20):
        # Some records state another place, and readers skip them.
        found = read(store, decompressed=False, batch_bytes=batch_bytes, on_corrupt="skip")
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
    with pytest.raises(UsageError, match=r"no column paint; the columns are store, topic"):
        decode_batch(data, positions, ["topic", "paint"])
    with pytest.raises(UsageError, match="named twice"):
        decode_batch(data, positions, ["topic", "topic"])


def test_no_records_are_a_batch_without_rows() -> None:
    batch, bad = decode_batch(np.zeros(1, np.uint8), np.zeros(0, np.int64))
    assert batch.schema == COLUMNS
    assert (len(batch), bad) == (0, [])


PROPERTIES = (
    b"a\x01b\x02a\x01c",
    b"a\x01b\x02\xff\x01c\x02a\x01d\x02\xfe\x01e",  # Java decodes both names to one U+FFFD
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


def test_rows_that_are_not_plain_lie_anywhere(tmp_path: Path) -> None:
    others = {0, 1_500, 1_501, 2_999, 4_500, 5_999}
    fields = [
        RecordFields(properties={"KEYS": f"k{n}", "名" if n in others else "n": "v"})
        for n in range(6_000)
    ]
    store = write_store(tmp_path / "store", forge_log(fields, file_bytes=1 << 22).files())
    found = read(store, ["properties", "keys", "tags"]).to_pylist()
    assert [dict(row["properties"]) for row in found] == [of.properties for of in fields]
    assert [row["keys"] for row in found] == [[f"k{n}"] for n in range(6_000)]


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
    "zlib": (1, zlib.compress(b"x" * 100)[:-3], "its zlib data is truncated"),
    "not zlib": (1, b"plain", "its zlib data is damaged"),
    "lz4": (1 | 1 << 8, b"plain text, no frame", "its lz4 data is damaged"),
    "zstd": (1 | 2 << 8, b"plain text, no frame", "its zstd data is damaged"),
    "unknown": (1 | 5 << 8, b"x", "RocketMQ has no compression type 5"),
}


def _fine_and(flag: int, body: bytes, folder: Path) -> tuple[Path, list[int]]:
    """Return a store in which every second message has this body, and the offsets of its messages."""
    forge = LogForge(1 << 16)
    for _ in range(2):
        forge.put(RecordFields(body=b"fine"))
        forge.put(RecordFields(body=body, sys_flag=flag))
    return write_store(folder / "store", forge.files()), forge.offsets


@pytest.mark.parametrize("on_corrupt", ["fail", "skip", "row"])
@pytest.mark.parametrize("name", DAMAGED_BODIES)
def test_a_damaged_compressed_body_comes_as_it_is_stored_and_is_reported(
    name: str, on_corrupt: OnCorrupt, tmp_path: Path
) -> None:
    flag, body, reason = DAMAGED_BODIES[name]
    store, offsets = _fine_and(flag, body, tmp_path)
    (task,) = plan(store).tasks
    columns = ["physical_offset", "body", "corrupt_reason", "body_error"]
    reader = RangeBatches(task.part, columns, on_corrupt=on_corrupt)
    found = [row for batch in reader for row in batch.to_pylist()]
    assert [row["body"] for row in found] == [b"fine", body, b"fine", body]
    assert [row["physical_offset"] for row in found] == offsets
    assert [row["corrupt_reason"] for row in found] == [None] * 4
    assert [row["body_error"] for row in found[::2]] == [None] * 2
    stated = f"the body is shown as stored: {reason}"
    assert all(row["body_error"].startswith(stated) for row in found[1::2])
    assert [(each.physical_offset, each.detail) for each in reader.report.damage] == [
        (row["physical_offset"], row["body_error"]) for row in found[1::2]
    ]


@pytest.mark.parametrize("codec", COMPRESSIONS.values())
@pytest.mark.parametrize("on_corrupt", ["fail", "skip", "row"])
def test_a_body_that_would_be_too_large_comes_as_it_is_stored(
    codec: str, on_corrupt: OnCorrupt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 10_000)
    kind = {"zlib": 0, "lz4": 1, "zstd": 2}[codec]
    for size, is_too_large in ((10_000, False), (10_001, True)):
        sent = bytes(size)
        packed = _compress(codec)(sent)
        store, offsets = _fine_and(1 | kind << 8, packed, tmp_path / str(size))
        (task,) = plan(store).tasks
        reader = RangeBatches(task.part, ["body", "body_error"], on_corrupt=on_corrupt)
        found = [row for batch in reader for row in batch.to_pylist()]
        body = packed if is_too_large else sent
        assert [row["body"] for row in found] == [b"fine", body, b"fine", body]
        reason = "the body is shown as stored: its decompressed size exceeds 10000 bytes"
        told = [None, reason if is_too_large else None] * 2
        assert [row["body_error"] for row in found] == told
        damaged = [(each.physical_offset, each.detail) for each in reader.report.damage]
        assert damaged == ([(at, reason) for at in offsets[1::2]] if is_too_large else [])


def test_the_reason_can_be_asked_for_without_the_body(tmp_path: Path) -> None:
    store, _ = _fine_and(1, b"plain", tmp_path)
    (_, reason, _, _) = read(store, ["body_error"], on_corrupt="row")["body_error"].to_pylist()
    assert "zlib data is damaged" in reason
    assert read(store, ["body_error"], decompressed=False)["body_error"].null_count == 4


def test_batches_are_cut_by_what_bodies_take_when_they_are_decompressed(tmp_path: Path) -> None:
    packed = zlib.compress(bytes(30_000))
    fields = [
        RecordFields(queue_offset=n, body=packed if n % 3 else b"plain", sys_flag=int(n % 3 > 0))
        for n in range(300)
    ]
    store = write_store(tmp_path / "store", forge_log(fields, file_bytes=1 << 20).files())
    (task,) = plan(store).tasks
    batches = list(RangeBatches(task.part, ["queue_offset", "body"], batch_bytes=100_000))
    assert len(batches) >= 200 * 30_000 // 130_000
    assert max(batch["body"].nbytes for batch in batches) < 100_000 + 30_000 + 10_000
    whole = pa.Table.from_batches(batches)
    assert whole["queue_offset"].to_pylist() == list(range(300))
    assert whole["body"].to_pylist() == [bytes(30_000) if n % 3 else b"plain" for n in range(300)]
    uncut = list(RangeBatches(task.part, ["queue_offset"], batch_bytes=100_000))
    assert len(uncut) == 1, "who does not ask for bodies pays nothing for them"


def test_a_column_is_made_of_any_run_of_records() -> None:
    """Records need not be adjacent or in order."""
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
