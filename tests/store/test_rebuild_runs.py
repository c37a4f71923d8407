"""Runs that are killed, taken up again, kept out, or refused by the system: old files stay whole."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reput.errors import StoreAccessError, StoreError, StoreLockedError, UsageError
from reput.format.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from reput.store.rebuild import driver, scan_split
from reput.store.rebuild.commit import swap_in
from reput.store.rebuild.driver import rebuild_store
from reput.store.rebuild.report import RebuildReport
from reput.store.rebuild.runner import SerialRunner
from reput.store.rebuild.staging import STAGING_FOLDER
from tests.oracle.forge import Files, LogForge, RecordFields, flip_bit, forge_log, write_store
from tests.oracle.walk import walk
from tests.store.crashing import dying, steps_end
from tests.store.rebuilding import SMALL, assert_oracle, queue_files, tree

SPLIT_BYTES = 700


def small_log(records: int) -> LogForge:
    """Three queues, some 30 files in all: few steps to be killed at."""
    return forge_log(
        [
            RecordFields(
                f"t{n % 2}",
                b"b" * 80,
                {"KEYS": f"k{n} x"},
                queue_id=n % 3 // 2,
                queue_offset=n // 3,
            )
            for n in range(records)
        ],
        file_bytes=4096,
    )


LOG, OLD_LOG = small_log(60), small_log(31)
FILES = LOG.files()


def in_place(store: Path, **options: Any) -> RebuildReport:
    arguments: dict[str, Any] = {"config": SMALL, "split_size": SPLIT_BYTES} | options
    return rebuild_store(SerialRunner(), store, **arguments)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose ConsumeQueues and IndexFiles are of another log: what is old can be told from new."""
    old = write_store(tmp_path / "old", OLD_LOG.files())
    in_place(old)
    store = write_store(tmp_path / "store", FILES)
    for folder in ("consumequeue", "index"):
        os.rename(old / folder, store / folder)
    (store / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(1, 2, 3)))
    return store


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where each split begins that is really scanned."""
    begins: list[int] = []
    stage = scan_split._stage

    def counting(job: Any, split: Any, *rest: Any) -> None:
        begins.append(split.begin)
        stage(job, split, *rest)

    monkeypatch.setattr(scan_split, "_stage", counting)
    return begins


def assert_new(store: Path, files: Files = FILES) -> None:
    log = {name: store / "commitlog" / name for name in os.listdir(store / "commitlog")}
    assert {int(name): path.read_bytes() for name, path in log.items()} == dict(files)
    assert_oracle(store, walk(files), SMALL)


class KillingRunner(SerialRunner):
    """Kills its own process when it has run so many tasks."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks

    def run(self, function: Any, tasks: Any, weights: Any, progress: Any) -> Any:
        def counted(task: Any) -> Any:
            if self.tasks == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.tasks -= 1
            return function(task)

        return super().run(counted, tasks, weights, progress)


def killed_after(store: Path, tasks: int) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.store import test_rebuild_runs as tests; "
        "tests.rebuild_store(tests.KillingRunner(int(sys.argv[2])), Path(sys.argv[1]), "
        "config=tests.SMALL, split_size=tests.SPLIT_BYTES)"
    )
    run = subprocess.run([sys.executable, "-c", program, store, str(tasks)], check=False)
    assert run.returncode == -signal.SIGKILL


def test_a_killed_scan_is_taken_up_where_it_was(store: Path, scans: list[int]) -> None:
    before = tree(store)
    killed_after(store, 5)
    after = tree(store)
    assert {name: after[name] for name in before} == before
    assert any(name.startswith(STAGING_FOLDER) for name in after.keys() - before.keys())
    report = in_place(store)
    assert len(scans) == report.splits - 5 + report.rescanned
    assert len(set(scans)) == report.splits - 5
    assert_new(store)


def test_killed_while_it_writes_it_scans_nothing_again(store: Path, scans: list[int]) -> None:
    splits = in_place(store, output=store.parent / "elsewhere").splits
    scans.clear()
    before = tree(store)
    killed_after(store, splits + 3)
    after = tree(store)
    assert {name: after[name] for name in before} == before
    in_place(store)
    assert scans == []
    assert_new(store)


