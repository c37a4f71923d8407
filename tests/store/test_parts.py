"""The parts of a store, by their names."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.core.store.parts import parts_of
from reput.io.storage import LOCAL
from tests.cli.running import reput as run
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("name", "version", "log", "queues"),
    [
        ("basic", "4.9 or 5.x", "one folder", ["ConsumeQueue files"]),
        ("five_batch", "5.x", "one folder", ["ConsumeQueue files", "batch queues"]),
        ("five_dledger", "5.x", "a DLedger log", ["ConsumeQueue files"]),
        ("five_ext", "5.x", "one folder", ["ConsumeQueue files", "extension files"]),
        ("five_multipath", "5.x", "2 folders: commitlog1, commitlog2", ["ConsumeQueue files"]),
        ("five_rocksdb", "5.x", "one folder", ["RocksDB"]),
    ],
)
def test_parts_of_golden_stores(
    golden: Golden, name: str, version: str, log: str, queues: list[str]
) -> None:
    parts = parts_of(str(golden(name).path), LOCAL)
    assert (parts.version, parts.log, parts.queues) == (version, log, queues)
    assert parts.findings == []
    printed = run("inspect", golden(name).path).out
    assert f"RocketMQ {parts.release}" in printed
    assert (f"queues in {', '.join(queues)}" in printed) == (name != "basic")


def test_what_is_not_read_or_not_known_is_reported(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "kvStore").mkdir()
    (tmp_path / "compaction" / "compactionLog" / "T").mkdir(parents=True)
    (tmp_path / "dledger-n0").mkdir()
    (tmp_path / "config" / "rdb").mkdir(parents=True)
    (tmp_path / "notes.txt").touch()
    parts = parts_of(str(tmp_path), LOCAL)
    assert parts.version == "5.x"
    assert parts.others["config/rdb"] == "configuration in RocksDB"
    assert [str(finding).removeprefix(f"{tmp_path}/") for finding in parts.findings] == [
        "notes.txt: not a part of a store that reput knows",
    ]


@pytest.mark.parametrize(
    ("folders", "release", "shown_by"),
    [
        ((), "4.9 or 5.x", None),
        (("timerlog",), "5.x", "timerlog"),
        (("timerlog", "RocksDBMessageStore"), "5.4 or later", "RocksDBMessageStore"),
        (("rocksdbstore", "RocksDBMessageStore"), "5.5 or later", "rocksdbstore"),
        (("consumequeue_rocksdb",), "5.5 or later", "consumequeue_rocksdb"),
        (("config/metadata",), "5.5 or later", "config/metadata"),
        (
            ("consumequeue/RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",), "5.4 or later",
            "consumequeue/RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        ),
    ],
)  # fmt: skip
def test_folders_show_the_release(
    tmp_path: Path, folders: tuple[str, ...], release: str, shown_by: str | None
) -> None:
    for folder in ("commitlog", *folders):
        (tmp_path / folder).mkdir(parents=True)
    parts = parts_of(str(tmp_path), LOCAL)
    assert (parts.release, parts.shown_by, parts.findings) == (release, shown_by, [])


def test_queues_in_rocksdb_show_the_release(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue"
    for path in (tmp_path / "commitlog", folder):
        path.mkdir()
    (folder / "CURRENT").touch()
    parts = parts_of(str(tmp_path), LOCAL)
    assert (parts.release, parts.shown_by) == ("5.2 or later", "consumequeue")
    # A broker of 5.3.1 was the first to write queues into both (rocksdbCQDoubleWriteEnable).
    (folder / "TopicA" / "0").mkdir(parents=True)
    parts = parts_of(str(tmp_path), LOCAL)
    assert (parts.release, parts.shown_by) == ("5.3.1 or later", "consumequeue")
    assert parts.least_version == "5.3"
    (tmp_path / "RocksDBMessageStore").mkdir()
    assert parts_of(str(tmp_path), LOCAL).release == "5.4 or later"
