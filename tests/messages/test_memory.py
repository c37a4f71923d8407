"""Decompressing bodies takes the memory of one batch and one body, for any number of bodies and any stated size."""

import tracemalloc
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from reput.engine.messages.schema import BATCH_BYTES
from reput.engine.tables.read import RangeBatches
from reput.format import bodies
from tests.oracle.forge import RecordFields, forge_log, write_store
from tests.tables.reading import plan

_FIXED = 32 << 20  # buffers of the log, and a batch that is being built


def most_memory(path: Path, count: int, body_bytes: int) -> tuple[int, int]:
    """Return (peak of allocated bytes while bodies of zeros are read, number of bodies that were read)."""
    packed = zlib.compress(bytes(body_bytes))
    fields = [RecordFields(queue_offset=n, body=packed, sys_flag=1) for n in range(count)]
    store = write_store(path, forge_log(fields, file_bytes=1 << 22).files())
    (task,) = plan(store).tasks
    most_arrow, whole = 0, 0
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    for batch in RangeBatches(task.part, ["body"]):
        most_arrow = max(most_arrow, pa.total_allocated_bytes() - before)
        whole += sum(len(body.as_buffer() or b"") == body_bytes for body in batch["body"])
    most = tracemalloc.get_traced_memory()[1] + most_arrow
    tracemalloc.stop()
    return most, whole


@pytest.fixture
def small_bodies(monkeypatch: pytest.MonkeyPatch) -> int:
    """Limit bodies to some MiB, to keep the test short."""
    most = 6 << 20
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", most)
    return most


def test_many_bodies_take_the_memory_of_a_batch_and_a_body(
    tmp_path: Path, small_bodies: int
) -> None:
    few, read = most_memory(tmp_path / "few", 4, small_bodies // 2)
    assert read == 4
    many, read = most_memory(tmp_path / "many", 16, small_bodies // 2)
    assert read == 16
    assert many < few + BATCH_BYTES
    assert many < 4 * small_bodies + _FIXED


def test_a_body_over_the_limit_takes_no_more_than_one_of_the_limit(
    tmp_path: Path, small_bodies: int
) -> None:
    most, read = most_memory(tmp_path / "store", 3, 10 * small_bodies)
    assert read == 0
    assert most < 4 * small_bodies + _FIXED
