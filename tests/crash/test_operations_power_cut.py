"""The power is cut at each step of an operation: its promise holds, and the repeated operation completes it."""

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

import pyarrow.dataset as ds
import pytest

import reput
from reput.engine.check.repairing.driver import repair_store, settle_repair, undo_repair
from reput.engine.rebuild.follow.follower import Follower
from reput.engine.rebuild.follow.state import begin
from reput.errors import ReputError, StoreNotFoundError
from reput.format.file_names import RESTORING_FOLDER
from reput.io.archive import Archive
from tests.check.repairing import SMALL, damaged_store, full_plan, held
from tests.crash.power import Power
from tests.follow.following import catch_up
from tests.oracle.walk import read_log, walk
from tests.slow import examples

Names = dict[str, bytes]
FOLDERS = ("consumequeue", "index")


class Operation(ABC):
    """An operation on the files of a folder.

    Attributes:
        before: Every file before the operation, without `lock`.
        after: Every file after the operation, without `lock`.
    """

    before: Names
    after: Names

    @abstractmethod
    def prepare(self, root: Path) -> None:
        """Create the files before the operation."""

    @abstractmethod
    def run(self, root: Path) -> None:
        """Carry out the operation. It must also complete an operation whose power was cut."""

    @abstractmethod
    def check(self, root: Path, is_done: bool) -> None:
        """Check what a power cut has left, before the operation is repeated. `is_done`: it had returned before."""

    def check_repeated(self, root: Path) -> None:
        """Check the files after the operation was repeated."""
        assert held(root) == self.after


def parts(files: Names, folder: str) -> Names:
    return {name: data for name, data in files.items() if name.startswith(f"{folder}/")}


class Rebuild(Operation):
    """A rebuild in place: each folder is old or new as a whole, and `checkpoint` is new only after both."""

    place = "store"

    def prepare(self, root: Path) -> None:
        store = damaged_store(root / "store")
        for folder in FOLDERS:
            path = next(path for path in sorted((store / folder).rglob("*")) if path.is_file())
            path.write_bytes(b"old")
        (store / "checkpoint").write_bytes(bytes(4096))

    def run(self, root: Path) -> None:
        reput.rebuild(root / "store", config=SMALL, runner="serial")

    def check(self, root: Path, is_done: bool) -> None:
        now = held(root)
        states = []
        for folder in (f"{self.place}/{name}" for name in FOLDERS):
            old, new, found = (parts(files, folder) for files in (self.before, self.after, now))
            assert found in (old, new), folder
            states.append(found == new)
        name = f"{self.place}/checkpoint"
        assert now.get(name) in (self.before.get(name), self.after[name])
        is_new = now.get(name) == self.after[name]
        assert all(states) or not is_new
        assert is_new or not is_done
        assert parts(now, "store/commitlog") == parts(self.before, "store/commitlog")


class RebuildElsewhere(Rebuild):
    """A rebuild into another folder."""

    place = "out"

    def run(self, root: Path) -> None:
        reput.rebuild(root / "store", output=root / "out", config=SMALL, runner="serial")


class RebuildDamaged(Rebuild):
    """A rebuild in place of a store whose log is damaged: entries of lost messages come from the old queues."""

    config = replace(SMALL, queue_entries=7)

    def prepare(self, root: Path) -> None:
        store = damaged_store(root / "store")
        for folder in FOLDERS:
            shutil.rmtree(store / folder)
        self.run(root)
        min((store / "commitlog").iterdir()).unlink()
        # The entries of lost messages come from the old queues.
        file = sorted((store / "commitlog").iterdir())[0]
        at = next(at for at, _ in walk(read_log(store)).records if at > int(file.name))
        with file.open("r+b") as log:
            log.seek(at - int(file.name))
            log.write(b"\xff" * 8)
        min((store / "index").iterdir()).write_bytes(b"old")
        (store / "checkpoint").write_bytes(bytes(4096))

    def run(self, root: Path) -> None:
        reput.rebuild(root / "store", config=self.config, runner="serial")


class Repair(Operation):
    """A repair: the store is the old or the planned one as a whole, and the old state can be restored."""

    def prepare(self, root: Path) -> None:
        damaged_store(root / "store")

    def run(self, root: Path) -> None:
        settle_repair(root / "store")
        repair_store(full_plan(root / "store"))

    def check(self, root: Path, is_done: bool) -> None:
        if not (root / "store").exists():
            settle_repair(root / "store")
        old, new, now = (parts(files, "store") for files in (self.before, self.after, held(root)))
        assert now in (old, new)
        assert now == new or not is_done

    def check_repeated(self, root: Path) -> None:
        assert parts(held(root), "store") == parts(self.after, "store")
        undo_repair(root / "store")
        assert parts(held(root), "store") == parts(self.before, "store")


class Undo(Repair):
    """The undo of a repair."""

    def prepare(self, root: Path) -> None:
        damaged_store(root / "store")
        repair_store(full_plan(root / "store"))

    def run(self, root: Path) -> None:
        settle_repair(root / "store")
        if (root / "store.reput-repair" / "1" / "backup").exists():
            undo_repair(root / "store")

    def check_repeated(self, root: Path) -> None:
        assert parts(held(root), "store") == parts(self.after, "store")


