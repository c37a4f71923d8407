"""Random damage to log and queues at once, for everything that writes indexes: no entry of a readable message moves.

The oracle knows the store before the damage. It demands of each command's result:

- A message has the same queue offset as before, or, if its entry was damaged, possibly none; never another one.
- A queue offset has the same entry as before, unless this entry was damaged.
- No queue ends before its last undamaged entry of a message that the log still has.
- A refusal names `reput repair`, changes nothing, and occurs only if the log is damaged in a place that a broker reads
  when it starts.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reput.base.tasks import SerialRunner
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.follow.follower import Follower
from reput.engine.rebuild.follow.state import begin
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter
from reput.errors import StoreError
from reput.io.disk import Disk
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.walk import walk
from tests.rebuild.rebuilding import tree
from tests.recovery.entries import (
    ENTRY_BYTES,
    Entries,
    ends_before,
    entries_of,
    is_blank,
    log_paths,
    read_log,
)
from tests.slow import slow_from
from tests.writer.golden_puts import is_five, store_config

Golden = Callable[[str], GoldenStore]
STORES = (
    "tricky", "five_batch", "five_rocksdb", "five_ext", "basic", "lmq", "orders", "extremes", "five_life",
    "five_default", "five_timer", "five_crc", "five_compaction",
)  # fmt: skip
SEEDS = range(40)
FLIPS = {
    "magic": (4, 0x10), "size": (2, 0x01), "queue offset": (27, 0x04), "crc": (11, 0x01),
    "physical offset": (34, 0x02),
}  # fmt: skip
"""For each damaged field of a record: the position of a byte in the record, and the mask to xor it with."""
PAGE = 4096
EntryKey = tuple[tuple[str, ...], int]


@dataclass
class Attack:
    """The damage to a store.

    log       physical offsets of damaged records
    entries   damaged queue entries, by queue and queue offset
    queues    queues that are damaged as a whole
    readable  physical offsets of damaged records that can still be read
    """

    log: list[int] = field(default_factory=list)
    entries: set[EntryKey] = field(default_factory=set)
    queues: set[tuple[str, ...]] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    readable: set[int] = field(default_factory=set)


class Attacker:
    """Damages one store at random."""

    def __init__(self, store: Path, queues: Path, seed: int) -> None:
        """`store` has the log, and `queues` the queues."""
        self._store, self._queues, self._random = store, queues, random.Random(seed)
        self._records = [at for at, _ in walk(read_log(store)).records]
        self._before = entries_of(queues)
        self.attack = Attack()

    def run(self) -> Attack:
        kinds = (
            self._two_records, self._page, self._zeroed_entry, self._deleted_queue, self._duplicate,
            self._border, self._two_entries,
        )  # fmt: skip
        self._random.choice(kinds)()
        self.attack.readable = {at for at, _ in walk(read_log(self._store)).records}
        return self.attack

    def _two_records(self) -> None:
        for at in self._random.sample(self._records, 2):
            self._flip(at)

    def _page(self) -> None:
        at = self._random.choice(self._records)
        start = at - at % PAGE
        self._write_log(start, bytes(PAGE))
        self.attack.said.append(f"page at {start}")
        self.attack.log += [one for one in self._records if start <= one < start + PAGE]
        # The previous record may also be damaged.
        self.attack.log += [one for one in self._records if one < start][-1:]

    def _zeroed_entry(self) -> None:
        self._put_entry(lambda entry, others: bytes(len(entry)))
        self._flip(self._random.choice(self._records))

    def _two_entries(self) -> None:
        for _ in range(2):
            self._put_entry(lambda entry, others: bytes(len(entry)))
        self._flip(self._random.choice(self._records), "queue offset")

    def _duplicate(self) -> None:
        self._put_entry(lambda entry, others: self._random.choice(others))
        self._flip(self._random.choice(self._records))

    def _deleted_queue(self) -> None:
        names = [name for name in self._before if name[0] in ENTRY_BYTES]
        if names:
            name = self._random.choice(names)
            shutil.rmtree(self._queues.joinpath(*name))
            self.attack.queues.add(name)
            self.attack.said.append(f"{name} deleted")
        self._flip(self._random.choice(self._records))

    def _border(self) -> None:
        path = self._random.choice(log_paths(self._store))
        inside = [
            at
            for at in self._records
            if int(path.name) <= at < int(path.name) + path.stat().st_size
        ]
        if inside:
            self._flip(self._random.choice((inside[0], inside[-1])))
        if inside and self._random.random() < 0.5:
            self._flip(inside[-1])

    def _flip(self, at: int, what: str = "") -> None:
        what = what or self._random.choice(list(FLIPS))
        within, mask = FLIPS[what]
        path = self._log_file(at)
        with path.open("rb") as file:
            file.seek(at - int(path.name) + within)
            (byte,) = file.read(1)
        self._write_log(at + within, bytes([byte ^ mask]))
        self.attack.log.append(at)
        self.attack.said.append(f"{what} at {at}")

    def _write_log(self, at: int, data: bytes) -> None:
        path = self._log_file(at)
        with path.open("r+b") as file:
            file.seek(at - int(path.name))
            file.write(data[: path.stat().st_size - file.tell()])

    def _log_file(self, at: int) -> Path:
        return [path for path in log_paths(self._store) if int(path.name) <= at][-1]

    def _put_entry(self, change: Callable[[bytes, list[bytes]], bytes]) -> None:
        names = [name for name in self._before if name[0] in ENTRY_BYTES and self._before[name]]
        if not names:
            return
        name = self._random.choice(names)
        size = ENTRY_BYTES[name[0]]
        path = self._random.choice(sorted(self._queues.joinpath(*name).iterdir()))
        data = bytearray(path.read_bytes())
        parts = [bytes(data[at : at + size]) for at in range(0, len(data) - size + 1, size)]
        there = [number for number, part in enumerate(parts) if any(part)]
        if not there:
            return
        number = self._random.choice(there)
        new = change(parts[number], [parts[one] for one in there])
        data[number * size : (number + 1) * size] = new
        path.write_bytes(data)
        base = int.from_bytes(parts[number][28:36], "big")
        number = base if size > 20 else int(path.name) // size + number
        self.attack.entries.add((name, number))
        self.attack.said.append(f"entry {number} of {name}: {new[:12].hex()}")


def assert_held(
    before: Entries, after: Entries, attack: Attack, log_end: int, case: object
) -> None:
    """Check the result of a command by the rules in the module's docstring."""
    for queue, entries in before.items():
        if queue in attack.queues:
            continue
        kept = after.get(queue, {})
        damaged = {number for name, number in attack.entries if name == queue}
        stays = {
            number: entry
            for number, entry in entries.items()
            if not is_blank(entry) and ends_before(entry, log_end) and number not in damaged
        }
        lost = [
            number
            for number, entry in stays.items()
            if kept.get(number, b"")[: _certain(entry, attack)] != entry[: _certain(entry, attack)]
        ]
        assert not lost, (case, queue, lost[:3])
        assert max(kept, default=-1) >= max(stays, default=-1), (case, queue)
        numbers = {entry[:12]: number for number, entry in entries.items()}
        once = len(numbers) == len(entries)
        moved = [
            (numbers[entry[:12]], number)
            for number, entry in kept.items()
            if once
            and int.from_bytes(entry[:8], "big") in attack.readable
            and numbers.get(entry[:12], number) != number
        ]
        assert not moved, (case, queue, moved[:3])


