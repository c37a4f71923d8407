"""No command that writes a damaged store loses a message that was readable before.

After each command, every message that the oracle finds in the damaged log is still in the log, with the same bytes, or
in a copy below `reput.cut`.
"""

import hashlib
import json
import random
import shutil
import signal
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from reput.base.config import StoreConfig
from reput.engine.rebuild import follow_log
from reput.engine.rebuild.report import RebuildReport
from reput.engine.stores import open_store
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.errors import StoreError, UsageError
from tests.cli.running import REPUT, Ran, reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.records import Record, decode
from tests.oracle.walk import proven_records, walk
from tests.rebuild.rebuilding import tree
from tests.recovery.entries import entries_of, log_paths, read_log
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
    "rebuild and salvage": ["rebuild", "--salvage", "--runner", "serial"],
    "serve": ["serve", "--accept-sends", "--listen", "127.0.0.1:0"],
    "expire half": ["expire", "--before", "time of the message in the middle"],
    "erase": ["erase", "--output", "copy", "--key", "of the message in the middle"],
    "follow": [],
}
OPENING = ("put", "recover", "recover as broker", "expire", "serve", "expire half")
PARTS = (1, 2, 3) if IS_THOROUGH else (2,)
_REFUSED = 4


def messages_of(store: Path) -> Messages:
    """Return the records of all readable messages by physical offset."""
    found: Messages = {}
    for start, data in read_log(store):
        found |= _records_of(start, bytes(data))
    return found


def _records_of(start: int, data: bytes) -> Messages:
    digest = hashlib.sha256(data).digest()
    # Most files of a store are never changed, and the oracle is slow.
    if (start, digest) not in _RECORDS:
        _RECORDS[start, digest] = {
            start + at: data[at : at + int.from_bytes(data[at : at + 4], "big")]
            for at in proven_records(start, data, -1)
        }
        if len(_RECORDS) > _MOST_FILES:
            del _RECORDS[next(iter(_RECORDS))]
    return _RECORDS[start, digest]


_MOST_FILES = 2_000
_RECORDS: dict[tuple[int, bytes], Messages] = {}


def kept_messages(store: Path) -> Messages:
    """Return the readable messages of a store and of the copies in it."""
    found = messages_of(store)
    for copy in sorted((store / "reput.cut").glob("*")):
        found = messages_of(copy) | found
    return found


def run(store: Path, command: str, case: object) -> None:
    """Run a command on a damaged store, and check that no readable message is lost."""
    before, files = messages_of(store), tree(store)
    done, released = RUNS.get(command, _plain)(store, command, before)
    after = kept_messages(store)
    lost = [at for at, record in before.items() if at not in released and after.get(at) != record]
    assert not lost, (case, command, done.code, lost[:3])
    if done.code == _REFUSED and command in OPENING:
        assert "reput repair" in done.err, (case, command, done.err)
        changed = {name for name, data in tree(store).items() if files.get(name) != data}
        assert changed <= {"lock"}, (case, command)
    assert done.code in (0, 3) or command != "recover as broker", (case, done.err)


Outcome = tuple[Ran, set[int]]
"""The result of a command, and the offsets of messages that it may remove."""


def _plain(store: Path, command: str, before: Messages) -> Outcome:
    verb, *options = COMMANDS[command]
    return reput(verb, store, *options), set()


def _serve(store: Path, command: str, before: Messages) -> Outcome:
    """Serve a store until it is ready, and end the server in order."""
    verb, *options = COMMANDS[command]
    process = subprocess.Popen(
        [REPUT, verb, store, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    return Ran(process.returncode, out, err, b""), set()


def _record(data: bytes) -> Record:
    decoded = decode(data, 0)
    assert isinstance(decoded, Record)
    return decoded


def _expire_half(store: Path, command: str, before: Messages) -> Outcome:
    """Delete files of older messages: only messages stored before the time may be missing afterwards."""
    stored = {at: _record(data).store_timestamp for at, data in before.items()}
    time = sorted(stored.values())[len(stored) // 2] if stored else 0
    done = reput("expire", store, "--before", time)
    return done, {at for at, stored_at in stored.items() if stored_at < time}


def _erase(store: Path, command: str, before: Messages) -> Outcome:
    """Erase one message in a copy. The copy has all other messages, and the store stays as it is."""
    files = tree(store)
    keys = {key: at for at, data in sorted(before.items()) for key in _record(data).index_keys}
    if not keys:
        return Ran(0, "", "", b""), set()
    key = sorted(keys)[len(keys) // 2]
    copy = store.with_name("erased")
    done = reput("erase", store, "--output", copy, "--key", key, "--hash-slots", 64)
    assert {name: data for name, data in tree(store).items() if files.get(name) != data} == {}
    if copy.exists():
        after = messages_of(copy)
        lost = [
            at
            for at, data in before.items()
            if after.get(at) != data and b"REPUT_ERASED" not in after.get(at, b"")
        ]
        assert not lost, (key, done.code, lost[:3])
        shutil.rmtree(copy)
        store.with_name("erased.erasure.json").unlink(missing_ok=True)
    return done, set()


def _follow(store: Path, command: str, before: Messages) -> Outcome:
    """Index the log beside the store, which stays as it is. Messages without an entry are reported."""
    files = tree(store)
    damage: list[Any] = []
    left_out = [0]
    output = store.with_name("live")

    def rebuilt(report: RebuildReport) -> None:
        damage.extend(report.damage)
        left_out.append(report.queue_entries_dropped)
        stop.set()

    try:
        # The first run builds the indexes, and the second one continues them.
        for stop in (Event(), Event()):
            report = follow_log(
                store, output, runner="serial", stop=stop, on_rebuilt=rebuilt,
                on_resume=lambda report: stop.set(),  # noqa: B023
            )  # fmt: skip
            damage += report.damage
    except (StoreError, UsageError) as refused:
        return Ran(_REFUSED, "", str(refused), b""), set()
    finally:
        assert {name: data for name, data in tree(store).items() if files.get(name) != data} == {}
    entries = {
        int.from_bytes(entry[:8], "big")
        for queue in entries_of(output).values()
        for entry in queue.values()
    }
    missing = [at for at, data in before.items() if at not in entries and _is_indexed(data)]
    assert len(missing) <= sum(left_out) or damage, missing[:3]
    shutil.rmtree(output)
    return Ran(3 if damage else 0, "", "", b""), set()


def _is_indexed(data: bytes) -> bool:
    """Return whether a message has an entry in its queue: prepared and rolled-back messages have none."""
    return _record(data).transaction_type in (0, 8)


RUNS: dict[str, Callable[[Path, str, Messages], Outcome]] = {
    "serve": _serve,
    "expire half": _expire_half,
    "erase": _erase,
    "follow": _follow,
}


def check_flips(golden: GoldenStore, folder: Path, command: str) -> None:
    """Flip a bit of one record in each of the last three log files, in a clean and an unclean store."""
    records = walk(read_log(golden.path)).records
    for path in log_paths(golden.path)[-3:]:
        start, stop = int(path.name), int(path.name) + path.stat().st_size
        inside = [at for at, _ in records if start <= at < stop]
        # With three records of a file, there are 200 stores for each kind of damage.
        chosen = {inside[len(inside) * part // 4] for part in PARTS} if inside else ()
        for what, at, is_clean in product(FLIPS, chosen, (True, False)):
            store = copy_store(golden.path, folder / "store")
            Damage(path.name, at, what).apply(store)
            if not is_clean:
                (store / "abort").touch()
            run(store, command, (golden.name, path.name, at, what, is_clean))
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