class Export(Operation):
    """An incremental export: readers find each message at most once, and exactly once after the next export."""

    layout: Literal["parquet", "jsonl"] = "parquet"
    destination = "out"

    def prepare(self, root: Path) -> None:
        store = damaged_store(root / "store")
        last = sorted((store / "commitlog").iterdir())[-1]
        (root / "later").mkdir()
        last.rename(root / "later" / last.name)
        self.run(root)
        (root / "later" / last.name).rename(last)

    def run(self, root: Path) -> None:
        reput.export(root / "store", root / self.destination, to=self.layout, incremental=True)

    def rows(self, root: Path) -> list[int]:
        table = ds.dataset(root / "out", format="parquet", partitioning="hive").to_table()
        return sorted(table.column("physical_offset").to_pylist())

    def expected(self, root: Path) -> list[int]:
        table = reput.dataset(root / "store", ["physical_offset"], on_corrupt="skip")
        return sorted(table.to_table().column(0).to_pylist())

    def check(self, root: Path, is_done: bool) -> None:
        if is_done:
            self.check_repeated(root)

    def check_repeated(self, root: Path) -> None:
        assert self.rows(root) == self.expected(root)


class ExportLines(Export):
    """The same as lines of JSON."""

    layout = "jsonl"
    destination = "out.jsonl"

    def rows(self, root: Path) -> list[int]:
        lines = (root / "out.jsonl").read_text().splitlines()
        return sorted(json.loads(line)["physical_offset"] for line in lines)


class ArchiveFiles(Operation):
    """An archive: what it states is there is there, and the next run adds the rest."""

    def prepare(self, root: Path) -> None:
        damaged_store(root / "store")

    def run(self, root: Path) -> None:
        reput.archive(root / "store", root / "archive", with_last=True)

    def check(self, root: Path, is_done: bool) -> None:
        try:
            assert reput.verify_archive(root / "archive").is_valid
        except StoreNotFoundError:
            assert not is_done
            return
        if is_done:
            self.check_repeated(root)

    def check_repeated(self, root: Path) -> None:
        assert reput.verify_archive(root / "archive").is_valid
        log = Archive(str(root / "archive")).manifest.log
        assert [Path(file.path).name for file in log] == sorted(
            path.name for path in (root / "store" / "commitlog").iterdir()
        )


class Restore(Operation):
    """A restore: the destination has no store, or the whole one."""

    @staticmethod
    def restored(files: Names) -> Names:
        """Return the restored store, without the folder in which the restore has built it."""
        store = parts(files, "restored")
        return {name: data for name, data in store.items() if RESTORING_FOLDER not in name}

    def prepare(self, root: Path) -> None:
        damaged_store(root / "store")
        reput.archive(root / "store", root / "archive", with_last=True)

    def run(self, root: Path) -> None:
        try:
            reput.restore(root / "archive", root / "restored")
        except ReputError:
            # The destination has the whole store already.
            assert self.restored(held(root)) == self.restored(self.after)

    def check(self, root: Path, is_done: bool) -> None:
        try:
            reput.open_store(root / "restored").close()
        except StoreNotFoundError:
            assert not is_done
            return
        assert self.restored(held(root)) == self.restored(self.after)

    def check_repeated(self, root: Path) -> None:
        assert self.restored(held(root)) == self.restored(self.after)


class Erase(Operation):
    """An erased copy: it is missing or whole, and the store is unchanged."""

    def prepare(self, root: Path) -> None:
        damaged_store(root / "store")
        settle_repair(root / "store")
        repair_store(full_plan(root / "store"))
        shutil.rmtree(root / "store.reput-repair")
        (root / "store" / "config").mkdir(exist_ok=True)
        (root / "store" / "config" / "delayOffset.json").write_bytes(b"{}")
        (root / "store" / "brokerIdentity").write_bytes(b"copied as it is")

    def run(self, root: Path) -> None:
        if (root / "erased").exists():
            assert self.copied(held(root)) == self.copied(self.after)
            return
        reput.erase(root / "store", root / "erased", keys=["k7"], config=SMALL)

    @staticmethod
    def copied(files: Names) -> Names:
        """Return the erased copy. Its records state the time of the erasure, so only their frames are compared."""
        copy = parts(files, "erased")
        for name in parts(copy, "erased/commitlog"):
            frames = [
                (at, one.total_size, one.topic, one.queue_offset)
                for at, one in walk([(0, copy[name])]).records
            ]
            copy[name] = repr((len(copy[name]), frames)).encode()
        return copy

    def check(self, root: Path, is_done: bool) -> None:
        now = held(root)
        assert parts(now, "store") == parts(self.before, "store")
        assert self.copied(now) in ({}, self.copied(self.after))
        assert not is_done or self.copied(now)
        # Without the audit file, nobody could prove what was erased.
        assert not self.copied(now) or "erased.erasure.json" in now

    def check_repeated(self, root: Path) -> None:
        assert self.copied(held(root)) == self.copied(self.after)


