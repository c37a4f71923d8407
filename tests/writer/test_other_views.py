"""Two real views of one folder: a FUSE mount (bindfs), and an overlay. Skipped where the machine has none."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from reput.engine.stores import open_store
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.errors import StoreFailedError
from reput.io.mounts import Mount
from tests.small import SMALL_64K

pytestmark = pytest.mark.slow
SYNC = WriterSettings(flush="sync")
PutElsewhere = Callable[[], subprocess.CompletedProcess[str]]


def put_command(store: Path) -> list[str]:
    return [
        sys.executable, "-m", "reput", "put", str(store), "--topic", "T", "--key", "k", "--body", "other",
    ]  # fmt: skip


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def with_bindfs(tmp_path: Path) -> Iterator[PutElsewhere]:
    view = tmp_path / "view"
    (tmp_path / "files").mkdir()
    view.mkdir()
    if shutil.which("bindfs") is None or not os.path.exists("/dev/fuse"):
        pytest.skip("this machine has no bindfs, or no /dev/fuse")
    mounted = run("bindfs", str(tmp_path / "files"), str(view))
    if mounted.returncode:
        pytest.skip(f"bindfs cannot mount here: {mounted.stderr.strip()}")
    try:
        assert str(Mount.local_locks_of(view)).startswith("fuse")
        yield lambda: run(*put_command(view / "store"))
    finally:
        run("fusermount", "-u", str(view))


@pytest.fixture
def with_overlay(tmp_path: Path) -> PutElsewhere:
    """Return a function that puts a message through an overlay, whose upper layer is the folder of the store."""
    for name in ("files", "lower", "work", "view"):
        (tmp_path / name).mkdir()
    layers = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/files,workdir={tmp_path}/work"
    mount = f"mount -t overlay overlay -o {layers} {tmp_path}/view"
    if shutil.which("unshare") is None:
        pytest.skip("this machine has no unshare")
    tried = run("unshare", "-m", "sh", "-c", mount)
    if tried.returncode:
        pytest.skip(f"no overlay can be mounted here: {tried.stderr.strip()}")
    return lambda: run(
        "unshare",
        "-m",
        "sh",
        "-c",
        f'{mount} && exec "$@"',
        "sh",
        *put_command(tmp_path / "view" / "store"),
    )


@pytest.mark.parametrize("view", ["with_bindfs", "with_overlay"])
def test_no_acknowledged_message_is_lost(
    tmp_path: Path, view: str, request: pytest.FixtureRequest
) -> None:
    put_elsewhere: PutElsewhere = request.getfixturevalue(view)
    store = tmp_path / "files" / "store"
    first = StoreWriter(store, SMALL_64K, SYNC)
    for n in range(20):
        first.put(Message("T", f"{n}".encode(), ["k"]))
    other = put_elsewhere()
    assert other.returncode == 0, other.stderr
    acknowledged = {f"{n}".encode() for n in range(20)} | {b"other"}
    with pytest.raises(StoreFailedError, match="another process"):
        first.put(Message("T", b"not acknowledged", ["k"]))
    with suppress(StoreFailedError):
        first.close()
    with open_store(store) as opened:
        assert acknowledged <= {message.body for message in opened.query("T", "k").messages}
