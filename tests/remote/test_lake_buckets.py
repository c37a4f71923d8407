"""Tables in buckets: committed by a conditional write, each message once, in spite of kills and concurrent runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reput.errors import StoreAccessError, StoreLockedError, UsageError
from reput.files.bucket import Bucket
from reput.lakes import lake_bucket
from reput.lakes.lake_bucket import LakeBucket
from reput.lakes.tables.opening import open_table
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import grow_to, offsets
from tests.remote.lake_buckets import export_to, names_below, rows_of
from tests.remote.s3_server import faulty_process, s3_process, upload_whole

pytest.importorskip("obstore")

Golden = Callable[[str], GoldenStore]
Options = dict[str, str]
LAYOUTS = ("parquet",)


class Stopped(Exception):
    """The process dies at this moment."""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Options]:
    with s3_process() as options:
        upload_whole(tmp_path_factory.mktemp("empty"), "lake", options)
        yield options


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"s3://lake/{abs(hash(request.node.name))}/messages"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_bucket, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(lake_bucket, "_POLL_S", 0.05)
    monkeypatch.setattr(lake_bucket, "_BEAT_S", 0.02)


def _offsets(store: GoldenStore, end: int = 1 << 62) -> list[int]:
    return [m.physical_offset for m in store.messages if m.physical_offset + m.size <= end]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_export_grows_by_what_is_new(
    golden: Golden, s3: Options, url: str, layout: str, tmp_path: Path
) -> None:
    source, store = golden("basic"), tmp_path / "store"
    for end in (30_000, 60_000):
        grow_to(source.path, store, end)
        report = export_to(
            store, url, s3, layout, incremental=end > 30_000, partition_by=("topic",)
        )
        assert report.committed
        assert offsets(rows_of(url, s3, layout)) == _offsets(source, end)
    assert not export_to(
        store, url, s3, layout, incremental=True, partition_by=("topic",)
    ).committed
    with pytest.raises(UsageError, match="incremental adds"):
        export_to(store, url, s3, layout, partition_by=("topic",))
    assert not [name for name in names_below(url, s3) if "staging" in name or "alive" in name]


@pytest.mark.slow
def test_topics_that_no_object_can_be_named_after_are_rejected(
    golden: Golden, s3: Options, url: str
) -> None:
    store = golden("tricky")
    export_to(store.path, url, s3, partition_by=("topic",))
    found = [*offsets(rows_of(url, s3))]
    if any(".reput/rejects/" in name for name in names_below(url, s3)):
        found += offsets(rows_of(url, s3, rejects=True))
    assert sorted(found) == _offsets(store)


def test_a_table_is_compared_with_its_store(golden: Golden, s3: Options, url: str) -> None:
    import reput

    export_to(golden("lmq").path, url, s3, partition_by=("topic",))
    found = reput.diff(golden("lmq").path, url, storage_options=s3)
    assert found.is_same, str(found)


class _Dies:
    """Raises at a phase, and leaves the table as a process does that is killed then."""

    def __init__(self, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._moment, self._patch = moment, monkeypatch

    def __call__(self, phase: str, done: int, total: int) -> None:
        if phase == self._moment and done:
            for name in ("change", "clear_staging"):
                self._patch.setattr(LakeBucket, name, _dead)
            raise Stopped


def _dead(*given: object, **named: object) -> None:
    raise StoreAccessError("this process is dead")


MOMENTS = ("export", "written", "pending", "published", "committed", "finished")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_dead_at_a_moment_and_run_again(
    golden: Golden, s3: Options, url: str, layout: str, moment: str, tmp_path: Path
) -> None:
    source, store = golden("basic"), tmp_path / "store"
    for end in (30_000, 60_000):
        grow_to(source.path, store, end)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
            export_to(
                store, url, s3, layout, incremental=True, partition_by=("topic",), split_bytes=20_000,
                progress=_Dies(moment, patch),
            )  # fmt: skip
    export_to(store, url, s3, layout, incremental=True, partition_by=("topic",))
    assert offsets(rows_of(url, s3, layout)) == _offsets(source, 60_000)
    assert not [name for name in names_below(url, s3) if "staging" in name or "alive" in name]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("moment", ["written", "pending", "published"])
def test_a_run_that_was_taken_for_dead_commits_nothing(
    golden: Golden, s3: Options, url: str, layout: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run shows no sign of life, a second one takes its table, and then the first continues."""
    store = golden("basic")
    monkeypatch.setattr(LakeBucket, "_beat", lambda self, ended: None)
    done: list[str] = []

    def overtaken(phase: str, count: int, total: int) -> None:
        if phase == moment and not done:
            done.append(phase)
            export_to(store.path, url, s3, layout, incremental=True)

    with pytest.raises(StoreLockedError, match="began to write here, and this one stopped"):
        export_to(store.path, url, s3, layout, incremental=True, progress=overtaken)
    assert done
    assert offsets(rows_of(url, s3, layout)) == _offsets(store)
    assert not export_to(store.path, url, s3, layout, incremental=True).committed
    assert offsets(rows_of(url, s3, layout)) == _offsets(store)


