"""The division of ranges into tasks: by bytes and count, with the index or without."""

import shutil
from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from reput.core.log.files import CommitLogFile
from reput.engine.tables.filters import dispatched_under
from reput.engine.tables.plan import ReadPlan
from reput.engine.tables.read import LogRange, ReadTask
from tests.oracle.forge import write_store
from tests.spark.test_stream_offsets import log_of
from tests.tables.reading import plan, read, read_plan, rows_of

MIB = 1 << 20
CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 18, queue_entries=500, hash_slots=64, index_items=2000
)
HOT, RARE = 3000, 12


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 20 small files. Half of its messages have one key, and a few another one."""
    store = tmp_path_factory.mktemp("keyed") / "store"
    with reput.open_store(store, mode="rw", config=CONFIG) as living:
        living.put_many(
            reput.Message("t", b"b" * 700, "hot" if n % 2 else "rare" if n % 500 == 0 else f"k{n}")
            for n in range(2 * HOT)
        )
    return store


def packs_of(planned: ReadPlan) -> list[tuple[ReadTask, ...]]:
    return planned.packed(128 * MIB)


def ranges(*sizes: int) -> list[ReadTask]:
    tasks, start = [], 0
    for size in sizes:
        file = CommitLogFile(start, size, f"{start:020d}")
        tasks.append(ReadTask(LogRange.whole(file), open))  # type: ignore[arg-type]
        start += size
    return tasks


def test_small_files_share_a_task(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", log_of("a", 3000))
    planned = plan(store)
    assert len(planned.tasks) > 16
    (only,) = packs_of(planned)
    assert list(only) == planned.tasks


def test_tasks_have_no_more_than_they_should() -> None:
    sizes = (300, 1, 1, 1, 60, 60, 60, 100, 28, 128)
    packed = ReadPlan(ranges(*(size * MIB for size in sizes))).packed(129 * MIB)
    found = [[(task.part.stop - task.part.start) // MIB for task in each] for each in packed]
    assert found == [[300], [1, 1, 1, 60], [60], [60], [100], [28], [128]]
    assert [task for each in packed for task in each] == ranges(*(size * MIB for size in sizes))


def test_there_are_as_many_tasks_as_asked_for() -> None:
    planned = ReadPlan(ranges(*[MIB] * 40))
    assert len(planned.packed()) == len(planned.packed(128 * MIB)) == 3
    assert len(planned.packed(128 * MIB, least_tasks=10)) == 10
    assert len(planned.packed(2 * MIB)) == 40
    assert ReadPlan().packed(128 * MIB) == []


def test_a_rare_key_is_looked_up_and_a_task_reads_all_that_was_found(keyed: Path) -> None:
    conditions = dispatched_under("keys", ["rare"])
    planned = plan(keyed, conditions)
    found = sum(len(task.part.found or ()) for task in planned.tasks)
    assert found >= RARE - 4  # the newest messages are in no IndexFile yet
    assert len(packs_of(planned)) == 1
    whole = sum(task.part.stop - task.part.start for task in planned.tasks if not task.part.found)
    assert whole < MIB
    rows = rows_of(read_plan(planned, ["physical_offset", "keys"], conditions=conditions))
    expected = [
        row for row in rows_of(read(keyed, ["physical_offset", "keys"])) if "rare" in row["keys"]
    ]
    assert rows == expected
    assert len(rows) == RARE


def test_a_frequent_key_is_read_like_the_whole_log(keyed: Path) -> None:
    conditions = dispatched_under("keys", ["hot"])
    planned = plan(keyed, conditions)
    assert any("keys: too frequent in" in note for note in planned.notes)
    assert not any(task.part.found for task in planned.tasks)
    assert packs_of(planned) == packs_of(plan(keyed))
    rows = rows_of(read_plan(planned, ["keys"], conditions=conditions))
    assert rows == [{"keys": ["hot"]}] * HOT


def test_what_lies_where_a_record_was_found_and_changed_since_is_read_anew(
    keyed: Path, tmp_path: Path
) -> None:
    """The index led to the old record during planning. Readers trust only the log."""
    store = tmp_path / "store"
    shutil.copytree(keyed, store)
    conditions = dispatched_under("keys", ["rare"])
    planned = plan(store, conditions)
    task = next(task for task in planned.tasks if task.part.found)
    assert task.part.found is not None
    path, at = Path(task.part.file.path), int(task.part.found.physical_offset[0])
    data = bytearray(path.read_bytes())
    within = at - task.part.file.start
    data[within : within + 8] = bytes(8)
    path.write_bytes(data)
    rows = read_plan(planned, ["physical_offset"], conditions=conditions, on_corrupt="skip")
    offsets = rows["physical_offset"].to_pylist()
    assert at not in offsets
    assert len(offsets) == RARE - 1
