"""Proofs of messages: verified without the archive, and refused if anything in them changed."""

import base64
import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import reput
from reput.cli.main import main
from reput.errors import FormatError, MessageNotFoundError, ReputError, UsageError
from reput.format.archive import root_above, tree_path, tree_root
from reput.format.message_proof import decode_stored_proof
from reput.io.archive import Archive
from tests.golden.stores import GoldenStore
from tests.slow import examples

Golden = Callable[[str], GoldenStore]


@pytest.fixture
def place(golden: Golden, tmp_path: Path) -> str:
    place = str(tmp_path / "archive")
    reput.archive(golden("orders").path, place)
    return place


def _offset(golden: Golden) -> int:
    with reput.open_store(golden("orders").path) as store:
        return store.query("orders", "customer-48").messages[-1].physical_offset


@pytest.mark.parametrize("leaves", [1, 2, 3, 4, 5, 7, 8, 9, 16, 21])
def test_each_leaf_of_a_tree_has_a_path_to_its_root(leaves: int) -> None:
    digests = b"".join(hashlib.sha256(bytes([one])).digest() for one in range(leaves))
    root = tree_root(digests)
    for number in range(leaves):
        digest, path = digests[32 * number : 32 * number + 32], tree_path(digests, number)
        assert root_above(digest, number, leaves, path) == root
        assert root_above(digest[::-1], number, leaves, path) != root
        for other in set(range(leaves)) - {number}:
            assert root_above(digest, other, leaves, path) != root


def test_a_proof_is_verified_without_its_archive(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    offset, proof, key = _offset(golden), tmp_path / "m.proof", tmp_path / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    report = reput.verify_archive(place, physical_offset=offset, proof=proof, signing_key=key)
    Path(place).rename(tmp_path / "gone")
    found = reput.verify_archive(proof)
    assert found.is_valid
    assert found.message == report.message is not None
    assert found.message is not None
    with reput.open_store(golden("orders").path) as store:
        record = store.get_record(offset)
        message = store.get(offset)
    assert found.message.sha256 == hashlib.sha256(record).hexdigest()
    assert (found.message.topic, found.message.queue_offset) == (
        message.topic,
        message.queue_offset,
    )
    stated, _, _ = decode_stored_proof(proof.read_bytes())
    assert stated.record() == record
    assert found.message.signed_by
    archive = Archive(str(tmp_path / "gone"))
    assert found.message.chain == archive.manifest.chain


def test_a_changed_proof_does_not_hold(golden: Golden, place: str, tmp_path: Path) -> None:
    proof, key = tmp_path / "m.proof", tmp_path / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    offset = _offset(golden)
    reput.verify_archive(place, physical_offset=offset, proof=proof, signing_key=key)
    data = proof.read_bytes()
    random = Random(4)
    for _ in range(examples(60)):
        changed = bytearray(data)
        at = random.randrange(len(data))
        changed[at] = random.choice(b'0123456789abcdefABCZ{}[],:"')
        if changed == data:
            continue
        proof.write_bytes(changed)
        try:
            assert not reput.verify_archive(proof).is_valid, at
        except FormatError:
            continue
    # A proof without a signature is still valid only if no byte of its frames, path and chain has changed.
    for change in ("content", "path", "before", "chain"):
        stored = json.loads(data)
        stored["signature"] = None
        inner = stored["proof"]
        frame = inner["frames"][0]
        if change == "content":
            content = bytearray(base64.b64decode(frame["content"]))
            content[0] ^= 1
            frame["content"] = base64.b64encode(content).decode()
        elif change == "path":
            frame["path"] = frame["path"][:-1]
        else:
            inner[change] = inner[change][::-1] or "00"
        proof.write_bytes(json.dumps(stored).encode())
        assert not reput.verify_archive(proof).is_valid, change


def test_what_cannot_be_proved_is_refused(golden: Golden, place: str, tmp_path: Path) -> None:
    offset = _offset(golden)
    with pytest.raises(ReputError):
        reput.verify_archive(place, physical_offset=offset + 1)
    with pytest.raises(MessageNotFoundError):
        reput.verify_archive(place, physical_offset=1 << 40)
    with pytest.raises(UsageError, match="only together with physical_offset"):
        reput.verify_archive(place, proof=tmp_path / "p")
    with pytest.raises(UsageError, match="exists"):
        reput.verify_archive(place, physical_offset=offset, proof=Path(place) / "archive.json")
    with pytest.raises(FormatError, match="not the proof of a message"):
        reput.verify_archive(Path(place) / "archive.json")


def test_a_damaged_message_has_no_proof(golden: Golden, place: str) -> None:
    offset = _offset(golden)
    manifest = Archive(place).manifest
    (file,) = [one for one in manifest.log if one.begin <= offset < one.end]
    path = Path(place, file.object)
    data = bytearray(path.read_bytes())
    data[: file.tail_start] = bytes(file.tail_start)
    path.write_bytes(data)
    with pytest.raises(ReputError):
        reput.verify_archive(place, physical_offset=offset)


def test_the_command_writes_and_verifies_a_proof(
    golden: Golden, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offset, proof = str(_offset(golden)), str(tmp_path / "m.proof")
    assert main(["archive", "--verify", place, "--message", offset, "--proof", proof]) == 0
    assert "the message is unchanged" in capsys.readouterr().out
    assert main(["archive", "--verify", proof]) == 0
    assert "not signed" in capsys.readouterr().out
    assert main(["archive", "--message", offset, "a", "b"]) == 2
