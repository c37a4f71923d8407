"""Compare two stores: exactly the differences that the oracle finds, by offset and by queue."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

from reput.engine.compare.columns import in_common, unmatched
from reput.engine.stores import open_store
from reput.wings.inspect import diff as diff_module
from reput.wings.inspect.comparing import logs
from reput.wings.inspect.comparing.difference import Difference, Part, Way, What
from reput.wings.inspect.diff import diff
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore, TornCase
from tests.oracle.forge import LogForge, RecordFields
from tests.oracle.walk import read_log, walk
from tests.query.stores import build_store

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]
Identity = tuple[object, ...]


def differences(a: Path, b: Path) -> Difference:
    with open_store(a) as left, open_store(b) as right:
        return diff(left, right)


def counts(found: Difference, part: Part) -> tuple[int, int, int]:
    return tuple(found.counts.get((part, what), 0) for what in What)  # type: ignore[return-value]


def expected_messages(a: Path, b: Path, by_queue: bool) -> tuple[int, int, int]:
    """Only in A, only in B, different: from the oracle's walk over both logs."""
    stores = [_contents(store, by_queue) for store in (a, b)]
    left, right = stores[0] - stores[1], stores[1] - stores[0]
    of_left, of_right = (Counter(key for key, _ in side.elements()) for side in (left, right))
    different = sum((Counter(set(of_left)) & Counter(set(of_right))).values())
    return left.total() - different, right.total() - different, different


def _contents(store: Path, by_queue: bool) -> Counter[tuple[Identity, Identity]]:
    found: Counter[tuple[Identity, Identity]] = Counter()
    for offset, record in walk(read_log(store)).records:
        fields = vars(record).items()
        content = tuple(str(value) for name, value in fields if name != "physical_offset")
        place: Identity = (offset,)
        if by_queue:
            is_queued = record.transaction_type in (0, 8)
            place = (record.topic, record.queue_id, record.queue_offset) if is_queued else content
        found[place, content] += 1
    return found


@pytest.mark.parametrize("seed", range(20))
def test_rows_without_a_counterpart(seed: int) -> None:
    random = Random(seed)
    tables = [
        [(random.randrange(5), random.randrange(3)) for _ in range(random.randrange(30))]
        for _ in range(2)
    ]
    columns = [
        tuple(np.array([row[place] for row in table], np.int64) for place in range(2))
        for table in tables
    ]
    found = unmatched(columns[0], columns[1])
    bags = [Counter(table) for table in tables]
    for side, rows in enumerate(found):
        assert Counter(tables[side][row] for row in rows) == bags[side] - bags[1 - side]
        assert rows.tolist() == sorted(rows.tolist())
    left, right = in_common(columns[0], columns[1])
    assert [tables[0][row] for row in left] == [tables[1][row] for row in right]
    assert {tables[0][row] for row in left} == set(tables[0]) & set(tables[1])


@pytest.mark.parametrize("name", ["basic", "tricky", "extremes"])
def test_a_copy_is_the_same(golden: Golden, tmp_path: Path, name: str) -> None:
    store = golden(name).path
    found = differences(store, copy_store(store, tmp_path / "copy"))
    assert found.is_same
    assert (found.way, found.examples, found.notes) == (Way.BY_OFFSET, [], [])
    assert found.equal_bytes == sum(p.stat().st_size for p in (store / "commitlog").iterdir())


