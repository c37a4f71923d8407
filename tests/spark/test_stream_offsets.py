"""What a stream's offsets say of a log, and what becomes of a log that was replaced or truncated: without a session."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from reput.errors import StoreChangedError
from reput.messages.schema import select
from reput.spark.options import read_options
from reput.spark.partitions import LogPartition
from reput.spark.stream import LogStream, Offset
from tests.oracle.forge import Files, RecordFields, forge_log, write_store

FILE_BYTES = 1 << 14


class Stream:
    """A stream as Spark drives it: offsets pass through JSON, and a restart makes a new reader."""

    def __init__(self, path: Path, **options: str) -> None:
        given = {"path": str(path), "startingOffsets": "earliest", **options}
        self._reader = LogStream(read_options(given), select(["physical_offset", "body"]))

    def first(self) -> Offset:
        return stored(self._reader.initialOffset())

    def latest(self, start: Offset) -> Offset:
        limit = self._reader.getDefaultReadLimit()
        return stored(self._reader.latestOffset(start, limit))

    def bodies(self, start: Offset, end: Offset) -> list[bytes]:
        found: list[bytes] = []
        for partition in self._reader.partitions(start, end):
            assert isinstance(partition, LogPartition)
            for batch in self._reader.read(partition):
                found += pa.Table.from_batches([batch])["body"].to_pylist()
        return found


def stored(offset: Offset) -> Offset:
    read: Offset = json.loads(json.dumps(offset))
    return read


def log_of(name: str, count: int) -> Files:
    """Records of one length each, so that those of two logs begin at the same places."""
    bodies = (f"{name}{number:06d}".encode() for number in range(count))
    return forge_log([RecordFields(body=body) for body in bodies], file_bytes=FILE_BYTES).files()


def replace(store: Path, files: Files) -> None:
    shutil.rmtree(store)
    write_store(store, files)


def bodies_of(name: str, count: int) -> list[bytes]:
    return [f"{name}{number:06d}".encode() for number in range(count)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(tmp_path / "store", log_of("a", 300))


def test_a_stream_continues_in_a_log_that_grew(store: Path) -> None:
    end = Stream(store).latest(Stream(store).first())
    assert Stream(store).bodies(Stream(store).first(), end) == bodies_of("a", 300)
    assert Stream(store).latest(end) == end
    replace(store, log_of("a", 500))
    grown = Stream(store).latest(end)
    assert Stream(store).bodies(end, grown) == bodies_of("a", 500)[300:]


@pytest.mark.parametrize("count", [500, 300, 100])
def test_a_log_that_was_replaced_is_refused_though_its_records_begin_at_the_same_places(
    store: Path, count: int
) -> None:
    end = Stream(store).latest(Stream(store).first())
    replace(store, log_of("b", count))
    with pytest.raises(StoreChangedError) as caught:
        Stream(store).latest(end)
    line = str(caught.value)
    assert line.startswith(f"{store}: replaced or truncated: not the log that was read up to")
    assert "failOnDataLoss=false reads it from its beginning" in line
    assert "checkpointLocation" in line


@pytest.mark.parametrize("count", [500, 300, 100])
def test_without_failing_a_replaced_log_is_read_from_its_beginning(
    store: Path, count: int, capfd: pytest.CaptureFixture[str]
) -> None:
    end = Stream(store).latest(Stream(store).first())
    replace(store, log_of("b", count))
    stream = Stream(store, failOnDataLoss="false")
    found: list[bytes] = []
    start, latest = end, stream.latest(end)
    assert stream.bodies(start, latest) == bodies_of("b", count)
    said = capfd.readouterr().err
    assert "replaced or truncated" in said
    assert f"reading it from offset 0 to {latest[str(store)]['end']}" in said
    assert stream.latest(latest) == latest, found


def test_limits_cut_a_replaced_log_from_its_beginning(store: Path) -> None:
    end = Stream(store).latest(Stream(store).first())
    replace(store, log_of("b", 250))
    options = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "100"}
    found: list[bytes] = []
    for _ in range(4):
        stream = Stream(store, **options)
        latest = stream.latest(end)
        found += stream.bodies(end, latest)
        end = latest
    assert found == bodies_of("b", 250)


def test_a_log_that_was_truncated_and_written_on_is_refused(store: Path) -> None:
    end = Stream(store).latest(Stream(store).first())
    kept, lost = bodies_of("a", 290), bodies_of("c", 60)
    written_on = forge_log(
        [RecordFields(body=body) for body in kept + lost], file_bytes=FILE_BYTES
    ).files()
    replace(store, written_on)
    with pytest.raises(StoreChangedError, match="bytes before that offset are others"):
        Stream(store).latest(end)


def test_a_batch_that_was_planned_of_a_log_that_was_replaced_since_is_refused(store: Path) -> None:
    start = Stream(store, maxOffsetsPerTrigger="100").latest(Stream(store).first())
    end = Stream(store).latest(start)
    replace(store, log_of("b", 500))
    with pytest.raises(StoreChangedError, match="replaced or truncated"):
        Stream(store).bodies(start, end)
    going_on = Stream(store, failOnDataLoss="false")
    assert going_on.bodies(start, end) == []  # what was planned is gone
    assert going_on.bodies(end, going_on.latest(end)) == bodies_of("b", 500)


def test_what_expired_is_no_other_log(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    part = Stream(store, maxOffsetsPerTrigger="10").latest(Stream(store).first())
    replace(store, log_of("a", 500)[2:])
    with pytest.raises(StoreChangedError, match=f"offsets {part[str(store)]['end']} to 32768 have"):
        Stream(store).latest(part)
    stream = Stream(store, failOnDataLoss="false")
    found = stream.bodies(part, stream.latest(part))
    assert found == bodies_of("a", 500)[-len(found) :]
    assert "have expired; continuing without" in capfd.readouterr().err


def test_an_offset_that_a_stream_did_not_write_is_one_clear_line(store: Path) -> None:
    with pytest.raises(StoreChangedError, match="checkpoint"):
        Stream(store).latest({str(store): 17})  # type: ignore[dict-item]
