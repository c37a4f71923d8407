"""Recovery of queues that lost pages after the recovery point: all entries before the point must stay.

A system that loses power may have written a later page of a queue and not an earlier one.
"""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from reput.engine.stores import open_store
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter
from reput.format.file_names import CONSUME_QUEUE_FOLDER, offset_file_name
from tests.alive import copy_alive
from tests.recovery.checking import check_store
from tests.slow import slow_from
from tests.small import SMALL_64K
from tests.writer.test_displaced import NEVER

_ENTRY_BYTES = 20
_FILE_ENTRIES = SMALL_64K.queue_entries


def killed_store(folder: Path, chance: random.Random) -> tuple[Path, dict[Path, tuple[int, int]]]:
    """Return a copy of an open store, and for each queue folder its positions at the recovery point and at the end."""
    writer = StoreWriter(folder / "store", SMALL_64K, replace(NEVER, flush="async"))

    def put(count: int) -> None:
        for _ in range(count):
            body, key = chance.randbytes(chance.choice([5, 50, 300])), f"k{chance.random()}"
            writer.put(Message(chance.choice("TU"), body, [key], queue_id=chance.randrange(2)))
        writer.wait_dispatched(None, None)

    put(chance.choice([30, 120, 400]))
    writer._index_sync.run()
    before = writer._queues.positions()
    put(chance.choice([3, 60, 130, 400, 700]))
    writer.flusher.flush()
    copy = folder / "copy"
    copy_alive(folder / "store", copy)
    after = writer._queues.positions()
    writer.close()
    return copy, {
        copy / CONSUME_QUEUE_FOLDER / queue.topic / str(queue.queue_id): (
            before.get(queue, (0, 0))[0],
            end,
        )
        for queue, (end, _) in after.items()
    }


@pytest.mark.every_case
@pytest.mark.parametrize("seed", slow_from(8, range(150)))
def test_holes_after_a_recovery_point_are_filled(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store, queues = killed_store(tmp_path, chance)
    for folder, (point, end) in queues.items():
        for _ in range(chance.choice([1, 2]) if point < end else 0):
            first = chance.randrange(point, end)
            for number in range(first, min(end, first + chance.choice([1, 5, 50, 120]))):
                place = number - number % _FILE_ENTRIES
                with open(folder / offset_file_name(place * _ENTRY_BYTES), "r+b") as file:
                    file.seek((number - place) * _ENTRY_BYTES)
                    file.write(bytes(_ENTRY_BYTES))
    with open_store(store, mode="rw", config=SMALL_64K):
        pass
    check_store(store, SMALL_64K)
