"""Damaged copies of golden stores. Commands once reported different sizes or ends of the log for such stores."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from reput.core.log.sources import log_folders
from reput.engine.writer.survey import survey_of
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.io.storage import LOCAL
from tests.golden.stores import GoldenStore

Damage = Callable[["Damaging"], object]


class Damaging:
    """Changes a copy of a golden store, by a seed."""

    def __init__(self, store: Path, golden: GoldenStore, seed: int) -> None:
        self.store, self.random = store, Random(seed)
        self.rows = golden.messages
        self.last = self.rows[-1]

    def log_files(self) -> list[Path]:
        folders = log_folders(str(self.store), LOCAL)
        return sorted(
            (one for folder in folders for one in Path(folder).iterdir()), key=lambda one: one.name
        )

    def queue_files(self) -> list[Path]:
        found = (self.store / CONSUME_QUEUE_FOLDER).glob("*/*/*")
        return sorted(one for one in found if one.name.isdigit())

    def put(self, physical_offset: int, data: bytes) -> None:
        path = max(one for one in self.log_files() if int(one.name) <= physical_offset)
        with path.open("r+b") as file:
            file.seek(physical_offset - int(path.name))
            file.write(data[: path.stat().st_size - file.tell()])

    def some_bytes(self, count: int) -> bytes:
        return bytes(self.random.randrange(1, 256) for _ in range(count))

    def zero_tail(self) -> None:
        count = self.random.randrange(1, self.last.size)
        self.put(self.last.physical_offset + self.last.size - count, bytes(count))

    def garbage_after_the_end(self) -> None:
        self.put(survey_of(self.store).ends.rebuild, self.some_bytes(self.random.randrange(1, 400)))

    def wrong_crc(self) -> None:
        self.put(self.last.physical_offset + 8, self.some_bytes(4))

    def wrong_crc_before(self) -> None:
        self.put(self.random.choice(self.rows[:-1]).physical_offset + 8, self.some_bytes(4))

    def random_bytes(self) -> None:
        row = self.random.choice(self.rows[:-5])
        self.put(row.physical_offset + self.random.randrange(row.size), self.some_bytes(64))

    def random_bytes_in_last_file(self) -> None:
        start = int(self.log_files()[-1].name)
        rows = [row for row in self.rows[:-2] if row.physical_offset >= start] or self.rows[-3:-2]
        self.put(self.random.choice(rows).physical_offset + 4, self.some_bytes(64))

    def missing_last_file(self) -> None:
        files = self.log_files()
        if len(files) > 1:
            files[-1].unlink()

    def missing_file(self) -> None:
        files = self.log_files()
        if len(files) > 2:
            self.random.choice(files[1:-1]).unlink()

    def short_queue_file(self) -> None:
        files = self.queue_files()
        if len(files) > 2:
            os.truncate(self.random.choice(files), self.random.randrange(1, 200))

    def mixed_sizes(self) -> None:
        for path in self.queue_files():
            if self.random.random() < 0.6:
                os.truncate(path, self.random.choice([100, 2_000, 40_000]))


DAMAGES: tuple[Damage, ...] = (
    Damaging.zero_tail,
    Damaging.garbage_after_the_end,
    Damaging.wrong_crc,
    Damaging.wrong_crc_before,
    Damaging.random_bytes,
    Damaging.random_bytes_in_last_file,
    Damaging.missing_last_file,
    Damaging.missing_file,
    Damaging.short_queue_file,
    Damaging.mixed_sizes,
)


def variants(each: int) -> Iterator[tuple[Damage, int]]:
    """Yield each kind of damage with `each` different seeds."""
    for seed in range(each):
        for damage in DAMAGES:
            yield damage, seed
