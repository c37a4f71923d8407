"""The oracle against the broker: every byte of every index file and every answer it gave."""

import zlib
from collections.abc import Callable
from functools import cache
from ipaddress import ip_address

import pytest

from tests.golden.stores import EVERY_STORE, GoldenStore, TornCase
from tests.golden.tables import MessageRow
from tests.oracle.brute import query_exact
from tests.oracle.comparing import (
    different_queue_files,
    index_paths,
    read_index,
    same_bytes,
    wrong_answers,
)
from tests.oracle.consume_queue import write_consume_queues
from tests.oracle.index_file import write_index_files
from tests.oracle.query import CommitLogView
from tests.oracle.records import Record
from tests.oracle.walk import LogListing, Walk, read_log, walk

Golden = Callable[[str], GoldenStore]
STORES = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "defaults" else [])
    for name in EVERY_STORE
]


class Walked:
    """A golden store, its log files, and the result of the oracle's walk over them."""

    def __init__(self, store: GoldenStore) -> None:
        self.store = store
        self.log: LogListing = read_log(store.path)
        self.walk: Walk = walk(self.log)


@pytest.fixture(scope="module")
def walked(golden: Golden) -> Callable[[str], Walked]:
    @cache
    def one(name: str) -> Walked:
        return Walked(golden(name))

    return one


def host_text(host: tuple[bytes, int]) -> str:
    """Return a host as Java prints a socket address."""
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
    queues = write_consume_queues(
        it.walk.dispatched,
        file_bytes=it.store.consume_queue_file_bytes,
        enable_multi_dispatch=it.store.enable_multi_dispatch,
        enable_lmq=it.store.enable_lmq,
    )
    assert len(queues) == len(it.store.queues)
    assert different_queue_files(it.store.path, queues) == []


@pytest.mark.parametrize("name", STORES)
def test_index_files_are_the_brokers(walked: Callable[[str], Walked], name: str) -> None:
    it = walked(name)
    broker = index_paths(it.store.path)
    ours = write_index_files(
        it.walk.dispatched, hash_slots=it.store.hash_slots, index_items=it.store.index_items
    )
    assert len(ours) == len(broker)
    pairs = zip(ours, broker, strict=True)
    assert [p.name for file, p in pairs if not same_bytes(p, file.used_bytes(), file.size)] == []


@pytest.mark.parametrize("name", STORES)
def test_queries_are_answered_as_the_broker_did(walked: Callable[[str], Walked], name: str) -> None:
    it = walked(name)
    index = read_index(it.store.path, it.store.hash_slots)
    log = CommitLogView(it.log, it.walk.end_offset)
    assert wrong_answers(log, index, it.store.queries, it.store.answers) == []


@pytest.mark.parametrize("name", ["basic", "lmq", "timed", "tricky"])
def test_brute_force_finds_what_the_broker_did(walked: Callable[[str], Walked], name: str) -> None:
    it = walked(name)
    records = dict(it.walk.records)
    compared = 0
    for query, answer in zip(it.store.queries, it.store.answers, strict=True):
        # Only queries where the key alone decides: without a cap or a time bound that has an effect.
        open_window = query.begin == 0 and query.end == 2**63 - 1
        if not open_window or len(answer.query_offset) >= min(query.max_num, 64):
            continue
        true_hits = {
            offset
            for offset in answer.query_message
            if records[offset].topic == query.topic and query.key in records[offset].index_keys
        }
        exact = query_exact(it.walk.records, query.topic, query.key, query.begin, query.end)
        assert exact == sorted(true_hits, reverse=True), query
        compared += bool(exact)
        if compared == 30:
            break
    assert compared >= 20


# Stores of which a serial dispatch of the whole log explains every byte, although queue offsets start again, a
# preallocated file is empty, IndexFiles have few items, or messages were put after a restart.
EXPLAINED = [
    ("lmq_restart", "before"),
    ("lmq_restart", "after"),
    ("kill9", "before"),
    ("name_collision", "before"),
    ("checkpoint_missing_abort", "after_more"),
]


@pytest.mark.parametrize(("case", "which"), EXPLAINED)
def test_indexes_of_restarted_stores(
    torn: Callable[[str], TornCase], case: str, which: str
) -> None:
    it = torn(case)
    store = it.root / which
    found = walk(read_log(store))
    queues = write_consume_queues(
        found.dispatched,
        file_bytes=it.consume_queue_file_bytes,
        enable_multi_dispatch=it.enable_multi_dispatch,
        enable_lmq=it.enable_lmq,
    )
    ours = write_index_files(found.dispatched, hash_slots=it.hash_slots, index_items=it.index_items)
    assert different_queue_files(store, queues) == []
    assert [file.to_bytes() for file in ours] == [p.read_bytes() for p in index_paths(store)]


def test_a_torn_last_record_is_the_end_of_the_log(torn: Callable[[str], TornCase]) -> None:
    case = torn("tail_noabort")
    found = walk(read_log(case.before))
    last = case.messages[-1]
    assert found.damage == []
    assert found.end_offset == last.physical_offset + last.size
    assert [row_of(*pair) for pair in found.records] == case.messages


ANSWERED = [
    *("abort_clean", "cq_last_entry_zeroed", "crc_late_noabort", "index_count_zero_noabort"),
    *("index_deleted_abort", "index_deleted_noabort", "index_header_zero_noabort"),
    *("index_junk_file", "index_last_entry_half", "index_short_file", "kill9"),
    *("magic_first_lastfile_abort", "size_bigger_noabort", "tail_noabort"),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", ANSWERED)
def test_queries_of_damaged_stores_are_answered_as_the_broker_did(
    torn: Callable[[str], TornCase], case: str
) -> None:
    it = torn(case)
    last = it.messages[-1]
    log = CommitLogView(read_log(it.after), last.physical_offset + last.size)
    index = read_index(it.after, it.hash_slots)
    assert wrong_answers(log, index, it.queries, it.answers) == []
