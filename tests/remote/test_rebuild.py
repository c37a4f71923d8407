"""Rebuilds whose tasks have no common folder: staged in a bucket, published there or fetched."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reput.base.config import StoreConfig
from reput.base.tasks import SerialRunner
from reput.engine.rebuild import publish
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.staging import STAGING_FOLDER
from reput.engine.rebuild.staging_bucket import BucketStaging
from reput.errors import StoreAccessError, StoreChangedError, StoreError, UsageError
from reput.io.bucket import Bucket
from reput.io.object_store import ObjectInfo
from tests.golden.stores import GoldenStore
from tests.rebuild.cut_off import BesideCutOff, Stopping
from tests.rebuild.rebuilding import assert_golden, golden_config, tree
from tests.remote.faulty_server import FaultyServer, faulty_server
from tests.remote.s3_server import upload_whole

pytest.importorskip("obstore")

Golden = Callable[[str], GoldenStore]
Options = dict[str, str]


@pytest.fixture(scope="module")
def archive(golden: Golden, s3: Options, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A bucket that has only the log of a store."""
    return _archived(golden("lmq").path, tmp_path_factory.mktemp("bare"), "rebuilt", s3)


def _archived(store: Path, bare: Path, bucket: str, options: Options) -> str:
    for name in ("commitlog", "config"):
        if (store / name).exists():
            shutil.copytree(store / name, bare / name)
    return upload_whole(bare, bucket, options)


@pytest.fixture(scope="module")
def proxy(s3: Options) -> Iterator[FaultyServer]:
    with faulty_server(s3["s3.endpoint_override"]) as server:
        yield server


def _rebuild(golden: GoldenStore, options: Options, **more: Any) -> None:
    runner = more.pop("runner", None) or SerialRunner()
    config = golden_config(golden)
    rebuild_store(runner, config=config, split_size=100_000, storage_options=options, **more)


def _fetched(url: str, options: Options, folder: Path) -> Path:
    """Download the rebuilt files, without the log, config/ and staged files. Return their folder."""
    bucket = Bucket(url, options)
    for one in bucket.list():
        if not one.name.startswith(("commitlog/", "config/", STAGING_FOLDER)):
            path = folder / one.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bucket.get(one.name).data)
    return folder


def test_indexes_are_published_beside_an_archived_log(
    golden: Golden, s3: Options, archive: str, tmp_path: Path
) -> None:
    store = golden("lmq")
    _rebuild(store, s3, store=archive)
    assert_golden(_fetched(archive, s3, tmp_path), store)
    before = sorted(Bucket(archive, s3).list())
    with pytest.raises(UsageError, match=r"consumequeue/.* exists"):
        _rebuild(store, s3, store=archive)
    assert sorted(Bucket(archive, s3).list()) == before


def test_a_result_is_fetched_into_a_folder(
    golden: Golden, s3: Options, archive: str, tmp_path: Path
) -> None:
    store = golden("lmq")
    staging = f"{archive}/staging"
    _rebuild(store, s3, store=store.path, output=tmp_path, staging=staging)
    assert_golden(tmp_path, store)
    assert not list(Bucket(staging, s3).list())


@pytest.mark.every_case
@pytest.mark.parametrize("tasks", [1, 4, 7, 9, 30])
def test_a_run_that_was_cut_off_writes_nothing_into_the_next(
    golden: Golden, s3: Options, archive: str, tmp_path: Path, tasks: int
) -> None:
    """Also if a worker is cut off while it publishes."""
    store, output = golden("lmq"), f"{archive}/cut-{tasks}"
    killed = Stopping(tasks)
    with pytest.raises(KeyboardInterrupt):
        _rebuild(store, s3, store=archive, output=output, runner=killed)
    runner = BesideCutOff(killed.cut_off[0])
    _rebuild(store, s3, store=archive, output=output, runner=runner)
    assert_golden(_fetched(output, s3, tmp_path), store)
    assert runner.errors
    assert all("another rebuild is running there now" in error for error in runner.errors)
    with pytest.raises(StoreError):
        killed.cut_off[0]()
    assert not list(Bucket(f"{output}/{STAGING_FOLDER}", s3).list())


def test_a_staged_part_that_is_not_whole_is_scanned_again(
    golden: Golden, s3: Options, archive: str, tmp_path: Path
) -> None:
    store, output = golden("lmq"), f"{archive}/stale"
    with pytest.raises(KeyboardInterrupt):
        _rebuild(store, s3, store=archive, output=output, runner=Stopping(4))
    staging = Bucket(f"{output}/{STAGING_FOLDER}", s3)
    scanned = [one.name for one in staging.list() if "-search-" in one.name]
    assert len(scanned) == 4
    whole = staging.get(scanned[0]).data
    staging.delete(scanned[0])
    staging.put_new(scanned[0], whole[:-9])
    _rebuild(store, s3, store=archive, output=output)
    assert_golden(_fetched(output, s3, tmp_path), store)


