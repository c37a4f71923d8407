"""The database of timers, transactions and keys (5.4): quick checks also find lost, cut and longer files."""

import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.base.findings import Severity
from reput.engine.check.run import check_store

GOLDEN_5_4 = Path(__file__).parents[2].parent / "shared" / "golden54"
pytestmark = pytest.mark.skipif(
    not GOLDEN_5_4.exists(), reason="needs ../shared/golden54 beside the checkout"
)
DATABASE = "RocksDBMessageStore"


def extracted(name: str, folder: Path) -> Path:
    with tarfile.open(GOLDEN_5_4 / f"five4_{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def gone(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def longer(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"more")


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


HARMS = (gone, empty, half, longer, folder)
CASES = [
    *(("CURRENT", harm) for harm in HARMS), *(("MANIFEST-*", harm) for harm in (*HARMS, cut)),
    *(("*.sst", harm) for harm in (*HARMS, cut)),
]  # fmt: skip


@pytest.mark.parametrize("name", ["timer54", "nouniq"])
def test_each_gross_damage_of_the_database_is_found(tmp_path: Path, name: str) -> None:
    store = extracted(name, tmp_path)
    shutil.copytree(store / DATABASE, tmp_path / "whole")
    kind, severity = {
        "timer54": ("message_database", Severity.DAMAGE),
        "nouniq": ("index_database", Severity.WARNING),
    }[name]  # fmt: skip
    for pattern, harm in CASES:
        shutil.rmtree(store / DATABASE)
        shutil.copytree(tmp_path / "whole", store / DATABASE)
        harm(next((store / DATABASE).glob(pattern)))
        findings = list(check_store(store, quick=True))
        assert (kind, severity) in {(str(one.kind), one.severity) for one in findings}, (
            pattern, harm, findings,
        )  # fmt: skip


@pytest.mark.parametrize("harm", [gone, half, cut])
def test_the_full_check_finds_a_lost_or_cut_manifest(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    store = extracted("timer54", tmp_path)
    harm(next((store / DATABASE).glob("MANIFEST-*")))
    assert "message_database" in {str(one.kind) for one in check_store(store)}


@pytest.mark.parametrize(
    ("name", "sign"),
    [("timer54", "config/timercheck"), ("trans54", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")],
)
@pytest.mark.parametrize("is_quick", [True, False])
def test_a_lost_database_is_damage_if_something_tells_of_it(
    tmp_path: Path, name: str, sign: str, is_quick: bool
) -> None:
    store = extracted(name, tmp_path)
    assert list(check_store(store, quick=is_quick)) == []
    shutil.rmtree(store / DATABASE)
    for _ in ("removed", "empty"):
        (finding,) = check_store(store, quick=is_quick)
        assert str(finding.kind) == "message_database"
        assert sign in finding.detail
        (store / DATABASE).mkdir(exist_ok=True)


def test_a_quick_check_names_the_items_of_the_database_that_it_did_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = extracted("nouniq", tmp_path)
    assert ", keys in RocksDB)" in reput.check(store, quick=True).verdict
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert ", the message database)" in reput.check(store, quick=True).verdict


@pytest.mark.parametrize("is_quick", [True, False])
def test_a_check_names_timers_that_the_store_has_nowhere(tmp_path: Path, is_quick: bool) -> None:
    store = extracted("timer54", tmp_path)
    assert reput.check(store).verdict == "valid"
    shutil.rmtree(store / DATABASE)
    (store / "config" / "timercheck").unlink()
    verdict = reput.check(store, quick=is_quick).verdict
    assert "timers, which are neither in a timer log nor in RocksDB" in verdict
