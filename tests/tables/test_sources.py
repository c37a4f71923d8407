"""Valid paths, and their file systems."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.engine.tables.log_paths import find_logs
from reput.engine.tables.plan import plan_reading
from reput.errors import (
    FormatError,
    StoreAccessError,
    StoreChangedError,
    StoreNotFoundError,
    UsageError,
)
from tests.golden.stores import GoldenStore
from tests.oracle.forge import write_store
from tests.oracle.random_logs import LogOptions, random_log
from tests.remote.s3_server import upload
from tests.tables.reading import read, read_plan

Golden = Callable[[str], GoldenStore]


def offsets(path: str | Path) -> list[int]:
    found: list[int] = read(path, ["physical_offset"])["physical_offset"].to_pylist()
    return found


def test_a_store_its_log_and_its_files_are_the_same_messages(golden: Golden) -> None:
    store = golden("basic").path
    expected = read(store)
    log = store / "commitlog"
    assert read(log) == expected
    assert read(f"{log}/*") == expected
    assert read(f"file://{store}") == expected
    files = sorted(map(str, log.iterdir()))
    sources = find_logs([files[3], files[1]])
    assert [source.name for source in sources] == [str(store)]
    assert [file.path for file in sources[0].files] == [files[1], files[3]]


def test_a_file_of_any_name_begins_where_its_first_record_says(
    golden: Golden, tmp_path: Path
) -> None:
    file = sorted((golden("basic").path / "commitlog").iterdir())[2]
    copy = tmp_path / "saved.log"
    shutil.copy(file, copy)
    assert offsets(copy) == offsets(file)
    copy.write_bytes(b"no log at all" * 100)
    with pytest.raises(
        UsageError, match=r"saved.log: not a CommitLog file: its name is not an offset"
    ):
        offsets(copy)


def test_patterns_and_several_paths_are_several_stores(golden: Golden, tmp_path: Path) -> None:
    for broker, name in (("b1", "basic"), ("b2", "timed")):
        (tmp_path / broker).mkdir()
        os.symlink(golden(name).path, tmp_path / broker / "store")
    found = find_logs([f"{tmp_path}/b*/store", f"{tmp_path}/b1/store"])
    assert [source.name for source in found] == [f"{tmp_path}/b1/store", f"{tmp_path}/b2/store"]
    table = read(f"{tmp_path}/b?/store", ["store", "topic"])
    assert table["store"].value_counts().to_pylist() == [
        {"values": f"{tmp_path}/b1/store", "counts": 5000},
        {"values": f"{tmp_path}/b2/store", "counts": 5000},
    ]


def test_paths_that_are_none_of_a_log_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreNotFoundError, match="no such file or folder"):
        find_logs([str(tmp_path / "missing")])
    with pytest.raises(StoreNotFoundError, match="it has no file whose name is an offset"):
        find_logs([str(tmp_path / "empty")])
    with pytest.raises(StoreNotFoundError, match="no file or folder matches this pattern"):
        find_logs([str(tmp_path / "*" / "store")])
    with pytest.raises(UsageError, match=r"nosuch://x"):
        find_logs(["nosuch://x/y"])
    log = random_log(1, LogOptions(records=60))
    store = write_store(tmp_path / "store", [log.files[0], (100, log.files[1][1])])
    with pytest.raises(FormatError, match="overlaps"):
        find_logs([str(store)])


def test_a_store_comes_once_whatever_paths_lead_to_it(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("basic").path
    os.symlink(store, tmp_path / "link")
    monkeypatch.chdir(tmp_path)
    first = store / "commitlog" / f"{0:020d}"
    paths = [f"file:{store}", "link", f"{store}/../store", f"{store}/commitlog", str(first)]
    assert [source.name for source in find_logs(paths)] == [str(store)]
    twice = [str(first), f"link/commitlog/{first.name}"]
    (source,) = find_logs(twice)
    assert [file.path for file in source.files] == [twice[1]]


def test_files_with_names_of_a_log_that_are_none_are_refused(
    golden: Golden, tmp_path: Path
) -> None:
    queue = golden("basic").path / "consumequeue" / "TopicB" / "0"
    for path in (queue, queue / f"{0:020d}"):
        with pytest.raises(UsageError, match=r"0{20}: not a CommitLog file: it contains no record"):
            find_logs([str(path)])
    log = tmp_path / f"{0:020d}"
    log.write_bytes(bytes(4096))
    assert offsets(log) == []
    data = (golden("basic").path / "commitlog" / log.name).read_bytes()
    log.write_bytes(bytes(8) + data[8:])
    assert find_logs([str(log)]), "readers report the damage"


def test_a_job_of_too_many_tasks_is_refused(golden: Golden) -> None:
    sources = find_logs([str(golden("defaults").path)])
    with pytest.raises(
        UsageError, match=r"splitBytes 1, .*: this would make \d+ tasks; at most 100000 are"
    ):
        plan_reading(sources, split_bytes=1)
    with pytest.raises(UsageError, match="minPartitions 1000000: this would make"):
        plan_reading(sources, least_tasks=1_000_000)


def test_fsspec_opens_what_pyarrow_does_not(golden: Golden) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    store = golden("basic").path
    for file in (store / "commitlog").iterdir():
        memory.pipe(f"/table/store/commitlog/{file.name}", file.read_bytes())
    try:
        for path in ("memory://table/store", "memory://table/*/commitlog"):
            assert offsets(path) == offsets(store)
    finally:
        memory.rm("/table", recursive=True)


@pytest.mark.slow
def test_a_store_on_s3_reads_as_the_one_on_disk(golden: Golden, s3: dict[str, str]) -> None:
    store = golden("orders").path
    arrow = upload(store, "logs", s3)
    expected = read(store).drop_columns(["store"])
    for path in (
        "s3://logs/b1/store",
        "s3://logs/*/store/commitlog",
        "s3://logs/b1/store/commitlog/0*",
    ):
        sources = find_logs([path], s3)
        assert [source.name for source in sources] == ["s3://logs/b1/store"]
        planned = plan_reading(sources, split_bytes=300_000)
        assert len(planned.tasks) > 20
        assert read_plan(planned).drop_columns(["store"]) == expected
    name = sources[0].files[0].path.removeprefix("s3://")
    arrow.delete_file(name)
    with pytest.raises(StoreNotFoundError, match=rf"s3://{name}: no longer exists"):
        read_plan(planned)
    with arrow.open_output_stream(name) as file:
        file.write(b"short")
    with pytest.raises((StoreChangedError, StoreAccessError), match=rf"s3://{name}: "):
        read_plan(planned)


def test_a_bucket_that_is_none_is_one_clear_line(s3: dict[str, str]) -> None:
    with pytest.raises(
        StoreNotFoundError, match="s3://no-such-bucket/store: no such file or folder"
    ):
        find_logs(["s3://no-such-bucket/store"], s3)
    with pytest.raises(UsageError, match=r"s3 options: .*colour"):
        find_logs(["s3://logs/store"], {**s3, "s3.colour": "red"})
