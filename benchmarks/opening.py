"""Measure the time to open a large store for writing: after a clean shutdown, a crash of reput, and a broker's crash.

Each opening runs in a new process. The measured time begins with the call, after the kernels have been loaded.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.result import Figure
from reput.engine.writer.put.arrow import from_columns
from reput.engine.writer.store_writer import StoreWriter

GROUP = "opening"
_PUTS = 1_000_000
_BATCH = 20_000
_BODY_BYTES = 800
_SETTLED = "settled"


def measure(store: Path, indexes: Path, folder: Path) -> list[Figure]:
    """Measure on a store with the CommitLog of `store` and the indexes of `indexes`, which are moved away."""
    opened = folder / "opened"
    try:
        _join(store, indexes, opened)
        gigabytes = sum(path.stat().st_size for path in (opened / "commitlog").iterdir()) / 1e9
        (opened / "abort").touch()
        taken_over = _open(opened)
        clean = min(_open(opened) for _ in range(3))
        crashed = max(_open_after_kill(opened) for _ in range(2))
    finally:
        shutil.rmtree(opened)
    return [
        Figure(GROUP, "size of the CommitLog", gigabytes, "GB"),
        Figure(GROUP, "after a clean end", clean, "s", most=0.5),
        Figure(GROUP, f"after a kill within {_PUTS / 1e6:g} million puts", crashed, "s", most=5),
        Figure(GROUP, "after a broker's crash, everything compared", taken_over, "s"),
    ]


def _join(store: Path, indexes: Path, opened: Path) -> None:
    """Combine log and indexes in one store.

    Log files are hard links. Only the last file is copied, because the measurement writes into it.
    """
    (opened / "commitlog").mkdir(parents=True)
    *full, last = sorted((store / "commitlog").iterdir())
    for path in full:
        os.link(path, opened / "commitlog" / path.name)
    shutil.copyfile(last, opened / "commitlog" / last.name)
    for name in ("consumequeue", "index", "checkpoint"):
        os.rename(indexes / name, opened / name)


def _open(store: Path) -> float:
    found = subprocess.run(_command("open", store), check=True, capture_output=True, text=True)
    return float(found.stdout)


def _open_after_kill(store: Path) -> float:
    with subprocess.Popen(_command("put", store), stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline().strip() == _SETTLED
        os.kill(writer.pid, signal.SIGKILL)
    return _open(store)


def _command(action: str, store: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.opening", action, os.fspath(store)]


def _open_and_close(store: Path) -> float:
    begun = time.perf_counter()
    writer = StoreWriter(store)
    seconds = time.perf_counter() - begun
    writer.close()
    return seconds


def _put(store: Path) -> None:
    writer = StoreWriter(store)
    for first in range(0, _PUTS, _BATCH):
        columns = {
            "topic": ["topic-0001"] * _BATCH,
            "body": [b"x" * _BODY_BYTES] * _BATCH,
            "keys": [f"order-{number}" for number in range(first, first + _BATCH)],
        }
        writer.put_columns(from_columns(columns, writer.settings.store_host))
    writer.dispatcher.wait(writer.end_offset, None)
    print(_SETTLED, flush=True)
    time.sleep(60)


if __name__ == "__main__":
    if sys.argv[1] == "open":
        print(_open_and_close(Path(sys.argv[2])))
    else:
        _put(Path(sys.argv[2]))
