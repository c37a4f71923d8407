"""Rebuilding stores of RocketMQ 5.3.3: ConsumeQueues and IndexFiles are those of the broker, byte for byte."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.config import StoreConfig
from reput.rebuild.driver import rebuild_store
from reput.tasks import SerialRunner
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
OTHERS = ("five_default", "five_crc", "five_timer", "five_compaction", "five_tiered")
STORES = [
    "five_batch",
    "five_multipath",
    "five_dledger",
    *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS),
]


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def index_bytes(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store / "index").iterdir())]


@pytest.mark.every_case
@pytest.mark.parametrize("split_bytes", [None, 5000], ids=["whole", "split"])
@pytest.mark.parametrize("name", STORES)
def test_queues_and_index_are_those_of_the_broker(
    golden: Golden, name: str, split_bytes: int | None, tmp_path: Path
) -> None:
    store = golden(name)
    config = StoreConfig.from_broker_settings(store.config)
    report = rebuild_store(
        SerialRunner(), store.path, config=config, output=tmp_path, split_size=split_bytes
    )
    assert report.messages == len(store.messages)
    assert report.damage == []
    for folder in ("batchconsumequeue", "consumequeue"):
        assert files_below(tmp_path / folder) == files_below(store.path / folder)
    assert index_bytes(tmp_path) == index_bytes(store.path)


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["five_ext", "five_rocksdb"])
def test_index_files_do_not_depend_on_the_queues(golden: Golden, name: str, tmp_path: Path) -> None:
    store = golden(name)
    config = StoreConfig.from_broker_settings(store.config)
    rebuild_store(SerialRunner(), store.path, config=config, output=tmp_path, only="index")
    assert index_bytes(tmp_path) == index_bytes(store.path)


def test_sizes_and_topics_of_batch_queues_are_those_of_the_store(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("five_batch").path, tmp_path / "store")
    before = files_below(store / "batchconsumequeue")
    (store / "config" / "topics.json").unlink()
    rebuild_store(SerialRunner(), store)
    assert files_below(store / "batchconsumequeue") == before
