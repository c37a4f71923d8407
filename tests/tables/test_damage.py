"""The option on_corrupt (fail, skip or row) for damaged ranges: nothing is dropped silently, for any split size."""

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from random import Random

import pytest

from reput import StoreConfig, open_store
from reput.base.tasks import SerialRunner
from reput.engine.messages.schema import DAMAGE_COLUMNS
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.tables.filters import Condition
from reput.engine.tables.log_paths import find_logs
from reput.errors import CorruptMessageError, StoreChangedError, StoreNotFoundError
from reput.testing.builders import MESSAGE, write_log
from reput.wings.inspect.commit_log_inspection import inspect_commit_log_file
from reput.wings.lakes.json_lines import export_lines
from reput.wings.lakes.request import ExportRequest
from tests.golden.stores import TornCase
from tests.oracle import table
from tests.oracle.forge import Files, flip_bit, set_total_size, write_store, zero_fill
from tests.oracle.random_logs import LogOptions, random_log
from tests.oracle.walk import read_log
from tests.tables.reading import plan, read, read_plan, rows_of

SEEDS = 20


def damaged_log(seed: int) -> Files:
    random = Random(seed)
    log = random_log(seed, LogOptions(records=80))
    files = log.files
    for _ in range(random.choice((1, 1, 2))):
        offset = random.choice(log.offsets)
        damage = random.choice(("magic", "size", "zeros", "length"))
        if damage == "magic":
            files = flip_bit(files, offset + 5, random.randrange(8))
        elif damage == "size":
            files = set_total_size(files, offset, random.choice((-1, 0, 5, 200, 1 << 30)))
        elif damage == "length":
            files = flip_bit(files, offset + 84, random.randrange(8))
        else:
            files = zero_fill(files, offset, random.choice((8, 300)))
    return files


@pytest.mark.parametrize("seed", range(SEEDS))
def test_rows_and_damage_are_those_of_a_walk_that_goes_on(seed: int, tmp_path: Path) -> None:
    files = damaged_log(seed)
    store = write_store(tmp_path / "store", files)
    expected = table.salvaged(files)
    records = [table.row_of(*item, str(store), decompressed=False) for item in expected.records]
    lost = [(d.offset, d.length) for d in expected.damage]

    found = read(store, DAMAGE_COLUMNS.names, on_corrupt="row", decompressed=False)
    assert found["physical_offset"].to_pylist() == sorted(found["physical_offset"].to_pylist())
    rows = rows_of(found)
    assert [(r["physical_offset"], r["size"]) for r in rows if r["corrupt_reason"]] == lost
    assert [
        {name: value for name, value in row.items() if name != "corrupt_reason"}
        for row in rows
        if not row["corrupt_reason"]
    ] == records
    for split_bytes in (500, 1500):
        assert read(
            store,
            DAMAGE_COLUMNS.names,
            on_corrupt="row",
            decompressed=False,
            split_bytes=split_bytes,
        ).equals(found)

    assert rows_of(read(store, on_corrupt="skip", decompressed=False)) == records
    if lost:
        with pytest.raises(CorruptMessageError, match=f"offset {lost[0][0]}: .*on_corrupt='skip'"):
            read(store, decompressed=False)


def test_damage_meets_conditions_or_is_left_out(tmp_path: Path) -> None:
    log = random_log(1, LogOptions(records=30))
    store = write_store(tmp_path / "store", flip_bit(log.files, log.offsets[9] + 5, 1))
    columns = ["topic", "physical_offset", "corrupt_reason"]

    def damaged(*conditions: Condition) -> list[object]:
        found = read(store, columns, conditions, on_corrupt="row").to_pylist()
        return [row["physical_offset"] for row in found if row["corrupt_reason"]]

    at = log.offsets[9]
    assert damaged() == [at]
    assert damaged(Condition("topic", "=", "orders")) == []
    assert damaged(Condition("topic", "is null")) == [at]
    assert damaged(Condition("physical_offset", "<=", at)) == [at]
    assert damaged(Condition("topic", "=", "orders", keeps_damage=True)) == [at]


@pytest.mark.parametrize("case", ["magic_first_lastfile_abort", "tail_noabort"])
def test_torn_stores_read_as_the_oracle_walks_them(
    case: str, torn: Callable[[str], TornCase]
) -> None:
    store = torn(case).root / "before"
    expected = table.salvaged(read_log(store))
    found = read(store, ["physical_offset", "corrupt_reason"], on_corrupt="row").to_pylist()
    assert [row["physical_offset"] for row in found if not row["corrupt_reason"]] == [
        offset for offset, _ in expected.records
    ]
    assert [row["physical_offset"] for row in found if row["corrupt_reason"]] == [
        damage.offset for damage in expected.damage
    ]


def test_a_missing_file_is_told_once(tmp_path: Path) -> None:
    log = random_log(3, LogOptions(records=80))
    store = write_store(tmp_path / "store", [log.files[0], *log.files[2:]])
    planned = plan(store)
    start = log.files[1][0]
    assert [(one.lost.physical_offset, one.lost.length) for one in planned.missing] == [
        (start, 4096)
    ]
    offsets = read(store, ["physical_offset"])["physical_offset"].to_pylist()
    assert offsets == [at for at in log.offsets if not start <= at < start + 4096]


def test_a_file_that_went_or_shrank_since_is_one_clear_line(tmp_path: Path) -> None:
    log = random_log(5, LogOptions(records=80))
    store = write_store(tmp_path / "store", log.files)
    planned = plan(store)
    first = store / "commitlog" / f"{0:020d}"
    first.write_bytes(first.read_bytes()[:1000])
    with pytest.raises(StoreChangedError, match="ends at 1000, but was longer when the job began"):
        read_plan(planned)
    first.unlink()
    with pytest.raises(StoreNotFoundError, match="no longer exists"):
        read_plan(planned)


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_record_of_wrong_length_ends_the_log_unless_the_file_goes_on(
    tmp_path: Path, is_finished: bool
) -> None:
    """A blank after the record shows that the file was written to its end, so every reader reports damage."""
    store = write_log(tmp_path / "store", [replace(MESSAGE, body=b"b" * size) for size in (10, 20)])
    path = store / "commitlog" / f"{0:020d}"
    log = bytearray(path.read_bytes())
    first = int.from_bytes(log[:4], "big")
    second = int.from_bytes(log[first : first + 4], "big")
    log[first : first + 4] = (second + 1).to_bytes(4, "big")
    behind = first + second
    if is_finished:
        log[behind : behind + 8] = (len(log) - behind).to_bytes(4, "big") + b"\xcb\xd4\x31\x94"
    path.write_bytes(log)
    lost = [(first, second)] if is_finished else []

    found = read(store, ["physical_offset", "size", "corrupt_reason"], on_corrupt="row").to_pylist()
    assert [(r["physical_offset"], r["size"]) for r in found if r["corrupt_reason"]] == lost
    request = ExportRequest(on_corrupt="skip")
    lines = export_lines(find_logs([str(store)]), BytesIO(), request)
    assert [(each.start, each.length) for each in lines.damage] == lost
    rebuilt = rebuild_store(SerialRunner(), store, output=tmp_path / "out")
    assert [(each.start, each.length) for each in rebuilt.damage] == lost
    walked = inspect_commit_log_file(str(path), StoreConfig())
    assert [(each.start, each.length) for each in walked.findings] == lost
    with open_store(store) as reader:
        unread = reader.query("T", "no such key").coverage.unreadable
    assert [(each.start, each.length) for each in unread] == lost
