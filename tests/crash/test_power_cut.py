"""The power is cut: of what was not synced any pages and names are gone, of what was acknowledged nothing is."""

from pathlib import Path
from random import Random

import pytest

from reput.config import StoreConfig
from reput.store.put.message import Message
from reput.store.store_writer import StoreWriter, WriterSettings
from reput.testing.forgetful_disk import ForgetfulDisk
from tests.store.checking import check_store

CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 15, queue_entries=40, hash_slots=64, index_items=300
)


def some(random: Random, count: int) -> list[Message]:
    return [
        Message("T", random.randbytes(random.randrange(2000)), [f"k{n}"], queue_id=n % 3)
        for n in range(count)
    ]


@pytest.mark.parametrize("seed", range(25))
def test_what_was_flushed_survives(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    source = tmp_path / "0"
    flushed: dict[int, bytes] = {}
    for cut in range(3):  # each time on what the cut before has left
        disk = ForgetfulDisk(source)
        settings = WriterSettings(flush_interval_s=9, flush_thorough_interval_s=9)
        writer = StoreWriter(source, CONFIG, settings, disk)
        fresh: dict[int, bytes] = {}
        for _ in range(random.randrange(1, 6)):
            messages = some(random, random.randrange(1, 60))
            results = writer.put_many(messages)
            fresh |= {r.physical_offset: m.body for r, m in zip(results, messages, strict=True)}
            step = random.randrange(4)
            if step == 0:
                writer.flush()
                flushed |= fresh
            elif step == 1:
                writer.dispatcher.wait(writer.end_offset, 20)
                writer.flush()
                writer._sync_indexes()
                flushed |= fresh
            elif step == 2:
                writer.dispatcher.wait(writer.end_offset, 20)
        target = tmp_path / str(cut + 1)
        disk.cut_power(random, target)
        writer.close()
        if cut == 0 and not (target / "commitlog").exists():
            assert not flushed
        StoreWriter(target, CONFIG).close()
        bodies = {at: record.body for at, record in check_store(target, CONFIG).records}
        assert flushed.items() <= bodies.items()
        source = target
