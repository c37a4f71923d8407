"""Measure queries for a key in all topics of a log of 10 TB, with and without the map of its topics.

The log is simulated: its files have the right names and sizes and a few messages each, and are sparse. One sparse
IndexFile covers all of them, and is declared as trusted. It has none of the keys, so a query searches the IndexFile for
each topic. What is measured is the time to find out the topics, and to see that no log file has changed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.generate import (
    FIRST_TIMESTAMP,
    MESSAGE_BYTES,
    RARE_TOPIC,
    TOPICS,
    records,
    topic_of,
)
from benchmarks.result import Figure
from reput.base.config import StoreConfig
from reput.core.index.plan import Planner
from reput.core.index.proofs import Judge, Proof, Verdict
from reput.core.index.reader import IndexFileReader
from reput.core.log.known_file import KnownFile, StatedOffsets
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.query.message_store import MessageStore
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.format.index_file import (
    IndexHeader,
    IndexItem,
    encode_header,
    encode_item,
    item_position,
)
from reput.io.stamps import Stamp

_FILES, _FILE_BYTES, _MESSAGES = 10_000, 1 << 30, 4
_LAST_ITEM = 2
_CONFIG = StoreConfig(hash_slots=1 << 10, index_items=1 << 10)
_RUNS = 5


def measure(folder: Path) -> Iterator[Figure]:
    """Measure on a store in `folder`, and delete it."""
    store = folder / "topics"
    cache = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str((folder / "topics-cache").absolute())
    try:
        write_log(store, _FILES)
        yield from _queries(store, "its topics sampled")
        keep_map(store)
        yield from _queries(store, "with the map of topics")
    finally:
        if cache is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = cache
        shutil.rmtree(store, ignore_errors=True)
        shutil.rmtree(folder / "topics-cache", ignore_errors=True)


def _queries(store: Path, how: str) -> Iterator[Figure]:
    first, later = list[float](), list[float]()
    for _ in range(_RUNS):
        with Trusting(store) as opened:
            for times in (first, later):
                begun = time.process_time()
                found = opened.query(None, "absent")
                times.append(time.process_time() - begun)
                assert found.is_complete
                assert bool(found.notes) == ("sampled" in how)
    name = f"a key in all topics of 10 TB, {how}"
    yield Figure("exact query, in process", f"{name}, first query", min(first) * 1e3, "ms")
    yield Figure("exact query, in process", f"{name}, later query", min(later) * 1e3, "ms")


def write_log(path: Path, files: int) -> None:
    """Write a log of sparse files of 1 GiB with four messages each, and an IndexFile that covers them."""
    folder, index = path / COMMIT_LOG_FOLDER, path / "index"
    folder.mkdir(parents=True)
    index.mkdir()
    for number in range(files):
        begin = number * _FILE_BYTES
        with open(folder / offset_file_name(begin), "wb") as file:
            file.write(records(number * _MESSAGES, _MESSAGES, begin))
            file.truncate(_FILE_BYTES)
    last = (files - 1) * _FILE_BYTES + (_MESSAGES - 1) * MESSAGE_BYTES
    times = FIRST_TIMESTAMP, FIRST_TIMESTAMP + files
    with open(index / "20260101000000000", "wb") as sparse:
        sparse.truncate(_CONFIG.index_file_bytes)
        header = IndexHeader(*times, 0, last, 1, _LAST_ITEM + 1)
        os.pwrite(sparse.fileno(), encode_header(header), 0)
        for item, offset in ((1, 0), (_LAST_ITEM, last)):
            data = encode_item(IndexItem(0, offset, 0, 0))
            os.pwrite(sparse.fileno(), data, item_position(_CONFIG.hash_slots, item))


def keep_map(path: Path) -> None:
    """Keep the map of topics, as `reput prove` does after its scan of each file."""
    names = {topic_of(number) for number in range(TOPICS)} | {RARE_TOPIC}
    queues = tuple(StatedOffsets(name, 0) for name in sorted(names))
    with Trusting(path) as opened:
        topics = opened.log_topics.topic_map
        for file in opened.commit_log.files[:-1]:
            stamp = Stamp.settled(file.path)
            assert stamp is not None
            topics.add(KnownFile(file.start, file.end, queues=queues, stamp=(file.start, *stamp)))
        topics.write(opened.commit_log.files)


class Trusting(MessageStore):
    """A store whose IndexFile is trusted for the whole log without a check."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, config=_CONFIG)

    def key_planner(self, judge: Judge | None = None) -> Planner:
        """Return a planner that trusts the IndexFile."""
        return super().key_planner(_judge)


def _judge(
    file: IndexFileReader,
    log: CommitLogReader,
    last: int,
    before: Verdict | None,
    files: int = 1,
) -> Verdict:
    stop = file.header().end_physical_offset + MESSAGE_BYTES
    seen = tuple((one.path, stamp) for one in log.files if (stamp := Stamp.settled(one.path)))
    return Verdict(last, proof=Proof(last, (OffsetRange(0, stop),), seen=seen))
