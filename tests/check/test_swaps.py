"""Root works in another user's store while this user exchanges names in it: nothing outside the store is used.

`tests/swapper.py` is that user. Outside lies a store of root's with the same names and a secret word in each record.
It must keep its inodes, owners, times, names and bytes, and neither the word nor its hashes may appear elsewhere.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

import reput
from reput.base.config import StoreConfig
from reput.base.tasks import SerialRunner
from reput.engine.check.repairing.driver import (
    plan_repair,
    repair_store,
    settle_repair,
    undo_repair,
)
from reput.engine.five.rocksdb_writer import create_database
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.follow.driver import follow_store
from reput.engine.rebuild.report import RebuildReport
from reput.errors import ReputError, StoreAccessError, StoreError
from reput.io import DISK, stamps
from reput.io.anchors import anchored
from reput.io.writer import sync_file
from reput.wings.lakes.compaction import compact_destination
from reput.wings.lakes.parquet_files import ParquetFiles
from reput.wings.lakes.tables.opening import open_table
from reput.wings.serve.broker.config_file import ConfigFile
from reput.wings.serve.remoting.requests import RequestCode
from tests.check.repairing import SMALL, damaged_store, full_plan
from tests.cli.running import reput as reput_command
from tests.lakes.exporting import export as export_store
from tests.oracle.index_file import HEADER, ITEM, SLOT, key_hash
from tests.remoting.client import Client, serving
from tests.slow import slow_from

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root works in stores of others"
)

USER = 65534
SECRET = "SECRET"
_SWAPPER = Path(__file__).parents[1] / "swapper.py"
_TURNS = 3
_HEART_BEAT = b'{"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "A"}]}]}'
Start = Callable[[], None]


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of the user's with a store, beside root's folder `outside`."""
    base = Path(tempfile.mkdtemp(prefix="swaps-"))
    try:
        base.chmod(0o755)
        place = base / "home"
        place.mkdir()
        damaged_store(place / "store")
        damaged_store(base / "outside", SECRET)
        (base / "outside" / "config" / "topics.json").write_text(f'{{"{SECRET}": 1}}')
        (base / "outside").chmod(0o700)
        for parent, folders, files in os.walk(place):
            for name in (".", *folders, *files):
                os.chown(Path(parent, name), USER, USER)
        yield place
    finally:
        shutil.rmtree(base)