@pytest.mark.parametrize("name", ["lmq", "tricky"])
def test_every_message_by_queue(golden: Golden, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Several passes give the same answer."""
    store = golden(name).path
    monkeypatch.setattr("reput.wings.inspect.diff.find_way", lambda stores: Way.BY_QUEUE)
    monkeypatch.setattr(logs, "MOST_ROWS", 500)
    monkeypatch.setattr(diff_module, "MOST_ITEMS", 500)
    monkeypatch.setattr(logs, "CHUNK_BYTES", 10_000)
    found = differences(store, store)
    assert found.is_same
    assert found.equal_messages == len(golden(name).messages)


def changed(store: Path, path: Path, offset: int, length: int, old: bytes, new: bytes) -> Path:
    """A copy in which one record has other bytes."""
    copy = copy_store(store, path)
    for file in sorted((copy / "commitlog").iterdir()):
        start, data = int(file.name), bytearray(file.read_bytes())
        if start <= offset < start + len(data):
            at = offset - start
            assert old in data[at : at + length]
            data[at : at + length] = data[at : at + length].replace(old, new)
            file.write_bytes(data)
    return copy


def test_one_body_differs(golden: Golden, tmp_path: Path) -> None:
    store = golden("basic").path
    row = golden("basic").messages[2_000]
    record = next(r for o, r in walk(read_log(store)).records if o == row.physical_offset)
    body = bytes(byte ^ 1 for byte in record.body)
    copy = changed(store, tmp_path / "b", row.physical_offset, record.total_size, record.body, body)
    found = differences(store, copy)
    assert (found.way, found.counts) == (Way.BY_OFFSET, {(Part.MESSAGE, What.DIFFERENT): 1})
    (example,) = found.examples
    assert (example.physical_offset_a, example.detail) == (row.physical_offset, "body")
    assert example.place == f"{row.topic}, queue {row.queue_id}, queue offset {row.queue_offset}"
    assert counts(found, Part.MESSAGE) == expected_messages(store, copy, by_queue=False)


def test_a_backup_that_is_older_and_one_that_expired(golden: Golden, tmp_path: Path) -> None:
    store = golden("basic").path
    older = copy_store(store, tmp_path / "older")
    files = sorted((older / "commitlog").iterdir())
    files[-1].unlink()
    found = differences(store, older)
    behind = found.behind[0]
    assert behind == sum(r.physical_offset >= int(files[-1].name) for r in golden("basic").messages)
    assert counts(found, Part.MESSAGE) == (behind, 0, 0)
    assert found.logs[1].end <= int(files[-1].name)
    files[0].unlink()
    found = differences(older, store)
    assert found.expired == [
        0,
        sum(r.physical_offset < int(files[1].name) for r in golden("basic").messages),
    ]
    assert found.behind == [0, behind]
    assert counts(found, Part.MESSAGE) == (0, sum(found.expired) + behind, 0)


def test_before_and_after_a_repair(torn: Torn) -> None:
    """Both stores have the same log, and other indexes."""
    case = torn("cq_one_topic_deleted")
    found = differences(case.before, case.base.path)
    assert counts(found, Part.MESSAGE) == (0, 0, 0)
    gone = sorted(
        {p.name for p in (case.base.path / "consumequeue").iterdir()}
        - {p.name for p in (case.before / "consumequeue").iterdir()}
    )
    queues = [row for row in case.base.queues if row.topic in gone]
    entries = sum(row.max_offset - row.min_offset for row in queues)
    assert counts(found, Part.QUEUE_ENTRY) == (0, entries, 0)
    assert found.examples[0].place.startswith(gone[0])
    case = torn("index_header_zero_noabort")
    found = differences(case.base.path, case.before)
    assert found.counts[Part.HEADER, What.DIFFERENT] == 1
    case = torn("name_collision")
    found = differences(case.before, case.after)
    assert found.counts[Part.INDEX_ENTRY, What.ONLY_IN_A] > 1_000
    assert counts(found, Part.MESSAGE) == (0, 0, 0)


def forged(path: Path, records: Sequence[RecordFields], file_bytes: int) -> Path:
    forge = LogForge(file_bytes)
    for fields in records:
        forge.put(fields)
    return build_store(path, forge.files(), hash_slots=16, index_items=200)


def many(count: int) -> list[RecordFields]:
    return [
        RecordFields(
            topic=f"t{n % 3}",
            body=f"body {n}".encode(),
            properties={"KEYS": f"k{n}", "UNIQ_KEY": f"u{n}", "TAGS": f"g{n % 2}"},
            queue_id=n % 2,
            queue_offset=n // 6,
            store_timestamp=1_700_000_000_000 + n,
        )
        for n in range(count)
    ]


def test_the_same_messages_at_other_offsets(tmp_path: Path) -> None:
    records = many(600)
    shuffled = [one for rest in range(6) for one in records[rest::6]]
    a = forged(tmp_path / "a", records, 1 << 14)
    b = forged(tmp_path / "b", shuffled, 1 << 15)
    found = differences(a, b)
    assert (found.way, found.is_same or set(found.counts)) == (
        Way.BY_QUEUE,
        {(Part.HEADER, What.DIFFERENT)},
    )
    assert found.equal_messages == 600
    lacking = [one for one in shuffled if one.queue_offset not in (0, 50, 99)]
    lacking[7] = RecordFields(**{**vars(lacking[7]), "body": b"changed"})
    c = forged(tmp_path / "c", lacking, 1 << 15)
    found = differences(a, c)
    assert counts(found, Part.MESSAGE) == (18, 0, 1) == expected_messages(a, c, by_queue=True)
    assert (found.expired, found.behind) == ([6, 0], [6, 0])
    (example,) = (
        one for one in found.examples if one.what is What.DIFFERENT and one.part is Part.MESSAGE
    )
    assert example.detail == "body_crc, body"


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_by_the_oracle(golden: Golden, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    store = copy_store(golden("extremes").path, tmp_path / "a")
    copy = copy_store(store, tmp_path / "b")
    records = walk(read_log(store)).records
    for offset, record in random.sample(records, 20):
        for file in sorted((copy / "commitlog").iterdir()):
            at = offset - int(file.name)
            if 0 <= at < file.stat().st_size:
                data = bytearray(file.read_bytes())
                data[at + 16 + random.randrange(4)] ^= 1 << random.randrange(8)  # FLAG
                file.write_bytes(data)
        assert record.total_size
    found = differences(store, copy)
    assert (
        counts(found, Part.MESSAGE) == expected_messages(store, copy, by_queue=False) == (0, 0, 20)
    )
    assert len(found.examples) == 10


def test_what_cannot_be_read_is_said(torn: Torn) -> None:
    case = torn("magic_first_lastfile_abort")
    found = differences(case.base.path, case.before)
    assert found.is_damaged
    assert found.damage[0] == []


def test_the_end_of_a_killed_log_is_no_damage(torn: Torn) -> None:
    """The log of a killed broker ends with a preallocated file of zeros, which is not damage."""
    case = torn("kill9")
    found = differences(case.before, case.after)
    assert counts(found, Part.MESSAGE) == expected_messages(case.before, case.after, by_queue=False)
    assert not found.is_damaged
