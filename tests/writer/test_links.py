"""Links in a store that is written: their targets outside stay unchanged."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from reput.errors import StoreError, UsageError
from tests.recovery.checking import check_store

SMALL = StoreConfig(commit_log_file_bytes=1 << 14, queue_entries=50, hash_slots=64, index_items=60)
Message = reput.Message
Content = dict[str, bytes]


def make_store(path: Path) -> None:
    with reput.open_store(path, mode="rw", config=SMALL) as store:
        store.put_many([Message("T", bytes(400), [str(n)]) for n in range(120)])
    (path / "abort").touch()


def first(pattern: str) -> Callable[[Path], Path]:
    return lambda store: sorted(store.glob(pattern))[0]


def content(folder: Path) -> Content:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("dangles", [False, True])
@pytest.mark.parametrize(
    "place",
    [
        "commitlog/*", "consumequeue/T", "consumequeue/T/0", "consumequeue/T/0/*", "index/*",
        "abort", "lock", "checkpoint", "reput.known", "commitlog", "consumequeue", "index",
    ],
)  # fmt: skip
def test_a_link_is_refused_and_nothing_outside_is_touched(
    tmp_path: Path, place: str, dangles: bool
) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    make_store(store)
    outside.mkdir()
    linked = first(place)(store)
    target = outside / "target"
    linked.rename(target if not dangles else tmp_path / "away")
    linked.symlink_to(target)
    before = content(outside)
    uses: tuple[Callable[[reput.WritableStore], object], ...] = (
        lambda opened: opened.put(Message("T", bytes(9000), ["k"])),
        lambda opened: opened.expire(before=1 << 60),
    )
    for use in uses:
        with (
            pytest.raises(StoreError, match=linked.name),
            reput.open_store(store, mode="rw", config=SMALL) as opened,
        ):
            use(opened)
        assert content(outside) == before


def test_a_store_may_be_reached_through_a_link(tmp_path: Path) -> None:
    make_store(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with reput.open_store(tmp_path / "link", mode="rw", config=SMALL) as store:
        store.put(Message("T", b"x", ["k"]))
    check_store(tmp_path / "real", SMALL)


def test_a_log_elsewhere_is_a_link_that_the_settings_name(tmp_path: Path) -> None:
    store, log = tmp_path / "store", tmp_path / "fast" / "commitlog"
    make_store(store)
    log.parent.mkdir()
    (store / "commitlog").rename(log)
    with pytest.raises(StoreError, match="storePathCommitLog is"):
        reput.open_store(store, mode="rw", config=SMALL, store_path_commit_log=str(log))
    (store / "commitlog").symlink_to(log)
    with pytest.raises(StoreError, match="is a link"):
        reput.open_store(store, mode="rw", config=SMALL)
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"storePathCommitLog={log}\nmappedFileSizeCommitLog=16384\nmaxHashSlotNum=64\n"
        "maxIndexNum=60\nmappedFileSizeConsumeQueue=1000\n"
    )
    with reput.open_store(store, mode="rw", broker_config=conf) as opened:
        opened.put(Message("T", b"x", ["k"]))
    check_store(store, SMALL)
    first("commitlog/*")(store).rename(tmp_path / "file")
    os.symlink(tmp_path / "file", log / f"{0:020d}")
    with pytest.raises(StoreError, match="is a link"):
        reput.open_store(store, mode="rw", broker_config=conf)


def test_a_name_that_becomes_a_link_later_is_not_followed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with reput.open_store(store, mode="rw", config=SMALL) as opened:
        outside = tmp_path / "outside"
        (store / "commitlog" / f"{1 << 14:020d}").symlink_to(outside)
        with pytest.raises(reput.errors.ReputError) as refused:
            opened.put_many([Message("T", bytes(4000), ["k"]) for _ in range(9)])
        assert not isinstance(refused.value, UsageError)
        assert not outside.exists()
