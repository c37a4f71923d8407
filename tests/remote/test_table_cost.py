"""What a table of a store on S3 requests for time windows, topics, keys and limits, counted by a server between.

Bodies are large, so unneeded bytes show. The log is small, so the cost to find its end, which is the same for every
log, is bounded on its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import reput
from reput.base.config import StoreConfig
from tests.oracle.forge import BLANK_BYTES, LogForge, RecordFields, encode_record, write_store
from tests.remote.faulty_server import FaultyServer, faulty_server
from tests.remote.s3_server import ENDPOINT, Options, s3_process, upload_whole

pytestmark = pytest.mark.slow

BODY_BYTES = 32 << 10
_FILES, _FILE_BYTES = 24, 4 << 20
_TO_FIND_THE_END_BYTES = 9 << 20
"""The allowed number of bytes to find the end of the log: a reader walks its last 8 MiB."""
_PIECE_BYTES = 4 << 20
_BEGIN, _STEP_MS = 1_700_000_000_000, 1_000
_RARE = 100
"""One message in a hundred has the topic `rare`, and a unique key of its own."""


class Log(NamedTuple):
    url: str
    options: Options
    proxy: FaultyServer
    times: list[int]
    size: int


def _write(path: Path) -> tuple[list[int], int]:
    forge, stored = LogForge(_FILE_BYTES, 0), list[int]()
    plain = RecordFields(topic="T", body=bytes(BODY_BYTES))
    count = (_FILES - 1) * ((_FILE_BYTES - BLANK_BYTES) // (BODY_BYTES + 200)) + 3
    record, places = bytearray(encode_record(plain)), {"T": 0, "rare": 0}
    for number in range(count):
        now, is_rare = _BEGIN + number * _STEP_MS, number % _RARE == 7
        topic = "rare" if is_rare else "T"
        if is_rare:
            fields = RecordFields(topic, bytes(BODY_BYTES), {"KEYS": f"order-{number}"})
            one = bytearray(encode_record(fields))
        else:
            one = record
        stored.append(now)
        struct.pack_into(">qq", one, 20, places[topic], forge.make_room(len(one)))
        struct.pack_into(">q", one, 56, now)
        places[topic] += 1
        forge.put_bytes(bytes(one))
    files = forge.files()
    write_store(path, files)
    reput.rebuild(path, runner="serial", config=StoreConfig(hash_slots=1000, index_items=4000))
    return stored, sum(len(data) for _, data in files)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """A log of 100 MB on an S3 server, behind a proxy that counts requests and bytes."""
    folder = tmp_path_factory.mktemp("cost") / "store"
    times, size = _write(folder)
    with s3_process() as options, faulty_server(options[ENDPOINT]) as proxy:
        url = upload_whole(folder, "cost", options)
        yield Log(url, {**options, ENDPOINT: proxy.address}, proxy, times, size)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep store times in a folder that no other test uses."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


Ask = Callable[[Any], Any]
"""The columns and keys that a dataset is asked for."""


def _cost(log: Log, ask: Ask, **given: Any) -> tuple[Any, int, int]:
    """Return the answer of a dataset, and its number of requests and bytes."""
    requests, sent = len(log.proxy.requests), log.proxy.sent_bytes
    found = ask(reput.dataset(log.url, storage_options=log.options, **given))
    return found, len(log.proxy.requests) - requests, log.proxy.sent_bytes - sent


def _times(dataset: Any) -> list[int]:
    stamps_us = dataset.to_table(columns=["store_timestamp"])["store_timestamp"].cast("int64")
    return [stamp // 1000 for stamp in stamps_us.to_pylist()]


def test_a_window_reads_at_most_2_percent_of_the_log_beyond_it(log: Log) -> None:
    count = len(log.times)
    for begin, end in ((100, 130), (count // 2, count // 2 + 10), (count - 5, count - 1)):
        window = {"begin": log.times[begin], "end": log.times[end]}
        # The first read learns the store times of the files at the window's edges. Only the second is checked.
        _cost(log, _times, **window)
        found, requests, sent = _cost(log, _times, **window)
        assert found == log.times[begin : end + 1]
        beyond = sent - len(found) * BODY_BYTES - _TO_FIND_THE_END_BYTES
        assert beyond <= log.size // 50, (beyond, log.size)
        assert requests <= 7 * _FILES


def test_a_key_is_found_through_the_index(log: Log) -> None:
    for number in (107, 1507):
        found, requests, sent = _cost(log, _times, topic="rare", key=f"order-{number}")
        assert found == [log.times[number]]
        assert sent - _TO_FIND_THE_END_BYTES <= 2 * _PIECE_BYTES
        assert requests <= 7 * _FILES
    assert _cost(log, _times, topic="rare", key="order-1")[0] == []


def test_a_limit_reads_the_beginning(log: Log) -> None:
    found, requests, sent = _cost(log, lambda dataset: dataset.head(5).num_rows)
    assert found == 5
    assert sent - _TO_FIND_THE_END_BYTES <= _PIECE_BYTES
    assert requests <= 3 * _FILES


def test_a_topic_reads_each_byte_of_the_log_once(log: Log) -> None:
    """ConsumeQueues are used only on local disks."""
    found, requests, sent = _cost(log, _times, topic="rare")
    assert found == log.times[7::_RARE]
    assert sent <= log.size + _TO_FIND_THE_END_BYTES
    assert requests <= 5 * _FILES
