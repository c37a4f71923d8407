"""Iceberg tables in a bucket with a REST catalog: created, grown, compacted, and committed in spite of conflicts.

The catalog is the server of `tests.remote.rest_catalog`, which answers the requests of the REST specification from
pyiceberg's SQL catalog. It stands for no particular product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reput.errors import StoreAccessError, StoreLockedError, UsageError
from reput.wings.lakes.compaction import compact_destination
from reput.wings.lakes.lake_bucket import LakeBucket
from tests.cli.running import one_line
from tests.cli.running import reput as run
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import grow_to, offsets
from tests.remote.faulty_server import FaultyServer, faulty_server
from tests.remote.lake_buckets import Lake
from tests.remote.rest_catalog import CatalogServer, catalog_server
from tests.remote.s3_server import ENDPOINT, Options, s3_process, upload_whole
from tests.remote.test_commands import SendingRunner

pytest.importorskip("obstore")

Golden = Callable[[str], GoldenStore]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Options]:
    with s3_process() as options:
        upload_whole(tmp_path_factory.mktemp("empty"), "rest", options)
        yield options


@pytest.fixture(scope="module")
def catalog(s3: Options, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogServer]:
    with catalog_server(tmp_path_factory.mktemp("catalog") / "catalog.db", s3) as server:
        yield server


@pytest.fixture
def lake(request: pytest.FixtureRequest, s3: Options, catalog: CatalogServer) -> Lake:
    name = request.node.name
    return Lake(f"s3://rest/{name}/lake", s3, "iceberg", catalog.address, f"{name}.messages")


@pytest.fixture
def proxy(catalog: CatalogServer) -> Iterator[FaultyServer]:
    """A server that loses the answers of the catalog."""
    with faulty_server(catalog.address) as server:
        yield server


def _offsets(store: GoldenStore, end: int = 1 << 62) -> list[int]:
    return [m.physical_offset for m in store.messages if m.physical_offset + m.size <= end]


def test_a_table_grows_and_is_compacted(
    golden: Golden, lake: Lake, catalog: CatalogServer, tmp_path: Path
) -> None:
    source, store = golden("basic"), tmp_path / "store"
    for end in (30_000, 60_000, 1 << 40):
        grow_to(source.path, store, end)
        assert lake.export(store, incremental=end > 30_000, partition_by=("topic",)).committed
        assert offsets(lake.rows()) == _offsets(source, end)
    commits = [
        one
        for one in catalog.requests
        if one.endswith(f"{lake.table.partition('.')[0]}/tables/messages")
    ]
    assert sum(one.startswith("POST") for one in commits) == 4  # one of them creates the table
    report = compact_destination(lake.open(), lambda size: SendingRunner())
    assert report.new_files < report.files
    assert offsets(lake.rows()) == _offsets(source)
    assert not lake.export(store, incremental=True, partition_by=("topic",)).committed
    assert lake.is_tidy()


def test_the_command_exports_and_names_a_catalog_that_does_not_answer(
    golden: Golden, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reput")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "reput")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{lake.options[ENDPOINT]}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    store = golden("basic")
    command = (
        "export",
        store.path,
        lake.url,
        "--to",
        "iceberg",
        "--table",
        lake.table,
        "--incremental",
    )
    gone = run(*command, "--catalog", "http://127.0.0.1:9")
    assert gone.code != 0
    assert "127.0.0.1" in one_line(gone)
    done = run(*command, "--catalog", f"http://{lake.catalog}")
    assert done.code == 0, done.err
    assert offsets(lake.rows()) == _offsets(store)


def test_the_second_of_two_commits_on_one_snapshot_fails(
    golden: Golden, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, store = golden("basic"), tmp_path / "store"
    grow_to(source.path, store, 30_000)
    lake.export(store)
    grow_to(source.path, store, 1 << 40)
    check = LakeBucket.check_owner
    added: list[Any] = []

    def overtaken(bucket: LakeBucket) -> None:
        """Let another program commit between this run's last read of the table and its commit."""
        check(bucket)
        # Ownership is also checked before this commit, when staged files of earlier runs are deleted.
        if bucket.pending() is not None and not added:
            added.append(lake.iceberg_table())
            added[0].delete("physical_offset = 0")

    monkeypatch.setattr(LakeBucket, "check_owner", overtaken)
    with pytest.raises(
        StoreLockedError, match="another commit was made meanwhile; run the command again"
    ):
        lake.export(store, incremental=True)
    assert offsets(lake.rows()) == _offsets(source, 30_000)[1:]
    assert lake.export(store, incremental=True).committed
    assert offsets(lake.rows()) == _offsets(source)[1:]
    assert lake.is_tidy()


@pytest.mark.parametrize("moment", ["written", "pending", "published"])
def test_a_run_that_was_taken_for_dead_commits_nothing(
    golden: Golden, lake: Lake, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reput.wings.lakes import lake_bucket

    monkeypatch.setattr(lake_bucket, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(lake_bucket, "_POLL_S", 0.05)
    monkeypatch.setattr(LakeBucket, "_beat", lambda self, ended: None)
    store, done = golden("basic"), list[str]()

    def overtaken(phase: str, count: int, total: int) -> None:
        if phase == moment and not done:
            done.append(phase)
            lake.export(store.path, incremental=True)

    with pytest.raises(StoreLockedError, match="began to write here, and this one stopped"):
        lake.export(store.path, incremental=True, progress=overtaken)
    assert done
    assert offsets(lake.rows()) == _offsets(store)


def test_a_commit_whose_answer_is_lost_is_found_in_the_table(
    golden: Golden, lake: Lake, proxy: FaultyServer, tmp_path: Path
) -> None:
    source, store = golden("basic"), tmp_path / "store"
    grow_to(source.path, store, 30_000)
    lake.export(store)
    grow_to(source.path, store, 1 << 40)

    def lose(phase: str, count: int, total: int) -> None:
        if phase == "published":
            proxy.fail("lost", "POST", 1)

    through = replace(lake, catalog=proxy.address)
    assert through.export(store, incremental=True, progress=lose).committed
    assert offsets(lake.rows()) == _offsets(source)


@pytest.mark.parametrize("fault", ["500", "503", "drop"])
def test_a_commit_that_a_catalog_refuses_leaves_nothing(
    golden: Golden, lake: Lake, proxy: FaultyServer, tmp_path: Path, fault: Any
) -> None:
    source, store = golden("basic"), tmp_path / "store"
    grow_to(source.path, store, 30_000)
    lake.export(store)
    grow_to(source.path, store, 1 << 40)

    def refuse(phase: str, count: int, total: int) -> None:
        if phase == "published":
            proxy.fail(fault, "POST", 1)

    through = replace(lake, catalog=proxy.address)
    with pytest.raises(StoreAccessError) as error:
        through.export(store, incremental=True, progress=refuse)
    assert "\n" not in str(error.value)
    assert offsets(lake.rows()) == _offsets(source, 30_000)
    assert through.export(store, incremental=True).committed
    assert offsets(lake.rows()) == _offsets(source)
    assert lake.is_tidy()


def test_one_table_is_not_written_from_two_places(golden: Golden, lake: Lake) -> None:
    store = golden("basic").path
    lake.export(store)
    with pytest.raises(UsageError, match="was exported to s3://rest/"):
        replace(lake, url=f"{lake.url}-2").export(store, incremental=True)
