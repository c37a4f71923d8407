"""Rebuild mutated logs. However the log is split, the bytes must be the same.

IndexFiles must be sound, and nothing may be written elsewhere.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from fuzz.allowed import allowed
from fuzz.logs import FILE_BYTES, MAX_BYTES, log_seeds, write_log
from reput.base.config import StoreConfig
from reput.base.tasks import SerialRunner
from reput.engine.check.index_inspection import inspect_index_file
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.report import RebuildReport

_CONFIG = StoreConfig(
    commit_log_file_bytes=FILE_BYTES,
    queue_entries=7,
    hash_slots=5,
    index_items=9,
    enable_multi_dispatch=True,
    enable_lmq=True,
)
_SPLIT_BYTES = 900
_OUTPUT_FOLDERS = {"consumequeue", "index", "checkpoint"}


class Target:
    MAX_BYTES = MAX_BYTES
    seeds = staticmethod(log_seeds)

    def __init__(self, folder: Path) -> None:
        self._folder, self._store = folder, folder / "store"

    def run(self, data: bytes) -> None:
        write_log(self._store, data)
        self._compare(salvage=False)
        self._compare(salvage=True)

    def _compare(self, *, salvage: bool) -> None:
        whole, split = self._folder / "whole", self._folder / "split"
        with allowed():
            expected = self._rebuild(whole, FILE_BYTES, salvage)
            found = self._rebuild(split, _SPLIT_BYTES, salvage)
            assert (found.messages, found.keys, found.log_end, found.damage) == (
                expected.messages, expected.keys, expected.log_end, expected.damage,
            )  # fmt: skip
            assert _queues(split) == _queues(whole)
            assert _index(split) == _index(whole)
            for path in (whole / "index").iterdir():
                inspected = inspect_index_file(str(path), _CONFIG.hash_slots, _CONFIG.index_items)
                assert inspected.findings == []
        assert {path.name for path in self._folder.iterdir()} <= {"store", "whole", "split"}

    def _rebuild(self, output: Path, split_bytes: int, salvage: bool) -> RebuildReport:
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir()
        report = rebuild_store(
            SerialRunner(),
            self._store,
            config=_CONFIG,
            output=output,
            split_size=split_bytes,
            salvage=salvage,
        )
        assert {path.name for path in output.iterdir()} == _OUTPUT_FOLDERS
        return report


def _queues(output: Path) -> dict[str, bytes]:
    root = output / "consumequeue"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def _index(output: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((output / "index").iterdir())]
