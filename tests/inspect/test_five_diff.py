"""Compare two stores of 5.x: their queues, in any kind of file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reput.base.config import StoreConfig
from reput.base.tasks import SerialRunner
from reput.engine.rebuild.driver import rebuild_store
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.mark.parametrize("name", ["five_batch", "five_rocksdb", "five_ext", "five_dledger"])
def test_a_store_is_the_same_as_itself(golden: Golden, name: str) -> None:
    ran = reput("diff", golden(name).path, golden(name).path)
    assert (ran.code, ran.lines[-1]) == (0, "The stores are the same.")


def test_entries_that_one_database_lacks_are_found(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_rocksdb")
    store = copy_store(source.path, tmp_path / "store")
    config = replace(StoreConfig.from_broker_settings(source.config), enable_lmq=False)
    rebuild_store(SerialRunner(), store, config=config, only="consumequeue")
    ran = reput("diff", source.path, store)
    assert ran.code == 1
    (line,) = (line for line in ran.lines if line.startswith("ConsumeQueue entries"))
    assert line.split()[-3:] == ["366", "0", "0"]


def test_a_batch_entry_that_differs_is_found(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_batch").path
    store = copy_store(source, tmp_path / "store")
    path = store / "batchconsumequeue" / "BatchTopic" / "0" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[46 + 19] ^= 1  # a byte of a tags code
    path.write_bytes(data)
    ran = reput("diff", source, store)
    (line,) = (line for line in ran.lines if line.startswith("ConsumeQueue entries"))
    assert (ran.code, line.split()[-3:]) == (1, ["0", "0", "1"])
