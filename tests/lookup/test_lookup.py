"""A bulk look-up finds for each key what a query finds, with the same coverage."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from reput.core.log import scan, windows
from reput.engine.lookup import index_task, key_parts, match_task, ranges, scan_task
from reput.engine.lookup.key_parts import check_columns, stage_parts
from reput.errors import UsageError
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_STORE, SHIPPED, GoldenStore
from tests.lookup.looking_up import Asked, bulk, one_by_one
from tests.oracle.forge import (
    LogForge,
    RecordFields,
    at_offset,
    body_position,
    encode_record,
    flip_bit,
    forge_log,
    with_body,
    write_store,
)
from tests.oracle.random_logs import LogOptions, random_log
from tests.query.stores import build_store, expected_offsets, keyed_messages, walked_messages
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split the work into the smallest possible tasks and reads, so that all their borders are tested."""
    monkeypatch.setattr(key_parts, "PART_ROWS", 29)
    monkeypatch.setattr(ranges, "DEFAULT_SPLIT_BYTES", 1500)
    monkeypatch.setattr(ranges, "_CELL_BYTES", 1800)
    monkeypatch.setattr(ranges, "_LEAST_TASK_CANDIDATES", 25)
    monkeypatch.setattr(index_task, "_RUN_CANDIDATES", 10)
    monkeypatch.setattr(match_task, "_PIECE_CANDIDATES", 19)
    monkeypatch.setattr(match_task, "_FIRST_READ_BYTES", 60)
    monkeypatch.setattr(match_task, "_WINDOW_BYTES", 2000)
    monkeypatch.setattr(windows, "_GAP_BYTES", 50)
    monkeypatch.setattr(match_task, "_FLUSH_BYTES", 500)


def can_be_asked(text: str) -> bool:
    """Return whether Arrow can hold a string: it has no lone surrogates."""
    return text.encode("utf-8", "replace") == text.encode("utf-8", "surrogatepass")


def all_keys(path: Path) -> list[Asked]:
    """Return all existing keys in random order, some of them twice, and some missing ones."""
    keys = [key for key in walked_messages(path) if all(map(can_be_asked, key))]
    asked: list[Asked] = [(topic, key, None, None) for topic, key in keys]
    asked += [(topic, f"{key}?", None, None) for topic, key in keys[::5]] + asked[::3]
    Random(1).shuffle(asked)
    return asked


