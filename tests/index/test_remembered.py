"""A remembered proof is used only for the same IndexFile and the same log."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reput.cli.main import main
from reput.core.index import trust
from reput.core.index.proofs import Proof, ProofCache, Stamps
from reput.core.query.message_store import MessageStore
from reput.core.store.store_reader import StoreReader
from reput.engine.compare.proof import prove
from reput.io.user_cache import OwnCache
from tests.index.proving import ITEMS, SLOTS, index_of, messages, prove_and_keep
from tests.oracle.forge import LogForge, write_store

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def log() -> LogForge:
    return messages(500)


@pytest.fixture
def store(tmp_path: Path, log: LogForge) -> Path:
    path = write_store(tmp_path / "store", log.files())
    index_of(path, log.files(), lambda record: record.physical_offset < log.offsets[400])
    return path


@pytest.fixture
def proof(store: Path) -> Proof:
    """Return the saved proof of the store's only IndexFile."""
    with opened(store) as reader:
        (file,) = reader.index.current()
        found = prove_and_keep(file, reader.commit_log)
    return found


def opened(store: Path) -> StoreReader:
    return StoreReader(store, hash_slots=SLOTS, index_items=ITEMS)


def recalled(store: Path) -> Proof | None:
    with opened(store) as reader:
        (file,) = reader.index.current()
        return ProofCache().proof(file, reader.commit_log)


def index_file(store: Path) -> Path:
    (path,) = (store / "index").iterdir()
    return path


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_it_is_recalled_as_it_was(store: Path, proof: Proof) -> None:
    assert recalled(store) == proof


def test_any_write_to_the_file_ends_it(store: Path, proof: Proof) -> None:
    path = index_file(store)
    overwrite(path, 44, path.read_bytes()[44:48])
    assert recalled(store) is None


def test_growth_of_the_file_ends_it(store: Path, proof: Proof, log: LogForge) -> None:
    path = index_file(store)
    inode = path.stat().st_ino
    (grown,) = index_of(store, log.files())
    assert grown.stat().st_ino == inode
    assert recalled(store) is None


@pytest.mark.parametrize("at", [0, 16])
def test_another_file_that_took_the_inode_is_not_believed(
    store: Path, proof: Proof, log: LogForge, at: int
) -> None:
    (grown,) = index_of(store, log.files())
    overwrite(grown, at + 7, b"\x05")
    assert recalled(store) is None


def test_from_a_log_file_that_changed_on_nothing_is_believed(
    store: Path, proof: Proof, log: LogForge
) -> None:
    path = store / "commitlog" / f"{1 << 14:020d}"
    os.utime(path)
    found = recalled(store)
    assert found is not None
    assert (found.ranges[0].start, found.ranges[-1].stop) == (proof.ranges[0].start, 1 << 14)
    with StoreReader(store, hash_slots=SLOTS, index_items=ITEMS) as opened:
        (file,) = opened.index.current()
        assert file.item(found.items).physical_offset < 1 << 14
        assert file.item(found.items + 1).physical_offset >= 1 << 14


def test_a_message_that_got_another_key_after_the_proof_is_not_covered(
    store: Path, log: LogForge
) -> None:
    index_of(store, log.files())
    with opened(store) as reader:
        (file,) = reader.index.current()
        whole = prove_and_keep(file, reader.commit_log)
    path = max((store / "commitlog").iterdir())
    begin, key = int(path.name), path.read_bytes().index(b"KEYS\x01k")
    assert begin + key < whole.ranges[-1].stop, "it was proved"
    overwrite(path, key + 5, b"Z")
    found = recalled(store)
    assert found is not None
    assert found.ranges[-1].stop <= begin


def test_a_log_that_was_cut_short_and_written_over_ends_it(
    store: Path, proof: Proof, log: LogForge
) -> None:
    last = log.offsets[398]  # the next has no keys
    path = store / "commitlog" / f"{last - last % (1 << 14):020d}"
    overwrite(path, last % (1 << 14) + 70, b"x")
    assert recalled(store) is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_believed(
    store: Path, proof: Proof, own_cache: Path, mode: int
) -> None:
    (kept,) = own_cache.iterdir()
    kept.chmod(mode)
    assert recalled(store) is None


def test_nor_is_one_in_a_folder_that_others_can_write_or_behind_a_link(
    store: Path, proof: Proof, own_cache: Path
) -> None:
    (kept,) = own_cache.iterdir()
    own_cache.chmod(0o777)
    assert recalled(store) is None
    own_cache.chmod(0o700)
    assert recalled(store) == proof
    elsewhere = own_cache.parent / "elsewhere.json"
    kept.rename(elsewhere)
    kept.symlink_to(elsewhere)
    assert recalled(store) is None


