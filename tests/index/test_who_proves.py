"""The writer of an index also proves it: later queries use its proofs, not spot checks."""

from pathlib import Path
from threading import Event
from unittest import mock

import pytest

from reput.base.config import StoreConfig
from reput.core.index import trust
from reput.core.index.proofs import Verdict
from reput.core.index.trust import RecallingJudge
from reput.core.query.message_store import MessageStore
from reput.core.store.store_reader import StoreReader
from reput.engine.writer.index_sync import IndexSync
from reput.engine.writer.put.message import Message
from reput.engine.writer.writable_store import WritableStore
from tests.index.proving import SLOTS, index_of, keyed_records, messages
from tests.oracle.forge import write_store
from tests.rebuild.rebuilding import SMALL, rebuild, rebuild_log
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("own_cache")
_CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 14, hash_slots=SMALL.hash_slots, index_items=SMALL.index_items
)


def bases(path: Path, index: Path | None = None) -> set[str]:
    with MessageStore(path, config=SMALL, index=index) as reader:
        found = reader.query("T", "every")
        assert found.is_complete
        return {str(part.basis) for part in found.coverage.indexed}


@pytest.mark.parametrize("in_place", [True, False])
def test_a_rebuild_proves_what_it_wrote(tmp_path: Path, in_place: bool) -> None:
    log = messages(100)
    store = write_store(tmp_path / "store", log.files())
    output = store if in_place else tmp_path / "out"
    report = rebuild(store, output)
    assert report.index_files > 2
    assert bases(store, None if in_place else output) == {"proven"}


def test_a_rebuild_that_cannot_keep_its_proof_is_a_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert rebuild_log(tmp_path, messages(100).files()).index_files > 2


def put(store: WritableStore, numbers: range) -> None:
    store.put_many(
        Message("T", f"body {number}".encode(), keys=("every", f"k{number}")) for number in numbers
    )


def test_an_owner_proves_what_it_wrote_when_it_closes(tmp_path: Path) -> None:
    with WritableStore.open(tmp_path / "store", _CONFIG) as store:
        put(store, range(100))
    assert bases(tmp_path / "store") == {"proven"}


def test_an_owner_that_goes_on_proves_what_it_added(tmp_path: Path) -> None:
    for begin in (0, 10, 90):
        with WritableStore.open(tmp_path / "store", _CONFIG) as store:
            put(store, range(begin, begin + 50))
        assert bases(tmp_path / "store") == {"proven"}


def test_an_owner_proves_a_file_that_is_full(tmp_path: Path, own_cache: Path) -> None:
    _prove_full_files(tmp_path, own_cache, Event())


def _prove_full_files(tmp_path: Path, own_cache: Path, has_put: Event) -> None:
    with WritableStore.open(tmp_path / "store", _CONFIG) as store:
        put(store, range(100))
        store.wait_dispatched()
        has_put.set()
        files = len(list((tmp_path / "store" / "index").iterdir()))
        proofs = files - 1
        wait_for(lambda: own_cache.exists() and len(list(own_cache.iterdir())) >= proofs)


def test_files_that_become_full_between_a_sync_and_a_proof_are_proved(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_put, sync = Event(), IndexSync.run_partly

    def sync_before_the_last_put(self: IndexSync, least_pages: int) -> None:
        sync(self, least_pages)
        assert has_put.wait(60)

    monkeypatch.setattr(IndexSync, "run_partly", sync_before_the_last_put)
    _prove_full_files(tmp_path, own_cache, has_put)


def test_an_owner_that_wrote_nothing_proves_nothing(tmp_path: Path, own_cache: Path) -> None:
    with WritableStore.open(tmp_path / "store", _CONFIG) as store:
        put(store, range(5))
    (kept,) = own_cache.iterdir()
    kept.unlink()
    WritableStore.open(tmp_path / "store", _CONFIG).close()
    assert list(own_cache.iterdir()) == []


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A store whose only IndexFile is full, and covers all messages with keys."""
    log = messages(99)
    store = write_store(tmp_path / "store", log.files())
    entries = sum(len(record.index_keys) for _, record in keyed_records(store))
    index_of(store, log.files(), slots=SLOTS, items=entries + 1)
    return store


def judged(store: Path) -> tuple[Verdict, int]:
    """Return what a query finds out about the store's only IndexFile, and the number of items that it checked."""
    with StoreReader(store) as reader:
        (file,) = reader.index.current()
        last = file.next_item - 1
        assert last == file.index_items - 1
        with mock.patch.object(trust, "entry_holds", wraps=trust.entry_holds) as looked:
            return RecallingJudge()(file, reader.commit_log, last), looked.call_count


def test_what_spot_checks_found_of_a_full_file_is_remembered(full: Path) -> None:
    first, looked = judged(full)
    assert looked > 10
    assert first.ranges
    assert judged(full) == (first, 0)


@pytest.mark.parametrize("changed", ["index", "commitlog"])
def test_until_anything_changes(full: Path, changed: str) -> None:
    first, looked = judged(full)
    path = max((full / changed).iterdir())
    path.write_bytes(path.read_bytes())
    assert judged(full) == (first, looked)


def test_a_file_with_room_is_looked_at_each_time_while_its_store_is_open(
    tmp_path: Path, own_cache: Path
) -> None:
    log = messages(100)
    store = write_store(tmp_path / "store", log.files())
    index_of(store, log.files(), slots=SMALL.hash_slots, items=10_000)
    (store / "abort").touch()
    with MessageStore(store, hash_slots=SMALL.hash_slots, index_items=10_000) as reader:
        assert reader.query("T", "k1").is_complete
    assert not own_cache.exists()
