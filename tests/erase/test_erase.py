"""Messages erased from copies of golden stores: none of their bytes is left, and nothing else changed."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import reput
from reput.core.query.inner_batch import unwrap
from reput.format.bodies import sent_body
from reput.format.commit_log import SYS_FLAG_INNER_BATCH, MessageExt, decode, record_crc_ok
from reput.format.erasure import ERASED_PROPERTY, KEPT_PROPERTIES, decode_stored
from tests.erase.search import places_of
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_FIVE, EVERY_STORE, GoldenStore

Golden = Callable[[str], GoldenStore]
_LEAVE_OUT = {"five_compaction": ["compaction"], "five_tiered": ["tiered", "tiered_index_file"]}
_REFUSED = ("five_dledger",)
_BY_DEFAULT = {
    ("lmq", "topic"),
    ("five_batch", "key"),
    ("five_ext", "query"),
    ("five_rocksdb", "key"),
}
_CASES = [
    pytest.param(name, how, marks=() if (name, how) in _BY_DEFAULT else pytest.mark.slow)
    for name in (*EVERY_STORE, *EVERY_FIVE)
    if name not in _REFUSED
    for how in ("key", "topic", "query")
]


_MOST_OF_A_KEY = 200


class _Record(NamedTuple):
    """A record of a log, and its messages: the inner ones of a batch, or itself."""

    raw: bytes
    outer: MessageExt
    messages: tuple[MessageExt, ...]

    @property
    def ids(self) -> set[str]:
        return {one.unique_keys[0] for one in self.messages if one.unique_keys}


def _records(store: Path) -> Iterator[_Record]:
    places = reput.dataset(store, ["physical_offset"], on_corrupt="skip").to_reader().read_all()
    with reput.open_store(store) as opened:
        for offset in places.column(0).to_pylist():
            raw = opened.get_record(offset)
            message = decode(raw)
            yield _Record(raw, message, unwrap(message))


def _patterns(messages: list[MessageExt], kept: bytes) -> set[bytes]:
    """Return the bodies (stored and decompressed), unique keys and keys of messages that occur in no other record."""
    found: set[bytes] = set()
    for one in messages:
        found |= {one.body, sent_body(one).data}
        found |= {key.encode("utf-8", "replace") for key in (*one.unique_keys[:1], *one.keys)}
    return {pattern for pattern in found if len(pattern) >= 8 and pattern not in kept}


def _choice(records: list[_Record], how: str) -> dict[str, Any]:
    usual = [one for one in records if not one.outer.topic.startswith(("RMQ_SYS", "rmq_sys"))]
    if how == "topic":
        sizes: dict[str, int] = {}
        for one in usual:
            sizes[one.outer.topic] = sizes.get(one.outer.topic, 0) + 1
        return {"topics": [sorted(sizes, key=lambda topic: (sizes[topic], topic))[len(sizes) // 2]]}
    messages = [message for one in usual for message in one.messages if message.unique_keys]
    message = messages[len(messages) // 2]
    if how == "key":
        counts = Counter(key for one in messages for key in one.keys)
        # Thousands of messages with the same key would take many minutes to search for.
        rare = [key for key in message.keys if counts[key] <= _MOST_OF_A_KEY]
        return {"keys": [message.unique_keys[0], *rare[:1]]}
    name, value = next(
        (name, value)
        for name, value in message.properties.items()
        if name.isidentifier() and value.isascii()
    )
    escaped = value.replace("'", "''")
    return {"query": f"{name} = '{escaped}'"}


@pytest.mark.parametrize(("name", "how"), _CASES)
def test_nothing_is_left_of_erased_messages_and_nothing_else_changed(
    golden: Golden, name: str, how: str, tmp_path: Path
) -> None:
    store, output = golden(name).path, tmp_path / "erased"
    before = list(_records(store))
    choice = _choice(before, how)
    report = reput.erase(store, output, **choice, leave_out=_LEAVE_OUT.get(name, ()), reason="test")
    assert report.records
    audit = json.loads(Path(report.audit).read_bytes())["erasure"]
    erased = {offset: inner for offset, _, _, inner in audit["records"]}
    after = list(_records(output))
    assert len(after) == len(before)
    gone: list[MessageExt] = []
    kept = bytearray()
    tombstones = 0
    for old, new in zip(before, after, strict=True):
        offset = old.outer.physical_offset
        if offset not in erased:
            assert new.raw == old.raw
            kept += old.raw
            continue
        inner = erased[offset]
        for one, now in zip(old.messages, new.messages, strict=True):
            if inner is not None and one.queue_offset not in inner:
                assert now == one
                kept += one.body + one.properties_bytes
                continue
            gone.append(one)
            assert not any(now.body)
            assert set(now.properties) <= {*KEPT_PROPERTIES, ERASED_PROPERTY, "__CRC32#"}
            tombstones += ERASED_PROPERTY in now.properties
        _check_header(old, new)
    assert len(gone) == sum(one.messages for one in report.messages) == tombstones + report.bare
    patterns = _patterns(gone, bytes(kept))
    assert patterns or how == "topic"
    assert not places_of(patterns, output)
    _check_copies(before, erased)
    _check_store(store, output)


def _check_header(old: _Record, new: _Record) -> None:
    """Check that nothing but the body's CRC and the flags of the body has changed, and that all CRCs are right."""
    assert len(old.raw) == len(new.raw)
    assert (
        old.raw[:8] + old.raw[12:36] + old.raw[40:84]
        == new.raw[:8] + new.raw[12:36] + new.raw[40:84]
    )
    assert new.outer.topic == old.outer.topic
    assert new.outer.body_crc_ok
    assert record_crc_ok(new.raw)
    flags = old.outer.sys_flag & ~new.outer.sys_flag
    assert not flags & ~(SYS_FLAG_INNER_BATCH | 64 | 1 | 0x700)


