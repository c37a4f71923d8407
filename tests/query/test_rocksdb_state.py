"""Timers and transactions in RocksDB (5.4): what is open and waits, and a store that reput does not own."""

import json
import shutil
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.errors import FormatError, MissingExtraError, UsageError
from reput.format.rocksdb_state import (
    HalfItem,
    TimelineItem,
    decode_half_item,
    decode_timeline_item,
)
from tests.cli.running import reput as run
from tests.oracle.forge import LogForge, RecordFields, encode_properties, forge_log
from tests.query.stores import build_store

rocksdict = pytest.importorskip("rocksdict")
GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden54"
HALF, OP = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TIMER = "rmq_sys_wheel_timer"
DUE = 1_700_000_100_000
Items = Mapping[str, Mapping[bytes, bytes]]


def long(number: int) -> bytes:
    return struct.pack(">q", number)


def half(number: int) -> RecordFields:
    properties = {"UNIQ_KEY": f"U{number}", "REAL_TOPIC": "T", "REAL_QID": "0", "PGROUP": "g"}
    return RecordFields(
        topic=HALF, queue_offset=number, body=b"half", properties=encode_properties(properties)
    )


def op(number: int, physical_offset: int | str) -> RecordFields:
    properties = {"TRANS_OFFSET": str(physical_offset), "REAL_TOPIC": "T"}
    return RecordFields(
        topic=OP, queue_offset=number, body=b"\0", properties=encode_properties(properties)
    )


def timer(number: int, due: int, unique_key: str, recalls: str | None = None) -> RecordFields:
    properties = {
        "UNIQ_KEY": unique_key, "REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": str(due),
        **({} if recalls is None else {"TIMER_DEL_UNIQKEY": f"T+{recalls}"}),
    }  # fmt: skip
    return RecordFields(
        topic=TIMER, queue_offset=number, body=b"timer", properties=encode_properties(properties)
    )


def delivered(due: int, unique_key: str) -> RecordFields:
    properties = {"UNIQ_KEY": unique_key, "TIMER_OUT_MS": str(due)}
    return RecordFields(topic="T", body=b"timer", properties=encode_properties(properties))


def built(
    path: Path, records: Sequence[RecordFields], items: Items, folder: str = "RocksDBMessageStore"
) -> Path:
    """A store of these records, with a database that has these items."""
    store = build_store(path, forge_log(records, file_bytes=1 << 14).files(), 50, 900)
    options = rocksdict.Options(raw_mode=True)
    database = rocksdict.Rdict(str(store / folder), options)
    for name in ("timer", "trans"):
        family = database.create_column_family(name, rocksdict.Options(raw_mode=True))
        for key, value in items.get(name, {}).items():
            family[key] = value
    for key, value in items.get("default", {}).items():
        database[key] = value
    database.close()
    return store


def places(records: Sequence[RecordFields]) -> list[int]:
    """The physical offset of each record."""
    log, offsets = LogForge(1 << 14), []
    for fields in records:
        offsets.append(log.end_offset)
        log.put(fields)
    return offsets


def rows(*arguments: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in run("state", *arguments, "--format", "jsonl").lines]


def trans(physical_offset: int, number: int, checks: int) -> tuple[bytes, bytes]:
    return long(physical_offset) + f"@T@U{number}".encode(), struct.pack(">ii", checks, 100)


@pytest.mark.parametrize("folder", ["RocksDBMessageStore", "rocksdbstore"])
def test_half_messages_without_a_decision_are_open(tmp_path: Path, folder: str) -> None:
    records = [half(n) for n in range(4)]
    at = places(records)
    records += [op(0, at[1]), op(1, "junk")]
    # The broker has stopped asking about the last message, and its queue has lost nothing.
    items = dict(trans(at[n], n, n + 3) for n in (0, 1, 2)) | {b"lastOffsetPy": long(at[3])}
    store = built(tmp_path / "store", records, {"trans": items}, folder)
    found = rows("transactions", store)
    assert [(row["physical_offset"], row["checks"]) for row in found] == [
        (at[0], 3), (at[2], 5), (at[3], None),
    ]  # fmt: skip
    assert {row["topic"] for row in found} == {"T"}


def test_a_lost_queue_is_an_error(tmp_path: Path) -> None:
    store = built(tmp_path / "store", [half(0), timer(0, DUE, "a")], {})
    for topic in (HALF, TIMER):
        shutil.rmtree(store / "consumequeue" / topic)
    for state in ("transactions", "timer"):
        ran = run("state", state, store)
        assert ran.code == DAMAGED
        assert "the queue is lost" in ran.err


