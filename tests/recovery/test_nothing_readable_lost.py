"""No command that writes a damaged store loses a message that was readable before.

After each command, every message that the oracle finds in the damaged log is still in the log, with the same bytes, or
in a copy below `reput.cut`.
"""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.base.config import StoreConfig
from reput.engine.stores.open_store import open_store
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.errors import StoreError
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.walk import proven_records, walk
from tests.rebuild.rebuilding import tree
from tests.recovery.entries import log_paths, read_log
from tests.recovery.test_no_entry_moves import FLIPS, STORES, Damage
from tests.slow import IS_THOROUGH
from tests.small import SMALL_64K

Golden = Callable[[str], GoldenStore]
Messages = dict[int, bytes]
COMMANDS: dict[str, list[str]] = {
    "put": ["put", "--topic", "TopicA", "--body", "x"],
    "recover": ["recover"],
    "recover as broker": ["recover", "--as-broker"],
    "expire": ["expire", "--before", "1971-01-01"],
    "rebuild": ["rebuild", "--runner", "serial"],
    "repair": ["repair", "--runner", "serial"],
    "truncate": ["repair", "--truncate-tail", "--runner", "serial"],
    "salvage": ["repair", "--salvage", "--runner", "serial"],
}
OPENING = ("put", "recover", "recover as broker", "expire")
_REFUSED = 4


def messages_of(store: Path) -> Messages:
    """Return the records of all readable messages by physical offset."""
    found: Messages = {}
    for start, data in read_log(store):
        for at in proven_records(start, data, -1):
            found[start + at] = bytes(data[at : at + int.from_bytes(data[at : at + 4], "big")])
    return found


def kept_messages(store: Path) -> Messages:
    """Return the readable messages of a store and of the copies in it."""
    found = messages_of(store)
    for copy in sorted((store / "reput.cut").glob("*")):
        found = messages_of(copy) | found
    return found


def run(store: Path, command: str, case: object) -> None:
    """Run a command on a damaged store, and check that no readable message is lost."""
    before, files = messages_of(store), tree(store)
    verb, *options = COMMANDS[command]
    done = reput(verb, store, *options)
    after = kept_messages(store)
    lost = [at for at, record in before.items() if after.get(at) != record]
    assert not lost, (case, command, done.code, lost[:3])
    if done.code == _REFUSED and command in OPENING:
        assert "reput repair" in done.err, (case, command, done.err)
        changed = {name for name, data in tree(store).items() if files.get(name) != data}
        assert changed <= {"lock"}, (case, command)
    assert done.code in (0, 3) or command != "recover as broker", (case, done.err)