def _check_copies(before: list[_Record], erased: dict[int, Any]) -> None:
    """Check that every record with the id of an erased message is erased as well."""
    ids = {
        one.unique_keys[0]
        for record in before
        if record.outer.physical_offset in erased
        for one in record.messages
        if one.unique_keys
        and (
            erased[record.outer.physical_offset] is None
            or one.queue_offset in erased[record.outer.physical_offset]
        )
    }
    lists = {
        one.unique_keys[-1]
        for record in before
        for one in record.messages
        if len(one.unique_keys) > 1
    }
    for record in before:
        if record.ids & (ids - lists):
            assert record.outer.physical_offset in erased


def _check_store(store: Path, output: Path) -> None:
    assert reput.check(output).is_valid
    # The erased copy has the same queues, with the same first and last queue offsets.
    with reput.open_store(store) as old, reput.open_store(output) as new:
        assert set(old.list_queues()) == set(new.list_queues())
        for queue in old.list_queues():
            assert new.min_queue_offset(*queue) == old.min_queue_offset(*queue)
            assert new.max_queue_offset(*queue) == old.max_queue_offset(*queue)
    files = _index_files(output)
    reput.rebuild(output)
    assert _index_files(output) == files


def _index_files(store: Path) -> list[bytes]:
    """Return the contents of queue files, by name, then of IndexFiles. Names of IndexFiles are times and may vary."""
    return [
        path.read_bytes()
        for folder in ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index")
        for path in sorted((store / folder).rglob("*"))
        if path.is_file() and not path.parent.joinpath("CURRENT").exists()
    ]


def test_a_record_without_hashes_proves_no_guess(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    """Without hashes, the audit record cannot confirm a guess of an erased message, even with all other bytes known."""
    store = golden("orders").path
    report = reput.erase(store, tmp_path / "out", keys=["customer-48"], hashes=False)
    erasure, _, _ = decode_stored(Path(report.audit).read_bytes())
    assert erasure.records
    assert {one.sha256 for one in erasure.records} == {""}
    assert {one.before for one in erasure.files} == {""}
    assert all(one.after for one in erasure.files)


def test_copies_look_like_their_models(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("lmq").path, tmp_path / "store")
    logs = sorted((store / "commitlog").iterdir())
    folders = [store, store / "commitlog", store / "config", store / "consumequeue"]
    for number, path in enumerate([*logs, *folders]):
        path.chmod(0o700 + number)
        os.utime(path, ns=(10**18 + number, 10**18 + 10**9 * number))
    looks = {path: (path.stat().st_mode, path.stat().st_mtime_ns) for path in [*logs, *folders]}
    reput.erase(
        store, tmp_path / "erased", **_choice(list(_records(store)), "topic"), reason="test"
    )
    for path, look in looks.items():
        for place in (path, tmp_path / "erased" / path.relative_to(store)):
            assert (place.stat().st_mode, place.stat().st_mtime_ns) == look