class Follow(Operation):
    """Indexes beside a log: the next follower continues, and they equal a rebuild's."""

    def prepare(self, root: Path) -> None:
        damaged_store(root / "store")

    def run(self, root: Path) -> None:
        out = root / "out"
        follower = Follower(root / "store", out, begin(root / "store", out, SMALL))
        catch_up(follower)
        follower.sync()
        follower.close()

    def check(self, root: Path, is_done: bool) -> None:
        if is_done:
            self.check_repeated(root)

    def check_repeated(self, root: Path) -> None:
        assert self.indexes(held(root)) == self.indexes(self.after)

    @staticmethod
    def indexes(files: Names) -> list[Names]:
        return [parts(files, f"out/{name}") for name in FOLDERS]


class Prove(Operation):
    """A proof in the cache: it is there as a whole, or not trusted."""

    def prepare(self, root: Path) -> None:
        damaged_store(root / "store")
        (root / "cache").mkdir()

    def run(self, root: Path) -> None:
        reput.prove(root / "store")

    def check(self, root: Path, is_done: bool) -> None:
        with reput.open_store(root / "store") as store:
            answer = [message.physical_offset for message in store.query("A", "k7").messages]
        records = walk(read_log(root / "store")).records
        assert answer == [
            at for at, one in records if one.topic == "A" and "k7" in (one.keys or "").split()
        ]
        assert parts(held(root), "store") == parts(self.before, "store")

    def check_repeated(self, root: Path) -> None:
        self.check(root, True)


OPERATIONS: dict[str, Callable[[], Operation]] = {
    "rebuild": Rebuild,
    "rebuild --output": RebuildElsewhere,
    "rebuild of a damaged log": RebuildDamaged,
    "repair": Repair,
    "repair --undo": Undo,
    "export": Export,
    "export to lines": ExportLines,
    "archive": ArchiveFiles,
    "restore": Restore,
    "erase": Erase,
    "follow": Follow,
    "prove": Prove,
}


class Cuts:
    """The cuts of an operation's power.

    Attributes:
        steps: The steps of the operation.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.operation = OPERATIONS[name]()
        self._folder = folder / "cuts"
        root = self._fresh()
        self.operation.before = held(root)
        power = Power(root)
        with power.on():
            self.operation.run(root)
        self.operation.after = held(root)
        self.steps = power.steps

    def _fresh(self) -> Path:
        # Repairs identify folders by inode, so the files are created again, not copied.
        shutil.rmtree(self._folder, ignore_errors=True)
        root = self._folder / "root"
        root.mkdir(parents=True)
        self.operation.prepare(root)
        return root

    def cut(self, number: int | None, seed: int = 0, keeps: float | None = None) -> None:
        """Cut the power before a step, or after the last one, and check what is left."""
        power = Power(self._fresh(), number, Random(seed), keeps)
        with power.on():
            self.operation.run(power.root)
        power.come_back()
        self.operation.check(power.root, is_done=number is None)
        self.operation.run(power.root)
        self.operation.check_repeated(power.root)


@pytest.fixture
def cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Cuts]:
    """Return a function that prepares the cuts of an operation."""

    def prepared(name: str) -> Cuts:
        place = tmp_path / ("cuts/root/cache" if name == "prove" else "cache")
        monkeypatch.setenv("XDG_CACHE_HOME", str(place))
        return Cuts(tmp_path, name)

    return prepared


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_cut_at_some_steps(cuts: Callable[[str], Cuts], name: str) -> None:
    made = cuts(name)
    assert made.steps
    for number in range(0, len(made.steps), 1 + len(made.steps) // 6):
        made.cut(number, seed=number)
    made.cut(None, keeps=0)


def test_a_cut_between_the_renames_that_commit_a_rebuild(cuts: Callable[[str], Cuts]) -> None:
    made = cuts("rebuild")
    calls = [step.partition(" ") for step in made.steps]
    renames = [
        number
        for number, (call, _, path) in enumerate(calls)
        if call in ("exchange", "rename", "replace")
        and path.rpartition("/")[2] in (*FOLDERS, "checkpoint")
    ]
    assert renames
    for number in renames:
        made.cut(number + 1, keeps=1)
    made.cut(None, keeps=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_cuts_at_the_last_steps(cuts: Callable[[str], Cuts], name: str) -> None:
    """Most operations commit at their end, where the order of their renames matters."""
    made = cuts(name)
    for number in range(max(len(made.steps) - 8, 0), len(made.steps)):
        for seed in range(6):
            made.cut(number, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(1)))
@pytest.mark.parametrize("name", OPERATIONS)
def test_cuts_at_every_step(cuts: Callable[[str], Cuts], name: str, seed: int) -> None:
    made = cuts(name)
    for number in (*range(len(made.steps)), None):
        made.cut(number, seed)
        if seed == 0:
            made.cut(number, keeps=0)  # nothing survives that was not synced, whatever the seed
