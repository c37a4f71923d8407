"""Files that another process uses through another view of their file system: an overlay, or FUSE (bindfs).

Each test runs a script in a mount namespace of its own, so it needs root.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.index.proving import ITEMS, SLOTS, index_of, messages
from tests.oracle.forge import write_store

# A writer has written each page of the file through a mapping, and has closed the descriptor. So a further write
# through the mapping leaves the file's ctime unchanged.
WRITING = """
import mmap, sys, time

def mapped(path):
    with open(path, "r+b") as file:
        found = mmap.mmap(file.fileno(), 0)
    for at in range(0, len(found), mmap.PAGESIZE):
        found[at] = found[at]
    time.sleep(0.05)  # longer than a tick of the file system's clock
    return found
"""
STAMPING = (
    WRITING
    + """
from reput.io import Stamp

written, read = sys.argv[1:]
writer = mapped(written)
before = Stamp.settled(read)
writer[0] ^= 1
writer.flush()
print("missed" if before is not None and Stamp.of(read) == before else "noticed")
"""
)
QUERYING = (
    WRITING
    + f"""
import reput
from pathlib import Path

written, read = map(Path, sys.argv[1:])
(index,) = (written / "index").iterdir()
writer = mapped(index)
reput.prove(read, hash_slots={SLOTS}, index_items={ITEMS})
writer[40 : 40 + 4 * {SLOTS}] = bytes(4 * {SLOTS})
writer.flush()
missed = 0
with reput.open_store(read, hash_slots={SLOTS}, index_items={ITEMS}) as store:
    for number in range(1, 180, 3):
        answer = store.query("T", f"k{{number}}")
        missed += answer.is_complete and len(answer.messages) != 1
print("missed", missed)
"""
)
OVERLAY = (
    "mount -t overlay overlay -o lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work {0}/view"
)
FUSE = "bindfs {0}/upper {0}/view"
# Pairs of views in which the file is written and read.
PLACES = [("upper", "view"), ("lower", "view"), ("view", "upper"), ("view", "view")]


def _in_view(folder: Path, mount: str, script: str, *arguments: str) -> str:
    """Run a script after a mount, in an environment in which only this test keeps proofs; return its output."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root mounts file systems, with unshare")
    if mount == FUSE and shutil.which("bindfs") is None:
        pytest.skip("bindfs is not installed")
    trial = f"{mount.format(folder)} 2>/dev/null || exit 77"
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{trial}; exec "$@"', "sh", sys.executable, "-c", script, *arguments],
        capture_output=True, text=True, check=False,
        env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")},
    )  # fmt: skip
    if ran.returncode == 77:
        pytest.skip(f"this machine does not allow {mount.split()[0]} here")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("lower", "upper", "work", "view"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize(("written", "read"), PLACES)
def test_a_stamp_is_not_settled_while_a_file_is_mapped_in_another_view(
    folder: Path, written: str, read: str
) -> None:
    (folder / ("lower" if written == "lower" else "upper") / "file").write_bytes(bytes(8192))
    paths = [str(folder / place / "file") for place in (written, read)]
    assert _in_view(folder, OVERLAY, STAMPING, *paths) == "noticed"


@pytest.mark.parametrize(("written", "read"), [("upper", "view"), ("view", "upper")])
def test_a_stamp_is_not_settled_while_a_file_is_mapped_through_fuse(
    folder: Path, written: str, read: str
) -> None:
    (folder / "upper" / "file").write_bytes(bytes(8192))
    paths = [str(folder / place / "file") for place in (written, read)]
    assert _in_view(folder, FUSE, STAMPING, *paths) == "noticed"


@pytest.mark.slow
@pytest.mark.parametrize("mount", [OVERLAY, FUSE], ids=["overlay", "fuse"])
def test_no_proof_outlives_a_change_of_another_view(folder: Path, mount: str) -> None:
    log = messages(180)
    path = write_store(folder / "upper" / "store", log.files())
    index_of(path, log.files())
    assert (
        _in_view(folder, mount, QUERYING, str(path), str(folder / "view" / "store")) == "missed 0"
    )
