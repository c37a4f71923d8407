"""The check of healthy stores of RocketMQ 5.3.3: a broker's own actions are not findings."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reput.base.config import StoreConfig
from tests.check.checking import checked, kinds
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_FIVE, GoldenStore
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]
STORES = slow_from(8, EVERY_FIVE)


@pytest.mark.every_case
@pytest.mark.parametrize("name", STORES)
def test_a_valid_store_has_no_findings(golden: Golden, name: str) -> None:
    store = golden(name)
    config = StoreConfig.from_broker_settings(store.config)
    assert checked(store.path, config) == []
    assert checked(store.path, config, quick=True) == []
    assert checked(store.path) == []


@pytest.mark.parametrize("name", ["five_rocksdb", "five_batch", "five_multipath"])
def test_a_store_in_use_is_checked_as_far_as_it_is_dispatched(
    golden: Golden, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.io.is_locked", lambda path: True)
    source = golden(name)
    store = copy_store(source.path, tmp_path / "store")
    config = replace(StoreConfig.from_broker_settings(source.config), log_folders=())
    assert kinds(checked(store, config)) == {"store_in_use"}
    row = max(source.messages[:-50], key=lambda row: (row.body_length > 20, row.physical_offset))
    file = max(
        (path for path in store.glob("commitlog*/*") if int(path.name) <= row.physical_offset),
        key=lambda path: path.name,
    )
    data = bytearray(file.read_bytes())
    data[row.physical_offset - int(file.name) + 90] ^= 1  # a byte of the body
    file.write_bytes(data)
    assert kinds(checked(store, config)) == {"store_in_use", "body_crc"}