def assert_whole(store: Path, old: dict[str, bytes], new: dict[str, bytes]) -> None:
    """Each folder is the old one or the new one, nothing between; the checkpoint is one of the two."""
    now = tree(store)
    for folder in ("consumequeue/", "index/", "checkpoint"):
        found, was, is_to_be = (
            {name: data for name, data in files.items() if name.startswith(folder)}
            for files in (now, old, new)
        )
        assert found in (was, is_to_be)


def steps_of_a_run(store: Path, tmp_path: Path) -> int:
    """How many steps a rebuild of LOG makes, over the files of `store`."""
    copy = copied(store, tmp_path / "counted")
    with dying(None) as steps:
        in_place(copy)
    return steps.made


def copied(store: Path, copy: Path) -> Path:
    """Another store of FILES with the same old ConsumeQueues, IndexFiles and checkpoint."""
    write_store(copy, FILES)
    for name in ("consumequeue", "index"):
        for path in (store / name).rglob("*"):
            if path.is_file():
                target = copy / path.relative_to(store)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    (copy / "checkpoint").write_bytes((store / "checkpoint").read_bytes())
    return copy


def check_killed(store: Path, folder: Path, after: int, new: dict[str, bytes]) -> None:
    copy = copied(store, folder)
    old = tree(copy)
    with dying(after):
        in_place(copy)
    assert_whole(copy, old, new)
    in_place(copy)
    assert_new(copy)
    assert tree(copy)["checkpoint"] == new["checkpoint"]