def test_timers_wait_in_the_database_and_in_their_topic(tmp_path: Path) -> None:
    records = [
        timer(0, DUE, "old"), timer(1, DUE + 50, "copied"), timer(2, DUE + 60, "not-copied"),
        timer(3, DUE + 5000, "waits"), timer(4, DUE + 6000, "recalled"),
        delivered(DUE + 50, "copied"),
        timer(5, DUE + 7000, "new"), timer(6, DUE + 6000, "r1", recalls="recalled"),
        timer(7, DUE + 8000, "short"), timer(8, DUE + 8000, "r2", recalls="short"),
    ]  # fmt: skip
    at = places(records)
    items = {
        long(due) + name.encode(): struct.pack(">iq", 100, at[number])
        for number, due, name in (
            (0, DUE, "old"), (1, DUE + 50, "copied"), (2, DUE + 60, "not-copied"),
            (3, DUE + 5000, "waits"), (4, DUE + 6000, "recalled"),
        )
    }  # fmt: skip
    items |= {b"timeline_checkpoint": long(DUE + 1), b"sys_topic_scan_offset_checkpoint": long(5)}
    store = built(tmp_path / "store", records, {"timer": items})
    states = {row["unique_key"]: row["state"] for row in rows("timer", store, "--all")}
    assert states == {
        "old": "delivered", "copied": "delivered", "not-copied": "waiting", "waits": "waiting",
        "recalled": "recalled", "new": "waiting", "r1": "recall", "short": "recalled", "r2": "recall",
    }  # fmt: skip
    assert [row["due"] for row in rows("timer", store)] == [DUE + 60, DUE + 5000, DUE + 7000]


OWNERS = (
    ("serve", "--accept-sends", "--listen", "127.0.0.1:0"), ("put", "--topic", "T", "--body", "x"),
    ("recover",), ("recover", "--as-broker"), ("expire", "--before", "2020-01-01T00:00:00Z"),
)  # fmt: skip
"""The commands that open a store for writing."""
NOTHING: Items = {}
TIMERS: Items = {"timer": {b"timeline_checkpoint": long(DUE)}}
KEYS: Items = {"default": {long(0) + b"@T@U@u@" + long(0): long(1)}}
MARK: Items = {"default": {b"lastOffsetPy": long(0)}}


@pytest.mark.parametrize(
    ("items", "records", "kept"),
    [
        (NOTHING, [], None),
        (MARK, [], None),
        (TIMERS, [], "timers"),
        (KEYS, [], "keys"),
        ({**TIMERS, "trans": dict([trans(0, 0, 0)])}, [], "timers and transactions"),
        (NOTHING, [half(0)], "transactions"),
    ],
)
def test_a_store_whose_state_is_in_rocksdb_is_not_owned(
    tmp_path: Path, items: Items, records: list[RecordFields], kept: str | None
) -> None:
    store = built(tmp_path / "store", [*records, delivered(DUE, "u")], items)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    if kept is None:
        reput.open_store(store, mode="rw").close()
        return
    with pytest.raises(UsageError, match=f"keeps {kept} of this store in RocksDB"):
        reput.open_store(store, mode="rw")
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
    for command in OWNERS:
        ran = run(command[0], store, *command[1:])
        assert f"keeps {kept} of this store in RocksDB" in ran.err, command
        assert "only a broker of 5.4 or later can continue it" in ran.err
        assert (ran.code, len(ran.err.splitlines())) == (2, 1), command
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("folder", ["RocksDBMessageStore", "rocksdbstore"])
def test_a_database_without_its_first_file_is_damaged_and_not_missing(
    tmp_path: Path, folder: str
) -> None:
    items = {"timer": {b"last_offset_checked": long(0)}, "trans": {}}
    store = built(tmp_path / "store", [timer(0, DUE, "U0")], items, folder)
    (store / folder / "CURRENT").unlink()
    before = sorted(store.rglob("*"))
    for ran in (run("state", "timer", store), run("state", "transactions", store)):
        assert ran.code == DAMAGED
        assert f"{folder}: offset 0: RocksDB cannot read the database" in ran.err
        assert f"{folder}/CURRENT" in ran.err
    with pytest.raises(FormatError, match="cannot read the database"):
        reput.open_store(store, mode="rw")
    assert sorted(store.rglob("*")) == before
    assert "message_database" in [finding.kind for finding in reput.check(store).findings]


