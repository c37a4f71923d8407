"""Indexes that follow a log of another process: rebuilt on Spark, killed, and continued without Spark."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from reput.engine.rebuild.follow.state import STATE_FILE
from tests.cli.running import REPUT, one_line
from tests.cli.running import reput as run_reput
from tests.golden.stores import GoldenStore
from tests.rebuild.rebuilding import rebuild, tree
from tests.waiting import wait_for

CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 20, queue_entries=500, hash_slots=500, index_items=2000
)
SIZES = ("--queue-entries", "500", "--hash-slots", "500", "--index-items", "2000")
_TIMEOUT_S = 600

WRITER = """
import sys, time
from pathlib import Path
import reput
from reput.base.config import StoreConfig
from reput.engine.writer.put.message import Message


path, stop = sys.argv[1:]
config = StoreConfig(
    commit_log_file_bytes=1 << 20, queue_entries=500, hash_slots=500, index_items=2000
)
store, number = reput.open_store(path, mode="rw", config=config), 0
while not Path(stop).exists():
    for _ in range(50):
        keys = [f"k{number % 500}", f"only{number}"]
        store.put(Message(f"T{number % 5}", b"x" * (number % 300), keys, queue_id=number % 3))
        number += 1
    print(number, flush=True)
    time.sleep(0.05)
store.put(Message("T", b"", ["the-last"]))
store.close()
"""


@pytest.fixture
def written(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A store that another process writes, and a function to stop it."""
    stop = tmp_path / "stop"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "store"), str(stop)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    writer.stdout.readline()

    def end() -> None:
        stop.touch()
        writer.communicate(timeout=_TIMEOUT_S)
        assert writer.returncode == 0

    yield tmp_path / "store", end
    if writer.poll() is None:
        writer.kill()
        writer.communicate()


def start(store: Path, output: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [REPUT, "rebuild", store, "--output", output, "--follow", "--master", "local[1]", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def checkpoints(output: Path) -> list[int]:
    try:
        state = json.loads((output / STATE_FILE).read_text())
    except FileNotFoundError:
        return []
    return [offset for offset, _ in state["checkpoints"]]


def compared_from(printed: str) -> int:
    """Return the offset from which a run reports that it compared existing indexes."""
    found = re.search(r"compared with the CommitLog from ([0-9,]+) on", printed)
    assert found is not None, printed
    return int(found[1].replace(",", ""))


@pytest.mark.slow
def test_beside_a_writer_killed_and_continued_byte_for_byte(
    written: tuple[Path, Callable[[], None]], tmp_path: Path
) -> None:
    store, end_writing = written
    output = tmp_path / "live"
    follower = start(store, output, *SIZES)
    wait_for(lambda: len(checkpoints(output)) >= 2, follower)
    follower.kill()
    follower.communicate()
    reached = checkpoints(output)[-1]
    follower = start(store, output, "--master", "no such master, for Spark is not started")
    wait_for(lambda: checkpoints(output)[-1] > reached, follower)
    with reput.open_store(store, index=output) as opened:
        found = opened.query("T0", "k0")
        assert len(found.messages) > 1
        assert found.coverage.indexed_bytes > found.coverage.scanned_bytes
        assert opened.queues.folder == str(output / "consumequeue")
    end_writing()
    with reput.open_store(store) as opened:
        end = opened.end_offset()
        last = opened.query("T", "the-last").messages[0].physical_offset
    wait_for(lambda: checkpoints(output)[-1] == last, follower)
    follower.send_signal(signal.SIGINT)
    printed, errors = follower.communicate(timeout=_TIMEOUT_S)
    assert (follower.returncode, errors) == (0, "")
    assert f"Followed the CommitLog to {end:,}" in printed
    assert 0 < compared_from(printed) <= reached
    rebuild(store, tmp_path / "rebuilt", CONFIG)
    ours = {name: data for name, data in tree(output).items() if not name.startswith(STATE_FILE)}
    assert ours == tree(tmp_path / "rebuilt")


@pytest.mark.slow
def test_sigterm_ends_it_cleanly_too(golden: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    follower = start(golden("orders").path, tmp_path / "live", "--format", "json")
    wait_for(lambda: bool(checkpoints(tmp_path / "live")), follower)
    os.kill(follower.pid, signal.SIGTERM)
    printed, _ = follower.communicate(timeout=_TIMEOUT_S)
    assert follower.returncode == 0
    assert json.loads(printed)["position"] == 6549067


def test_wrong_use_is_one_line(golden: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    store = golden("orders").path
    for options, words in (
        (("--follow",), "--follow needs --output"),
        (("--follow", "--output", tmp_path, "--only", "index"), "cannot be combined with --only"),
        (
            ("--follow", "--output", tmp_path, "--salvage"),
            "cannot be combined with --only, --salvage",
        ),
    ):
        ran = run_reput("rebuild", store, *options)
        assert ran.code == 2
        assert words in one_line(ran)
