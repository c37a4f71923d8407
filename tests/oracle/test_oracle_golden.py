"""The oracle against the broker: every byte of every index file and every answer it gave."""

import zlib
from collections.abc import Callable
from functools import cache
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.golden.sparse import data_ranges
from tests.golden.stores import EVERY_STORE, GoldenStore
from tests.golden.tables import MessageRow
from tests.oracle.consume_queue import write_consume_queues
from tests.oracle.index_file import write_index_files
from tests.oracle.query import (
    CommitLogView,
    IndexView,
    client_matched,
    query_message,
    query_offset,
)
from tests.oracle.records import Record
from tests.oracle.walk import LogFiles, Walk, read_file, read_log, walk

Golden = Callable[[str], GoldenStore]
STORES = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "defaults" else [])
    for name in EVERY_STORE
]


class Walked:
    """A golden store, its log files and what the oracle's walk finds in them."""

    def __init__(self, store: GoldenStore) -> None:
        self.store = store
        self.log: LogFiles = read_log(store.path)
        self.walk: Walk = walk(self.log)


@pytest.fixture(scope="module")
def walked(golden: Golden) -> Callable[[str], Walked]:
    @cache
    def one(name: str) -> Walked:
        return Walked(golden(name))

    return one


def host_text(host: tuple[bytes, int]) -> str:
    """A host as Java prints a socket address."""
    address, port = host
    if len(address) == 4:
        return f"{ip_address(address)}:{port}"
    groups = [int.from_bytes(address[i : i + 2], "big") for i in range(0, 16, 2)]
    return f"[{':'.join(f'{group:x}' for group in groups)}]:{port}"


def row_of(offset: int, record: Record) -> MessageRow:
    return MessageRow(
        physical_offset=offset,
        size=record.total_size,
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        tags_code=record.tags_code,
        store_timestamp=record.store_timestamp,
        sys_flag=record.sys_flag,
        keys=record.keys,
        uniq_key=record.uniq_key,
        body_crc=zlib.crc32(record.body) & 0x7FFFFFFF,
        body_length=len(record.body),
        flag=record.flag,
        born_timestamp=record.born_timestamp,
        born_host=host_text(record.born_host),
        store_host=host_text(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        properties=record.properties_string,
    )


@pytest.mark.parametrize("name", STORES)
def test_the_walk_finds_every_record_and_blank(walked: Callable[[str], Walked], name: str) -> None:
    it = walked(name)
    assert [row_of(offset, record) for offset, record in it.walk.records] == it.store.messages
    assert all(offset == record.physical_offset for offset, record in it.walk.records)
    assert it.walk.blanks == [(b.physical_offset, b.declared_size) for b in it.store.blanks]
    assert it.walk.damage == []
    last = it.store.messages[-1]
    assert it.walk.end_offset == last.physical_offset + last.size


@pytest.mark.parametrize("name", STORES)
def test_consume_queues_are_the_brokers(walked: Callable[[str], Walked], name: str) -> None:
    it = walked(name)
    root = it.store.path / "consumequeue"
    broker = {str(path.relative_to(root)): path for path in root.glob("*/*/*")}
    queues = write_consume_queues(
        it.walk.dispatched,
        file_bytes=it.store.consume_queue_file_bytes,
        enable_multi_dispatch=it.store.enable_multi_dispatch,
        enable_lmq=it.store.enable_lmq,
    )
    ours = {
        f"{topic}/{queue_id}/{file}": data
        for (topic, queue_id), files in queues.items()
        for file, data in files.items()
    }
    assert sorted(ours) == sorted(broker)
    assert [file for file in ours if ours[file] != broker[file].read_bytes()] == []


def same_bytes(path: Path, used: bytes, size: int) -> bool:
    """Whether a file is `used` and then zeros up to `size`; holes are not read."""
    data = read_file(path)
    if len(data) != size or data[: len(used)] != used:
        return False
    return not any(any(data[max(start, len(used)) : end]) for start, end in data_ranges(path))


@pytest.mark.parametrize("name", STORES)
def test_index_files_are_the_brokers(walked: Callable[[str], Walked], name: str) -> None:
    it = walked(name)
    broker = sorted((it.store.path / "index").iterdir())
    ours = write_index_files(
        it.walk.dispatched, hash_slots=it.store.hash_slots, index_items=it.store.index_items
    )
    assert len(ours) == len(broker)
    assert [
        path.name
        for file, path in zip(ours, broker, strict=True)
        if not same_bytes(path, file.used_bytes(), file.size)
    ] == []


@pytest.mark.parametrize("name", STORES)
def test_queries_are_answered_as_the_broker_did(walked: Callable[[str], Walked], name: str) -> None:
    it = walked(name)
    index = [
        IndexView(read_file(path), it.store.hash_slots)
        for path in sorted((it.store.path / "index").iterdir())
    ]
    log = CommitLogView(it.log, it.walk.end_offset)
    wrong = []
    for query, answer in zip(it.store.queries, it.store.answers, strict=True):
        asked = (query.topic, query.key, query.max_num, query.begin, query.end)
        if answer.error is not None:
            with pytest.raises(ValueError, match="IllegalArgumentException"):
                query_message(log, index, *asked)
            continue
        by_index, by_store = query_offset(index, *asked), query_message(log, index, *asked)
        ours = (
            by_index.last_update_timestamp,
            by_index.last_update_physical_offset,
            by_index.offsets,
            by_store.last_update_timestamp,
            by_store.last_update_physical_offset,
            by_store.offsets,
            client_matched(log, by_store.offsets, query.topic, query.key),
        )
        theirs = (
            answer.index_last_update_timestamp,
            answer.index_last_update_physical_offset,
            answer.query_offset,
            answer.message_last_update_timestamp,
            answer.message_last_update_physical_offset,
            answer.query_message,
            answer.client_matched,
        )
        if ours != theirs:
            wrong.append((answer.number, ours, theirs))
    assert wrong == []
