"""Measure requests, bytes and time of queries of an archive on a slow S3 server.

The archive has 1,000 log files, and a proxy delays each request by 50 ms. The log files are small (256 KiB), so fewer
bytes are read than with files of 1 GiB.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.generate import FIRST_TIMESTAMP, MESSAGE_BYTES, order_key, topic_of, write_store
from benchmarks.result import Figure
from reput import archive, open_store

if TYPE_CHECKING:
    from tests.remote.faulty_server import FaultyServer

_GROUP = "archive of 1,000 log files, S3 server at 50 ms"
LOG_FILES, _FILE_BYTES = 1000, 256 << 10
_PER_FILE = (_FILE_BYTES - 8) // MESSAGE_BYTES
FILES_A_DAY = 33
_DAY_MS = 86_400_000
_MS_PER_MESSAGE = _DAY_MS // (FILES_A_DAY * _PER_FILE)
_DELAY_S = 0.05
MOST_REQUESTS = {
    "cold": 60, "day, cold": 10, "newest day, cold": 10, "warm": 4, "another key, warm": 20,
    "day, another key, warm": 4, "newest day, another key, warm": 4,
}  # fmt: skip


class QueryCost(NamedTuple):
    """The cost of one query."""

    name: str
    requests: int
    sent_bytes: int
    seconds: float


class _Bucket(NamedTuple):
    """An archive in a bucket, and the proxy through which it is read."""

    url: str
    options: dict[str, str]
    proxy: FaultyServer


@contextmanager
def archive_in_bucket(folder: Path) -> Iterator[_Bucket]:
    """Archive a store of 1,000 log files, and serve the archive."""
    from tests.remote.faulty_server import faulty_server
    from tests.remote.s3_server import s3_server, upload_whole

    store, place = folder / "archive-store", folder / "archive"
    try:
        size = (LOG_FILES + 1) * _PER_FILE * MESSAGE_BYTES
        write_store(store, size, _FILE_BYTES, _MS_PER_MESSAGE)
        (store / "config").mkdir()
        # An archive has snapshots of the store's configuration files only if the store has such a file.
        (store / "config" / "topics.json").write_text("{}")
        archive(store, place)
        shutil.rmtree(store)
        with s3_server() as options, faulty_server(options["s3.endpoint_override"]) as proxy:
            url = upload_whole(place, "archives", options)
            shutil.rmtree(place)
            proxy.delay_s = _DELAY_S
            yield _Bucket(url, options | {"s3.endpoint_override": proxy.address}, proxy)
    finally:
        shutil.rmtree(store, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)


def query_costs(bucket: _Bucket, cache: Path) -> Iterator[QueryCost]:
    """Query keys of messages in the middle of the log. Empty the user's cache folder before each cold query."""
    middle = LOG_FILES // 2 * _PER_FILE
    day = _window(LOG_FILES // 2, LOG_FILES // 2 + FILES_A_DAY)
    newest = _window(LOG_FILES - FILES_A_DAY, LOG_FILES)
    last = (LOG_FILES - FILES_A_DAY // 2) * _PER_FILE
    asked: tuple[tuple[str, int, dict[str, int], bool], ...] = (
        ("cold", middle, {}, True),
        ("warm", middle, {}, False),
        ("another key, warm", middle + 3_000_000 % (_PER_FILE * 100), {}, False),
        ("day, cold", middle, day, True),
        ("day, another key, warm", middle + 6000, day, False),
        ("newest day, cold", last, newest, True),
        ("newest day, another key, warm", last + 300, newest, False),
    )
    for name, number, window, is_cold in asked:
        if is_cold:
            shutil.rmtree(cache, ignore_errors=True)
        yield _cost(name, bucket, number, window)


def _window(first: int, stop: int) -> dict[str, int]:
    """Return the window of store times of some log files."""
    begin, end = (FIRST_TIMESTAMP + file * _PER_FILE * _MS_PER_MESSAGE for file in (first, stop))
    return {"begin": begin, "end": end - 1}


def _cost(name: str, bucket: _Bucket, number: int, window: dict[str, int]) -> QueryCost:
    proxy = bucket.proxy
    requests, sent, began = len(proxy.requests), proxy.sent_bytes, time.perf_counter()
    with open_store(bucket.url, storage_options=bucket.options) as store:
        found = store.query(topic_of(number), order_key(number), **window)
    seconds = time.perf_counter() - began
    assert found.messages
    assert found.is_complete
    return QueryCost(name, len(proxy.requests) - requests, proxy.sent_bytes - sent, seconds)


def measure(folder: Path) -> Iterator[Figure]:
    """Measure with temporary files in `folder`, and delete them."""
    cache, known = folder / "archive-cache", os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(cache)
    try:
        with archive_in_bucket(folder) as bucket:
            for cost in query_costs(bucket, cache):
                most = MOST_REQUESTS.get(cost.name)
                yield Figure(_GROUP, f"{cost.name}: requests", cost.requests, "", most=most)
                yield Figure(_GROUP, f"{cost.name}: sent", cost.sent_bytes / 1e6, "MB", most=20)
                yield Figure(_GROUP, f"{cost.name}: time", cost.seconds, "s", most=3)
    finally:
        os.environ.pop("XDG_CACHE_HOME", None)
        if known is not None:
            os.environ["XDG_CACHE_HOME"] = known
        shutil.rmtree(cache, ignore_errors=True)
