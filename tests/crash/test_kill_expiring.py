"""A process that puts and expires is killed at random: the remaining store is valid, and continues."""

import os
import signal
import time
from pathlib import Path
from random import Random

import reput
from reput.base.config import StoreConfig
from tests.recovery.checking import check_what_is_left

CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 14, queue_entries=20, hash_slots=64, index_items=120
)
QUEUES = 3


def put_and_expire(store: Path, ready: int) -> None:
    """Put and expire; the body of each message is its queue offset. Runs in the child."""
    with reput.open_store(
        store,
        mode="rw",
        config=CONFIG,
        flush_interval_consume_queue_s=0.05,
        flush_consume_queue_thorough_interval_s=0.05,
        max_commit_log_bytes=4 << 14,
        clean_resource_interval_s=0.005,
    ) as living:
        ends = queue_ends(living)
        is_ready = False
        while True:
            for queue_id in range(QUEUES):
                body = str(ends[queue_id]).encode().ljust(200)
                ends[queue_id] += 1
                living.put(reput.Message("T", body, [f"k{ends[queue_id]}"], queue_id=queue_id))
            if not is_ready and living.expire(0).log_begin > 0:
                is_ready = bool(os.write(ready, b"."))


def queue_ends(store: reput.WritableStore) -> list[int]:
    if "T" not in store.topics():
        return [0] * QUEUES
    return [store.max_queue_offset("T", queue_id) for queue_id in range(QUEUES)]


def kill_once(store: Path, seed: int) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            put_and_expire(store, writing)
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1) == b"."
    os.close(reading)
    time.sleep(Random(seed).random() * 0.2)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_kills(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for seed in range(4):
        kill_once(store, seed)
        with reput.open_store(store, mode="rw", config=CONFIG) as living:
            assert not living.recovery.is_clean
            for queue_id in range(QUEUES):
                least = living.min_queue_offset("T", queue_id)
                end = living.max_queue_offset("T", queue_id)
                assert 0 < least < end
                pulled = living.pull("T", queue_id, least, 10_000)
                assert pulled.next_begin_offset == end
                for number, message in enumerate(pulled.messages, least):
                    assert message.queue_offset == int(message.body) == number
        check_what_is_left(store, CONFIG)
