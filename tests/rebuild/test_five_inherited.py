"""Retried messages inherit the light queues of the first attempt; a 5.x broker puts them into no light queue."""

from dataclasses import replace
from pathlib import Path

import pytest

from reput.base.tasks import SerialRunner
from reput.engine.rebuild.driver import rebuild_store
from tests.check.checking import checked
from tests.oracle.forge import RecordFields, forge_log
from tests.rebuild.rebuilding import SMALL

CONFIG = replace(SMALL, enable_lmq=True, enable_multi_dispatch=True)
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"}


def store_with_a_retry(folder: Path, is_five: bool) -> Path:
    records = [
        RecordFields(topic="T", properties=LIGHT),
        RecordFields(topic="%RETRY%g", properties=LIGHT),
    ]
    (folder / "commitlog").mkdir(parents=True)
    for start, data in forge_log(records, file_bytes=1 << 12).files():
        (folder / "commitlog" / f"{start:020d}").write_bytes(data)
    if is_five:
        (folder / "abort.bak").touch()
    return folder


@pytest.mark.parametrize(("is_five", "expected"), [(False, 2), (True, 1)])
def test_a_retry_is_in_the_light_queue_of_a_4_9_broker_alone(
    tmp_path: Path, is_five: bool, expected: int
) -> None:
    store = store_with_a_retry(tmp_path / "store", is_five)
    report = rebuild_store(SerialRunner(), store, config=CONFIG)
    assert report.queue_entries == 2 + expected
    found = {str(finding.kind) for finding in checked(store, CONFIG)}
    assert found == (set() if is_five else {"misplaced_queue_entry"})


def test_nor_is_it_in_rocksdb(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    store = store_with_a_retry(tmp_path / "store", is_five=True)
    report = rebuild_store(SerialRunner(), store, config=CONFIG, queues="rocksdb")
    assert (report.queue_entries, report.queue_entries_dropped) == (3, 0)
    assert checked(store, CONFIG) == []
