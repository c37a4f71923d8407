"""`reput lag`: committed offsets against the ends of queues."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from tests.cli.running import one_line
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    """A store with batch queues, and the offsets of two groups as a broker writes them: names of maps unquoted."""
    copy = copy_store(golden("five_batch").path, tmp_path / "store")
    (copy / "config" / "consumerOffset.json").write_text(
        '{\n\t"offsetTable":{\n\t\t"Batch2@billing":{0:1373,1:1000\n\t\t},'
        '"Gone@billing":{0:7\n\t\t},"Batch2@audit":{0:0\n\t\t}\n\t}\n}'
    )
    return copy


def test_every_committed_queue_is_compared_with_its_end(store: Path) -> None:
    ran = run("lag", store, "--json")
    rows = [json.loads(line) for line in ran.lines]
    assert ran.code == FOUND
    assert [(r["group"], r["topic"], r["queue_id"], r["max_offset"], r["lag"]) for r in rows] == [
        ("audit", "Batch2", 0, 1373, 1373),
        ("billing", "Batch2", 0, 1373, 0),
        ("billing", "Batch2", 1, 1274, 274),
        ("billing", "Gone", 0, None, None),
    ]
    assert all(row["expired"] == 0 for row in rows)
    printed = run("lag", store, "--group", "billing", "--topic", "Batch2").lines
    assert [line.split() for line in printed[1:]] == [
        ["billing", "Batch2", "0", "1,373", "1,373", "0", "0"],
        ["billing", "Batch2", "1", "1,000", "1,274", "274", "0"],
    ]


def test_without_offsets_nothing_is_found(golden: Golden) -> None:
    ran = run("lag", golden("five_batch").path)
    assert (ran.code, ran.out) == (NOT_FOUND, "")


def test_a_damaged_file_of_offsets_is_one_line(store: Path) -> None:
    (store / "config" / "consumerOffset.json").write_text("{")
    ran = run("lag", store)
    assert ran.code == DAMAGED
    assert "consumerOffset.json" in one_line(ran)


def test_offsets_in_rocksdb_are_refused(golden: Golden, tmp_path: Path) -> None:
    copy = copy_store(golden("five_rocksdb").path, tmp_path / "store")
    (copy / "config" / "rdb").mkdir(parents=True)
    assert "consumer offsets in RocksDB are not read" in one_line(run("lag", copy))
