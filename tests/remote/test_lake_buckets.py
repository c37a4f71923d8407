"""Tables in buckets: committed by a conditional write, each message once, in spite of kills and concurrent runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reput.errors import StoreAccessError, StoreLockedError, StoreNotFoundError, UsageError
from reput.io.bucket import Bucket
from reput.io.object_store import ObjectInfo
from reput.wings.lakes import lake_bucket
from reput.wings.lakes.compaction import compact_destination
from reput.wings.lakes.lake_bucket import LakeBucket
from reput.wings.lakes.tables.opening import open_table
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import grow_to, offsets
from tests.remote.lake_buckets import Lake
from tests.remote.s3_server import faulty_process, s3_process, upload_whole
from tests.remote.test_commands import SendingRunner

pytest.importorskip("obstore")

Golden = Callable[[str], GoldenStore]
Options = dict[str, str]
LAYOUTS = ("parquet", "delta", "iceberg")


class Stopped(Exception):
    """The process dies at this moment."""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Options]:
    with s3_process() as options:
        upload_whole(tmp_path_factory.mktemp("empty"), "lake", options)
        yield options


@pytest.fixture
def lake(request: pytest.FixtureRequest, s3: Options, tmp_path: Path) -> Lake:
    """A table of the test's layout that does not exist yet."""
    params = getattr(request.node, "callspec", None)
    layout = params.params.get("layout", "parquet") if params else "parquet"
    url = f"s3://lake/{abs(hash(request.node.name))}/messages"
    return Lake(url, s3, layout, tmp_path / "catalog.db")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_bucket, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(lake_bucket, "_POLL_S", 0.05)
    monkeypatch.setattr(lake_bucket, "_BEAT_S", 0.02)


def _offsets(store: GoldenStore, end: int = 1 << 62) -> list[int]:
    return [m.physical_offset for m in store.messages if m.physical_offset + m.size <= end]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_export_grows_by_what_is_new(
    golden: Golden, lake: Lake, layout: str, tmp_path: Path
) -> None:
    source, store = golden("basic"), tmp_path / "store"
    for end in (30_000, 60_000):
        grow_to(source.path, store, end)
        report = lake.export(store, incremental=end > 30_000, partition_by=("topic",))
        assert report.committed
        assert offsets(lake.rows()) == _offsets(source, end)
    assert not lake.export(store, incremental=True, partition_by=("topic",)).committed
    with pytest.raises(UsageError, match="pass incremental to add"):
        lake.export(store, partition_by=("topic",))
    assert lake.is_tidy()


@pytest.mark.slow
def test_topics_that_no_object_can_be_named_after_are_rejected(golden: Golden, lake: Lake) -> None:
    store = golden("tricky")
    lake.export(store.path, partition_by=("topic",))
    found = [*offsets(lake.rows())]
    if any(".reput/rejects/" in name for name in lake.names()):
        found += offsets(lake.rows(rejects=True))
    assert sorted(found) == _offsets(store)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_do_not_fit_go_to_a_table_of_their_own(
    golden: Golden, lake: Lake, layout: str, tmp_path: Path
) -> None:
    store, schema = golden("orders"), tmp_path / "schema.json"
    schema.write_text('{"order": "string", "amount": "string"}')
    report = lake.export(store.path, json_body=str(schema), partition_by=("topic",))
    rejects = lake.rows(rejects=True)
    assert len(rejects) == report.rejects > 10
    assert sorted([*offsets(lake.rows()), *offsets(rejects)]) == _offsets(store)


@pytest.mark.parametrize("layout", ["delta", "iceberg"])
def test_small_files_are_combined(golden: Golden, lake: Lake, layout: str, tmp_path: Path) -> None:
    source, store = golden("basic"), tmp_path / "store"
    for end in (30_000, 60_000, 1 << 40):
        grow_to(source.path, store, end)
        lake.export(store, incremental=True)
    report = compact_destination(lake.open(), lambda size: SendingRunner())
    assert (report.files, report.new_files) == (3, 1)
    assert offsets(lake.rows()) == _offsets(source)
    assert not lake.export(store, incremental=True).committed
    assert lake.is_tidy()


def test_a_parquet_table_in_a_bucket_is_not_compacted(golden: Golden, lake: Lake) -> None:
    lake.export(golden("lmq").path)
    with pytest.raises(UsageError, match="this table of layout parquet cannot be compacted"):
        compact_destination(lake.open(), lambda size: SendingRunner())
    with pytest.raises(UsageError, match="tables of layout parquet cannot be compacted"):
        lake.export(golden("lmq").path, incremental=True, compact_after=9)


