"""Opening a broker's store with a damaged log for writing never moves the queue entry of a message.

Either the command refuses, names `reput repair`, and changes nothing, or it opens the store by these rules:

- The log ends where it ended before, or at the damaged record. The latter is allowed only if a broker reads this record
  when it starts (`checked_from`), because it also truncates the log there.
- The entry of a message that ends before the end of the log stays at its place, byte for byte, even if the message is
  not readable. Entries of later messages are deleted.
- Entries may be added after the last entry of a queue. In a store that was not shut down cleanly, they may also be
  added at any place that had no entry.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from reput.base.tasks import SerialRunner
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.stores import open_store
from reput.engine.writer.store_writer import StoreWriter
from reput.errors import StoreError
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.walk import walk
from tests.rebuild.rebuilding import tree
from tests.recovery.entries import assert_none_moved, entries_of, log_paths, read_log
from tests.slow import slow_from
from tests.writer.golden_puts import store_config

Golden = Callable[[str], GoldenStore]
FLIPS = {"magic": (4, 0x10), "size": (2, 0x01), "queue offset": (27, 0x04), "crc": (11, 0x01)}
"""Byte of the record, and its mask for xor."""
STORES = (
    "basic", "timed", "tricky", "lmq", "orders", "five_batch", "five_timer", "five_compaction",
    "five_crc", "five_default", "five_ext", "five_life", "five_rocksdb", "extremes", "git",
)  # fmt: skip


REBUILT = (*(name for name in STORES if name != "lmq"), "five_multipath")


class Damage(NamedTuple):
    """One record of a log file, and its flipped bits."""

    file: str
    physical_offset: int
    what: str

    def apply(self, store: Path) -> None:
        (path,) = [path for path in log_paths(store) if path.name == self.file]
        at, mask = FLIPS[self.what]
        with path.open("r+b") as file:
            file.seek(self.physical_offset - int(self.file) + at)
            (byte,) = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte ^ mask]))


def damages(store: Path) -> Iterator[Damage]:
    """Return one record in each file of the log, with each of the flips."""
    records = walk(read_log(store)).records
    for path in log_paths(store):
        start, stop = int(path.name), int(path.name) + path.stat().st_size
        inside = [at for at, _ in records if start <= at < stop]
        if inside:
            for what in FLIPS:
                yield Damage(path.name, inside[len(inside) // 2], what)


def check(golden: GoldenStore, store: Path, damage: Damage, is_clean: bool) -> None:
    """Open the store as `put` does, with this damage."""
    copy_store(golden.path, store)
    old_end = walk(read_log(store)).end_offset
    before = entries_of(store)
    damage.apply(store)
    if not is_clean:
        (store / "abort").touch()
    files = tree(store)
    refusal = ""
    try:
        writer = StoreWriter(store, store_config(golden))
    except StoreError as refused:
        refusal = str(refused)
    if refusal:
        assert "reput repair" in refusal, (damage, refusal)
        changed = {name for name, data in tree(store).items() if files.get(name) != data}
        assert changed <= {"lock"}, damage
        return
    report = writer.recovery
    writer.close()
    assert report.log_end in (old_end, damage.physical_offset), damage
    if report.log_end != old_end:
        assert damage.physical_offset >= report.checked_from, damage
    assert_none_moved(before, entries_of(store), report.log_end, (damage, is_clean))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("name", slow_from(0, STORES))
def test_every_kind_of_damage_in_every_file(
    golden: Golden, tmp_path: Path, name: str, is_clean: bool
) -> None:
    store = golden(name)
    for number, damage in enumerate(damages(store.path)):
        check(store, tmp_path / str(number), damage, is_clean)
        shutil.rmtree(tmp_path / str(number))


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("five_multipath", r"move the files into commitlog/, and name that folder alone"),
        ("five_dledger", r"a DLedger log, which only brokers of its group write"),
    ],
)
def test_a_log_that_is_only_read(golden: Golden, tmp_path: Path, name: str, needed: str) -> None:
    """Refuse to write, name the remedy, and change nothing, whether the log is damaged or not."""
    store = copy_store(golden(name).path, tmp_path / "store")
    for damaged in (False, True):
        if damaged:
            (log,) = [
                *store.glob("commitlog1/" + "0" * 20),
                *store.glob("dledger-*/data/" + "0" * 20),
            ]
            data = bytearray(log.read_bytes())
            data[1000] ^= 1
            log.write_bytes(data)
        before = tree(store)
        for command in (["recover"], ["put", "--topic", "T", "--body", "x"]):
            done = reput(command[0], store, *command[1:])
            assert done.code == 2
            assert re.search(needed, done.err)
        assert tree(store) == before


def test_a_log_moved_into_one_folder_is_written(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_multipath").path, tmp_path / "store")
    before = entries_of(store)
    (store / "commitlog").mkdir()
    for path in log_paths(store):
        path.rename(store / "commitlog" / path.name)
    assert reput("put", store, "--topic", "New", "--body", "x").code == 0
    after = entries_of(store)
    assert {name: entries for name, entries in after.items() if name[1] != "New"} == before


def test_folders_of_a_log_do_not_make_a_new_store(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_multipath").path, tmp_path / "store")
    named = f"{store},{store}/commitlog1"
    done = reput("put", named, "--topic", "T", "--body", "x")
    assert (done.code, "put needs the CommitLog in" in done.err) == (2, True)
    assert not Path(named).exists()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["lmq", *slow_from(0, REBUILT)])
def test_a_rebuild_in_place(golden: Golden, tmp_path: Path, name: str) -> None:
    """A rebuild in place keeps the entries of the damaged record, and of unreadable messages after it."""
    case = golden(name)
    before = entries_of(case.path)
    for number, damage in enumerate(damages(case.path)):
        store = copy_store(case.path, tmp_path / str(number))
        damage.apply(store)
        report = rebuild_store(SerialRunner(), store, config=store_config(case))
        last = damage.file == log_paths(store)[-1].name
        end = damage.physical_offset if last and damage.what != "crc" else report.log_end
        assert_none_moved(before, entries_of(store), min(end, report.log_end), damage)
        shutil.rmtree(store)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("what", FLIPS)
@pytest.mark.every_case
def test_damage_in_an_old_file(golden: Golden, tmp_path: Path, what: str, is_clean: bool) -> None:
    store = golden("tricky")
    damage = [one for one in damages(store.path) if one.what == what][2]
    check(store, tmp_path / "store", damage, is_clean)


@pytest.mark.parametrize("name", ["basic", *slow_from(0, ["five_default"])])
@pytest.mark.parametrize("command", [["recover"], ["put", "--topic", "TopicA", "--body", "x"]])
def test_commands_leave_the_entries_and_report_the_damage(
    golden: Golden,
    tmp_path: Path,
    name: str,
    command: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    before = entries_of(store)
    third = sorted((store / "commitlog").iterdir())[2]
    records = [at for at, _ in walk(read_log(store)).records if at >= int(third.name)]
    Damage(third.name, records[19], "magic").apply(store)
    done = reput(command[0], store, *command[1:])
    assert done.code == 3
    assert "bytes lost: no record begins here" in caplog.text
    assert_none_moved(before, entries_of(store), records[-1] + 100_000, name)
    with open_store(store) as opened:
        put = int(command[0] == "put")
        queue = ("consumequeue", "TopicA", "0")
        assert opened.max_queue_offset("TopicA", 0) == max(before[queue]) + 1 + put