def check_flips(golden: GoldenStore, folder: Path, command: str) -> None:
    """Flip a bit of one record in each of the last three log files, in a clean and an unclean store."""
    records = walk(read_log(golden.path)).records
    for path in log_paths(golden.path)[-3:]:
        start, stop = int(path.name), int(path.name) + path.stat().st_size
        inside = [at for at, _ in records if start <= at < stop]
        for what in FLIPS if inside else ():
            for is_clean in (True, False):
                store = copy_store(golden.path, folder / "store")
                Damage(path.name, inside[len(inside) // 2], what).apply(store)
                if not is_clean:
                    (store / "abort").touch()
                run(store, command, (golden.name, path.name, what, is_clean))
                shutil.rmtree(store)
                shutil.rmtree(folder / "store.reput-repair", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", STORES)
def test_each_field_of_a_record(golden: Golden, tmp_path: Path, name: str, command: str) -> None:
    check_flips(golden(name), tmp_path, command)


@pytest.mark.parametrize("command", ["put", "recover as broker"])
def test_flips_in_a_broker_s_store(golden: Golden, tmp_path: Path, command: str) -> None:
    check_flips(golden("tricky"), tmp_path, command)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", COMMANDS)
def test_random_flips(golden: Golden, tmp_path: Path, command: str) -> None:
    """From one to four flipped bits, anywhere in the used part of the last three log files."""
    for seed in range(200 if IS_THOROUGH else 1):
        chance = random.Random(f"{command} {seed}")
        name = chance.choice(STORES if IS_THOROUGH else ("basic", "tricky"))
        store = copy_store(golden(name).path, tmp_path / "store")
        end = walk(read_log(store)).end_offset
        flips = []
        for _ in range(chance.randrange(1, 5)):
            path = chance.choice([one for one in log_paths(store) if int(one.name) < end][-3:])
            used = min(end - int(path.name), path.stat().st_size)
            flips.append((path.name, chance.randrange(used), 1 << chance.randrange(8)))
            with path.open("r+b") as file:
                file.seek(flips[-1][1])
                (byte,) = file.read(1)
                file.seek(-1, 1)
                file.write(bytes([byte ^ flips[-1][2]]))
        if chance.random() < 0.5:
            (store / "abort").touch()
        run(store, command, (name, seed, flips))
        shutil.rmtree(store)
        shutil.rmtree(tmp_path / "store.reput-repair", ignore_errors=True)


def owned(
    folder: Path, config: StoreConfig = SMALL_64K, count: int = 200
) -> tuple[Path, list[int]]:
    """Create a store of reput, and return its path and the offsets of its messages."""
    path = folder / "store"
    with open_store(path, mode="rw", config=config) as store:
        puts = store.put_many(
            Message("T", bytes([n]) * 900, [f"k{n}"], queue_id=n % 2) for n in range(count)
        )
    return path, [put.physical_offset for put in puts]


def overwrite(store: Path, physical_offset: int, data: bytes, file_bytes: int = 1 << 16) -> None:
    start = physical_offset - physical_offset % file_bytes
    with (store / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(physical_offset - start)
        file.write(data)


def test_a_refusal_states_what_would_be_lost(tmp_path: Path) -> None:
    store, offsets = owned(tmp_path)
    overwrite(store, offsets[150] + 4, b"\0")
    before = tree(store)
    done = reput("put", store, "--topic", "T", "--body", "x")
    assert done.code == _REFUSED
    assert f"readable messages: 49, from offset {offsets[151]} on; queue entries: 50" in done.err
    assert "reput repair with --salvage keeps these messages" in done.err
    assert "reput recover with --as-broker" in done.err
    assert {name: data for name, data in tree(store).items() if before.get(name) != data} == {}
    with pytest.raises(StoreError, match="readable messages: 49"):
        open_store(store, mode="rw")
    assert reput("repair", store, "--salvage").code == 0
    with open_store(store, mode="rw") as opened:
        assert opened.get(offsets[151]).body == bytes([151]) * 900
        assert opened.recovery.kept == ""


def test_the_copy_is_a_store_whose_messages_can_be_put_again(tmp_path: Path) -> None:
    store, offsets = owned(tmp_path)
    overwrite(store, offsets[150] + 4, b"\0")
    done = reput("recover", store, "--as-broker", "--format", "json")
    report = json.loads(done.out)
    assert (done.code, report["kept_messages"]) == (3, 49)
    copy = Path(report["kept"])
    assert copy == store / "reput.cut" / "1"
    with open_store(store) as opened:
        assert not opened.query("T", "k151").messages
    assert reput("repair", copy, "--salvage").code == 0
    lines = reput("tail", copy, "--lines", "all", "--topic", "T", "--format", "jsonl").out
    wanted = [line for line in lines.splitlines() if "REPUT_SALVAGED" not in line]
    (tmp_path / "lines").write_text("\n".join(wanted) + "\n")
    assert len(wanted) == 49
    assert reput("put", store, tmp_path / "lines").code == 0
    with open_store(store) as opened:
        for n in range(151, 200):
            assert [found.body for found in opened.query("T", f"k{n}").messages] == [
                bytes([n]) * 900
            ]
    assert "foreign" not in reput("check", store).out


@pytest.mark.parametrize("is_owner", [True, False])
def test_a_power_cut_needs_nobody(tmp_path: Path, is_owner: bool) -> None:
    """The pages of some messages were never written, and pages after them were."""
    store, offsets = owned(tmp_path)
    for n in (150, 153):
        begin = offsets[n] + -offsets[n] % 512
        overwrite(store, begin, bytes(512))
    (store / "abort").touch()
    (store / "reput.known").unlink()
    if is_owner:
        record = {"token": "t", "end": offsets[100], "lock": 0}
        (store / "reput.owner").write_text(json.dumps(record))
    else:
        with pytest.raises(StoreError, match="readable messages: 48"):
            StoreWriter(store)
        return
    before = messages_of(store)
    with open_store(store, mode="rw") as opened:
        assert opened.recovery.kept_messages == 48
        assert any("a power cut" in note for note in opened.recovery.notes)
        opened.put(Message("T", b"new"))
    after = kept_messages(store)
    assert all(after.get(at) == record for at, record in before.items())


def test_no_power_cut_damages_what_was_synced(tmp_path: Path) -> None:
    """The owner found the log durable up to an offset after the damage."""
    store, offsets = owned(tmp_path)
    overwrite(store, offsets[150] + -offsets[150] % 512, bytes(512))
    (store / "abort").touch()
    (store / "reput.known").unlink()
    record = {"token": "t", "end": offsets[160], "lock": 0}
    (store / "reput.owner").write_text(json.dumps(record))
    with pytest.raises(StoreError, match="reput recover with as_broker"):
        StoreWriter(store)


def test_remains_after_a_broker_s_cut(tmp_path: Path) -> None:
    """A broker leaves the bytes after its cut. Newer messages before them show that it made the cut."""
    clock = iter(range(1_700_000_000_000, 1_800_000_000_000, 1000))
    path = tmp_path / "store"
    writer = StoreWriter(path, SMALL_64K, clock_ms=lambda: next(clock))
    offsets = [writer.put(Message("T", bytes(400 + n))).physical_offset for n in range(100)]
    writer.close()
    old = {file.name: file.read_bytes() for file in (path / "commitlog").iterdir()}
    overwrite(path, offsets[40] + 4, b"\0")
    writer = StoreWriter(
        path, settings=WriterSettings(as_broker=True), clock_ms=lambda: next(clock)
    )
    writer.put(Message("T", bytes(777)))
    end = writer.end_offset
    writer.close()
    shutil.rmtree(path / "reput.cut")
    (path / "reput.known").unlink()
    overwrite(path, end, old[f"{0:020d}"][end : 1 << 16])
    with open_store(path, mode="rw") as opened:
        assert any("had already cut the log" in note for note in opened.recovery.notes)
        assert opened.recovery.log_end == end
        assert opened.recovery.kept_messages > 10
