"""Measure the writing and reading of JSON lines: the conversion only, whole exports and whole puts.

Only the processor time of the thread that writes or reads the lines counts, without the dispatch in another thread.
"""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.generate import MESSAGE_BYTES, records, write_store
from benchmarks.result import Figure, best_of
from reput import open_store
from reput.engine.messages.codec import message_line
from reput.engine.messages.message_lines import log_lines
from reput.engine.messages.put_lines import LinesPut
from reput.format.commit_log import decode
from reput.wings.lakes.json_lines import export_lines
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.request import ExportRequest

_GROUP = "JSON lines of 380-byte messages, of one core's time"
_MESSAGES, _SINGLE, _RUNS = 200_000, 2_000, 5
_LEAST = 400_000
_BY_HAND = 300_000


def measure(folder: Path) -> Iterator[Figure]:
    """Measure with temporary files in `folder`, and delete them."""
    store, target, source = folder / "lines", folder / "lines-put", folder / "lines.jsonl"
    try:
        yield from _form()
        write_store(store, _MESSAGES * MESSAGE_BYTES, 1 << 28)
        printed = _exported(store)
        seconds = best_of(_RUNS, lambda: _exported(store), time.thread_time)
        yield Figure(_GROUP, "out: export", _MESSAGES / seconds, "lines/s", least=_LEAST)
        by_hand = b"".join(
            b'{"topic": "orders", "body": "{\\"total\\": %d}", "keys": ["o-%d"], "tags": "paid"}\n'
            % (number, number)
            for number in range(_BY_HAND)
        )
        for name, lines, count in (
            ("in: put, as printed", printed, _MESSAGES),
            ("in: put, written by hand", by_hand, _BY_HAND),
        ):
            source.write_bytes(lines)
            seconds = min(_put(target, source) for _ in range(_RUNS))
            yield Figure(_GROUP, name, count / seconds, "lines/s", least=_LEAST)
    finally:
        shutil.rmtree(store, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        source.unlink(missing_ok=True)


def _form() -> Iterator[Figure]:
    """Measure both ways to write lines, with records that are already in memory."""
    count = 10_000
    data = np.frombuffer(records(0, count, 0), np.uint8)
    positions = np.arange(count, dtype=np.int64) * MESSAGE_BYTES
    seconds = best_of(2 * _RUNS, lambda: list(log_lines(data, positions)), time.thread_time)
    yield Figure(_GROUP, "out: records in memory", count / seconds, "lines/s", least=_LEAST)
    messages = [decode(data.data, at) for at in positions[:_SINGLE].tolist()]
    seconds = best_of(_RUNS, lambda: list(map(message_line, messages)), time.thread_time)
    yield Figure(_GROUP, "out: message by message", _SINGLE / seconds, "lines/s")


def _exported(store: Path) -> bytes:
    out = io.BytesIO()
    export_lines(open_stores([str(store)]), out, ExportRequest())
    return out.getvalue()


def _put(target: Path, source: Path) -> float:
    """Return the processor time (seconds) of a put of lines into a new store."""
    shutil.rmtree(target, ignore_errors=True)
    with open_store(target, mode="rw") as store, open(source, "rb") as lines:
        put = LinesPut(store, None, lambda done, report: None)
        return best_of(1, lambda: put.run(lines), time.thread_time)