def test_two_drivers_at_once_leave_one_result(
    golden: Golden, s3: Options, archive: str, tmp_path: Path
) -> None:
    store, output = golden("lmq"), f"{archive}/twice"
    second = _Beginning(lambda: _rebuild(store, s3, store=archive, output=output))
    with pytest.raises(StoreChangedError, match="no rebuild is running there now"):
        _rebuild(store, s3, store=archive, output=output, runner=second)
    assert_golden(_fetched(output, s3, tmp_path), store)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("stalled_at", "continued_at"),
    [(("", 1), "write"), (("consumequeue/", 2), "publish"), (("", 2), "write")],
    ids=["prepare", "clear", "remove"],
)
def test_a_run_that_stalled_deletes_nothing_of_the_next(
    golden: Golden, s3: Options, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    stalled_at: tuple[str, int], continued_at: str, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """The first run stalls before it lists objects to delete them. It continues while the second run is writing."""
    store, output = golden("lmq"), f"{archive}/stalled-{request.node.callspec.id}"
    stalled, continued, errors = threading.Event(), threading.Event(), list[Exception]()
    listed, lists = Bucket.list, Counter[str]()

    def stall_and_list(bucket: Bucket, prefix: str = "") -> Iterator[ObjectInfo]:
        if threading.current_thread() is first and bucket.place.startswith(output):
            lists[prefix] += 1
            if (prefix, lists[prefix]) == stalled_at:
                stalled.set()
                assert continued.wait(60)
        return listed(bucket, prefix)

    def run() -> None:
        try:
            _rebuild(store, s3, store=archive, output=output)
        except Exception as error:
            errors.append(error)
        stalled.set()

    def progress(phase: str, done: int, total: int) -> None:
        if phase == continued_at and done == total:
            continued.set()
            first.join()

    monkeypatch.setattr(Bucket, "list", stall_and_list)
    first = threading.Thread(target=run)
    first.start()
    assert stalled.wait(60)
    assert not errors
    try:
        _rebuild(store, s3, store=archive, output=output, progress=progress)
    finally:
        continued.set()
        first.join()
    assert [type(error) for error in errors] == [StoreChangedError]
    assert "another rebuild is running there now" in str(errors[0])
    assert_golden(_fetched(output, s3, tmp_path), store)
    assert not list(Bucket(f"{output}/{STAGING_FOLDER}", s3).list())


class _Beginning(SerialRunner):
    """Lets another rebuild begin and end before the third phase of this one."""

    def __init__(self, other: Callable[[], None]) -> None:
        self._other, self._phases = other, 0

    def run(self, function, tasks, weights, progress):  # type: ignore[no-untyped-def]
        self._phases += 1
        if self._phases == 3:
            self._other()
        return super().run(function, tasks, weights, progress)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_requests_that_fail_are_repeated(
    golden: Golden, s3: Options, archive: str, proxy: FaultyServer, tmp_path: Path, seed: int
) -> None:
    store, output = golden("lmq"), f"{archive}/faults-{seed}"
    options = {**s3, "s3.endpoint_override": proxy.address}
    proxy.fail_often(seed)
    _rebuild(store, options, store=archive, output=output)
    assert_golden(_fetched(output, s3, tmp_path), store)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["five_default", "five_batch", "five_ext"])
def test_stores_of_five_are_published_as_they_are_rebuilt_here(
    golden: Golden, s3: Options, tmp_path: Path, name: str
) -> None:
    store = golden(name)
    url = _archived(store.path, tmp_path / "bare", f"bucket-{name.replace('_', '-')}", s3)
    config = StoreConfig.from_broker_settings(store.config)
    rebuild_store(SerialRunner(), tmp_path / "bare", config=config, output=tmp_path / "here")
    rebuild_store(SerialRunner(), url, config=config, storage_options=s3, split_size=100_000)
    expected, found = tree(tmp_path / "here"), tree(_fetched(url, s3, tmp_path / "there"))
    assert found == expected


def test_what_staging_in_a_bucket_cannot_do_is_refused(
    golden: Golden, s3: Options, archive: str
) -> None:
    store = golden("lmq")
    with pytest.raises(UsageError, match="a rebuild in place cannot stage"):
        _rebuild(store, s3, store=store.path, staging=f"{archive}/staging")
    with pytest.raises(UsageError, match="staging must be a URL of object storage"):
        _rebuild(store, s3, store=store.path, output=store.root / "out", staging="/shared")
    with pytest.raises(UsageError, match="cannot be rebuilt with staging"):
        _rebuild(store, s3, store=archive, output=f"{archive}/rocks", queues="rocksdb")


