"""A second process opens a store through another view of its file system, in which the lock has no effect.

In these tests, the second view is a lock that always succeeds.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reput.engine.stores import open_store
from reput.engine.writer import owner, store_writer
from reput.engine.writer.put.gather import from_messages
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.errors import StoreError, StoreFailedError
from reput.io.mounts import Mount
from reput.wings.serve.remoting.commands import ResponseCode
from tests.remoting.client import Client, serving
from tests.small import SMALL, SMALL_64K

SYNC = WriterSettings(flush="sync", flush_interval_commit_log_s=60)
ASYNC = WriterSettings(flush_interval_commit_log_s=60)


@contextmanager
def _other_view(path: Path, owner: str) -> Iterator[object]:
    path.touch()
    yield lambda: None


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "locked", _other_view)


def bodies(store: Path) -> set[bytes]:
    with open_store(store) as opened:
        return {message.body for message in opened.query("T", "k").messages}


def put_durably(writer: StoreWriter, body: bytes) -> None:
    writer.put(Message("T", body, ["k"]))
    writer.flush()


@pytest.mark.usefixtures("without_locks")
@pytest.mark.parametrize("settings", [SYNC, ASYNC], ids=["sync", "async"])
def test_the_first_owner_stops(tmp_path: Path, settings: WriterSettings) -> None:
    store = tmp_path / "store"
    first = StoreWriter(store, SMALL_64K, settings)
    put_durably(first, b"first")
    first.dispatcher.wait(first.end_offset, None)
    second = StoreWriter(store, SMALL_64K, settings)
    with pytest.raises(StoreFailedError, match="another process has opened this store"):
        put_durably(first, b"too late")
    with pytest.raises(StoreFailedError, match="accepts no more messages"):
        put_durably(first, b"later still")
    second.put(Message("T", b"second", ["k"]))
    with pytest.raises(StoreFailedError, match="another process has opened this store"):
        first.close()
    second.put(Message("T", b"third", ["k"]))
    second.close()
    assert bodies(store) >= {b"first", b"second", b"third"}


MESSAGE = Message("T", b"too late", ["k"])
ACKNOWLEDGED: dict[str, Callable[[StoreWriter], object]] = {
    "put": lambda writer: writer.put(MESSAGE),
    "run": lambda writer: writer.put_run([MESSAGE]),
    "many": lambda writer: writer.put_many([MESSAGE]),
    "batch": lambda writer: writer.put_batch([MESSAGE]),
    "columns": lambda writer: writer.put_columns(
        from_messages([MESSAGE], writer._unique_keys, 0, writer.settings.store_host, 18)
    ),
}  # fmt: skip
"""The ways to put. Every other one, such as a sent, delayed or committed message of a server, uses one of them."""


@pytest.mark.usefixtures("without_locks")
@pytest.mark.parametrize("settings", [SYNC, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize("way", ACKNOWLEDGED)
def test_no_put_is_acknowledged_after_the_store_has_another_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, settings: WriterSettings
) -> None:
    monkeypatch.setattr(owner, "_FRESH_S", 0)
    first = StoreWriter(tmp_path / "store", SMALL_64K, settings)
    ACKNOWLEDGED[way](first)
    second = StoreWriter(tmp_path / "store", SMALL_64K, settings)
    with pytest.raises(StoreFailedError, match="another process has opened this store"):
        ACKNOWLEDGED[way](first)
    with pytest.raises(StoreFailedError):
        first.close()
    second.close()


@pytest.mark.usefixtures("without_locks")
def test_a_served_send_is_not_acknowledged_after_the_store_has_another_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "_FRESH_S", 0)
    store = tmp_path / "store"
    StoreWriter(store, SMALL).close()
    answers = []

    def send() -> None:
        with serving(store, sends=True) as server, Client(server.address) as client:
            answers.append(client.put("T", b"first"))
            StoreWriter(store, SMALL).close()
            answers.append(client.put("T", b"too late"))

    with pytest.raises(StoreFailedError):
        send()
    first, late = answers
    assert first.code == ResponseCode.SUCCESS
    assert late.code != ResponseCode.SUCCESS
    # The thread that syncs may have noticed it before the send did.
    assert re.search(
        "deleted or renamed this file|opened this store for writing", late.remark or ""
    )


@pytest.mark.usefixtures("without_locks")
def test_bytes_of_another_owner_after_the_last_record(tmp_path: Path) -> None:
    """The other view shows no change of `reput.owner`, for example because of a cache."""
    writer = StoreWriter(tmp_path, SMALL_64K, SYNC)
    writer.put(Message("T", b"1"))
    (log,) = (tmp_path / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(writer.end_offset + 300)
        file.write(b"x")
    writer.put(Message("T", b"2"))
    with log.open("r+b") as file:
        file.seek(writer.end_offset)
        file.write(b"\0\0\1\0\xda\xa3")
    with pytest.raises(StoreFailedError, match="another process has opened this store"):
        writer._sync_log(0, writer.end_offset)
    writer._resources.close()


def test_the_file_exists_only_while_the_store_is_open(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, SMALL_64K)
    assert (tmp_path / "reput.owner").exists()
    writer.close()
    assert not (tmp_path / "reput.owner").exists()


@pytest.mark.parametrize("content", [None, b'{"token": "a", "end": 5, "lock": 6}', b"\xff[1"])
def test_a_refused_store_keeps_its_last_owner(tmp_path: Path, content: bytes | None) -> None:
    StoreWriter(tmp_path, SMALL_64K).close()
    (tmp_path / "commitlog" / f"{1 << 20:020d}").write_bytes(b"1")
    if content is not None:
        (tmp_path / "reput.owner").write_bytes(content)
    with pytest.raises(StoreError, match="all files of a log must have one size"):
        StoreWriter(tmp_path)
    path = tmp_path / "reput.owner"
    assert (path.read_bytes() if path.exists() else None) == content


MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /srv rw - fuse.bindfs bindfs rw,user_id=0
31 22 0:41 / /srv/with\040space rw,nosuid - xfs /dev/sdb rw
32 22 0:42 / /nfs rw - nfs4 host:/x rw,vers=4.2,local_lock=none
33 22 0:43 / /nfs/unlocked rw - nfs host:/x rw,nolock
34 22 0:44 / /merged rw - overlay overlay rw,lowerdir=/a
35 22 0:45 / /usb rw - fuseblk /dev/sdc1 rw
36 22 0:46 / /srv/twice rw - virtiofs tag rw
37 22 0:47 / /srv/twice rw - ext4 /dev/sdd rw
broken line
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/store", None), ("/srv", "fuse.bindfs"), ("/srv/a/b", "fuse.bindfs"), ("/srvother", None),
        ("/srv/with space/x", None), ("/nfs/a", None), ("/nfs/unlocked/a", "nfs"), ("/merged/a", "overlay"),
        ("/usb/a", None), ("/srv/twice/a", None),
    ],
)  # fmt: skip
def test_file_systems_whose_locks_are_local(tmp_path: Path, folder: str, kind: str | None) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert Mount.local_locks_of(folder, mounts) == kind
    assert Mount.local_locks_of(folder, tmp_path / "missing") is None
