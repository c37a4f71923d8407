"""Golden stores on a real S3 API server: query, show, tail and inspect answer as on a local disk.

Requests are counted: a store far away must not be read byte by byte, nor whole.
"""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import pytest

import reput
from reput.base.findings import Finding
from reput.core.query.answers import QueryResult
from reput.engine.messages.tail import LogTail, TailFilter
from reput.errors import StoreNotFoundError, UsageError
from reput.wings.inspect.inspection import inspect
from tests.golden.stores import GoldenStore
from tests.remote.conftest import Pair
from tests.remote.s3_server import counted_requests

_QUERIES = 12
_REQUESTS_OF_A_FILE = 4  # one to open it, one to check the IndexFile, one to search it
_REQUESTS_TO_OPEN = 10
_REQUESTS_TO_ANSWER_AGAIN = 6


def _as_local(pair: Pair, result: QueryResult) -> QueryResult:
    def local(findings: Iterable[Finding]) -> tuple[Finding, ...]:
        return tuple(
            replace(each, file=pair.as_local(each.file), detail=pair.as_local(each.detail))
            for each in findings
        )

    found = result.coverage
    coverage = replace(found, unreadable=local(found.unreadable), problems=local(found.problems))
    return replace(result, coverage=coverage)


def _reads(requests: list[str]) -> int:
    """Return the number of requests, without listings: a reader repeats its listing once per second."""
    return sum("list-type=" not in line for line in requests)


def _queries(store: GoldenStore) -> list[tuple[str, str]]:
    asked = list(dict.fromkeys((query.topic, query.key) for query in store.queries))
    return asked[:: max(len(asked) // _QUERIES, 1)]


def test_queries_by_key_answer_as_locally_in_few_requests(pair: Pair) -> None:
    asked = _queries(pair.golden)
    with reput.open_store(pair.golden.path) as here, pair.open() as there:
        with counted_requests() as requests:
            first = there.query(*asked[0])
        files = [
            *(pair.golden.path / "commitlog").iterdir(),
            *(pair.golden.path / "index").iterdir(),
        ]
        assert _reads(requests) <= _REQUESTS_TO_OPEN + _REQUESTS_OF_A_FILE * len(files)
        assert _as_local(pair, first) == here.query(*asked[0])
        for topic, key in asked:
            with counted_requests() as requests:
                answer = there.query(topic, key)
            assert _reads(requests) <= _REQUESTS_TO_ANSWER_AGAIN
            assert _as_local(pair, answer) == here.query(topic, key)


def test_a_table_finds_keys_as_locally(pair: Pair) -> None:
    for topic, key in _queries(pair.golden)[:3]:
        here = reput.dataset(pair.golden.path, topic=topic, key=key).to_table()
        elsewhere = reput.dataset(pair.url, topic=topic, key=key, storage_options=pair.options)
        there = elsewhere.to_table()
        assert there.drop(["store"]).equals(here.drop(["store"]))


def test_a_broker_s_answers_are_the_same(pair: Pair) -> None:
    with reput.open_store(pair.golden.path) as here, pair.open() as there:
        for query in pair.golden.queries[:: max(len(pair.golden.queries) // _QUERIES, 1)]:
            row = asdict(query).values()
            assert there.query_offset(*row) == here.query_offset(*row)
            assert there.query_message(*row) == here.query_message(*row)


def test_messages_by_offset_id_and_place_in_a_queue_are_the_same(pair: Pair) -> None:
    rows = pair.golden.messages[:: max(len(pair.golden.messages) // _QUERIES, 1)]
    with reput.open_store(pair.golden.path) as here, pair.open() as there:
        topics = here.queues.topics()
        assert there.queues.topics() == topics
        assert there.queues.list() == here.queues.list()
        for row in rows:
            message = there.get(row.physical_offset)
            assert message == here.get(row.physical_offset)
            unique_key = message.properties.get("UNIQ_KEY")
            if unique_key and message.topic in topics:
                found = there.find_by_id(unique_key, message.topic)
                assert found.messages == here.find_by_id(unique_key, message.topic).messages
        for topic, queue_id in here.queues.list()[:_QUERIES]:
            begin, end = (
                here.min_queue_offset(topic, queue_id),
                here.max_queue_offset(topic, queue_id),
            )
            assert there.min_queue_offset(topic, queue_id) == begin
            assert there.max_queue_offset(topic, queue_id) == end
            assert there.pull(topic, queue_id, begin) == here.pull(topic, queue_id, begin)
        assert there.end_offset() == here.end_offset()
        assert there.checkpoint() == here.checkpoint()


def test_the_last_messages_are_the_same(pair: Pair) -> None:
    with reput.open_store(pair.golden.path) as here, pair.open() as there:
        topic = here.queues.topics()[0]
        for wanted in (TailFilter(), TailFilter(topic=topic)):
            local, remote = LogTail(here, wanted), LogTail(there, wanted)
            assert remote.last(10) == local.last(10)
            assert remote.position == local.position
            assert list(remote.new(to_the_end=True)) == []


def test_inspections_of_the_store_and_of_its_files_are_the_same(pair: Pair) -> None:
    path = pair.golden.path
    with counted_requests() as requests:
        found = inspect(pair.url, storage_options=pair.options)
    files = sum(1 for file in path.rglob("*") if file.is_file())
    assert 0 < _reads(requests) <= 20 + 12 * files
    there, here = _plain(pair, asdict(found)), _plain(pair, asdict(inspect(path)))
    for folder in (*there["sizes"].values(), *here["sizes"].values()):
        folder.pop("allocated_bytes")  # remote files do not report their holes
    assert there == here
    slots, items = pair.golden.hash_slots, pair.golden.index_items
    log = min((path / "commitlog").iterdir())
    queue = min((path / "consumequeue").glob("*/*/*"))
    index = min((path / "index").iterdir())
    for file in (log, queue, index, path / "checkpoint"):
        url = f"{pair.url}/{file.relative_to(path)}"
        there = asdict(inspect(url, None, slots, items, storage_options=pair.options))
        assert _plain(pair, there) == _plain(pair, asdict(inspect(file, None, slots, items)))


def _plain(pair: Pair, found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _plain(pair, value) for key, value in found.items()}
    if isinstance(found, list):
        return [_plain(pair, value) for value in found]
    return pair.as_local(found) if isinstance(found, str) else found


def test_a_store_that_is_not_there_is_one_clear_line(s3: dict[str, str]) -> None:
    with pytest.raises(StoreNotFoundError, match="s3://nowhere/store: not a RocketMQ store"):
        reput.open_store("s3://nowhere/store", storage_options=s3)
    with pytest.raises(StoreNotFoundError, match="s3://nowhere/store: no such file or directory"):
        inspect("s3://nowhere/store", storage_options=s3)


def test_a_store_elsewhere_is_not_written() -> None:
    with pytest.raises(
        UsageError, match="s3://b/store: this command needs a store on a local file system"
    ):
        reput.open_store("s3://b/store", "rw")
