"""Measure queries for a key that many messages have, limited to a short window of store times."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.generate import FIRST_TIMESTAMP, MESSAGE_BYTES, records
from benchmarks.result import Figure, best_of
from reput import open_store
from reput.base.tasks import SerialRunner
from reput.core.query.message_store import MessageStore
from reput.core.store.store_reader import StoreReader
from reput.engine.compare.proof import prove_all
from reput.engine.rebuild.driver import rebuild_store
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name

_GROUP = "exact query of a window, in process"
_MESSAGES, _IN_A_SECOND = 200_000, 200
_MOST_PROVEN_MS, _MOST_ELSEWHERE_MS = 20, 150
_FILE_BYTES = 128 << 20
_RUNS = 5
_TOPIC, _KEY = "topic-0000", "order-0000000000"


def measure(folder: Path) -> Iterator[Figure]:
    """Measure on a store in `folder`. Delete the store and the stored proofs."""
    store, cache = folder / "windows", folder / "windows-proofs"
    known = os.environ.get("XDG_CACHE_HOME")
    try:
        begin, end = _write(store)
        for basis, most_ms in (("spot-checked", _MOST_ELSEWHERE_MS), ("proven", _MOST_PROVEN_MS)):
            os.environ["XDG_CACHE_HOME"] = str(cache)
            if basis == "proven":
                with StoreReader(store) as reader:
                    prove_all(reader.own_log, reader.index.current())
            with open_store(store) as opened:
                yield _figure(basis, opened, begin, end, most_ms)
    finally:
        os.environ.pop("XDG_CACHE_HOME", None)
        if known is not None:
            os.environ["XDG_CACHE_HOME"] = known
        shutil.rmtree(store, ignore_errors=True)
        shutil.rmtree(cache, ignore_errors=True)


def _write(path: Path) -> tuple[int, int]:
    """Write a store with indexes, which has 200 messages of one topic and key per second.

    Return the first and the last millisecond of the last second.
    """
    data = np.frombuffer(records(0, _MESSAGES, 0), np.uint8).reshape(_MESSAGES, MESSAGE_BYTES)
    rows = data.copy()
    for text, constant in ((b"topic-", 4), (b"order-", 10)):
        at = bytes(rows[0]).index(text) + len(text)
        rows[:, at : at + constant] = ord("0")
    stamps = FIRST_TIMESTAMP + np.arange(_MESSAGES) * 1000 // _IN_A_SECOND
    stored = stamps.astype(">i8").view(np.uint8).reshape(_MESSAGES, 8)
    rows[:, 40:48] = rows[:, 56:64] = stored
    folder = path / COMMIT_LOG_FOLDER
    folder.mkdir(parents=True)
    with open(folder / offset_file_name(0), "wb") as file:
        file.write(rows.tobytes())
        file.truncate(_FILE_BYTES)
    rebuild_store(SerialRunner(), path)
    end = int(stamps[-1])
    return end - 999, end


def _figure(basis: str, store: MessageStore, begin: int, end: int, most_ms: float) -> Figure:
    def query() -> None:
        found = store.query(_TOPIC, _KEY, begin=begin, end=end)
        assert len(found.messages) == _IN_A_SECOND

    query()
    name = f"{_MESSAGES:,} messages of one key, the last second, {basis}"
    return Figure(_GROUP, name, best_of(_RUNS, query) * 1e3, "ms", most=most_ms)
