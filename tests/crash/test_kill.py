"""A process that puts with synchronous flush is killed at random: each acknowledged message is stored once."""

import os
import signal
import struct
import threading
import time
from pathlib import Path
from random import Random

import pytest

import reput
from reput.base.config import StoreConfig
from reput.engine.writer.put.message import Message
from tests.recovery.checking import check_store

CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 14, queue_entries=40, hash_slots=64, index_items=300
)
THREADS = 4
_ACK = struct.Struct(">qi")


def put_until_killed(store: Path, seed: int, acks: int) -> None:
    """Put in four threads, and print each message after `put` has returned. Runs in the child."""
    living = reput.open_store(store, mode="rw", config=CONFIG, flush="sync")

    def run(number: int) -> None:
        random = Random(seed * THREADS + number)
        while True:
            token = random.getrandbits(30)
            body = random.randbytes(random.randrange(2000))
            message = Message("T", body, [f"k{token}"], queue_id=random.randrange(3))
            if random.random() < 0.2:
                results = list(living.put_many([message] * random.randrange(1, 30)))
            else:
                results = [living.put(message)]
            os.write(acks, b"".join(_ACK.pack(r.physical_offset, token) for r in results))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def kill_once(store: Path, seed: int) -> list[tuple[int, int]]:
    """Return (physical offset, token) of the messages that were acknowledged to a killed child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            put_until_killed(store, seed, writing)
        finally:
            os._exit(1)
    os.close(writing)
    data = os.read(reading, _ACK.size)
    time.sleep(Random(seed).random() * 0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reading, 1 << 16):
        data += more
    os.close(reading)
    return [_ACK.unpack_from(data, at) for at in range(0, len(data) - _ACK.size + 1, _ACK.size)]


def check_kills(folder: Path, seeds: range) -> None:
    store = folder / "store"
    acknowledged: list[tuple[int, int]] = []
    for seed in seeds:
        fresh = kill_once(store, seed)
        assert fresh
        acknowledged += fresh
        assert (store / "abort").exists()
        with reput.open_store(store, mode="rw", config=CONFIG) as living:
            assert not living.recovery.is_clean
            assert living.recovery.log_end > max(offset for offset, _ in acknowledged)
        found = check_store(store, CONFIG)
        keys = {at: record.properties["KEYS"] for at, record in found.records}
        assert all(keys[offset] == f"k{token}" for offset, token in acknowledged)


def test_some_kills(tmp_path: Path) -> None:
    check_kills(tmp_path, range(5))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_kills(tmp_path: Path) -> None:
    # Begin a new store after 20 kills, because a full check takes longer as the store grows.
    for first in range(1000, 1200, 20):
        check_kills(tmp_path / str(first), range(first, first + 20))
