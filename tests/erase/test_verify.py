"""The record of an erasure is verified: its signature, and that its messages have no content."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.cli.main import DAMAGED, FOUND, WARNED
from reput.errors import FormatError
from tests.cli.running import one_line
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
CONFIG = reput.StoreConfig(1 << 14, 20, 64, 400)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as opened:
        opened.put_many(
            reput.Message("T", b"body %d" % number, [f"k{number % 10}"], queue_id=0)
            for number in range(200)
        )
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = tmp_path / "key.pem"
    path.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


def _erased(store: Path, key: Path | None = None) -> tuple[Path, Path]:
    report = reput.erase(
        store, store.with_name("copy"), keys=["k3"], signing_key=key, reason="request 17", by="Ann"
    )
    return Path(report.audit), Path(report.destination or "")


def test_a_signed_record_is_verified(store: Path, key: Path) -> None:
    record, copy = _erased(store, key)
    ran = run("erase", "--verify", record)
    assert (ran.code, ran.err) == (FOUND, "")
    assert ran.lines[0] == f"Verified {record}"
    assert "  by         Ann" in ran.lines
    assert "  reason     request 17" in ran.lines
    assert re.search("signed by  [0-9a-f]{64}$", ran.out, re.MULTILINE)
    assert "without content" not in ran.out
    ran = run("erase", "--verify", record, copy)
    assert (ran.code, ran.err) == (FOUND, "")
    assert f"  {copy}: 20 records are without content" in ran.lines
    report = json.loads(run("erase", "--verify", record, copy, "--format", "json").out)
    assert (report["records"], report["tombstones"], report["expired"]) == (20, 20, 0)


def test_a_changed_record_does_not_match_its_signature(store: Path, key: Path) -> None:
    record, copy = _erased(store, key)
    record.write_bytes(record.read_bytes().replace(b"request 17", b"request 18"))
    ran = run("erase", "--verify", record, copy)
    assert ran.code == DAMAGED
    assert ran.lines[0] == f"Not verified: {record}"
    assert "damage: the signature does not match the record" in ran.lines


def test_a_record_without_a_signature_proves_little(store: Path) -> None:
    record, copy = _erased(store)
    ran = run("erase", "--verify", record, copy)
    assert ran.code == WARNED
    assert ran.lines[0] == f"Not signed: {record}"
    assert "  signed by  nobody: anyone may have written it" in ran.lines
    assert reput.verify_erasure(record, copy).is_valid


def test_messages_that_have_content_are_named(store: Path, key: Path) -> None:
    record, _ = _erased(store, key)
    ran = run("erase", "--verify", record, store)
    assert ran.code == DAMAGED
    assert sum(line.endswith(": has content") for line in ran.lines) == 20
    first = json.loads(record.read_bytes())["erasure"]["records"][0][0]
    assert f"damage: physical offset {first:,}: has content" in ran.lines


def test_expired_messages_are_counted(store: Path, key: Path) -> None:
    record, copy = _erased(store, key)
    files = sorted((copy / "commitlog").iterdir())
    files[0].unlink()
    begin = int(files[1].name)
    report = reput.verify_erasure(record, copy)
    offsets = [row[0] for row in json.loads(record.read_bytes())["erasure"]["records"]]
    assert report.expired == sum(offset < begin for offset in offsets) > 0
    assert report.tombstones == 20 - report.expired
    assert report.is_valid


@pytest.mark.parametrize("name", ["orders", "five_batch"])
def test_records_of_archives_and_of_batches_are_verified(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    archive = tmp_path / "archive"
    store = copy_store(golden(name).path, tmp_path / "store")
    reput.archive(store, archive)
    with reput.open_store(store) as opened:
        keys = [row.uniq_key for row in golden(name).messages if row.uniq_key][:1]
        assert opened.query(None, keys[0]).messages
    report = reput.erase(archive, keys=keys)
    verified = reput.verify_erasure(report.audit, archive)
    assert verified.is_valid
    assert verified.tombstones == verified.records == report.records > 0
    assert not reput.verify_erasure(report.audit, store).is_valid


def test_what_is_no_record_is_one_line(store: Path, tmp_path: Path) -> None:
    for text in ("", "{}", '{"erasure": {}}', "[" * 3000):
        (tmp_path / "other").write_text(text)
        ran = run("erase", "--verify", tmp_path / "other")
        assert ran.code == DAMAGED
        assert "not an erasure record" in one_line(ran)
        with pytest.raises(FormatError):
            reput.verify_erasure(tmp_path / "other")
    assert "missing: no such file" in one_line(run("erase", "--verify", tmp_path / "missing"))
    ran = run("erase", "--verify", tmp_path / "other", store, "--plan")
    assert "no other options" in one_line(ran)
    assert "STORE|ARCHIVE" in run("erase", "--plan", "--key", "k").err
