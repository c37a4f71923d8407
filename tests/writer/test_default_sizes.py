"""A store with a broker's default sizes. Its files have gigabytes, so it is slow to read."""

from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from tests.recovery.checking import check_store

_QUEUE_ENTRIES = 300_000  # entries of one ConsumeQueue file
_BODY_BYTES = 4_000_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_files_of_default_sizes_are_rolled_and_read_by_the_oracle(tmp_path: Path) -> None:
    path, config = tmp_path / "store", StoreConfig()
    count = _QUEUE_ENTRIES + 1000
    with reput.open_store(path, mode="rw") as store:
        store.put_columns({"topic": "small", "body": [b"x"] * count})
        for number in range(config.commit_log_file_bytes // _BODY_BYTES):
            store.put(
                reput.Message("large", bytes([number % 256]) * _BODY_BYTES, keys=[f"k{number}"])
            )
        assert store.wait_dispatched()
    assert len(list((path / "commitlog").iterdir())) == 2
    assert len(list((path / "consumequeue" / "small" / "0").iterdir())) == 2
    check_store(path, config)
    with reput.open_store(path) as reader:
        (message,) = reader.query("large", "k7").messages
        assert message.body == bytes([7]) * _BODY_BYTES
        assert reader.max_queue_offset("small", 0) == count
