"""Archives in buckets of a real S3 API server."""

from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.engine.stores.opening import with_archive
from reput.errors import StoreNotFoundError
from reput.io.archive import Archive
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.remote.s3_server import counted_requests, make_bucket, upload_whole

_MOST_COLD_REQUESTS = 60


@pytest.fixture
def url(s3: dict[str, str], request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("_", "-")[-50:].strip("-")
    make_bucket(name, s3)
    return f"s3://{name}/broker-a"


def test_a_store_is_archived_into_a_bucket_queried_and_restored(
    golden: Callable[[str], GoldenStore], s3: dict[str, str], url: str, tmp_path: Path
) -> None:
    store = golden("orders")
    report = reput.archive(store.path, url, storage_options=s3)
    assert report.files == 6
    assert reput.archive(store.path, url, storage_options=s3).files == 0
    assert reput.verify_archive(url, storage_options=s3).is_valid
    end = Archive(url, s3).manifest.log[-1].end
    with reput.open_store(store.path) as here:
        expected = [
            m for m in here.query("orders", "customer-48").messages if m.physical_offset < end
        ]
    with (
        counted_requests() as lines,
        reput.open_store(url, storage_options=s3) as there,
    ):
        assert list(there.query("orders", "customer-48").messages) == expected
    assert 0 < len(lines) <= _MOST_COLD_REQUESTS
    reput.restore(url, tmp_path / "restored", storage_options=s3)
    for file in Archive(url, s3).manifest.log:
        assert (tmp_path / "restored" / file.path).read_bytes() == (
            store.path / file.path
        ).read_bytes()


def test_a_store_in_place_of_a_deleted_archive_is_read(
    golden: Callable[[str], GoldenStore], s3: dict[str, str]
) -> None:
    """After an archive was deleted, no data of it that this machine cached is used."""
    store = golden("lmq")
    url = upload_whole(store.path, "replaced", s3)
    with reput.open_store(url, storage_options=s3) as opened:
        topics = opened.topics()
    reput.archive(store.path, f"{url}/inside", with_last=True, storage_options=s3)
    with reput.open_store(f"{url}/inside", storage_options=s3) as archive:
        assert archive.topics() == topics
    objects = Archive(f"{url}/inside", s3).objects
    for one in list(objects.list()):
        objects.delete(one.name)
    with pytest.raises(StoreNotFoundError):
        reput.open_store(f"{url}/inside", storage_options=s3)
    reput.archive(store.path, f"{url}/inside", with_last=True, storage_options=s3)
    with reput.open_store(f"{url}/inside", storage_options=s3) as archive:
        assert archive.topics() == topics


@pytest.mark.slow
def test_a_store_of_which_only_the_copied_last_file_is_left_continues_its_archive(
    golden: Callable[[str], GoldenStore], s3: dict[str, str], url: str, tmp_path: Path
) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    reput.archive(store, url, with_last=True, storage_options=s3)
    *older, _ = sorted((store / "commitlog").iterdir())
    for path in older:
        path.unlink()
    assert reput.archive(store, url, storage_options=s3).files == 0
    assert reput.archive(store, url, with_last=True, storage_options=s3).files == 1
    assert reput.verify_archive(url, storage_options=s3).is_valid
    both = with_archive(store, url, s3)
    with (
        reput.open_store(golden("orders").path) as whole,
        reput.open_store(both, storage_options=s3) as joined,
    ):
        found = joined.query("orders", "customer-48")
        assert found.messages == whole.query("orders", "customer-48").messages
        assert found.is_complete