def hostile(whole: bytes) -> Iterator[bytes]:
    kept = json.loads(whole)
    yield b""
    yield b"\xff" * 10
    yield b"[" * 100_000
    yield whole[:-1]
    yield b"[]"
    yield b"1"
    for name in kept:
        values: tuple[Any, ...] = (None, -1, "x", [], {}, [[1]], [["a", "b"]], 10**30, 1e300)
        for value in values:
            yield json.dumps({**kept, name: value}).encode()
        yield json.dumps({key: value for key, value in kept.items() if key != name}).encode()


def test_whatever_stands_in_a_hostile_file_is_ignored(
    store: Path, proof: Proof, own_cache: Path
) -> None:
    (kept,) = own_cache.iterdir()
    whole = OwnCache("proofs").read(kept.name, 1 << 20)
    assert whole is not None
    kept.write_bytes(whole)
    assert recalled(store) is None, "it has no checksum"
    for data in hostile(whole):
        OwnCache("proofs").write(kept.name, data)
        found = recalled(store)
        assert found is None or found.items == proof.items
        if found is not None:
            assert all(part.start < part.stop for part in found.ranges)


def test_where_it_cannot_be_kept_nothing_is_lost(
    store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with opened(store) as reader:
        (file,) = reader.index.current()
        before = Stamps.before(file, reader.commit_log)
        found = prove(file, reader.commit_log)
        assert not ProofCache().keep_proof(file, reader.commit_log, found, before)
        assert ProofCache().proof(file, reader.commit_log) is None


def test_the_command_proves_and_remembers(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--hash-slots", str(SLOTS), "--index-items", str(ITEMS)]
    assert main(["prove", str(store), "--format", "json", *sizes]) == 0
    (row,) = json.loads(capsys.readouterr().out)["files"]
    found = recalled(store)
    assert found is not None
    assert row["ranges"] == [list(part) for part in found.ranges]
    assert main(["prove", str(store), *sizes]) == 0
    assert "entries prove" in capsys.readouterr().out


def test_the_command_reports_a_file_with_a_hole(
    store: Path, log: LogForge, capsys: pytest.CaptureFixture[str]
) -> None:
    index_of(store, log.files(), lambda record: record.physical_offset not in log.offsets[100:200])
    assert main(["prove", str(store), "--hash-slots", str(SLOTS), "--index-items", str(ITEMS)]) == 3
    assert "not proved: its entries do not cover offsets" in capsys.readouterr().out


def bases(store: Path, key: str) -> list[tuple[int, int, str]]:
    with MessageStore(store, hash_slots=SLOTS, index_items=ITEMS) as reader:
        found = reader.query("T", key)
        assert len(found.messages) == 1
        return [(part.start, part.stop, part.basis) for part in found.coverage.indexed]


def test_an_answer_says_which_stretches_were_proved(store: Path, log: LogForge) -> None:
    assert {basis for _, _, basis in bases(store, "k100")} == {"spot-checked"}
    with opened(store) as reader:
        (file,) = reader.index.current()
        found = prove_and_keep(file, reader.commit_log)
    assert bases(store, "k100") == [(*part, "proven") for part in found.ranges]
    index_of(store, log.files())
    assert {basis for _, _, basis in bases(store, "k100")} == {"spot-checked"}


def test_the_part_of_the_log_that_a_proof_leaves_out_is_scanned(store: Path, log: LogForge) -> None:
    off = set(log.offsets[100:200])
    index_of(store, log.files(), lambda record: record.physical_offset not in off)
    with opened(store) as reader:
        (file,) = reader.index.current()
        prove_and_keep(file, reader.commit_log)
    for number in range(100, 200):
        if number % 3:
            assert bases(store, f"k{number}")


def test_a_spot_check_of_a_file_that_is_not_full_is_recalled_if_nobody_has_the_store_open(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    ranges = trust.covered_ranges

    def counted(file: Any, *args: Any, **options: Any) -> Any:
        checked.append(file.name)
        return ranges(file, *args, **options)

    monkeypatch.setattr(trust, "covered_ranges", counted)

    def checks() -> int:
        checked.clear()
        with MessageStore(store, hash_slots=SLOTS, index_items=ITEMS) as reader:
            assert reader.query("T", "k1").messages
        return len(checked)

    (store / "abort").touch()
    assert (checks(), checks()) == (1, 1)
    (store / "abort").unlink()
    assert (checks(), checks()) == (1, 0)
    path = index_file(store)
    with StoreReader(store, hash_slots=SLOTS, index_items=ITEMS) as reader:
        (file,) = reader.index.current()
        at = file.used_bytes() - 20
    overwrite(path, at, path.read_bytes()[at : at + 20])
    assert checks() == 1