def test_a_second_run_beside_a_living_one_is_refused(golden: Golden, s3: Options, url: str) -> None:
    store = golden("basic")
    refused: list[str] = []

    def beside(phase: str, count: int, total: int) -> None:
        if phase == "written":
            with pytest.raises(StoreLockedError, match="another export is writing here") as error:
                export_to(store.path, url, s3, incremental=True)
            refused.append(str(error.value))

    export_to(store.path, url, s3, incremental=True, progress=beside)
    assert len(refused) == 1
    assert offsets(rows_of(url, s3)) == _offsets(store)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_requests_that_fail_are_repeated(
    golden: Golden, s3: Options, url: str, layout: str
) -> None:
    """One request in eight is refused, or loses its connection before or after it is done."""
    store = golden("basic")
    with faulty_process(s3, 7) as faulty:
        for _ in range(5):
            try:
                export_to(store.path, url, faulty, layout, incremental=True)
                break
            except StoreAccessError:
                continue
    assert offsets(rows_of(url, s3, layout)) == _offsets(store)


def test_what_is_not_a_table_is_refused(golden: Golden, s3: Options, url: str) -> None:
    path = golden("lmq").path
    Bucket(url, s3).put_new("letter.txt", b"hello")
    with pytest.raises(UsageError, match="is not empty, and nothing was exported there"):
        export_to(path, url, s3)
    assert names_below(url, s3) == ["messages/letter.txt"]
    with pytest.raises(UsageError, match="name a folder in a bucket"):
        open_table("s3://lake", "parquet", storage_options=s3)
    with pytest.raises(UsageError, match="no conditional writes"):
        open_table("hdfs://name/lake/messages", "parquet")
    store = upload_whole(path, "stores", s3)
    with pytest.raises(UsageError, match="lies in the store"):
        export_to(store, f"{store}/lake", s3)
    other = f"{url}-2"
    export_to(path, other, s3)
    table = Bucket(other, s3)
    for one in list(table.list()):
        table.delete(one.name)
    with pytest.raises(UsageError, match="is gone, and s3://"):
        export_to(path, other, s3, incremental=True)


def test_a_head_that_is_not_ours_is_refused(golden: Golden, s3: Options, url: str) -> None:
    for number, text in enumerate(["{", "[]", json.dumps({"layout": "parquet", "commit": 7})]):
        place = f"{url}-{number}"
        Bucket(f"{place}.reput", s3).put_new("head", text.encode())
        with pytest.raises(StoreAccessError) as error:
            export_to(golden("lmq").path, place, s3, incremental=True)
        assert "\n" not in str(error.value)


def test_threads_end_with_the_run(golden: Golden, s3: Options, url: str) -> None:
    before = threading.active_count()
    export_to(golden("lmq").path, url, s3)
    assert threading.active_count() <= before + 16  # of requests with a deadline
