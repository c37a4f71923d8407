"""A log file that became shorter while a reader had the store open: it is never read as a complete log."""

import os
from pathlib import Path

import pytest

import reput
from reput.errors import StoreChangedError

CONFIG = reput.StoreConfig(1 << 12, 50, 64, 300)


@pytest.mark.parametrize("left", [0, 20, 2000])
@pytest.mark.parametrize("messages", [3, 100])
def test_the_last_log_file_is_never_taken_for_a_shorter_log(
    tmp_path: Path, messages: int, left: int
) -> None:
    with reput.open_store(tmp_path, mode="rw", config=CONFIG) as store:
        store.put_many(reput.Message("T", b"x" * 100, keys=["k"]) for _ in range(messages))
    (tmp_path / "index").rename(tmp_path / "lost")
    last = max((tmp_path / "commitlog").iterdir())
    whole = last.read_bytes()
    with reput.open_store(tmp_path, config=CONFIG) as store:
        assert len(store.query("T", "k").messages) == messages
        os.truncate(last, left)
        for _ in range(2):
            with pytest.raises(StoreChangedError, match=last.name):
                store.query("T", "k")
        last.write_bytes(whole)
        assert len(store.query("T", "k").messages) == messages


def test_a_middle_file_that_was_short_for_a_while_is_read_whole_afterwards(tmp_path: Path) -> None:
    with reput.open_store(tmp_path, mode="rw", config=CONFIG) as store:
        store.put_many(reput.Message("T", b"x" * 100, keys=["k"]) for _ in range(100))
    middle = sorted((tmp_path / "commitlog").iterdir())[1]
    whole = middle.read_bytes()
    os.truncate(middle, 3000)
    with reput.open_store(tmp_path, config=CONFIG) as store:
        middle.write_bytes(whole)
        settled = (tmp_path / "commitlog").stat().st_mtime_ns - 10_000_000_000
        os.utime(tmp_path / "commitlog", ns=(settled, settled))
        assert len(store.query("T", "k").messages) == 100
        assert len(store.pull("T", 0, 0, 100).messages) == 100
