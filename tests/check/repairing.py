"""Repairs in tests: small damaged stores, their contents, and the rules by which a 4.9.3 broker starts."""

from pathlib import Path
from zlib import crc32

from reput.base.config import StoreConfig
from reput.engine.check.repairing.driver import plan_repair, repair_store
from reput.engine.check.repairing.plan import Plan
from tests.oracle.forge import LogForge, RecordFields, body_position, overwrite
from tests.oracle.walk import read_log, walk
from tests.query.stores import build_store

SMALL = StoreConfig(commit_log_file_bytes=4096, queue_entries=30, hash_slots=11, index_items=40)
_RECORDS = 90


def damaged_store(path: Path, word: str = "") -> Path:
    """Return a store of some log files: a wrong CRC in the second, a torn end, a missing queue, and an `abort` file.

    Every body and key has the word.
    """
    forge = LogForge(SMALL.commit_log_file_bytes)
    numbers: dict[tuple[str, int], int] = {}
    for count in range(_RECORDS):
        queue = ("A", count % 2) if count % 3 else ("B", 0)
        number = numbers.get(queue, 0)
        numbers[queue] = number + 1
        fields = RecordFields(
            topic=queue[0], queue_id=queue[1], queue_offset=number, body=b"x" * (count % 40 + 1) + word.encode(),
            properties={"KEYS": f"{word}k{count} all", "TAGS": "t"}, store_timestamp=1_700_000_000_000 + count,
        )  # fmt: skip
        forge.put(fields)
    files = forge.files()
    build_store(path, files, SMALL.hash_slots, SMALL.index_items)
    offset = second_record_of_second_file(path)
    end = walk(read_log(path)).end_offset
    files = overwrite(files, offset + body_position(RecordFields()), b"y")
    files = overwrite(files, end, b"torn" * 5)
    for start, data in files:
        (path / "commitlog" / f"{start:020d}").write_bytes(data)
    for file in (path / "consumequeue" / "A" / "1").iterdir():
        file.unlink()
    (path / "consumequeue" / "A" / "1").rmdir()
    (path / "abort").touch()
    (path / "lock").write_bytes(b"lock")
    (path / "config").mkdir()
    (path / "config" / "topics.json").write_bytes(b"{}")
    return path


def second_record_of_second_file(path: Path) -> int:
    start = SMALL.commit_log_file_bytes
    return next(offset for offset, _ in walk(read_log(path)).records if offset > start)


def held(store: Path) -> dict[str, bytes]:
    """Return every file below a store with its bytes, except `lock`."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def full_plan(store: Path, config: StoreConfig | None = SMALL) -> Plan:
    return plan_repair(store, config=config, truncate_tail=True, salvage=True)


def repaired(store: Path, config: StoreConfig | None = SMALL) -> Plan:
    """Plan and repair with every option."""
    plan = full_plan(store, config)
    repair_store(plan)
    return plan


def assert_a_broker_starts(store: Path, config: StoreConfig) -> None:
    """Check the conditions of 4.9.3 to start and keep everything (`load`, `recoverNormally`, `IndexService.load`)."""
    log = sorted((store / "commitlog").iterdir())
    sizes = {path.stat().st_size for path in log}
    assert len(sizes) == 1
    size = sizes.pop()
    assert [int(path.name) - int(log[0].name) for path in log] == [
        n * size for n in range(len(log))
    ]
    assert {path.stat().st_size for path in store.glob("consumequeue/*/*/*")} <= {
        config.queue_file_bytes
    }
    assert not (store / "abort").exists()
    found = walk(read_log(store))
    assert found.damage == []
    for offset, record in found.records:
        assert offset == record.physical_offset
        if record.body:
            assert record.body_crc == crc32(record.body) & 0x7FFFFFFF
    checkpoint = (store / "checkpoint").read_bytes()
    assert len(checkpoint) == 4096
    logged, queued, indexed = (
        int.from_bytes(checkpoint[at : at + 8], "big", signed=True) for at in (0, 8, 16)
    )
    assert logged == queued == found.records[-1][1].store_timestamp
    for path in (store / "index").iterdir():
        if path.name.isdigit():  # a broker deletes IndexFiles that end after the checkpoint's time
            assert int.from_bytes(path.read_bytes()[8:16], "big", signed=True) <= indexed
