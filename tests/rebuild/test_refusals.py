"""Runs that are locked out, or refused by the system: old files stay intact, and one line reports why."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reput.base.tasks import SerialRunner
from reput.engine.rebuild import driver
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.staging import STAGING_FOLDER, Staging
from reput.errors import StoreAccessError, StoreError, StoreLockedError, UsageError
from reput.format.checkpoint import Checkpoint, decode_checkpoint
from tests.oracle.forge import write_store
from tests.oracle.walk import walk
from tests.rebuild.rebuilding import SMALL, assert_oracle, queue_files, tree
from tests.recovery.replaced import (
    FILES,
    assert_new,
    assert_whole,
    copied,
    in_place,
    steps_of_a_run,
)
from tests.writer.crashing import steps_end

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
    assert "another output" in str(refused.value)
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


@pytest.mark.parametrize("user", [0, 1000])
def test_a_staging_folder_that_exists_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    if user:
        monkeypatch.setattr(os, "geteuid", lambda: user)
    elif os.geteuid() != 0:
        pytest.skip("only root replaces a folder in which others can write")
    staging = Staging(tmp_path / STAGING_FOLDER, "fingerprint")
    staging.create()
    (staging.folder / "split").write_bytes(b"scanned")
    staging.create()
    assert tree(staging.folder) == {"split": b"scanned"}


@pytest.mark.parametrize("user", [0, 1000])
def test_a_staging_folder_that_is_a_link_is_refused(
    store: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    if user:
        monkeypatch.setattr(os, "geteuid", lambda: user)
    elif os.geteuid() != 0:
        pytest.skip("only root replaces a folder in which others can write")
    others = store.parent / "others"
    others.mkdir()
    (others / "file").write_bytes(b"data")
    (store / STAGING_FOLDER).symlink_to(others)
    refused(store)
    assert tree(others) == {"file": b"data"}


def test_files_of_earlier_runs_are_deleted_but_not_their_scanned_splits(tmp_path: Path) -> None:
    staging = Staging(tmp_path / STAGING_FOLDER, "fingerprint")
    for name in ("fingerprint/split", "another/split", "run-earlier/new/file", "owner"):
        path = staging.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"data")
    staging.prepare()
    assert tree(staging.folder) == {
        "fingerprint/split": b"data",
        "owner": b"data",
        "run": staging.run.encode(),
    }


def test_two_rebuilds_do_not_meet(store: Path) -> None:
    output = store.parent / "out"
    (output / STAGING_FOLDER).mkdir(parents=True)
    with (
        Locked(output / STAGING_FOLDER / "owner"),
        pytest.raises(StoreLockedError, match="another rebuild is writing here"),
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
    store: Path, tmp_path: Path, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The proofs of new IndexFiles are saved after the rebuild. If that fails, the rebuild succeeds nevertheless.
    monkeypatch.setattr(driver._Rebuild, "_remember", lambda self, proofs: None)
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


# Use a separate mount namespace, which ends with the process.
ON_A_SMALL_DISK = """
import subprocess, sys
from pathlib import Path
from reput.errors import StoreAccessError
from tests.recovery import replaced as tests

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


@pytest.mark.usefixtures("ordinary_user")
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
        ({"split_size": 0}, "split_size"),
        ({"split_size": -1}, "split_size"),
        ({"only": "x"}, "only"),
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
    assert written == Checkpoint(0, 0, report.index_end_timestamp)
    assert len(checkpoint.read_bytes()) == 4096


def test_what_was_not_rebuilt_keeps_its_checkpoint(store: Path) -> None:
    in_place(store, only="consumequeue")
    last = walk(FILES).dispatched[-1].store_timestamp
    assert decode_checkpoint((store / "checkpoint").read_bytes()) == Checkpoint(last, last, 3)
    report = in_place(store, only="index")
    written = decode_checkpoint((store / "checkpoint").read_bytes())
    assert written == Checkpoint(last, last, report.index_end_timestamp)


def test_progress_comes_to_its_end_in_every_phase(store: Path) -> None:
    told: dict[str, list[tuple[int, int]]] = {}

    def progress(phase: str, done: int, total: int) -> None:
        told.setdefault(phase, []).append((done, total))

    in_place(store, progress=progress, split_size=200)
    assert {"scan", "write"} <= told.keys() <= {"scan", "rescan", "write"}
    for steps in told.values():
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1] > 0
