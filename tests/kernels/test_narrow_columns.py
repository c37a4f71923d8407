"""Staged batches are unchanged after narrowing, for any width of their columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reput.core.log.dispatch_batch import DispatchBatch, Queue
from reput.engine.rebuild.batch_file import BatchFileWriter, new_runs, read_batches
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.io.writer import FileWriter
from reput.kernels.jit import new_rows

_SPANS = {0: 0, 1: 2**8 - 1, 2: 2**16 - 1, 4: 2**32 - 1, 8: 2**64 - 1}


def _batch(rows: int, span: int) -> DispatchBatch:
    """Return a batch. The greatest value of each column is its least value plus `span`, or its type's maximum."""
    messages, multi = new_rows(rows, MESSAGE_DTYPE), new_rows(rows // 2, MULTI_DTYPE)
    key_hash = np.empty(2 * rows, np.int32)
    columns = [key_hash]
    for table in (messages, multi):
        columns += [table[name] for name in table.dtype.names or ()]
    for shift, column in enumerate(columns):
        limits = np.iinfo(column.dtype)
        most = min(limits.min + span, limits.max)
        column[:] = np.resize(
            np.roll([limits.min, most, (limits.min + most) // 2], shift), len(column)
        )
    return DispatchBatch(messages, key_hash, multi, [Queue("T", 0)])


@pytest.mark.parametrize("rows", [1, 2, 1500])
@pytest.mark.parametrize("width", _SPANS)
def test_columns_come_back_as_they_were(tmp_path: Path, rows: int, width: int) -> None:
    first, second = _batch(rows, _SPANS[width]), _batch(rows + 1, _SPANS[width] // 256 + 1)
    with FileWriter(tmp_path / "staged") as file:
        writer = BatchFileWriter(file)
        writer.append(first)
        writer.append(second)
        writer.finish(None, new_runs(0))
    fields = [*(MESSAGE_DTYPE.names or ()), "key_hash", "multi"]
    found = list(read_batches(str(tmp_path / "staged"), fields))
    for batch, wanted in zip(found, (first, second), strict=True):
        assert batch.messages.tobytes() == wanted.messages.tobytes()
        assert batch.key_hash.tobytes() == wanted.key_hash.tobytes()
        assert batch.multi.tobytes() == wanted.multi.tobytes()
        assert batch.queues == wanted.queues


def test_a_column_takes_the_fewest_bytes(tmp_path: Path) -> None:
    sizes = []
    for width, span in _SPANS.items():
        messages = new_rows(3000, MESSAGE_DTYPE)
        messages[:] = np.zeros(1, MESSAGE_DTYPE)
        messages["tags_code"][:2] = (-(2**63), -(2**63) + span)
        messages["tags_code"][2:] = messages["tags_code"][1]
        nothing = np.empty(0, np.int32)
        batch = DispatchBatch(messages, nothing, new_rows(0, MULTI_DTYPE), [Queue("T", 0)])
        with FileWriter(tmp_path / str(width)) as file:
            writer = BatchFileWriter(file)
            writer.append(batch)
            writer.finish(None, new_runs(0))
        sizes.append((tmp_path / str(width)).stat().st_size // 3000)
    assert sizes == list(_SPANS)
