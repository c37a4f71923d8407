"""Exact queries return all messages with the key, and no others, newest first. Also their pages and their coverage."""

from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.core.query.evidence import Coverage
from reput.core.store.store_reader import StoreReader
from reput.errors import UsageError
from reput.format.index_file import index_key, key_hash
from tests.golden.stores import EVERY_STORE, SHIPPED, GoldenStore
from tests.golden.tables import QueryRow
from tests.oracle.forge import RecordFields, forge_log
from tests.oracle.random_logs import LogOptions, random_log
from tests.query.stores import (
    ROLLBACK,
    Keyed,
    build_store,
    expected_offsets,
    keyed_messages,
    offsets,
    walked_messages,
)
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]
_SAMPLED_KEYS = 300
_ANY_TIME = (-(2**63), 2**63 - 1)


def distinct_queries(store: GoldenStore) -> list[QueryRow]:
    """Return each topic, key and window once."""
    found = {(q.topic, q.key, q.begin, q.end): q for q in store.queries}
    return list(found.values())


def sampled_keys(keyed: Keyed) -> list[tuple[str, str]]:
    keys = sorted(keyed)
    return keys[:: max(len(keys) // _SAMPLED_KEYS, 1)]


def assert_whole(coverage: Coverage, store: GoldenStore) -> None:
    """Indexed and scanned ranges cover the whole log, without gap or overlap."""
    last = store.messages[-1]
    assert coverage.log == (store.messages[0].physical_offset, last.physical_offset + last.size)
    assert coverage.unreadable == ()
    assert coverage.problems == ()
    ranges = sorted([part[:2] for part in coverage.indexed] + [*coverage.scanned])
    assert ranges[0][0] == coverage.log.start
    assert ranges[-1][1] == coverage.log.stop
    assert [stop for _, stop in ranges[:-1]] == [start for start, _ in ranges[1:]]


@pytest.mark.parametrize("name", slow_from(len(SHIPPED), EVERY_STORE))
def test_every_golden_query_finds_what_a_scan_of_the_messages_finds(
    golden: Golden, name: str
) -> None:
    store = golden(name)
    keyed = keyed_messages(store.messages)
    queries = distinct_queries(store)
    # For each such query of `defaults`, tens of thousands of messages with one key are read.
    queries = queries[::40] if name == "defaults" else queries
    wrong = []
    with reput.open_store(store.path) as opened:
        for query in queries:
            asked = (query.topic, query.key, query.begin, query.end)
            found = opened.query(*asked)
            assert_whole(found.coverage, store)
            assert found.cursor is None
            if offsets(found) != expected_offsets(keyed, *asked):
                wrong.append(asked)
    assert wrong == []


@pytest.mark.parametrize("name", slow_from(len(SHIPPED), EVERY_STORE))
def test_keys_of_messages_are_found(golden: Golden, name: str) -> None:
    store = golden(name)
    keyed = keyed_messages(store.messages)
    with reput.open_store(store.path) as opened:
        for topic, key in sampled_keys(keyed):
            found = opened.query(topic, key)
            assert offsets(found) == expected_offsets(keyed, topic, key, *_ANY_TIME)
            assert {message.topic for message in found.messages} == {topic}


def test_messages_are_the_ones_that_lie_there(golden: Golden) -> None:
    store = golden("tricky")
    rows = {row.physical_offset: row for row in store.messages}
    topic, key = max(keyed_messages(store.messages).items(), key=lambda item: len(item[1]))[0]
    with reput.open_store(store.path) as opened:
        found = opened.query(topic, key)
        assert len(found.messages) > 10
        for message in found.messages:
            assert message == opened.get(message.physical_offset)
            row = rows[message.physical_offset]
            assert (message.queue_offset, message.size_bytes) == (row.queue_offset, row.size)


def test_a_collision_of_hashes_never_shows(tmp_path: Path) -> None:
    colliding = "AaAa", "BBBB", "AaBB"
    assert len({key_hash(index_key("T", key)) for key in colliding}) == 1
    records = [
        RecordFields(topic="T", properties={"KEYS": key}) for key in colliding for _ in range(3)
    ]
    # Both are hashed as the string "a#b#c", but differ in topic and key.
    records += [
        RecordFields(topic="a", properties={"KEYS": "b#c"}),
        RecordFields(topic="a#b", properties={"KEYS": "c"}),
    ]
    log = forge_log(records * 3, file_bytes=4096)
    path = build_store(tmp_path / "store", log.files(), hash_slots=5, index_items=8)
    keyed = walked_messages(path)
    with reput.open_store(path) as opened:
        for topic, key in keyed:
            found = opened.query(topic, key)
            assert offsets(found) == sorted(keyed[topic, key], reverse=True)
            assert found.coverage.indexed
        assert len(opened.index.offsets("T", "AaAa")) == 27
        assert opened.query("T", "BBAa").messages == ()


def test_a_rolled_back_message_has_no_keys_in_index_or_scan(tmp_path: Path) -> None:
    properties = {"KEYS": "k", "UNIQ_KEY": "u"}
    records = [RecordFields(properties=properties, sys_flag=flag) for flag in (0, ROLLBACK, 4, 8)]
    log = forge_log(records, file_bytes=4096)
    indexed = build_store(tmp_path / "indexed", log.files(), hash_slots=5, index_items=8)
    bare = build_store(tmp_path / "bare", log.files(), hash_slots=5, index_items=8)
    next((bare / "index").iterdir()).unlink()
    expected = [log.offsets[3], log.offsets[2], log.offsets[0]]
    for path in (indexed, bare):
        with reput.open_store(path) as opened:
            assert offsets(opened.query("T", "k")) == expected
            assert offsets(opened.query("T", "u")) == expected


@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
@pytest.mark.parametrize("has_index", [True, False])
def test_pages_are_the_whole_answer_cut(golden: Golden, limit: int, has_index: bool) -> None:
    store = golden("basic")
    index = store.path if has_index else store.path / "commitlog"
    row = next(q for q in store.queries if q.key == "K1")
    keyed = keyed_messages(store.messages)
    expected = expected_offsets(keyed, row.topic, row.key, *_ANY_TIME)
    assert len(expected) > 20
    pages: list[list[int]] = []
    cursor: int | None = None
    with reput.open_store(store.path, index=index) as opened:
        while len(pages) <= len(expected):
            found = opened.query(row.topic, row.key, limit=limit, after=cursor)
            pages.append(offsets(found))
            start, stop = found.coverage.log
            assert start <= min(pages[-1]) <= max(pages[-1]) < stop
            cursor = found.cursor
            if cursor is None:
                break
            assert cursor == start == pages[-1][-1]
    assert [offset for page in pages for offset in page] == expected
    assert all(len(page) == limit for page in pages[:-1])


def test_a_limit_that_is_just_reached_has_no_cursor(golden: Golden) -> None:
    store = golden("orders")
    with reput.open_store(store.path) as opened:
        count = len(opened.query("orders", "customer-48").messages)
        assert opened.query("orders", "customer-48", limit=count).cursor is None
        assert opened.query("orders", "customer-48", limit=count - 1).cursor is not None


def test_times_are_compared_in_milliseconds_on_the_message_itself(golden: Golden) -> None:
    store = golden("timed")
    keyed = keyed_messages(store.messages)
    (topic, key), stored = max(keyed.items(), key=lambda item: len(item[1]))
    with reput.open_store(store.path) as opened:
        for time in sorted(set(stored.values()))[::50]:
            for begin, end in ((time, time), (time + 1, time + 1), (time - 999, time)):
                found = offsets(opened.query(topic, key, begin, end))
                assert found == expected_offsets(keyed, topic, key, begin, end)


@pytest.mark.parametrize("seed", slow_from(20, range(40)))
def test_random_logs(tmp_path: Path, seed: int) -> None:
    start = 4096 * (seed % 3)
    log = random_log(seed, LogOptions(records=150, start_offset=start))
    path = build_store(tmp_path / "store", log.files, hash_slots=7, index_items=30)
    keyed = walked_messages(path)
    with reput.open_store(path) as opened, reput.open_store(path, index=tmp_path) as bare:
        for topic, key in keyed:
            expected = sorted(keyed[topic, key], reverse=True)
            assert offsets(opened.query(topic, key)) == expected
            assert offsets(bare.query(topic, key)) == expected


@pytest.mark.parametrize("seed", range(10))
def test_messages_that_misstate_their_place_are_found_where_they_lie(
    tmp_path: Path, seed: int
) -> None:
    log = random_log(seed, LogOptions(records=150, irregular=True))
    path = build_store(tmp_path / "store", log.files, hash_slots=7, index_items=30)
    keyed = walked_messages(path)
    with reput.open_store(path, index=tmp_path) as bare:
        for topic, key in keyed:
            assert offsets(bare.query(topic, key)) == sorted(keyed[topic, key], reverse=True)


def test_wrong_use_is_told(golden: Golden) -> None:
    with reput.open_store(golden("lmq").path) as opened:
        for limit in (0, -1):
            with pytest.raises(UsageError, match="limit must be at least 1"):
                opened.query("T", "k", limit=limit)
    with pytest.raises(UsageError, match="closed"):
        opened.query("T", "k")
    with pytest.raises(UsageError, match=r"must be 'r' \(read\) or 'rw' \(own"):
        reput.open_store(golden("lmq").path, "w")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="not both"):
        StoreReader(golden("lmq").path, config=reput.StoreConfig(), broker_config="broker.conf")


@pytest.mark.parametrize("name", ["orders", "basic", "tricky"])
def test_a_key_in_whichever_topic(golden: Golden, name: str) -> None:
    store = golden(name)
    keyed = keyed_messages(store.messages)
    with reput.open_store(store.path) as opened:
        for _, key in sampled_keys(keyed)[::10]:
            found = opened.query(None, key)
            assert_whole(found.coverage, store)
            anywhere = {offset for (_, own), rows in keyed.items() if own == key for offset in rows}
            assert offsets(found) == sorted(anywhere, reverse=True), key