@contextmanager
def swapping(home: Path, seed: int) -> Iterator[Start]:
    """Start the process of the user who exchanges names. It begins to exchange when the yielded function is called."""
    command = [
        sys.executable, "-S", str(_SWAPPER), str(home), str(home.parent / "outside"), str(USER), str(seed),
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdin is not None
        assert user.stdout is not None
        if user.stdout.readline() != "ready\n":
            pytest.skip(f"user {USER} cannot reach {home} or {sys.executable}")

        def start() -> None:
            assert user.stdin is not None
            user.stdin.write("begin\n")
            user.stdin.flush()

        try:
            yield start
        finally:
            user.stdin.close()
    assert user.returncode == 0


def look(folder: Path) -> dict[str, object]:
    """Return names, status and content of everything below a folder."""
    found: dict[str, object] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        found[str(path)] = (
            status.st_ino, status.st_mode, status.st_nlink, status.st_uid, status.st_gid, status.st_size,
            status.st_mtime_ns, status.st_ctime_ns, path.read_bytes() if path.is_file() else None,
        )  # fmt: skip
    return found


def assert_nothing_leaked(home: Path) -> None:
    outside = {path.lstat().st_ino for path in (home.parent / "outside").rglob("*")}
    hashes = {key_hash(topic, f"{SECRET}k{n}") for topic in "AB" for n in range(90)}
    for parent, folders, files in os.walk(home):
        for name in (*folders, *files):
            path = Path(parent, name)
            assert path.lstat().st_ino not in outside, path
            if path.is_symlink() or not path.is_file():
                continue
            data = path.read_bytes()
            assert SECRET.encode() not in data, path
            if path.parent.name in ("index", "parts"):
                items = data[HEADER.size + SMALL.hash_slots * SLOT.size :]
                items = items[: len(items) // ITEM.size * ITEM.size]
                assert not hashes & {item[0] for item in ITEM.iter_unpack(items)}, path


def repair(home: Path, start: Start) -> None:
    plan = full_plan(home / "store")
    repair_store(plan, at=lambda step: start() if step == "begun" else None)


def plan_and_repair(home: Path, start: Start) -> None:
    start()
    settle_repair(home / "store")
    repair_store(plan_repair(home / "store", config=SMALL))


def undo(home: Path, start: Start) -> None:
    repair_store(full_plan(home / "store"))
    start()
    undo_repair(home / "store")


def rebuild(home: Path, start: Start) -> None:
    start()
    rebuild_store(SerialRunner(), home / "store", config=SMALL, salvage=True)


def rebuild_elsewhere(home: Path, start: Start) -> None:
    start()
    rebuild_store(SerialRunner(), home / "store", config=SMALL, output=home / "output")


def recover(home: Path, start: Start) -> None:
    start()
    reput.open_store(home / "store", mode="rw", config=SMALL, as_broker=True).close()


def put_and_expire(home: Path, start: Start) -> None:
    with reput.open_store(home / "store", mode="rw", config=SMALL, as_broker=True) as store:
        start()
        for n in range(40):
            store.put_many(reput.Message("A", bytes(700), [f"new{n}"]) for _ in range(9))
            for _ in range(5):
                save_topics(home / "store", n)
            store.expire(before=1 << 60)


def save_topics(store: Path, n: int) -> None:
    """A broker also saves the loaded file as a backup."""
    topics = ConfigFile(store, "topics.json", is_writable=True)
    with suppress(ReputError):
        topics.load()
    topics.save(b'{"n": %d}' % n)


def follow_it(home: Path, start: Start) -> None:
    stop = Event()

    def build(store: Path, output: Path, config: StoreConfig) -> RebuildReport:
        start()
        stop.set()
        return rebuild_store(SerialRunner(), store, config=config, output=output)

    follow_store(home / "store", home / "followed", build, config=SMALL, stop=stop)


def export(home: Path, start: Start) -> None:
    out = home / "table"
    out.mkdir()
    os.chown(out, USER, USER)
    start()
    export_store(home / "store", out, on_corrupt="skip")
    compact_destination(open_table(str(out), "parquet"), lambda size: SerialRunner())


def run_all(home: Path, start: Start, *lines: str) -> None:
    """Run commands repeatedly while the user exchanges names. Both refusals and answers are allowed."""
    # These files lie outside the user's folder: a command waits for a FIFO that is named as its input.
    (home.parent / "keys.csv").write_text("topic,key\nA,k1\nA,k2\nB,k3\n")
    (home.parent / "lines").write_text('{"topic": "A", "body": "new", "keys": ["k1"]}\n' * 20)
    for name in ("page", "cache"):
        (home / name).mkdir(exist_ok=True)
        os.chown(home / name, USER, USER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        patch.setattr(stamps, "_REPORTING", {stamps._file_system(str(home))})
        start()
        for turn in range(_TURNS):
            for line in lines:
                reput_command(*line.format(home=home, turn=turn).split())


def write_pages(home: Path, start: Start) -> None:
    run_all(
        home, start, "report {home}/store --quick --output {home}/page/report.html",
        "trace {home}/store --key k1 --output {home}/page/trace.html",
    )  # fmt: skip


def look_up(home: Path, start: Start) -> None:
    keys = "lookup {home}/store --keys {home}/../keys.csv"
    run_all(
        home, start, f"{keys} --output {{home}}/page/found{{turn}}",
        f"{keys} --format jsonl --output {{home}}/page/lines{{turn}}",
        f"{keys} --format csv --staging {{home}}/page --runner processes --output {{home}}/page/text{{turn}}",
    )  # fmt: skip


def remember(home: Path, start: Start) -> None:
    run_all(
        home, start, "prove {home}/store", "query {home}/store --topic A --key k1",
        "query {home}/store --topic A --key k1 --begin 1700000000001 --end 1700000000009",
    )  # fmt: skip


def put_lines(home: Path, start: Start) -> None:
    run_all(
        home, start, "recover {home}/store --as-broker", "put {home}/store {home}/../lines",
        "expire {home}/store --before 2030-01-01",
    )  # fmt: skip


def export_files(home: Path, start: Start) -> None:
    run_all(
        home, start, "export {home}/store {home}/page/table{turn} --on-corrupt skip",
        "export {home}/store {home}/page/one.jsonl --to jsonl",
        "export {home}/store {home}/page/delta --to delta --incremental",
        "export {home}/store {home}/page/ice --to iceberg --incremental",
    )  # fmt: skip


def compact(home: Path, start: Start) -> None:
    (home / "line").write_text('{"topic": "A", "body": "new"}\n')
    for _ in range(3):
        reput_command("put", home / "store", home / "line")
        reput_command("export", home / "store", home / "page" / "many", "--incremental")
    run_all(home, start, "compact-table {home}/page/many")


def archive_and_restore(home: Path, start: Start) -> None:
    reput_command("archive", home / "store", home / "page" / "before", "--with-last")
    run_all(
        home, start, "archive {home}/store {home}/page/archive --with-last",
        "archive --verify {home}/page/before --message 0 --proof {home}/page/proof{turn}",
        "restore {home}/page/before {home}/page/new{turn}",
    )  # fmt: skip


def erase_messages(home: Path, start: Start) -> None:
    reput_command("archive", home / "store", home / "page" / "before", "--with-last")
    erase = "erase {home}/store --key k1 --reason x"
    run_all(
        home, start, f"{erase} --output {{home}}/page/copy{{turn}}",
        f"{erase} --output {{home}}/page/other{{turn}} --audit {{home}}/page/audit{{turn}}",
        "erase {home}/page/before --key k1 --reason x",
        "check {home}/store {home}/page/copy0 --resume {home}/page/journal --runner serial",
    )  # fmt: skip


def serve_it(home: Path, start: Start) -> None:
    """Run an owner that saves its topics, groups and offsets when it stops."""
    start()
    for turn in range(_TURNS):
        with (
            suppress(ReputError, OSError), serving(home / "store", sends=True) as server,
            Client(server.address) as client,
        ):  # fmt: skip
            group = {"consumerGroup": "g", "topic": f"A{turn}", "queueId": 0}
            client.put(f"A{turn}", b"sent", {"KEYS": "k"})
            client.ask(RequestCode.HEART_BEAT, {}, _HEART_BEAT)
            client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**group, "commitOffset": turn})


COMMANDS = (
    repair, plan_and_repair, undo, rebuild, rebuild_elsewhere, recover, put_and_expire, follow_it, export,
    write_pages, look_up, remember, put_lines, export_files, compact, archive_and_restore,
    erase_messages, serve_it,
)  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("seed", slow_from(1, range(60)))
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_outside_is_touched(
    home: Path, command: Callable[[Path, Start], None], seed: int
) -> None:
    before = look(home.parent / "outside")
    with swapping(home, seed) as start, suppress(ReputError, OSError):  # the command refused
        command(home, start)
    assert look(home.parent / "outside") == before
    assert_nothing_leaked(home)


def put(home: Path) -> None:
    with reput.open_store(home / "store", mode="rw", config=SMALL, as_broker=True) as store:
        store.put_many(reput.Message("New", bytes(900), ["k"]) for _ in range(20))


QUIET = (
    put,
    lambda home: repair_store(full_plan(home / "store")),
    lambda home: rebuild_store(SerialRunner(), home / "store", config=SMALL, salvage=True),
)


@pytest.mark.every_case
@pytest.mark.parametrize("work", QUIET)
def test_files_that_root_creates_in_a_store_get_its_owner(
    home: Path, work: Callable[[Path], object]
) -> None:
    work(home)
    owners = {str(path.relative_to(home)): path.lstat().st_uid for path in home.rglob("*")}
    assert {name for name, owner in owners.items() if owner != USER} == set()


def test_a_staging_folder_of_another_user_is_not_continued(home: Path) -> None:
    staging = home / "store" / ".reput-rebuild"
    staging.mkdir()
    (staging / "forged").touch()
    os.chown(staging, USER, USER)
    rebuild_store(SerialRunner(), home / "store", config=SMALL, salvage=True)
    assert not staging.exists()


def test_a_link_of_the_user_to_a_store_of_root_is_refused(home: Path) -> None:
    (home / "store").rename(home / "away")
    (home / "store").symlink_to(home.parent / "outside")
    os.chown(home / "store", USER, USER, follow_symlinks=False)
    before = look(home.parent / "outside")
    for work in QUIET:
        with pytest.raises(StoreError, match=r"belong to different users|is a link"):
            work(home)
    assert look(home.parent / "outside") == before


def test_a_file_of_root_with_a_name_in_the_store_is_refused(home: Path) -> None:
    log = home / "store" / "commitlog" / f"{0:020d}"
    outside = home.parent / "outside" / "commitlog" / log.name
    log.unlink()
    os.link(outside, log)
    before = look(home.parent / "outside")
    with pytest.raises(StoreError, match="belongs to another user"):
        put(home)
    with pytest.raises(StoreError, match="belongs to another user"):
        repair_store(full_plan(home / "store"))
    assert look(home.parent / "outside") == before


def test_settings_of_root_do_not_come_into_the_store(home: Path) -> None:
    outside = home.parent / "outside" / "config"
    with reput.open_store(home / "store", mode="rw", config=SMALL, as_broker=True):
        shutil.rmtree(home / "store" / "config")
        (home / "store" / "config").symlink_to(outside)
        topics = ConfigFile(home / "store", "topics.json", is_writable=True)
        with pytest.raises(StoreAccessError, match="is a link"):
            topics.load()
        with pytest.raises(StoreAccessError, match="is a link"):
            topics.save(b"{}")


def test_a_pipe_in_place_of_settings_is_not_waited_for(home: Path) -> None:
    topics = home / "store" / "config" / "topics.json"
    topics.unlink()
    os.mkfifo(topics)
    with pytest.raises(StoreAccessError, match="not a regular file"):
        ConfigFile(home / "store", "topics.json", is_writable=True).load()


@pytest.mark.parametrize("moment", ["before it is synced", "before it is read"])
def test_a_pipe_in_place_of_an_exported_file_is_not_waited_for(
    home: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(path: Path) -> None:
        if moment == "before it is read":
            sync_file(path)
        path.unlink()
        os.mkfifo(path)
        if moment == "before it is synced":
            sync_file(path)

    schema = pa.schema({"topic": pa.string()})
    with anchored(home):
        files = ParquetFiles(str(home), schema, (), is_fast=True)
        files.write(pa.record_batch({"topic": ["A"]}, schema))
        monkeypatch.setattr(DISK, "sync_file", replace)
        with pytest.raises(StoreAccessError, match=r"cannot be synced|not a regular file"):
            files.finish()


def test_queues_in_rocksdb_of_another_user_are_not_written(home: Path) -> None:
    pytest.importorskip("rocksdict")
    folder = home / "store" / "consumequeue"
    with anchored(home / "store"), pytest.raises(StoreAccessError, match="run the command as that"):
        create_database(folder, [], {})
    assert {path.name for path in folder.iterdir()} == {"A", "B"}
