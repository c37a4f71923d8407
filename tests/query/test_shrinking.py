"""Files that become shorter while they are read: an error that names the file, never a signal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import reput
from tests.small import SMALL_16K

READING = """
import os, sys
from pathlib import Path
import reput
from reput.errors import ReputError
from reput.engine.messages.tail import LogTail, TailFilter

path, kept = Path(sys.argv[1]), float(sys.argv[2])
files = [f for folder in ("commitlog", "consumequeue") for f in sorted((path / folder).rglob("0*")) if f.is_file()]
logs = [file for file in files if file.parent.name == "commitlog"]
asks = {
    "get": lambda store: store.get(offset),
    "get_record": lambda store: store.get_record(offset),
    "get_by_queue": lambda store: store.get_by_queue("T", 0, 70),
    "pull": lambda store: store.pull("T", 0, 40, 50),
    "by_time": lambda store: store.offset_by_time("T", 0, 1 << 50),
    "max": lambda store: store.max_queue_offset("T", 0),
    "end": lambda store: store.end_offset(),
    "tail": lambda store: LogTail(store, TailFilter()).last(60),
    "tail of a topic": lambda store: LogTail(store, TailFilter("T")).last(60),
    "new": lambda store: list(LogTail(store, TailFilter()).new()),
    "scan": lambda store: store.query("T", "no such key"),
}

def outcome(name, answer, file):
    # A scan that met a shortened file before the last cannot have read all of the log.
    was_read = name != "scan" or "consumequeue" in str(file) or file == logs[-1] or not answer.is_complete
    return "answered" if was_read else "claimed to be complete"

with reput.open_store(path) as store:
    offset = store.get_by_queue("T", 0, 70).physical_offset
    whole = {file: file.read_bytes() for file in files}
    for name, ask in asks.items():
        ask(store)
    for name, ask in asks.items():
        for file in files:
            os.truncate(file, int(len(whole[file]) * kept))
            try:
                print(name, outcome(name, ask(store), file))
            except ReputError as error:
                print(name, type(error).__name__, str(error).count(chr(10)))
            file.write_bytes(whole[file])
    for name, ask in asks.items():
        ask(store)
print("done")
"""


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
def test_every_reader_survives_files_that_shrink_under_it(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=SMALL_16K) as store:
        store.put_many(reput.Message("T", b"x" * 300) for _ in range(120))
    (path / "index").rename(tmp_path / "index")  # without it, queries by key scan the log
    ran = subprocess.run(
        [sys.executable, "-c", READING, str(path), str(kept)], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    *lines, last = ran.stdout.splitlines()
    assert last == "done"
    assert all(line.endswith((" 0", "answered")) for line in lines)
    assert any(line.endswith("Error 0") for line in lines)


SEARCHING = """
import os, sys
from pathlib import Path
import numpy as np
import reput
from reput.errors import ReputError
from reput.format.index_file import index_key, key_hash
from reput.engine.compare.proof import prove
from reput.core.log.offset_range import OffsetRange
from reput.core.store.store_reader import StoreReader
from reput.engine.check.index_inspection import inspect_index_file

path, kept = Path(sys.argv[1]), float(sys.argv[2])
hashes = np.array([key_hash(index_key("T", f"k{n}")) for n in range(100)], np.int32)

def search(part, hashes):
    return list(part.bulk(OffsetRange(part.start, part.stop)).find(hashes))

with reput.open_store(path) as store, StoreReader(path) as reader:
    (file,) = reader.index.current()
    (part,) = [s.part for s in reader.key_planner().segments() if s.part is not None]
    whole = Path(file.path).read_bytes()
    asks = {
        "query": lambda: store.query("T", "k50"),
        "prove": lambda: prove(file, reader.commit_log),
        "search for one": lambda: search(part, hashes[:1]),
        "search for many": lambda: search(part, hashes),
        "inspect": lambda: inspect_index_file(file.path, file.hash_slots, file.index_items),
        "plan": lambda: reader.key_planner().segments(),
        "slots": file.used_slots,
    }
    for name, ask in asks.items():
        ask()
        os.truncate(file.path, int(len(whole) * kept))
        try:
            ask()
            print(name, "answered")
        except ReputError as error:
            print(name, type(error).__name__, str(error).count(chr(10)))
        Path(file.path).write_bytes(whole)
        ask()
print("done")
"""


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_whoever_reads_an_index_file_survives_that_it_shrinks(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "store"
    config = reput.StoreConfig(1 << 16, 50, 20_000, 5_000)
    with reput.open_store(path, mode="rw", config=config) as store:
        store.put_many(reput.Message("T", b"x", keys=[f"k{n}"]) for n in range(100))
    ran = subprocess.run(
        [sys.executable, "-c", SEARCHING, str(path), str(kept)], capture_output=True, text=True,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    *lines, last = ran.stdout.splitlines()
    assert last == "done"
    assert len(lines) == 7
    assert any("StoreChangedError" in line for line in lines)
    assert all(line.endswith((" 0", "answered")) for line in lines)