@pytest.mark.parametrize("name", slow_from(len(SHIPPED), EVERY_STORE))
def test_golden_queries_find_what_a_scan_of_the_messages_finds(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    store = golden(name)
    keyed = keyed_messages(store.messages)
    asked = [
        (q.topic, q.key, q.begin, q.end)
        for q in store.queries
        if can_be_asked(q.topic) and can_be_asked(q.key)
    ]
    asked = asked[::40] if name == "defaults" else asked
    found = bulk(tmp_path / "staged", [store.path], asked)
    for (topic, key, begin, end), each in zip(asked, found, strict=True):
        # An id in lower case is also searched for as stores have it.
        texts = {key, key.upper() if re.fullmatch("[0-9a-f]{32}", key) else key}
        wanted = [expected_offsets(keyed, topic, text, begin, end) for text in texts]
        assert each.offsets == sorted(chain(*wanted), reverse=True)
    (expected,) = one_by_one(store.path, asked[:1])
    assert all(each.coverage == expected.coverage for each in found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lost", ["nothing", "a file of the index", "the index"])
@pytest.mark.usefixtures("tiny")
def test_random_logs_wholly_and_partly_indexed(tmp_path: Path, seed: int, lost: str) -> None:
    log = random_log(seed, LogOptions(records=120, start_offset=4096 * (seed % 3)))
    path = build_store(tmp_path / "store", log.files, hash_slots=7, index_items=30)
    made = sorted((path / "index").iterdir())
    for file in {"nothing": [], "a file of the index": made[1:2], "the index": made}[lost]:
        file.unlink()
    asked = all_keys(path)
    keyed = walked_messages(path)
    found = bulk(tmp_path / "staged", [path], asked)
    assert found == one_by_one(path, asked)
    assert [each.offsets for each in found] == [
        sorted(keyed.get(each[:2], {}), reverse=True) for each in asked
    ]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("tiny")
def test_messages_that_misstate_their_place(tmp_path: Path, seed: int) -> None:
    log = random_log(seed, LogOptions(records=80, irregular=True))
    path = build_store(tmp_path / "store", log.files, hash_slots=7, index_items=30)
    asked = all_keys(path)
    assert bulk(tmp_path / "a", [path], asked) == one_by_one(path, asked)
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    assert bulk(tmp_path / "b", [path], asked, nowhere) == one_by_one(path, asked, nowhere)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("tiny")
def test_a_damaged_index_is_doubted_as_a_query_doubts_it(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    log = random_log(seed, LogOptions(records=120))
    path = build_store(tmp_path / "store", log.files, hash_slots=11, index_items=60)
    for file in sorted((path / "index").iterdir()):
        data = bytearray(file.read_bytes())
        for _ in range(random.choice((1, 3, 12))):
            at = random.randrange(40, len(data) - 8)
            data[at : at + 8] = random.choice(
                (bytes(8), random.randbytes(8), data[at + 4 : at + 12])
            )[:8]
        file.write_bytes(bytes(data)[: 40 + 4 * 11 + 20 * 60].ljust(40 + 4 * 11 + 20 * 60, b"\0"))
    asked = all_keys(path)
    assert bulk(tmp_path / "staged", [path], asked) == one_by_one(path, asked)


@pytest.mark.usefixtures("tiny")
def test_an_entry_that_is_not_its_records_has_the_range_scanned_for_that_key_alone(
    tmp_path: Path,
) -> None:
    records = [RecordFields(properties={"KEYS": f"k{n % 40} every"}) for n in range(400)]
    log = forge_log(records, file_bytes=1 << 14)
    path = build_store(tmp_path / "store", log.files(), hash_slots=50, index_items=1000)
    (file,) = (path / "index").iterdir()
    data = bytearray(file.read_bytes())
    at = 40 + 4 * 50 + 20 * 333  # an entry in the middle of a chain of one key
    data[at + 4 : at + 12] = (int.from_bytes(data[at + 4 : at + 12], "big") - 1).to_bytes(8, "big")
    file.write_bytes(data)
    asked = all_keys(path)
    found = bulk(tmp_path / "staged", [path], asked)
    assert found == one_by_one(path, asked)
    scanned = {each[1] for each, row in zip(asked, found, strict=True) if row.problems}
    assert len(scanned) == 1
    (doubted,) = (row.indexed_bytes for row in found if row.problems)
    assert all(row.indexed_bytes > doubted for row in found if not row.problems)


@pytest.mark.usefixtures("tiny")
def test_damage_in_the_log_is_told_for_every_key(tmp_path: Path) -> None:
    records = [RecordFields(properties={"KEYS": f"k{n}"}, body=b"x" * 50) for n in range(100)]
    log = forge_log(records, file_bytes=2048)
    path = build_store(tmp_path / "store", log.files(), hash_slots=20, index_items=1000)
    hit = log.offsets[40]
    damaged = write_store(tmp_path / "damaged", flip_bit(log.files(), hit + 5, 0))
    asked: list[Asked] = [("T", f"k{n}", None, None) for n in range(100)]
    for index in (None, path):
        found = bulk(tmp_path / f"staged-{index is None}", [damaged], asked, index)
        assert found == one_by_one(damaged, asked, index)
        assert any(row.coverage["unreadable_bytes"] for row in found)


def test_lost_and_expired_log_files(golden: Golden, tmp_path: Path) -> None:
    for name, gone in (("lost", slice(5, 6)), ("expired", slice(0, 7))):
        path = copy_store(golden("basic").path, tmp_path / name)
        for file in sorted((path / "commitlog").iterdir())[gone]:
            file.unlink()
        keys = sorted(keyed_messages(golden("basic").messages))[::37]
        asked: list[Asked] = [(topic, key, None, None) for topic, key in keys]
        assert bulk(tmp_path / f"staged-{name}", [path], asked) == one_by_one(path, asked)


@pytest.mark.usefixtures("tiny")
def test_forged_records_in_bodies_mislead_no_scan(tmp_path: Path) -> None:
    """A split begins at a verifiable record, even if this record is inside another record's body."""
    log = LogForge(file_bytes=1 << 14)
    for number in range(40):
        fields = RecordFields(topic="T", properties={"KEYS": f"k{number}"})
        inner_at = log.end_offset + body_position(fields)
        forged = replace(fields, topic="forged", physical_offset=inner_at)
        log.put(with_body(fields, b"".join(encode_record(forged) for _ in range(2))))
    path = write_store(tmp_path / "store", log.files())
    asked: list[Asked] = [("T", f"k{number}", None, None) for number in range(40)]
    asked += [("forged", f"k{number}", None, None) for number in range(40)]
    found = bulk(tmp_path / "staged", [path], asked)
    assert [len(each.offsets) for each in found] == [1] * 40 + [0] * 40
    assert found == one_by_one(path, asked)


@pytest.mark.usefixtures("tiny")
def test_several_stores_answer_together(golden: Golden, tmp_path: Path) -> None:
    paths = [golden(name).path for name in ("basic", "timed")]
    keys = sorted(keyed_messages(golden("basic").messages))[::211]
    asked: list[Asked] = [(topic, key, None, None) for topic, key in keys]
    found = bulk(tmp_path / "staged", paths, asked)
    first, second = (one_by_one(path, asked) for path in paths)
    for row, one, other in zip(found, first, second, strict=True):
        assert row.offsets == one.offsets + other.offsets
        assert row.coverage["log_bytes"] == 2 * one.coverage["log_bytes"]


def test_rows_that_ask_for_nothing_are_answered(golden: Golden, tmp_path: Path) -> None:
    columns = {"topic": ["T", None, None, ""], "key": [None, "k", None, ""]}
    batch = pa.RecordBatch.from_pydict(columns, pa.schema([(n, pa.string()) for n in columns]))
    (part,) = stage_parts([batch], tmp_path / "keys")
    assert (part.rows, part.keys) == (4, 1)
    assert list(stage_parts([batch.slice(0, 0)], tmp_path / "none")) == []
    assert bulk(tmp_path / "staged", [golden("basic").path], []) == []


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (pa.array([5, None], pa.int32()), [5, -(2**63)]),
        (pa.array([5001, -5001], pa.timestamp("us", "UTC")), [6, -5]),
        (pa.array([5, None], pa.timestamp("s")), [5000, -(2**63)]),
        (pa.array(["5", " "]), [5, -(2**63)]),
        (pa.array(["1970-01-01T00:00:05Z", None]), [5000, -(2**63)]),
        (pa.array(["1970-01-01 00:00:05.0011", "1970-01-01"]), [5002, 0]),
    ],
)
def test_times_are_taken_in_every_form(
    begin: pa.Array, expected: list[int], tmp_path: Path
) -> None:
    columns = [pa.array(["T", "T"]), pa.array(["a", "b"]), begin]
    batch = pa.RecordBatch.from_arrays(columns, names=["topic", "key", "begin"])
    (part,) = stage_parts([batch], tmp_path / "keys")
    keys = key_parts.SortedKeys(part.path).batch.to_pydict()
    by_key = dict(zip(keys["key"], keys["begin"], strict=True))
    assert [by_key["a"], by_key["b"]] == expected
    assert keys["end"] == [2**63 - 1] * 2


def test_a_time_that_is_none_is_told(tmp_path: Path) -> None:
    columns = {"topic": ["T"], "key": ["k"], "end": ["soon"]}
    with pytest.raises(
        UsageError, match=r"'end' must contain only milliseconds or only ISO 8601.*soon"
    ):
        list(stage_parts([pa.RecordBatch.from_pydict(columns)], tmp_path / "keys"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"topic": pa.string()}, "no column 'key'"),
        ({"topic": pa.string(), "key": pa.int64()}, "'key' must contain strings, not int64"),
        ({"topic": pa.string(), "key": pa.string(), "end": pa.bool_()}, "'end' must contain"),
        ({"topic": pa.string(), "key": pa.string(), "tags": pa.string()}, "rename yours"),
    ],
)
def test_columns_that_cannot_be_are_told(columns: dict[str, pa.DataType], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_columns(pa.schema(columns), ["tags", "coverage"])


def test_a_worker_keeps_the_hashes_of_no_more_than_one_look_up(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.npy") for number in range(3)]
    for path in paths:
        np.save(path, np.arange(10, dtype=np.int32))
        found = scan_task.wanted_hashes(path)
        # The array is not loaded again: the tasks of one process share it.
        assert scan_task.wanted_hashes(path) is found
    assert scan_task.wanted_hashes.cache_info().currsize == 1


def test_a_wrong_offset_after_many_hits_hides_only_its_own_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "BATCH_MESSAGES", 9)
    buffers = scan.ScanBuffers()
    monkeypatch.setattr(scan_task, "_buffers", lambda: buffers)
    monkeypatch.setattr(scan_task, "_RUN_HITS", 20)
    log = LogForge(1 << 16)
    for number in range(120):
        record = RecordFields("T", b"%d" % number, {"KEYS": "k"})
        if number == 100:
            misplaced = log.put_bytes(encode_record(at_offset(record, 12345)))
        else:
            log.put(record)
    path, asked = write_store(tmp_path / "store", log.files()), [("T", "k", None, None)]
    (found,) = bulk(tmp_path / "look-up", [path], asked)
    assert [found] == one_by_one(path, asked)
    assert not found.coverage["is_complete"]
    assert sorted(found.offsets) == [offset for offset in log.offsets if offset != misplaced]