@pytest.mark.parametrize("lagging", [2, 1000])
def test_a_listing_that_lags_costs_no_file(
    golden: Golden, s3: Options, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    lagging: int,
) -> None:  # fmt: skip
    """The first listings lack the newest queue file and the newest IndexFile."""
    listed, calls = Bucket.list, 0

    def lag(bucket: Bucket, prefix: str = "") -> Iterator[ObjectInfo]:
        nonlocal calls
        found = list(listed(bucket, prefix))
        if prefix.endswith(("/new/", "/parts/")):
            calls += 1
            if calls <= lagging:
                found.remove(max(one for one in found if "pieces-" not in one.name))
        return iter(found)

    monkeypatch.setattr(Bucket, "list", lag)
    monkeypatch.setattr(publish, "_PAUSES_S", (0.0, 0.0), raising=False)
    store, output = golden("lmq"), f"{archive}/lag-{lagging}"
    if lagging == 2:
        _rebuild(store, s3, store=archive, output=output)
        assert_golden(_fetched(output, s3, tmp_path), store)
    else:
        with pytest.raises(StoreAccessError, match=r"lists only \d+ of \d+ staged files"):
            _rebuild(store, s3, store=archive, output=output)
        assert not list(Bucket(output, s3).list("consumequeue/"))
        monkeypatch.undo()
        _rebuild(store, s3, store=archive, output=output)
        assert_golden(_fetched(output, s3, tmp_path), store)


def test_a_run_that_was_killed_as_it_published_one_part_does_not_license_to_delete_another(
    golden: Golden, s3: Options, archive: str, tmp_path: Path
) -> None:
    """The run's record names only the folder that it writes. Queues that existed before may belong to another user."""
    store, output = golden("lmq"), f"{archive}/one-part"
    _rebuild(store, s3, store=archive, output=output, only="consumequeue")
    queues = sorted(Bucket(output, s3).list("consumequeue/"))
    with pytest.raises(KeyboardInterrupt):
        _rebuild(store, s3, store=archive, output=output, only="index", runner=_InPublish())
    assert list(Bucket(output, s3).list("index/"))
    for only in ("consumequeue", None):
        with pytest.raises(UsageError, match=r"consumequeue/.* exists"):
            _rebuild(store, s3, store=archive, output=output, only=only)
    assert sorted(Bucket(output, s3).list("consumequeue/")) == queues
    _rebuild(store, s3, store=archive, output=output, only="index")
    assert_golden(_fetched(output, s3, tmp_path), store)
    with pytest.raises(UsageError, match=r"index/.* exists"):
        _rebuild(store, s3, store=archive, output=output, only="index")


def test_what_a_killed_run_published_is_not_forgotten_by_a_run_of_another_part(
    golden: Golden, s3: Options, archive: str, tmp_path: Path
) -> None:
    store, output = golden("lmq"), f"{archive}/other-part"
    with pytest.raises(KeyboardInterrupt):
        _rebuild(store, s3, store=archive, output=output, only="index", runner=_InPublish())
    _rebuild(store, s3, store=archive, output=output, only="consumequeue")
    _rebuild(store, s3, store=archive, output=output, only="index")
    assert_golden(_fetched(output, s3, tmp_path), store)
    assert not list(Bucket(f"{output}/{STAGING_FOLDER}", s3).list())


@pytest.mark.parametrize("left", ["all", "without publishing"])
def test_a_driver_that_is_killed_after_the_commit_leaves_a_whole_result(
    golden: Golden, s3: Options, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    left: str,
) -> None:  # fmt: skip
    store, output = golden("lmq"), f"{archive}/after-{left.replace(' ', '-')}"
    remove = BucketStaging.remove

    def killed(staging: BucketStaging, *args: Any) -> None:
        if left != "all":
            staging.store.delete("publishing")
        raise KeyboardInterrupt

    monkeypatch.setattr(BucketStaging, "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        _rebuild(store, s3, store=archive, output=output)
    monkeypatch.setattr(BucketStaging, "remove", remove)
    assert_golden(_fetched(output, s3, tmp_path / "first"), store)
    if left == "all":
        _rebuild(store, s3, store=archive, output=output)
        assert_golden(_fetched(output, s3, tmp_path / "second"), store)
    else:
        with pytest.raises(UsageError, match="replaces no objects"):
            _rebuild(store, s3, store=archive, output=output)


class _InPublish(SerialRunner):
    """Publishes one of the staged files, then ends as a killed process would."""

    def run(self, function: Any, tasks: Any, weights: Any, progress: Any) -> Any:
        if tasks and isinstance(tasks[0], publish.StagedFile):
            super().run(function, tasks[:1], weights[:1], progress)
            raise KeyboardInterrupt
        return super().run(function, tasks, weights, progress)


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["lmq", "five_rocksdb"])
def test_only_the_index_is_fetched_if_only_the_index_is_rebuilt(
    golden: Golden, s3: Options, archive: str, tmp_path: Path, name: str
) -> None:
    store, output = golden(name), tmp_path / "out"
    staging = f"{archive}/staging-{name}"
    _rebuild(store, s3, store=store.path, output=output, staging=staging, only="index")
    assert not (output / "consumequeue").exists()
    assert len(list((output / "index").iterdir())) == len(list((store.path / "index").iterdir()))