def test_a_table_is_compared_with_its_store(golden: Golden, lake: Lake) -> None:
    import reput

    lake.export(golden("lmq").path, partition_by=("topic",))
    found = reput.diff(golden("lmq").path, lake.url, storage_options=lake.options)
    assert found.is_same, str(found)


class _Dies:
    """A progress callback that raises at a phase. The table stays as if the process had been killed."""

    def __init__(self, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._moment, self._patch = moment, monkeypatch

    def __call__(self, phase: str, done: int, total: int) -> None:
        if phase == self._moment and done:
            for name in ("change", "clear_staging", "delete_staged"):
                self._patch.setattr(LakeBucket, name, _dead)
            raise Stopped


def _dead(*given: object, **named: object) -> None:
    raise StoreAccessError("this process is dead")


MOMENTS = ("export", "written", "pending", "published", "committed", "finished")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_dead_at_a_moment_and_run_again(
    golden: Golden, lake: Lake, layout: str, moment: str, tmp_path: Path
) -> None:
    source, store = golden("basic"), tmp_path / "store"
    for end in (30_000, 60_000):
        grow_to(source.path, store, end)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
            lake.export(store, incremental=True, partition_by=("topic",), split_bytes=20_000,
                progress=_Dies(moment, patch),
            )  # fmt: skip
    lake.export(store, incremental=True, partition_by=("topic",))
    assert offsets(lake.rows()) == _offsets(source, 60_000)
    assert lake.is_tidy()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("moment", ["written", "pending", "published"])
def test_a_run_that_was_taken_for_dead_commits_nothing(
    golden: Golden, lake: Lake, layout: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run shows no sign of life, a second run takes over its table, and then the first one continues."""
    store = golden("basic")
    monkeypatch.setattr(LakeBucket, "_beat", lambda self, ended: None)
    done: list[str] = []

    def overtaken(phase: str, count: int, total: int) -> None:
        if phase == moment and not done:
            done.append(phase)
            lake.export(store.path, incremental=True)

    with pytest.raises(StoreLockedError, match="began to write here, and this one stopped"):
        lake.export(store.path, incremental=True, progress=overtaken)
    assert done
    assert offsets(lake.rows()) == _offsets(store)
    assert not lake.export(store.path, incremental=True).committed
    assert offsets(lake.rows()) == _offsets(store)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("other_at", ["written", "pending", "committed"])
@pytest.mark.parametrize("stalled_at", ["recover", "written"])
def test_a_run_that_was_taken_for_dead_spares_the_objects_of_the_next_run(
    golden: Golden,
    lake: Lake,
    layout: str,
    stalled_at: str,
    other_at: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first run continues, and fails, while the run that took over its table is still writing."""
    store, control = golden("basic"), f"{lake.url}{'.reput' if layout == 'parquet' else '/_reput'}"
    monkeypatch.setattr(LakeBucket, "_beat", lambda self, ended: None)
    stalled, continued, errors = threading.Event(), threading.Event(), list[Exception]()
    listed = Bucket.list

    def stall(phase: str, count: int = 1, total: int = 1) -> None:
        if phase == stalled_at and threading.current_thread() is first and not stalled.is_set():
            stalled.set()
            assert continued.wait(60)

    def stall_and_list(bucket: Bucket, prefix: str = "") -> Iterator[ObjectInfo]:
        if prefix.endswith("/staging/"):
            stall("recover")
        return listed(bucket, prefix)

    def run() -> None:
        try:
            lake.export(store.path, incremental=True, progress=stall)
        except Exception as error:
            errors.append(error)
        stalled.set()

    def overtakes(phase: str, count: int, total: int) -> None:
        if phase != other_at:
            return
        objects = Bucket(control, lake.options)
        owner = json.loads(objects.get("head").data)["owner"]["run"]
        objects.put_new(f"alive-{owner}", b"a sign of life")
        before = lake.names()
        continued.set()
        first.join()
        # A late manifest of the first run is harmless: no object names it.
        assert {*before} <= {*lake.names()}

    monkeypatch.setattr(Bucket, "list", stall_and_list)
    first = threading.Thread(target=run)
    first.start()
    assert stalled.wait(60)
    try:
        assert lake.export(store.path, incremental=True, progress=overtakes).committed
    finally:
        continued.set()
        first.join()
    assert [type(error) for error in errors] == [StoreLockedError]
    assert "began to write here, and this one stopped" in str(errors[0])
    assert offsets(lake.rows()) == _offsets(store)
    assert not lake.export(store.path, incremental=True).committed
    assert offsets(lake.rows()) == _offsets(store)
    assert lake.is_tidy()


def test_a_second_run_beside_a_living_one_is_refused(golden: Golden, lake: Lake) -> None:
    store = golden("basic")
    refused: list[str] = []

    def beside(phase: str, count: int, total: int) -> None:
        if phase == "written":
            with pytest.raises(StoreLockedError, match="another export is writing here") as error:
                lake.export(store.path, incremental=True)
            refused.append(str(error.value))

    lake.export(store.path, incremental=True, progress=beside)
    assert len(refused) == 1
    assert offsets(lake.rows()) == _offsets(store)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_requests_that_fail_are_repeated(golden: Golden, lake: Lake, layout: str) -> None:
    """One request in eight is refused, or loses its connection before or after it was processed."""
    store = golden("basic")
    with faulty_process(lake.options, 7) as faulty:
        for _ in range(5):
            try:
                lake.through(faulty).export(store.path, incremental=True)
                break
            except StoreAccessError:
                continue
    assert offsets(lake.rows()) == _offsets(store)


def test_what_is_not_a_table_is_refused(golden: Golden, lake: Lake) -> None:
    path = golden("lmq").path
    s3 = lake.options
    Bucket(lake.url, s3).put_new("letter.txt", b"hello")
    with pytest.raises(UsageError, match="is not empty, but contains no exported table"):
        lake.export(path)
    assert lake.names() == ["messages/letter.txt"]
    with pytest.raises(UsageError, match="name a folder in the bucket"):
        open_table("s3://lake", "parquet", storage_options=s3)
    with pytest.raises(UsageError, match="conditional writes are not supported"):
        open_table("hdfs://name/lake/messages", "parquet")
    store = upload_whole(path, "stores", s3)
    with pytest.raises(UsageError, match="lies in the store"):
        replace(lake, url=f"{store}/lake").export(store)
    other = replace(lake, url=f"{lake.url}-2")
    other.export(path)
    table = Bucket(other.url, s3)
    for one in list(table.list()):
        table.delete(one.name)
    with pytest.raises(UsageError, match="does not exist, but exports to it are recorded in s3://"):
        other.export(path, incremental=True)


@pytest.mark.parametrize(("first", "other"), [("delta", "parquet"), ("parquet", "delta")])
def test_a_table_of_another_layout_is_named(
    golden: Golden, lake: Lake, first: str, other: str
) -> None:
    path = golden("lmq").path
    replace(lake, layout=first).export(path)
    before = lake.names()
    with pytest.raises(UsageError, match=f"with layout {first}, not {other}"):
        replace(lake, layout=other).export(path)
    assert lake.names() == before


def test_a_deleted_manifest_is_named_with_advice(golden: Golden, lake: Lake) -> None:
    path = golden("lmq").path
    lake.export(path)
    control = Bucket(f"{lake.url}.reput", lake.options)
    control.delete(json.loads(control.get("head").data)["commit"].partition("/")[2])
    before = lake.names()
    with pytest.raises(
        StoreNotFoundError, match=r"is missing, so it is unknown which .* restore it"
    ):
        lake.export(path, incremental=True)
    assert lake.names() == before


def test_a_head_that_is_not_ours_is_refused(golden: Golden, lake: Lake) -> None:
    for number, text in enumerate(["{", "[]", json.dumps({"layout": "parquet", "commit": 7})]):
        other = replace(lake, url=f"{lake.url}-{number}")
        Bucket(f"{other.url}.reput", lake.options).put_new("head", text.encode())
        with pytest.raises(StoreAccessError) as error:
            other.export(golden("lmq").path, incremental=True)
        assert "\n" not in str(error.value)


def test_threads_end_with_the_run(golden: Golden, lake: Lake) -> None:
    lake.export(golden("lmq").path)
    names = [thread.name for thread in threading.enumerate()]
    assert "reput-heartbeat" not in names
    # Up to 16 threads for requests with a deadline may stay.
    assert sum(name.startswith("reput: ") for name in names) <= 16
