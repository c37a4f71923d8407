"""The CommitLog, read by offset, and walked in plain Python."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.log.walk import LogWalk
from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError, StoreNotFoundError
from reput.format.commit_log import MessageExt
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_STORE, SHIPPED, GoldenStore, TornCase
from tests.golden.tables import MessageRow
from tests.oracle.forge import (
    Files,
    RecordFields,
    encode_record,
    flip_bit,
    forge_log,
    set_total_size,
    truncate,
    write_store,
    zero_fill,
)
from tests.oracle.random_logs import LogOptions, random_log
from tests.oracle.walk import read_log, walk
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]


def row_of(message: MessageExt) -> tuple[object, ...]:
    return (
        message.physical_offset, message.size_bytes, message.topic, message.queue_id,
        message.queue_offset, message.store_timestamp, message.sys_flag, message.body_crc,
        len(message.body), message.flag, message.born_timestamp, message.reconsume_times,
        message.prepared_transaction_offset, str(message.store_host.port),
    )  # fmt: skip


def golden_row(row: MessageRow) -> tuple[object, ...]:
    return (
        row.physical_offset, row.size, row.topic, row.queue_id, row.queue_offset,
        row.store_timestamp, row.sys_flag, row.body_crc, row.body_length, row.flag,
        row.born_timestamp, row.reconsume_times, row.prepared_transaction_offset,
        row.store_host.rpartition(":")[2],
    )  # fmt: skip


@pytest.mark.parametrize("name", slow_from(len(SHIPPED), EVERY_STORE))
def test_every_golden_message_is_read_by_its_offset(golden: Golden, name: str) -> None:
    store = golden(name)
    log = CommitLogReader(StoreLog(store.path))
    rows = store.messages[:: 20 if name == "defaults" else 1]
    messages = [log.get(row.physical_offset) for row in rows]
    assert [row_of(message) for message in messages] == [golden_row(row) for row in rows]
    assert all(message.body_crc_ok for message in messages)
    log.close()


def test_the_bytes_of_a_record(golden: Golden) -> None:
    store = golden("basic")
    log = CommitLogReader(StoreLog(store.path))
    for row in store.messages[::500]:
        file = store.path / "commitlog" / f"{row.physical_offset // 65536 * 65536:020d}"
        start = row.physical_offset % 65536
        assert log.read_record(row.physical_offset) == file.read_bytes()[start : start + row.size]


def test_offsets_without_a_message(golden: Golden, tmp_path: Path) -> None:
    path = copy_store(golden("basic").path, tmp_path / "store")
    (path / "commitlog" / f"{3 * 65536:020d}").unlink()
    (path / "commitlog" / f"{0:020d}").unlink()
    log = CommitLogReader(StoreLog(path))
    assert (log.min_offset, log.files_end) == (65536, 21 * 65536)
    end = golden("basic").messages[-1].physical_offset + golden("basic").messages[-1].size
    blank = golden("basic").blanks[-1].physical_offset
    for offset, reason in (
        (-1, "no message begins there any more"),
        (0, "no message begins there any more: the log begins at 65536"),
        (65535, "any more"),
        (3 * 65536, "no file contains it"),
        (21 * 65536, "the files end at 1376256"),
        (10**30, "the files end"),
        (65536 + 1, "no message begins there"),
        (end, "no message begins there"),
        (blank, "no message begins there"),
    ):
        with pytest.raises(MessageNotFoundError, match=reason):
            log.get(offset)
    assert [(hole.physical_offset, hole.length) for hole in log.holes()] == [(3 * 65536, 65536)]


def test_a_damaged_record_is_told_with_its_file_and_offset(tmp_path: Path) -> None:
    log = forge_log([RecordFields(body=b"body") for _ in range(3)], file_bytes=1024)
    for total_size in (-1, 0, 1, 90, 2**31 - 1):
        path = tmp_path / str(total_size)
        write_store(path, set_total_size(log.files(), log.offsets[1], total_size))
        with pytest.raises(CorruptMessageError) as caught:
            CommitLogReader(StoreLog(path)).get(log.offsets[1])
        assert caught.value.offset == log.offsets[1]
        assert caught.value.path == str(path / "commitlog" / f"{0:020d}")
        assert "\n" not in str(caught.value)


def test_a_log_that_grows_and_expires_is_read_on(golden: Golden, tmp_path: Path) -> None:
    store = golden("basic")
    files = sorted((store.path / "commitlog").iterdir())
    path = write_store(tmp_path / "store", [(int(f.name), f.read_bytes()) for f in files[:3]])
    log = CommitLogReader(StoreLog(path))
    row = next(row for row in store.messages if row.physical_offset >= 3 * 65536)
    with pytest.raises(MessageNotFoundError):
        log.get(row.physical_offset)
    (path / "commitlog" / files[3].name).write_bytes(files[3].read_bytes())
    assert log.get(row.physical_offset).size_bytes == row.size
    assert log.get(0).size_bytes == store.messages[0].size
    (path / "commitlog" / files[0].name).unlink()
    (path / "commitlog" / files[1].name).unlink()
    assert log.get(0).size_bytes == store.messages[0].size  # the deleted file is still mapped
    with pytest.raises(MessageNotFoundError, match="any more: the log begins at 131072"):
        log.get(store.messages[1].physical_offset + 65536)
    assert log.min_offset == 2 * 65536
    for file in (path / "commitlog").iterdir():
        file.unlink()
    with pytest.raises(StoreNotFoundError, match="no CommitLog file"):
        log.refresh()


def test_what_is_no_store_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    (tmp_path / "overlapping" / "commitlog").mkdir(parents=True)
    for start in (0, 50):
        (tmp_path / "overlapping" / "commitlog" / f"{start:020d}").write_bytes(bytes(100))
    for name, error in (
        ("missing", StoreNotFoundError),
        ("file", StoreNotFoundError),
        ("empty", StoreNotFoundError),
        ("overlapping", FormatError),
    ):
        with pytest.raises(error) as caught:
            CommitLogReader(StoreLog(tmp_path / name))
        assert str(tmp_path / name) in str(caught.value)
        assert "\n" not in str(caught.value)


def assert_walks_like_the_oracle(path: Path) -> None:
    expected = walk(read_log(path))
    log = CommitLogReader(StoreLog(path))
    found = LogWalk(log, log.min_offset, in_place=False)
    records = [record.keyed() for record in found]
    assert [
        (r.physical_offset, r.stated_offset, r.topic, list(r.keys), r.store_timestamp, r.size_bytes)
        for r in records
    ] == [
        (o, r.physical_offset, r.topic, r.index_keys, r.store_timestamp, r.total_size)
        for o, r in expected.records
    ]
    assert found.at_end
    assert found.position == expected.end_offset
    assert [(lost.start, lost.length) for lost in found.damage] == [
        (d.offset, d.length) for d in expected.damage
    ]
    log.close()


@pytest.mark.parametrize("name", ["basic", "extremes", "lmq", "orders", "tricky", "git"])
def test_golden_logs_are_walked_as_the_oracle_walks_them(golden: Golden, name: str) -> None:
    assert_walks_like_the_oracle(golden(name).path)


@pytest.mark.parametrize("state", ["before", "after", "after_more"])
@pytest.mark.parametrize(
    "name", ["crc_late_noabort", "kill9", "magic_first_lastfile_abort", "size_bigger_noabort"]
)
def test_damaged_golden_logs_are_walked_as_the_oracle_walks_them(
    torn: Callable[[str], TornCase], name: str, state: str
) -> None:
    path = torn(name).root / state
    if not path.exists():
        pytest.skip(f"{name} has no {state}")
    assert_walks_like_the_oracle(path)


def damaged(files: Files, offsets: list[int], random: Random) -> Files:
    """Add one more damage to a log with records at these offsets."""
    held = [o for o in offsets if any(s <= o < s + len(data) - 60 for s, data in files)]
    if not held:
        return files
    offset = random.choice(held)
    kind = random.randrange(5)
    if kind == 0:
        return flip_bit(files, offset + random.randrange(60), random.randrange(8))
    if kind == 1:
        sizes = (-1, 0, 8, 91, 120, 500, 5000, 2**31 - 1)
        return set_total_size(files, offset, random.choice(sizes))
    if kind == 2:
        return zero_fill(files, offset + random.randrange(50), random.choice((1, 8, 300)))
    if kind == 3 and len(files) > 2:
        lost = random.randrange(len(files))
        return files[:lost] + files[lost + 1 :]
    return truncate(files, offset + 1 + random.randrange(100))


@pytest.mark.parametrize("seed", range(60))
def test_random_damaged_logs_are_walked_as_the_oracle_walks_them(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    options = LogOptions(records=80, start_offset=4096 * (seed % 2), irregular=seed % 5 == 0)
    log = random_log(seed, options)
    files = log.files
    for _ in range(random.choice((1, 1, 2, 5))):
        files = damaged(files, log.offsets, random)
    assert_walks_like_the_oracle(write_store(tmp_path / "store", files))


def test_a_walk_of_a_part(golden: Golden) -> None:
    store = golden("basic")
    log = CommitLogReader(StoreLog(store.path))
    offsets = [row.physical_offset for row in store.messages]
    for first, stop in ((0, 1), (3, 7), (200, 700), (4990, 5000)):
        end = offsets[stop] if stop < len(offsets) else None
        found = LogWalk(log, offsets[first], end)
        assert [record.physical_offset for record in found] == offsets[first:stop]
        assert found.at_end == (end is None)
        # A walk ends after the last record that begins before the given stop offset.
        assert len(list(LogWalk(log, offsets[first], offsets[first] + 1))) == 1


def test_a_forged_record_in_a_body_is_not_walked(tmp_path: Path) -> None:
    at = 1000
    forged = encode_record(RecordFields(topic="forged", physical_offset=at))
    body = b"\0" * (at - 88) + forged + b"\0" * 50
    log = forge_log([RecordFields(body=body), RecordFields()], file_bytes=4096)
    path = write_store(tmp_path / "store", log.files())
    assert CommitLogReader(StoreLog(path)).get(at).topic == "forged"
    assert [r.physical_offset for r in LogWalk(CommitLogReader(StoreLog(path)), 0)] == log.offsets


def test_a_listing_that_an_expiry_fell_into_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing has a file that existed when it began, but not the next file, which was deleted before it ended."""
    folder = tmp_path / "commitlog"
    folder.mkdir()
    for start in range(0, 500, 100):
        (folder / f"{start:020d}").write_bytes(bytes(100))
    scan = os.scandir
    listings: list[object] = []

    @contextmanager
    def scandir(path: str) -> Iterator[list["os.DirEntry[str]"]]:
        with scan(path) as found:
            listed = list(found)
        if not listings:
            (folder / f"{100:020d}").unlink()
            listed = [entry for entry in listed if int(entry.name) != 100]
        if len(listings) == 1:
            (folder / f"{0:020d}").unlink()
        listings.append(listed)
        yield listed

    monkeypatch.setattr(os, "scandir", scandir)
    assert [file.start for file in StoreLog(tmp_path).list().files] == [200, 300, 400]
    assert len(listings) == 2


def test_a_log_that_is_gone_stays_gone(golden: Golden, tmp_path: Path) -> None:
    path = copy_store(golden("basic").path, tmp_path / "store")
    log = CommitLogReader(StoreLog(path))
    shutil.rmtree(path)
    for _ in range(3):
        with pytest.raises(StoreNotFoundError):
            log.refresh()
    log.close()
