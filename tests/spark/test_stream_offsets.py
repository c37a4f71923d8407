"""A stream's offsets, and logs that were replaced or truncated: without a session."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from reput.core.log.scan import ScanBuffers
from reput.engine.messages.schema import select
from reput.engine.rebuild.growing import find_log_end
from reput.engine.tables.log_paths import find_logs
from reput.errors import StoreChangedError, UsageError
from reput.spark import stream
from reput.spark.options import read_options
from reput.spark.partitions import LogPartition
from reput.spark.stream import LogStream, Offset
from reput.spark.versions import ReadAllAvailable
from tests.oracle.forge import Files, RecordFields, forge_log, write_store

FILE_BYTES = 1 << 14


class Stream:
    """A stream as Spark drives it: offsets are converted to JSON, and a restart creates a new reader."""

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
    """Return a log of records of one length, so that records of two logs begin at the same offsets."""
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


@pytest.mark.spark_min
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
    assert line.startswith(f"{store}: the log was replaced or truncated since it was read up to")
    assert "failOnDataLoss=false to read the new log from its beginning" in line
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
    with pytest.raises(StoreChangedError, match="the bytes before that offset differ"):
        Stream(store).latest(end)


def test_a_batch_that_was_planned_of_a_log_that_was_replaced_since_is_refused(store: Path) -> None:
    start = Stream(store, maxOffsetsPerTrigger="100").latest(Stream(store).first())
    end = Stream(store).latest(start)
    replace(store, log_of("b", 500))
    with pytest.raises(StoreChangedError, match="replaced or truncated"):
        Stream(store).bodies(start, end)
    going_on = Stream(store, failOnDataLoss="false")
    assert going_on.bodies(start, end) == []  # the messages of this batch are gone
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


def test_progress_says_how_far_behind_the_log_a_stream_is(store: Path) -> None:
    following = LogStream(
        read_options({"path": str(store), "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}),
        select(["body"]),
    )  # fmt: skip
    reached = following.latestOffset(following.initialOffset(), following.getDefaultReadLimit())
    log_end = find_log_end(find_logs([str(store)])[0], ScanBuffers())
    behind = log_end - reached[str(store)]["end"]
    assert following.reportLatestOffset() == {
        str(store): {"end": log_end, "bytes_behind": behind, "messages_behind": 200}
    }
    reached = following.latestOffset(reached, ReadAllAvailable())
    assert following.reportLatestOffset() == {
        str(store): {"end": log_end, "bytes_behind": 0, "messages_behind": 0}
    }
    replace(store, log_of("a", 350))
    assert following.reportLatestOffset()[str(store)]["messages_behind"] == 50


def test_messages_far_behind_are_estimated(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_COUNTED_BYTES", 1000)
    (found,) = stream.lag_of(find_logs([str(store)]), {}).values()
    assert found["bytes_behind"] == found["end"]
    assert 295 <= found["messages_behind"] <= 310, "records have one length"


class OldStream(Stream):
    """A stream as Spark 4.1 drives it: Spark asks for the end of a batch without passing the batch's beginning."""

    def latest(self, start: Offset) -> Offset:
        return stored(self._reader.latestOffset())


@pytest.fixture
def old_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HAS_LIMITS", False)


@pytest.mark.spark_min
@pytest.mark.usefixtures("old_spark")
def test_spark_without_limits_reads_to_the_end_of_the_log(store: Path) -> None:
    first = OldStream(store).first()
    end = OldStream(store).latest(first)
    assert OldStream(store).bodies(first, end) == bodies_of("a", 300)
    replace(store, log_of("a", 500))
    grown = OldStream(store).latest(end)
    assert OldStream(store).bodies(end, grown) == bodies_of("a", 500)[300:]
    with pytest.raises(UsageError, match=r"Spark 4\.1 cannot limit"):
        OldStream(store, maxBytesPerTrigger="1000")


@pytest.mark.spark_min
@pytest.mark.usefixtures("old_spark")
def test_spark_without_limits_refuses_a_log_that_was_replaced(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    end = OldStream(store).latest({})
    replace(store, log_of("b", 400))
    latest = OldStream(store).latest(end)
    with pytest.raises(StoreChangedError, match="replaced or truncated"):
        OldStream(store).bodies(end, latest)
    lenient = OldStream(store, failOnDataLoss="false")
    assert lenient.bodies(end, latest) == bodies_of("b", 400)
    assert "reading it from offset 0" in capfd.readouterr().err
    gone = {**end, "/no/store": end[str(store)]}
    with pytest.raises(StoreChangedError, match="/no/store: no longer exists"):
        OldStream(store).bodies(gone, latest)