def _certain(entry: bytes, attack: Attack) -> int:
    """Return the bytes of an entry that do not depend on a damaged record."""
    return 12 if int.from_bytes(entry[:8], "big") in attack.log else len(entry)


def assert_rebuilt_queue(
    before: Entries, after: Entries, attack: Attack, log_end: int, case: object
) -> None:
    """Check that no queue offset of a rebuilt queue has the entry of another message than before. It may be blank."""
    for queue in attack.queues:
        if queue[1].startswith("%LMQ%"):
            continue
        kept = after.get(queue, {})
        wrong = [
            number
            for number, entry in before[queue].items()
            if not is_blank(entry)
            and ends_before(entry, log_end)
            and kept.get(number, entry)[:12] != entry[:12]
            and not is_blank(kept[number])
        ]
        assert not wrong, (case, queue, wrong[:3])


def first_checked(store: Path, five: bool, is_clean: bool, before: Entries) -> int:
    """Return the physical offset from which a broker may read the log when it starts."""
    starts = [int(path.name) for path in log_paths(store)]
    if not is_clean:  # the broker chooses a file by its times, possibly the first one
        return starts[0]
    if not five:
        return starts[-3:][0]
    known = max(
        int.from_bytes(entry[:8], "big")
        for entries in before.values()
        for entry in entries.values()
    )
    return max(start for start in starts if start <= known)