def test_reading_changes_nothing_in_the_folders_of_databases(tmp_path: Path) -> None:
    store = built(tmp_path / "store", [timer(0, DUE, "U0"), delivered(DUE, "U1")], KEYS)
    # The library that made this database leaves its settings, which it would write again.
    assert (store / "RocksDBMessageStore" / "rocksdict-config.json").exists()
    before = _looks(store)
    assert run("state", "timer", store).code == FOUND
    assert run("query", store, "--topic", "T", "--key", "k").code == NOT_FOUND
    reput.check(store)
    assert _looks(store) == before
    for queue in (store / "consumequeue" / "T").iterdir():
        shutil.rmtree(queue)
    reput.repair(store)
    assert _looks(store / "RocksDBMessageStore") == {
        path.relative_to("RocksDBMessageStore"): look
        for path, look in before.items()
        if path.parts[0] == "RocksDBMessageStore"
    }


def _looks(folder: Path) -> dict[Path, tuple[int, int]]:
    """Modification time and size of each file below a folder."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {
        path.relative_to(folder): (path.stat().st_mtime_ns, path.stat().st_size) for path in paths
    }


def test_a_folder_without_files_of_a_database_is_none(tmp_path: Path) -> None:
    store = built(tmp_path / "store", [delivered(DUE, "U0")], {})
    for path in (store / "RocksDBMessageStore").iterdir():
        if path.is_file() and path.name != "LOG":
            path.unlink()
    reput.open_store(store, mode="rw").close()


def test_without_rocksdict_it_is_not_owned_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = built(tmp_path / "store", [delivered(DUE, "u")], TIMERS)
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    with pytest.raises(MissingExtraError, match="rocksdict"):
        reput.open_store(store, mode="rw")
    assert "rocksdict" in run("state", "timer", store).err


@given(st.binary(max_size=40), st.sampled_from([8, 12]), st.binary(min_size=12, max_size=12))
def test_any_bytes_are_an_item_or_none(key: bytes, size: int, value: bytes) -> None:
    timed = decode_timeline_item(key, value[:size])
    assert timed is None or (timed.due > 0 and timed.physical_offset >= 0)
    transaction = decode_half_item(key, value[:size])
    assert transaction is None or transaction.physical_offset >= 0


def test_items_come_back() -> None:
    timed = TimelineItem(DUE, "U\u00fc", 100, 1 << 40)
    assert decode_timeline_item(*timed.encode()) == timed
    transaction = HalfItem(1 << 40, "T", "U", 3, 100)
    assert decode_half_item(*transaction.encode()) == transaction
    assert transaction.encode() == (long(1 << 40) + b"@T@U", struct.pack(">ii", 3, 100))


@pytest.mark.skipif(not GOLDEN.exists(), reason="needs ../shared/golden54 beside the checkout")
def test_stores_of_the_classes(tmp_path: Path) -> None:
    for name in ("trans54", "timer54"):
        with tarfile.open(GOLDEN / f"five4_{name}.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
    assert len(rows("transactions", tmp_path / "trans54")) == 20
    assert [row["state"] for row in rows("timer", tmp_path / "trans54")] == ["waiting"] * 5
    assert run("state", "timer", tmp_path / "timer54").code == NOT_FOUND
    assert run("state", "transactions", tmp_path / "trans54").code == FOUND


def test_half_messages_are_found_by_key_and_named_in_the_note_of_an_empty_answer(
    tmp_path: Path,
) -> None:
    store = built(tmp_path / "store", [half(0), op(0, 0)], {})
    with reput.open_store(store) as opened:
        assert len(opened.query(HALF, "U0").messages) == 1
        result = opened.query("T", "U0")
        assert (result.is_complete, len(result.messages)) == (True, 0)
    ran = run("query", store, "--topic", "T", "--key", "U0")
    assert "its transaction is open, or was not committed" in ran.out


def test_a_single_database_of_configurations_is_not_written(tmp_path: Path) -> None:
    store = built(tmp_path / "store", [delivered(DUE, "u")], {})
    rocksdict.Rdict(str(store / "config" / "metadata"), rocksdict.Options(raw_mode=True)).close()
    ran = run("serve", store, "--accept-sends", "--listen", "127.0.0.1:0")
    assert (ran.code, "config/metadata" in ran.err) == (2, True)
