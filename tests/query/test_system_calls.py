"""The system calls of a pull.

The tests count calls of functions of `os`. `reput.io` reads files only through these functions, and each call is one
system call. `strace -c` counts the same number.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import reput
from tests.small import SMALL_32K

CALLS = (
    *("open", "close", "stat", "lstat", "fstat", "scandir", "listdir", "lseek", "posix_fadvise"),
    *("read", "readv", "pread", "preadv"),
)
SETTLED = 1_000_000_000


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count system calls by name during the `with` block."""
    made: Counter[str] = Counter()

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **options: Any) -> Any:
            made[name] += 1
            return call(*args, **options)

        return count

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, counting(name, getattr(os, name)))
        yield made


def settle(path: Path) -> None:
    """Make the folders look unchanged for some time, so that one check of each is enough."""
    for folder in [path, *path.rglob("*")]:
        if folder.is_dir():
            os.utime(folder, (SETTLED, SETTLED))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_32K) as made:
        made.put_many(reput.Message("T", b"x" * 300, tags=f"t{n % 2}") for n in range(500))
    settle(tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize("tags", [None, "t1"])
def test_a_pull_from_a_cached_queue_costs_ten_calls_and_a_read_a_record(
    store: Path, tags: str | None
) -> None:
    with reput.open_store(store) as opened:
        # Each pull reads other files: a queue file has 50 entries, a log file about 80 messages.
        for start in (100, 130, 460):
            # The first pull also opens the queue and its files. Only the calls of the second are checked.
            for _ in range(2):
                with counted() as made:
                    messages = opened.pull("T", 0, start, 32, tags).messages
            assert len(messages) == (32 if tags is None or start < 430 else 20)
            assert made.total() - len(messages) <= 10, made
            assert made["open"] == made["scandir"] == 0


def test_a_message_by_offset_costs_a_look_and_a_read(store: Path) -> None:
    with reput.open_store(store) as opened:
        offset = opened.get_by_queue("T", 0, 3).physical_offset
        opened.get(offset)
        with counted() as made:
            opened.get(offset)
        assert made.total() <= 2, made
