"""A store with the ConsumeQueues and IndexFiles of another log: old and new can be distinguished."""

import os
from pathlib import Path
from typing import Any

from reput.base.tasks import SerialRunner
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.report import RebuildReport
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from tests.oracle.forge import Files, LogForge, RecordFields, forge_log, write_store
from tests.oracle.walk import walk
from tests.rebuild.rebuilding import SMALL, assert_oracle, tree
from tests.writer.crashing import dying

SPLIT_BYTES = 700


def small_log(records: int) -> LogForge:
    """Return a log whose store has three queues and about 30 files: few, because runs are killed at each step."""
    return forge_log(
        [
            RecordFields(
                f"t{n % 2}",
                b"b" * 80,
                {"KEYS": f"k{n} x"},
                queue_id=n % 3 // 2,
                queue_offset=n // 3,
            )
            for n in range(records)
        ],
        file_bytes=4096,
    )


LOG, OLD_LOG = small_log(60), small_log(31)


FILES = LOG.files()


def in_place(store: Path, **options: Any) -> RebuildReport:
    arguments: dict[str, Any] = {"config": SMALL, "split_size": SPLIT_BYTES} | options
    return rebuild_store(SerialRunner(), store, **arguments)


def store_of_another_log(tmp_path: Path) -> Path:
    """Write a store with ConsumeQueues and IndexFiles of another log, so that they differ from the rebuilt ones."""
    old = write_store(tmp_path / "old", OLD_LOG.files())
    in_place(old)
    store = write_store(tmp_path / "store", FILES)
    for folder in ("consumequeue", "index"):
        os.rename(old / folder, store / folder)
    (store / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(1, 2, 3)))
    return store


def assert_new(store: Path, files: Files = FILES) -> None:
    log = {name: store / "commitlog" / name for name in os.listdir(store / "commitlog")}
    assert {int(name): path.read_bytes() for name, path in log.items()} == dict(files)
    assert_oracle(store, walk(files), SMALL)


def assert_whole(store: Path, old: dict[str, bytes], new: dict[str, bytes]) -> None:
    """Check that each folder, and the checkpoint, is completely old or completely new."""
    now = tree(store)
    for folder in ("consumequeue/", "index/", "checkpoint"):
        found, was, is_to_be = (
            {name: data for name, data in files.items() if name.startswith(folder)}
            for files in (now, old, new)
        )
        assert found in (was, is_to_be)


def steps_of_a_run(store: Path, tmp_path: Path) -> int:
    """Return the number of steps of a rebuild of LOG over the files of `store`."""
    copy = copied(store, tmp_path / "counted")
    with dying(None) as steps:
        in_place(copy)
    return steps.made


def copied(store: Path, copy: Path) -> Path:
    """Return another store of FILES with the same old ConsumeQueues, IndexFiles and checkpoint."""
    write_store(copy, FILES)
    for name in ("consumequeue", "index"):
        for path in (store / name).rglob("*"):
            if path.is_file():
                target = copy / path.relative_to(store)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    (copy / "checkpoint").write_bytes((store / "checkpoint").read_bytes())
    return copy
