"""Messages of a topic that was deleted, or deleted and created again, are no damage, and no repair touches them."""

import json
import shutil
import struct
from pathlib import Path

import pytest

import reput
from reput import Message, open_store
from reput.base.findings import Finding, Kind, Severity
from reput.format.commit_log import MESSAGE_MAGIC, read_size_and_magic
from tests.check.checking import checked
from tests.golden.sparse import copy_store
from tests.small import SMALL

_OLD, _NEW = 10, 5
_NUMBER = struct.Struct(">q")
_NUMBER_AT = 20


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store as a broker leaves it: ten messages of T/0, the topic deleted and created again, five new messages."""
    path = tmp_path / "store"
    with open_store(path, "rw", config=SMALL) as opened:
        for number in range(_OLD + _NEW):
            opened.put(Message("T", b"%d" % number, keys=(f"k{number}",)))
        opened.put(Message("U", b"other"))
    log = path / "commitlog" / f"{0:020}"
    data, at, entries = memoryview(bytearray(log.read_bytes())), 0, b""
    while read_size_and_magic(data, at)[1] == MESSAGE_MAGIC:
        size = read_size_and_magic(data, at)[0]
        (number,) = _NUMBER.unpack_from(data, at + _NUMBER_AT)
        if number >= _OLD:
            _NUMBER.pack_into(data, at + _NUMBER_AT, number - _OLD)
            entries += struct.pack(">qiq", at, size, 0)
        at += size
    log.write_bytes(data)
    queue = path / "consumequeue" / "T" / "0" / f"{0:020}"
    queue.write_bytes(entries.ljust(queue.stat().st_size, b"\0"))
    (path / "reput.known").unlink(missing_ok=True)
    return path


def wrong(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.is_wrong]


def test_a_check_explains_them(store: Path) -> None:
    (finding,) = checked(store)
    assert (finding.kind, finding.severity) == (Kind.TOPIC_RECREATED, Severity.INFO)
    assert (finding.count, finding.physical_offset) == (_OLD, 0)
    assert finding.file == str(store / "consumequeue" / "T" / "0")
    assert checked(store, quick=True) == []
    assert reput.repair(store).is_valid


def test_a_rebuild_keeps_the_queue_and_reports_them(store: Path, tmp_path: Path) -> None:
    before = copy_store(store, tmp_path / "before") / "consumequeue"
    report = reput.rebuild(store)
    assert report.queue_entries == _NEW + 1
    assert any(note.startswith(f"{_OLD} messages without an entry: older") for note in report.notes)
    for file in before.rglob("0" * 20):
        assert (store / "consumequeue" / file.relative_to(before)).read_bytes() == file.read_bytes()


def test_new_messages_without_an_entry_are_damage_all_the_same(store: Path) -> None:
    queue = store / "consumequeue" / "T" / "0" / f"{0:020}"
    with queue.open("r+b") as file:
        file.seek(2 * 20)
        file.write(bytes(20))
    assert {one.kind for one in wrong(checked(store))} >= {Kind.QUEUE_GAP}


def test_lost_entries_at_the_beginning_of_a_queue_are_damage(store: Path) -> None:
    """The first entry left leads to the message with its queue offset, so earlier messages fit before it."""
    queue = store / "consumequeue" / "T" / "0"
    shutil.rmtree(queue)
    reput.rebuild(store)
    data = (queue / f"{0:020}").read_bytes()
    (queue / f"{0:020}").write_bytes(struct.pack(">qiq", 0, 2**31 - 1, 0) * 3 + data[60:])
    missing = [one for one in checked(store) if one.kind is Kind.MISSING_QUEUE_ENTRY]
    assert next(one.physical_offset for one in missing) == 0


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_topic_that_the_broker_no_longer_has_was_deleted(store: Path, is_deleted: bool) -> None:
    topics = {"U": {"topicName": "U"}, **({} if is_deleted else {"T": {"topicName": "T"}})}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    shutil.rmtree(store / "consumequeue" / "T")
    for quick in (False, True):
        (finding,) = checked(store, quick=quick)
        expected = Kind.TOPIC_DELETED if is_deleted else Kind.MISSING_QUEUE
        assert (finding.kind, finding.count) == (expected, _OLD + _NEW)
        assert finding.is_wrong is not is_deleted
