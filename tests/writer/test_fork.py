"""A process that owns a store and forks: the child cannot use the store, and the parent is not affected."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.recovery.checking import check_store
from tests.small import SMALL_64K

_PARENT = """
import os, sys, threading, warnings
import reput
warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
path, flush, held = sys.argv[1:]
config = reput.StoreConfig(1 << 16, 50, 64, 300)
store = reput.open_store(path, mode="rw", config=config, flush=flush)
first = store.put(reput.Message("T", b"parent", ["k"]))
store.wait_dispatched()
if held == "held":  # locks that a put needs are held by a thread that the child lacks
    store._writer._log._lock.acquire()
    store._guard.acquire()
child = os.fork()
if child == 0:
    ways = [
        lambda: store.put(reput.Message("T", b"child")),
        lambda: store.put_many([reput.Message("T", b"child")]),
        lambda: store.put_columns({"topic": "T", "body": [b"child"]}),
        store.flush, store.wait_dispatched, store.end_offset, store.topics,
        lambda: store.get(first.physical_offset), lambda: store.expire(before=0),
    ]
    for way in ways:
        try:
            way()
        except reput.errors.UsageError as error:
            assert "fork" in str(error), error
        else:
            os._exit(1)
    store.close()
    try:
        reput.open_store(path, mode="rw")
    except reput.errors.StoreLockedError:
        os._exit(0)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
if held == "held":
    store._writer._log._lock.release()
    store._guard.release()
assert os.path.exists(os.path.join(path, "abort"))
second = store.put(reput.Message("T", b"parent again", ["k"]))
assert second.queue_offset == 1
sleeper = os.fork()
if sleeper == 0:
    import signal
    signal.pause()
store.close()
reput.open_store(path, mode="rw").close()  # the child that still lives holds no lock
os.kill(sleeper, 9)
print("all is well")
"""


@pytest.mark.parametrize("flush", ["async", "sync"])
@pytest.mark.parametrize("held", ["held", "free"])
def test_a_forked_child_has_no_store(tmp_path: Path, flush: str, held: str) -> None:
    path = tmp_path / "store"
    ran = subprocess.run(
        [sys.executable, "-c", _PARENT, str(path), flush, held],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert "all is well" in ran.stdout, ran.stderr
    records = check_store(path, SMALL_64K).records
    assert [record.body for _, record in records] == [b"parent", b"parent again"]
