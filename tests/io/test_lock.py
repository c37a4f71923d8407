"""The owner's lock: against other processes, and while its own process opens and closes the file."""

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reput.errors import StoreLockedError
from reput.io import lock
from reput.io.lock import locked

# Java's FileChannel.tryLock does the same: a POSIX lock of the first byte.
_AS_JAVA = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        print("refused")
    else:
        print("taken")
"""
_AS_REPUT = """
import sys
from pathlib import Path
from reput.errors import StoreLockedError
from reput.io.lock import locked
try:
    with locked(Path(sys.argv[1]), "busy"):
        print("taken")
except StoreLockedError:
    print("refused")
"""


def another(program: str, path: Path) -> str:
    """Return the error of a second process that tries to lock the file."""
    ran = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    return ran.stdout.strip() or ran.stderr


@pytest.fixture(params=["open file description", "process"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either kind of lock that a system may support."""
    if request.param == "process":
        monkeypatch.setattr(lock, "_DESCRIPTION_LOCK", None)
    elif not hasattr(fcntl, "F_OFD_SETLK"):
        pytest.skip("a system without such locks")
    return str(request.param)


def test_one_at_a_time(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lock"
    with locked(path, "busy"):
        for _ in range(2):  # twice, because a refused attempt must not release the owner's lock
            assert another(_AS_JAVA, path) == "refused"
            assert another(_AS_REPUT, path) == "refused"
            with pytest.raises(StoreLockedError, match="busy"), locked(path, "busy"):
                pass
    assert another(_AS_JAVA, path) == "taken"
    assert another(_AS_REPUT, path) == "taken"
    with locked(path, "busy"):
        pass


def test_another_name_of_the_file_is_the_same_lock(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lock"
    with locked(path, "busy"):
        (tmp_path / "link").hardlink_to(path)
        with pytest.raises(StoreLockedError), locked(tmp_path / "link", "busy"):
            pass
        assert another(_AS_JAVA, path) == "refused"


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="a system without such locks")
def test_a_copy_of_the_folder_does_not_end_the_lock(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with locked(store / "lock", "busy"):
        shutil.copytree(store, tmp_path / "copy")
        assert another(_AS_JAVA, store / "lock") == "refused"
        assert another(_AS_REPUT, store / "lock") == "refused"


def test_a_lock_that_java_holds_is_respected(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lock"
    path.touch()
    holder = subprocess.Popen(
        [sys.executable, "-c", _AS_JAVA + "    sys.stdout.flush()\n    sys.stdin.read()", str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == "taken"
    with pytest.raises(StoreLockedError), locked(path, "busy"):
        pass
    holder.communicate("")
    with locked(path, "busy"):
        pass