@pytest.mark.parametrize("part", range(20))
def test_killed_at_any_step_old_files_are_whole_and_the_next_run_finishes(
    store: Path, tmp_path: Path, part: int
) -> None:
    steps = steps_of_a_run(store, tmp_path)
    write_store(tmp_path / "new", FILES)
    in_place(tmp_path / "new")
    # The last steps are the commit: each of them is tried, of those before it some.
    commit = range(steps - 40 + 2 * part, steps - 38 + 2 * part)
    for after in (part * (steps - 40) // 20, *commit):
        folder = tmp_path / str(after)
        check_killed(store, folder, after, tree(tmp_path / "new"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_every_step(store: Path, tmp_path: Path) -> None:
    steps = steps_of_a_run(store, tmp_path)
    write_store(tmp_path / "new", FILES)
    in_place(tmp_path / "new")
    for after in range(steps):
        check_killed(store, tmp_path / str(after), after, tree(tmp_path / "new"))


def test_killed_again_and_again_it_gets_there(store: Path) -> None:
    """Each run stages something more."""
    for _ in range(200):
        with dying(40) as steps:
            in_place(store)
        if steps.made < 40:
            break
    else:
        with dying(None):
            in_place(store)
    assert_new(store)


class LosingRunner(SerialRunner):
    """Runs every task twice: the first time its worker dies after `steps` steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.tasks: list[Callable[[], Any]] = []

    def run(self, function: Any, tasks: Any, weights: Any, progress: Any) -> Any:
        def twice(task: Any) -> Any:
            with dying(self.steps):
                function(task)
            self.tasks.append(partial(function, task))
            return function(task)

        return super().run(twice, tasks, weights, progress)


@pytest.mark.parametrize("steps", range(8))
def test_what_a_lost_worker_left_behind_is_not_in_the_store(
    store: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    runner = LosingRunner(steps)

    def swapped_in(*arguments: Any) -> None:
        for attempt in runner.tasks:
            attempt()  # a worker that was taken for lost finishes after all
        swap_in(*arguments)

    monkeypatch.setattr(driver, "swap_in", swapped_in)
    rebuild_store(runner, store, config=SMALL, split_size=SPLIT_BYTES)
    assert_new(store)


def test_staged_splits_of_another_log_are_not_taken(store: Path, scans: list[int]) -> None:
    killed_after(store, 9)
    changed = flip_bit(FILES, 4, 0)
    (start, data) = changed[0]
    (store / "commitlog" / f"{start:020d}").write_bytes(data)
    report = in_place(store)
    assert len(set(scans)) == report.splits
    assert_new(store, changed)


@pytest.mark.parametrize("options", [{"salvage": True}, {"config": replace(SMALL, hash_slots=5)}])
def test_staged_splits_of_other_settings_are_not_taken(
    store: Path, scans: list[int], options: dict[str, Any]
) -> None:
    killed_after(store, 9)
    report = in_place(store, **options)
    assert len(set(scans)) == report.splits


def test_a_staged_split_that_was_cut_is_scanned_again(store: Path, scans: list[int]) -> None:
    killed_after(store, 9)
    staged = sorted(path for path in (store / STAGING_FOLDER).glob("*/*") if path.is_file())
    assert len(staged) == 9
    for path, length in zip(staged, (0, 1, 15, 16, 100), strict=False):
        os.truncate(path, length)
    report = in_place(store)
    assert len(set(scans)) == report.splits - 4
    assert_new(store)


LOCKING = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


class Locked:
    """Another process that holds the lock of a file, as a broker does."""

    def __init__(self, path: Path) -> None:
        program = [sys.executable, "-c", LOCKING, str(path)]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"locked\n"

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def test_a_store_that_a_broker_owns_is_left_alone(store: Path) -> None:
    (store / "lock").touch()
    before = tree(store)
    with Locked(store / "lock"), pytest.raises(StoreLockedError) as refused:
        in_place(store)
    assert str(refused.value).startswith(f"{store / 'lock'}: ")
    assert "--output" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert tree(store) == before
    in_place(store)
    assert_new(store)


def test_a_store_that_a_broker_owns_can_be_rebuilt_elsewhere(store: Path) -> None:
    (store / "lock").touch()
    before = tree(store)
    with Locked(store / "lock"):
        in_place(store, output=store.parent / "out")
    assert tree(store) == before
    assert_oracle(store.parent / "out", walk(FILES), SMALL)


def test_two_rebuilds_do_not_meet(store: Path) -> None:
    output = store.parent / "out"
    (output / STAGING_FOLDER).mkdir(parents=True)
    with (
        Locked(output / STAGING_FOLDER / "owner"),
        pytest.raises(StoreLockedError, match="another rebuild works here"),
    ):
        in_place(store, output=output)
    in_place(store, output=output)
    assert_oracle(output, walk(FILES), SMALL)


def refused(store: Path, **options: Any) -> str:
    with pytest.raises(StoreAccessError) as error:
        in_place(store, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("part", range(8))
def test_a_disk_that_fails_at_any_step_is_told_in_one_line(
    store: Path, tmp_path: Path, part: int
) -> None:
    steps = steps_of_a_run(store, tmp_path)
    in_place(write_store(tmp_path / "new", FILES))
    commit = range(steps - 40 + part, steps, 8)
    for after in (part * (steps - 40) // 8, *commit):
        copy = copied(store, tmp_path / str(after))
        old = tree(copy)
        with steps_end(after, OSError(5, os.strerror(5))):
            assert "Input/output error" in refused(copy)
        assert_whole(copy, old, tree(tmp_path / "new"))
        in_place(copy)
        assert_new(copy)


@pytest.mark.parametrize("step", range(0, 60, 7))
def test_a_full_disk_leaves_the_old_files_and_says_so(
    store: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(store)
    written = 0

    def pwrite(fd: int, data: Any, position: int) -> int:
        nonlocal written
        written += 1
        if written > step:
            raise OSError(28, os.strerror(28))
        return original(fd, data, position)

    original = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        message = refused(store)
    assert "No space left on device; free some space and run it again" in message
    after = tree(store)
    assert {name: after[name] for name in before} == before
    in_place(store)
    assert_new(store)


# In a mount namespace of its own, which goes when the process goes.
ON_A_SMALL_DISK = """
import subprocess, sys
from pathlib import Path
from reput.errors import StoreAccessError
from tests.store import test_rebuild_runs as tests

store, disk = map(Path, sys.argv[1:])
mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(disk)]
if subprocess.run(mount, capture_output=True).returncode != 0:
    sys.exit(77)
try:
    tests.in_place(store, output=disk / "out")
except StoreAccessError as error:
    print(error)
    print([path.name for path in (disk / "out").iterdir()])
    print(open("/proc/self/mounts").read().count(str(disk)))
    subprocess.run(["umount", disk], check=True)  # refused while a file is open
"""


def test_a_disk_that_is_really_full(store: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    unshare = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    program = [*unshare, sys.executable, "-c", ON_A_SMALL_DISK, str(store), str(disk)]
    try:
        run = subprocess.run(program, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if run.returncode == 77 or run.stderr.startswith("unshare:"):
        pytest.skip(f"no mounting here: {run.stderr}")
    message, left, mounted = run.stdout.splitlines()
    assert "No space left on device; free some space and run it again" in message
    assert (left, mounted) == (str([STAGING_FOLDER]), "1")
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(store: Path) -> None:
    store.chmod(0o555)
    try:
        assert "Permission denied; check its permissions" in refused(store)
    finally:
        store.chmod(0o755)


@pytest.mark.parametrize(
    ("number", "hint"), [(13, "check its permissions"), (30, "choose another place")]
)
@pytest.mark.parametrize("call", ["mkdir", "open", "rename"])
def test_what_the_system_refuses_is_told_with_what_to_do(
    store: Path, call: str, number: int, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(store)
    original = getattr(os, call)

    def refusing(path: Any, *rest: Any, **options: Any) -> Any:
        if call == "open" and not rest[0] & os.O_CREAT:
            return original(path, *rest, **options)
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refusing)
        message = refused(store)
    assert os.strerror(number) in message
    assert message.endswith(hint)
    after = tree(store)
    assert {name: after[name] for name in before} == before


def test_a_log_that_cannot_be_read_is_told(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def preadv(fd: int, buffers: Any, position: int) -> int:
        raise OSError(5, os.strerror(5))

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", preadv)
        message = refused(store)
    assert message.endswith(": cannot be read: Input/output error")
    assert str(store / "commitlog") in message


def test_a_log_that_shrinks_meanwhile_is_told(store: Path) -> None:
    class Shrinking(SerialRunner):
        def run(self, function: Any, tasks: Any, weights: Any, progress: Any) -> Any:
            os.truncate(store / "commitlog" / f"{4096:020d}", 100)
            return super().run(function, tasks, weights, progress)

    before = queue_files(store)
    with pytest.raises(StoreError, match="was longer when the job began"):
        rebuild_store(Shrinking(), store, config=SMALL)
    assert queue_files(store) == before


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"split_size": 0}, "--split-size"),
        ({"split_size": -1}, "--split-size"),
        ({"only": "x"}, "--only"),
    ],
)
def test_wrong_options_name_themselves(store: Path, options: dict[str, Any], name: str) -> None:
    before = tree(store)
    with pytest.raises(UsageError, match=name):
        in_place(store, **options)
    assert tree(store) == before


@pytest.mark.parametrize("content", [None, b"", b"short", bytes(4096)])
def test_an_old_checkpoint_may_be_anything(store: Path, content: bytes | None) -> None:
    checkpoint = store / "checkpoint"
    checkpoint.unlink()
    if content is not None:
        checkpoint.write_bytes(content)
    report = in_place(store, only="index")
    written = decode_checkpoint(checkpoint.read_bytes())
    assert written == (0, 0, report.index_end_timestamp)
    assert len(checkpoint.read_bytes()) == 4096


def test_what_was_not_rebuilt_keeps_its_checkpoint(store: Path) -> None:
    in_place(store, only="consumequeue")
    last = walk(FILES).dispatched[-1].store_timestamp
    assert decode_checkpoint((store / "checkpoint").read_bytes()) == (last, last, 3)
    report = in_place(store, only="index")
    written = decode_checkpoint((store / "checkpoint").read_bytes())
    assert written == (last, last, report.index_end_timestamp)


def test_progress_comes_to_its_end_in_every_phase(store: Path) -> None:
    told: dict[str, list[tuple[int, int]]] = {}

    def progress(phase: str, done: int, total: int) -> None:
        told.setdefault(phase, []).append((done, total))

    in_place(store, progress=progress, split_size=200)
    assert {"scan", "write"} <= told.keys() <= {"scan", "rescan", "write"}
    for steps in told.values():
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1] > 0
