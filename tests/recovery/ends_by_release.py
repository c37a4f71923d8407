"""Damaged stores, and where brokers of four releases end their logs.

    python -m tests.recovery.ends_by_release FOLDER

writes every store of the table into FOLDER, so that the real classes can be run on them, and prints the table. Its rows
are in `ends_by_release.tsv`. Columns: number of the store; queues in files or rocksdb; abort or clean; physical offset
up to which the queues have entries; damages, written as in `test_ends_as_a_broker`; end of the log after the recovery
of 4.9.3 ("-" for queues in RocksDB), 5.3.3, 5.4 and 5.5, and of 5.5 with enableAcceleratedRecovery.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import reput
from reput.base.config import StoreConfig
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from tests.oracle.consume_queue import write_consume_queues
from tests.oracle.forge import LogForge, RecordFields, forge_log, write_store
from tests.oracle.records import Record
from tests.oracle.recovery import Start, log_end
from tests.oracle.walk import read_log, walk
from tests.recovery.test_ends_as_a_broker import inflict
from tests.rocksdb_queues import cut_database

TABLE = Path(__file__).with_name("ends_by_release.tsv")
CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 12,
    queue_entries=20,
    hash_slots=64,
    index_items=300,
    store_version="5.3",
)
SHOWN_BY = {"5.4": "RocksDBMessageStore", "5.5": "rocksdbstore"}
"""The folder that a broker of each release creates in every store."""
RELEASES = ("4.9", "5.3", *SHOWN_BY)
_CASES, _MESSAGES = 72, 250
_KINDS = ("flip", "page", "zero", "magic", "size", "first", "first_body", "first_time")
_BEGIN_MS, _STEP_MS = 1_700_000_000_000, 1500


def _log() -> LogForge:
    """Return a log of 17 files, of which the last one is half full."""
    numbers = [0, 0]

    def records() -> Iterator[RecordFields]:
        for number in range(_MESSAGES):
            queue = number % 2
            yield RecordFields(
                topic="T", queue_id=queue, queue_offset=numbers[queue], body=b"b" * (120 + 7 * (number % 9)),
                properties=f"UNIQ_KEY\x01id-{number:08d}\x02", store_timestamp=_BEGIN_MS + _STEP_MS * number,
            )  # fmt: skip
            numbers[queue] += 1

    return forge_log(records(), file_bytes=CONFIG.commit_log_file_bytes)


@cache
def records() -> list[Record]:
    return walk(_log().files()).dispatched


def _name(number: int) -> str:
    """Return the name of a file of the log."""
    return f"{number * CONFIG.commit_log_file_bytes:020d}"


class Case:
    """One damaged store. Cases with the same number are the same."""

    def __init__(self, number: int) -> None:
        self.number = number
        random = Random(f"end of a log {number}")
        self.in_rocksdb = number % 3 == 2
        self.is_clean = random.random() < 0.5
        every = records()
        last = every[-1].physical_offset // CONFIG.commit_log_file_bytes
        # Most stores are dispatched up to one of the last files, some as a whole.
        behind = random.choice((0, 0, 1, 2, 3, 6, 12))
        begin = (last - behind) * CONFIG.commit_log_file_bytes
        some = [record for record in every if behind == 0 or record.physical_offset < begin]
        self.queued = some[: len(some) - random.choice((0, 0, 1, 5))]
        self.dispatched = self.queued[-1].physical_offset + self.queued[-1].total_size
        self.damages = [
            self._damage(random, last) for _ in range(random.choice((1, 1, 2)) if number else 0)
        ]
        newest = self.dispatched // CONFIG.commit_log_file_bytes
        if number % 4 == 1 and newest:
            # The newest file with queue entries begins with damage, and the file before it is also damaged.
            self.damages = [f"magic:{_name(newest)}:0", f"flip:{_name(newest - 1)}:1500"]
        elif number % 4 == 2 and behind == 12:
            # More than ten files would be read.
            self.damages = [f"flip:{_name(last - random.choice((10, 11)))}:900"]
        elif number % 4 == 3 and self.dispatched % CONFIG.commit_log_file_bytes > 1000:
            # The damage is in the file of the dispatch point, before this point.
            self.damages = [f"flip:{_name(newest)}:500"]

    @staticmethod
    def _damage(random: Random, last: int) -> str:
        name = _name(last - random.choice((0, 0, 1, 1, 2, 3, 5, 10)))
        kind, at = random.choice(_KINDS), random.randrange(1 << 11)
        if kind == "first":
            return f"magic:{name}:0"
        if kind == "first_body":
            return f"flip:{name}:{100 + random.randrange(50)}"
        if kind == "first_time":
            return f"flip:{name}:{56 + random.randrange(8)}"
        return f"{kind}:{name}:{at}"

    @property
    def latest(self) -> int:
        return self.queued[-1].store_timestamp

    def write(self, store: Path) -> Path:
        """Write the store as a broker of 5.3.3 would have left it."""
        write_store(store, _log().files())
        if self.in_rocksdb:
            config = replace(CONFIG, queues_in_rocksdb=True)
            reput.rebuild(store, only="consumequeue", config=config, runner="serial")
            if len(self.queued) < len(records()):
                cut_database(store, self.dispatched)
        else:
            queues = write_consume_queues(self.queued, file_bytes=CONFIG.queue_file_bytes)
            for (topic, queue_id), contents in queues.items():
                folder = store / "consumequeue" / topic / str(queue_id)
                folder.mkdir(parents=True)
                for name, data in contents.items():
                    (folder / name).write_bytes(data)
        (store / "checkpoint").write_bytes(
            encode_checkpoint(Checkpoint(self.latest, self.latest, self.latest))
        )
        (store / "abort.bak").touch()
        if not self.is_clean:
            (store / "abort").write_bytes(b"1")
        original = store.with_name(f"{store.name}.original")
        write_store(original, _log().files())
        for damage in self.damages:
            inflict(store / "commitlog", original / "commitlog", damage)
        return store

    def ends(self, store: Path) -> list[str]:
        """Return the ends of the log by the slow implementation, as in the table."""
        files = read_log(store)
        starts = [
            Start(release, self.is_clean, self.dispatched, self.in_rocksdb, self.latest)
            for release in RELEASES
        ]
        starts.append(replace(starts[-1], is_accelerated=True))
        ends = [str(log_end(files, start)) for start in starts]
        return ["-", *ends[1:]] if self.in_rocksdb else ends

    def row(self, store: Path) -> str:
        return "\t".join([
            str(self.number), "rocksdb" if self.in_rocksdb else "files",
            "clean" if self.is_clean else "abort", str(self.dispatched), " ".join(self.damages),
            *self.ends(store),
        ])  # fmt: skip


def cases() -> list[Case]:
    return [Case(number) for number in range(_CASES)]


if __name__ == "__main__":
    for one in cases():
        print(one.row(one.write(Path(sys.argv[1], str(one.number)))))