def opened(golden: GoldenStore, folder: Path, seed: int, is_clean: bool, put: bool) -> str:
    """Open a store with random damage for writing; return the outcome."""
    store = copy_store(golden.path, folder / "store")
    before, old_end = entries_of(store), walk(read_log(store)).end_offset
    attack = Attacker(store, store, seed).run()
    case = golden.name, seed, is_clean, put, attack.said
    if not is_clean:
        (store / "abort").touch()
    files, first = tree(store), first_checked(store, is_five(golden), is_clean, before)
    refusal = ""
    try:
        writer = StoreWriter(store, store_config(golden))
    except StoreError as refused:
        refusal = str(refused)
    if refusal:
        assert "reput repair" in refusal, (case, refusal)
        changed = {name for name, data in tree(store).items() if files.get(name) != data}
        assert changed <= {"lock"}, case
        assert any(at >= first for at in attack.log), case
        return "refused"
    report, new = writer.recovery, []
    if put:
        queue = sorted(name for name in before if name[1].isalnum() and name[0] == "consumequeue")
        for _, topic, queue_id in queue[:2]:
            result = writer.put(Message(topic, b"new", queue_id=int(queue_id)))
            new.append((("consumequeue", topic, queue_id), result.queue_offset))
    writer.close()
    ends = (old_end, *attack.log)
    assert report.log_end in ends, case
    after = entries_of(store)
    for name, number in new:
        assert number in after[name], (case, name, number)
        del after[name][number]
    assert_held(before, after, attack, report.log_end, case)
    assert_rebuilt_queue(before, after, attack, report.log_end, case)
    return "kept" if report.log_end == old_end else "cut"


def rebuilt(golden: GoldenStore, folder: Path, seed: int) -> None:
    """Damage a store at random, and rebuild it in place."""
    store = copy_store(golden.path, folder / "store")
    before = entries_of(store)
    attack = Attacker(store, store, seed).run()
    report = rebuild_store(SerialRunner(), store, config=store_config(golden))
    case = golden.name, seed, attack.said
    last = int(log_paths(store)[-1].name)
    end = min([report.log_end, *(at for at in attack.log if at >= last)])
    after = entries_of(store)
    assert_held(before, after, attack, end, case)
    assert_rebuilt_queue(before, after, attack, end, case)


def followed(golden: GoldenStore, folder: Path, seed: int) -> None:
    """Let a follower write indexes into another folder, damage log and indexes, and let a follower continue."""
    store, output = copy_store(golden.path, folder / "store"), folder / "output"
    _follow(store, output, golden)
    before = entries_of(output)
    attack = Attacker(store, output, seed).run()
    case = golden.name, seed, attack.said
    _follow(store, output, golden)
    last = int(log_paths(store)[-1].name)
    end = min([2**62, *(at for at in attack.log if at >= last)])
    assert_held(before, entries_of(output), attack, end, case)


def _follow(store: Path, output: Path, golden: GoldenStore) -> None:
    config = store_config(golden)
    follower = Follower(store, output, begin(store, output, config), Disk())
    while follower.poll() or follower.has_more:
        pass
    follower.close()


def folders(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Return a function that creates a folder per seed, and deletes the previous one."""
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        yield seed, folder
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["five_batch", "lmq"])
def test_a_few(golden: Golden, tmp_path: Path, name: str) -> None:
    """Attack each command once, and opening twice. The slow tests below run all seeds."""
    for number, attacked in enumerate((_opened, _opened, rebuilt, followed)):
        (tmp_path / str(number)).mkdir()
        attacked(golden(name), tmp_path / str(number), number)


def _opened(golden: GoldenStore, folder: Path, seed: int) -> None:
    opened(golden, folder, seed, is_clean=seed % 2 == 0, put=seed % 3 == 0)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", slow_from(0, STORES))
def test_opened_to_be_written(golden: Golden, tmp_path: Path, name: str) -> None:
    store = golden(name)
    for seed, folder in folders(tmp_path):
        _opened(store, folder, seed)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", slow_from(0, STORES))
def test_rebuilt_in_place(golden: Golden, tmp_path: Path, name: str) -> None:
    store = golden(name)
    for seed, folder in folders(tmp_path):
        rebuilt(store, folder, seed)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "name", slow_from(0, [n for n in STORES if n not in ("five_rocksdb", "five_ext")])
)
def test_followed(golden: Golden, tmp_path: Path, name: str) -> None:
    store = golden(name)
    for seed, folder in folders(tmp_path):
        followed(store, folder, seed)
