"""Queries by key of a store on S3 whose IndexFiles have a broker's full size: 420 MB, of which little may be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import reput
from benchmarks.generate import MESSAGE_BYTES, order_key, topic_of, write_store
from tests.oracle.forge import LogForge, RecordFields
from tests.oracle.forge import write_store as write_files
from tests.remote.range_server import RangeServer, range_server

_MESSAGES = 1_000_000
_FILE_BYTES = 128 << 20
_HOT = b"order-hot-000000"
_EVERY = 500
_INDEX_BYTES = 420_000_040
_END_BYTES = 13 << 20
"""The allowed number of bytes to find the end of the log: a reader walks its last 8 MiB."""
_FIRST_REQUESTS, _FIRST_BYTES = 450, 30 << 20
_LATER_REQUESTS, _LATER_BYTES = 16, 2 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RangeServer]:
    """A log of 380 MB with 2,000,000 keys. One of them is in every 500th message."""
    folder = tmp_path_factory.mktemp("large")
    write_store(folder / "store", _MESSAGES * MESSAGE_BYTES, _FILE_BYTES)
    for path in (folder / "store/commitlog").iterdir():
        data = np.memmap(path, np.uint8, "r+")
        records = data[: len(data) // MESSAGE_BYTES * MESSAGE_BYTES].reshape(-1, MESSAGE_BYTES)
        at = bytes(records[0]).find(order_key(0)[:6].encode())
        hot = records[::_EVERY]
        hot[hot[:, at] == ord("o"), at : at + len(_HOT)] = np.frombuffer(_HOT, np.uint8)
        data.flush()
    reput.rebuild(folder / "store", runner="serial")
    with range_server(folder) as server:
        yield server


@pytest.mark.slow
def test_a_key_takes_few_requests_of_which_many_are_in_flight(large: RangeServer) -> None:
    local, number = large.folder / "store", _MESSAGES // 2 + 1
    (index,) = (local / "index").iterdir()
    assert index.stat().st_size == _INDEX_BYTES
    large.reset()
    large.delay_s = 0.01
    with (
        reput.open_store(local) as here,
        reput.open_store("s3://local/store", storage_options=large.options) as there,
    ):
        found = there.query(topic_of(number), order_key(number))
        assert len(found.messages) == 1
        assert found.messages == here.query(topic_of(number), order_key(number)).messages
        assert large.requests <= _FIRST_REQUESTS
        assert large.sent_bytes <= _END_BYTES + _FIRST_BYTES
        assert large.most_open >= 8
        large.reset()
        another = there.query(topic_of(5001), order_key(5001))
        assert len(another.messages) == 1
        assert large.requests <= _LATER_REQUESTS
        assert large.sent_bytes <= _LATER_BYTES


@pytest.mark.slow
def test_messages_of_a_frequent_key_are_requested_together(large: RangeServer) -> None:
    local = large.folder / "store"
    large.reset()
    large.delay_s = 0.01
    with (
        reput.open_store(local) as here,
        reput.open_store("s3://local/store", storage_options=large.options) as there,
    ):
        found = there.query(topic_of(0), _HOT.decode())
        assert len(found.messages) > 500
        assert found.messages == here.query(topic_of(0), _HOT.decode()).messages
    assert large.requests <= _FIRST_REQUESTS + 2 * len(found.messages)
    assert large.most_open >= 8


@pytest.mark.parametrize("keys", [20, 200])
def test_an_index_file_with_few_entries_is_not_read_whole(tmp_path: Path, keys: int) -> None:
    forge = LogForge(1 << 20, 0)
    for number in range(keys):
        forge.put(RecordFields("T", b"body", {"KEYS": f"k{number}"}))
    write_files(tmp_path / "store", forge.files())
    reput.rebuild(tmp_path / "store", runner="serial")
    (index,) = (tmp_path / "store/index").iterdir()
    assert index.stat().st_size == _INDEX_BYTES
    with range_server(tmp_path) as server:
        with reput.open_store("s3://local/store", storage_options=server.options) as store:
            found = store.query("T", "k0")
        assert [message.body for message in found.messages] == [b"body"]
        assert found.coverage.indexed
        assert server.sent_bytes <= 24 << 20  # 20 MB of slots, and a few MB for the rest
