"""Findings of the fuzzers, each as its smallest case."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reput.base.tasks import SerialRunner
from reput.core.queues.writer import ConsumeQueueWriter
from reput.engine.rebuild.driver import rebuild_store
from reput.format.dtypes import MESSAGE_DTYPE
from reput.kernels.jit import new_rows
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.consume_queue import ConsumeQueue as OracleQueue

# (physical offset, queue offset)
NEVER_TAKEN = [(-8000, 110), (0, -1), (0, 2**62)]
TAKEN = (1000, 111)


@pytest.mark.parametrize("dropped", NEVER_TAKEN)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_dropped_entry_does_not_say_where_a_queue_begins(
    dropped: tuple[int, int], at_once: bool, tmp_path: Path
) -> None:
    queue = ConsumeQueueWriter(tmp_path / "q", 7)
    for entries in [[dropped, TAKEN]] if at_once else [[dropped], [TAKEN]]:
        _append(queue, entries)
    queue.close(sync=False)
    oracle = OracleQueue(7 * 20)
    oracle.put(TAKEN[0], 10, 0, TAKEN[1])
    assert {path.name: path.read_bytes() for path in (tmp_path / "q").iterdir()} == oracle.padded()


def test_a_proof_by_interpreted_kernels_is_remembered(
    golden: Callable[[str], GoldenStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interpreted(*arguments: object) -> tuple[np.int64, np.int64]:
        # Without compilation, kernels return NumPy integers, which must be saved as well.
        return np.int64(1), np.int64(0)

    monkeypatch.setattr("reput.engine.compare.proof.count_falls", interpreted)
    store = copy_store(golden("basic").path, tmp_path / "store")
    report = rebuild_store(SerialRunner(), store, only="index")
    assert report.index_files > 0
    assert report.notes == []


def test_a_message_held_back_is_a_row_for_interpreted_kernels_too(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import numpy as np; "
        "from reput.format.dtypes import MESSAGE_DTYPE; from reput.kernels.jit import new_rows; "
        "from reput.engine.rebuild.write_files import _LastMessage; from reput.core.queues.writer import *; "
        "held, queue = _LastMessage(), ConsumeQueueWriter(Path(sys.argv[1]), 7); rows = new_rows(2, MESSAGE_DTYPE); "
        "rows['physical_offset'], rows['size'], rows['tags_code'] = [0, 10], 10, 0; "
        "assert held.append(queue, rows, np.arange(2), NONE_LOST) == 1; queue.close(sync=False)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "q")]
    subprocess.run(command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, check=True)


def _append(queue: ConsumeQueueWriter, entries: list[tuple[int, int]]) -> None:
    messages: Any = new_rows(len(entries), MESSAGE_DTYPE)
    for row, (physical_offset, _) in enumerate(entries):
        messages[row]["physical_offset"] = physical_offset
        messages[row]["size"], messages[row]["tags_code"] = 10, 0
    queue_offset = np.array([queue_offset for _, queue_offset in entries], np.int64)
    queue.append(messages, np.arange(len(entries)), queue_offset)
