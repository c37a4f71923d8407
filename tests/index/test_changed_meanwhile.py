"""A file that changes during a proof, or could change later without a trace, is not remembered as proven."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reput.core.index.proofs import Stamps
from reput.core.log.files import CommitLogFile
from reput.core.query.message_store import MessageStore
from reput.core.store.store_reader import StoreReader
from reput.engine.compare import proof
from reput.engine.compare.proof import prove_all
from reput.engine.rebuild.staging import fingerprint
from reput.io import stamps
from tests.index.proving import ITEMS, SLOTS, index_of, messages
from tests.oracle.forge import LogForge, write_store
from tests.rebuild.rebuilding import SMALL

REPORTING = stamps._REPORTING
KEYS = [f"k{number}" for number in range(500) if number % 3]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(stamps, "_REPORTING", REPORTING)
    return tmp_path / "cache" / "reput"


@pytest.fixture
def on_disk(tmp_path: Path) -> None:
    if stamps._file_system(str(tmp_path)) not in REPORTING:
        pytest.skip(
            "nothing is remembered of files in memory, or on a file system that hides writers"
        )


@pytest.fixture
def log() -> LogForge:
    return messages(500)


@pytest.fixture
def store(tmp_path: Path, log: LogForge) -> Path:
    path = write_store(tmp_path / "store", log.files())
    index_of(path, log.files())
    return path


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """Return a file mapped by a process that has written to each of its pages."""
    with path.open("r+b") as file:
        bytes_of = mmap.mmap(file.fileno(), 0)
    for at in range(0, len(bytes_of), mmap.PAGESIZE):
        bytes_of[at] = bytes_of[at]
    yield bytes_of
    bytes_of.close()


def clear_slots(index: mmap.mmap) -> None:
    """Clear all slots, so that no look-up reaches an entry."""
    index[40 : 40 + 4 * SLOTS] = bytes(4 * SLOTS)


def prove_store(store: Path) -> None:
    with StoreReader(store, hash_slots=SLOTS, index_items=ITEMS) as reader:
        prove_all(reader.own_log, reader.index.current())


def check_every_key(store: Path) -> None:
    with MessageStore(store, hash_slots=SLOTS, index_items=ITEMS) as reader:
        for key in KEYS:
            found = reader.query("T", key)
            assert found.messages or not found.is_complete, key


def test_a_mapping_that_changes_the_index_after_the_proof(store: Path) -> None:
    (path,) = (store / "index").iterdir()
    with mapped(path) as index:
        prove_store(store)
        clear_slots(index)
        check_every_key(store)
    check_every_key(store)


def test_a_mapping_that_changes_the_index_within_the_proof(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = (store / "index").iterdir()
    prove = proof.prove

    def prove_and_change(*arguments: Any) -> Any:
        found = prove(*arguments)
        with mapped(path) as index:
            clear_slots(index)
        return found

    monkeypatch.setattr(proof, "prove", prove_and_change)
    prove_store(store)
    check_every_key(store)


@pytest.mark.parametrize("number", [0, 1])
def test_a_mapping_that_changes_the_log_after_the_proof(store: Path, number: int) -> None:
    """A message gets another key, so entries no longer cover it."""
    path = sorted((store / "commitlog").iterdir())[number]
    with mapped(path) as log:
        prove_store(store)
        at = log.find(b"KEYS\x01k") + len(b"KEYS\x01")
        old = log[at : log.find(b" ", at)]
        log[at : at + len(old)] = b"z" * len(old)
        with MessageStore(store, hash_slots=SLOTS, index_items=ITEMS) as reader:
            parts = reader.query("T", "z" * len(old)).coverage.indexed
        changed = int(path.name) + at
        assert not [
            one for one in parts if one.start <= changed < one.stop and one.basis == "proven"
        ]


def test_spot_checks_of_a_mapped_file_are_not_remembered(
    store: Path, cache: Path, on_disk: None
) -> None:
    (path,) = (store / "index").iterdir()
    items = struct.unpack(">i", path.read_bytes()[36:40])[0]
    path.write_bytes(path.read_bytes()[: 40 + 4 * SLOTS + 20 * items])  # the file is full
    with MessageStore(store, hash_slots=SLOTS, index_items=items) as reader:
        with mapped(path):
            reader.query("T", "k1")
        assert not cache.exists() or not list(cache.glob("proofs/*"))
    with MessageStore(store, hash_slots=SLOTS, index_items=items) as reader:
        reader.query("T", "k1")
    assert list(cache.glob("proofs/*-spot-check.json"))


def test_store_times_of_a_mapped_log_are_not_remembered(
    store: Path, cache: Path, on_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommitLogFile, "LEAST_KEPT_BYTES", 1000)
    (store / "index").rename(store / "other")
    path = min((store / "commitlog").iterdir())
    with mapped(path):
        with MessageStore(store, config=SMALL) as reader:
            reader.query("T", "k1", begin=0, end=1)
        assert not list(cache.glob(f"ranges/*-{path.stat().st_ino:x}.json"))
    with MessageStore(store, config=SMALL) as reader:
        reader.query("T", "k1", begin=0, end=1)
    assert list(cache.glob(f"ranges/*-{path.stat().st_ino:x}.json"))


def test_what_was_scanned_of_a_mapped_log_is_not_used_by_a_later_rebuild(
    store: Path, on_disk: None
) -> None:
    with StoreReader(store, hash_slots=SLOTS, index_items=ITEMS) as reader:
        files = list(reader.commit_log.files)

    def print_of() -> str:
        return fingerprint(files, Stamps.of_log(files), SMALL, False)

    assert print_of() == print_of()
    with mapped(Path(files[0].path)):
        assert print_of() != print_of()
