"""Count the bytes that a table reads for each kind of filter: `python -m benchmarks.filters STORE`.

The store is one of `benchmarks.generate`, rebuilt and proven. All read calls of the process are counted (Linux).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import reput
from benchmarks.generate import FIRST_TIMESTAMP, MESSAGE_BYTES, order_key, unique_key

_AT = 1_000_000
_COLUMNS = ["topic", "queue_id", "physical_offset", "store_timestamp", "unique_key", "message_id"]


def _read_bytes() -> int:
    text = Path("/proc/self/io").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("rchar")))


def _sql(store: str, where: str) -> int:
    messages = reput.dataset(store, _COLUMNS)  # noqa: F841
    with duckdb.connect() as database:
        return len(database.execute(f"select physical_offset from messages {where}").fetchall())


def _argument(store: str, **arguments: Any) -> int:
    return int(reput.dataset(store, _COLUMNS, **arguments).count_rows())


def _join(store: str, count: int) -> int:
    messages = reput.dataset(store, _COLUMNS)  # noqa: F841
    wanted = pa.table({"id": [unique_key(_AT + 7 * n) for n in range(count)]})  # noqa: F841
    with duckdb.connect() as database:
        query = "select physical_offset from messages semi join wanted on unique_key = id"
        return len(database.execute(query).fetchall())


def _cases(store: str) -> dict[str, Callable[[], int]]:
    key, place = unique_key(_AT), _AT * MESSAGE_BYTES
    row = reput.dataset(store, _COLUMNS, unique_key=key).to_table().to_pylist()[0]
    second = f"TIMESTAMPTZ '{row['store_timestamp']:%Y-%m-%d %H:%M:%S.%f}+00'"
    absent = [f"no such key {n}" for n in range(100_000)]
    listed = ", ".join(f"'{unique_key(_AT + n)}'" for n in range(100))
    ends = f"{row['physical_offset']}, {place * 2 // MESSAGE_BYTES * MESSAGE_BYTES}"
    begin_ms = FIRST_TIMESTAMP + _AT // 10
    return {
        "no filter": lambda: _sql(store, ""),
        "unique_key = 'X'": lambda: _sql(store, f"where unique_key = '{key}'"),
        "unique_key = 'X' or unique_key = 'Y'": lambda: _sql(
            store, f"where unique_key = '{key}' or unique_key = 'none'"
        ),
        "unique_key in (100 ids)": lambda: _sql(store, f"where unique_key in ({listed})"),
        "join with 30 ids": lambda: _join(store, 30),
        "join with 1,000 ids": lambda: _join(store, 1_000),
        "argument key='X'": lambda: _argument(store, key=order_key(_AT)),
        "argument key=[100,000 absent keys]": lambda: _argument(store, key=absent),
        "message_id = 'X'": lambda: _sql(store, f"where message_id = '{row['message_id']}'"),
        "physical_offset in (2 offsets)": lambda: _sql(store, f"where physical_offset in ({ends})"),
        "topic = 'topic-rare' (1 %)": lambda: _sql(store, "where topic = 'topic-rare'"),
        "topic like 'topic-r%' (1 %)": lambda: _sql(store, "where topic like 'topic-r%'"),
        "topic = 'topic-0003' and queue_id = 1 (1 %)": lambda: _sql(
            store, "where topic = 'topic-0003' and queue_id = 1"
        ),
        "argument topic='topic-r*' (1 %)": lambda: _argument(store, topic="topic-r*"),
        "store_timestamp = T (1 ms)": lambda: _sql(store, f"where store_timestamp = {second}"),
        "arguments begin and end (1 ms)": lambda: _argument(store, begin=begin_ms, end=begin_ms),
    }


def main(store: str) -> None:
    cases = _cases(store)
    cases["unique_key = 'X'"]()  # Loads kernels, and remembers facts about the log.
    for name, run in cases.items():
        begun, bytes_before = time.process_time(), _read_bytes()
        rows = run()
        size, seconds = _read_bytes() - bytes_before, time.process_time() - begun
        print(f"| {name} | {rows:,} | {size / 1e6:,.1f} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
