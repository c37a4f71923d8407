"""A follower that starts again reads only the new part of the log, however its predecessor ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reput.base.findings import Kind
from reput.core.log.scan import ScanBuffers
from reput.core.log.sources import StoreLog
from reput.engine.rebuild.follow.follower import FollowedLog, Follower
from reput.engine.rebuild.follow.state import LogCheckpoint, begin
from reput.format.consume_queue import ENTRY_BYTES, decode_entry
from reput.format.index_file import HEADER_BYTES, decode_header
from reput.io.reader import FileReader
from tests.follow.following import (
    CONFIG,
    ENDS,
    FILE_BYTES,
    MADE,
    RECORDS_MADE,
    Check,
    GrowingLog,
    assert_as_rebuilt,
    assert_same_messages,
    catch_up,
    closed,
    followed,
    no_note,
    open_follower,
    record,
    resumed,
)
from tests.oracle.forge import Files, forge_log, overwrite
from tests.oracle.random_logs import LogOptions, RandomLog, random_log
from tests.rebuild.rebuilding import rebuild
from tests.recovery.checking import check_what_is_left
from tests.slow import slow_from

pytestmark = pytest.mark.usefixtures("without_waiting")


@contextmanager
def counting(folder: Path) -> Iterator[list[int]]:
    """Count the bytes that are read from the files in a folder."""
    counts: list[int] = []
    fill = FileReader._fill

    def counted(reader: FileReader, view: memoryview, position: int) -> None:
        if Path(reader.path).parent == folder:
            counts.append(len(view))
        fill(reader, view, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileReader, "_fill", counted)
        yield counts


def start_of(offset: int) -> int:
    return offset - offset % FILE_BYTES


@pytest.mark.parametrize("ended", ENDS)
def test_little_of_the_log_is_read_again(tmp_path: Path, ended: str) -> None:
    log = ENDS[ended](tmp_path)
    with counting(log.path / "commitlog") as read:
        follower = open_follower(log, tmp_path / "out", CONFIG)
    noted = MADE.offsets[600 if ended == "killed" else 640]
    assert follower.report.compared_from >= start_of(noted - 1) >= 10 * FILE_BYTES
    assert sum(read) < 4 * FILE_BYTES
    assert follower.report.messages <= 1
    log.write_to(log.last)
    catch_up(follower)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", CONFIG)


@pytest.mark.parametrize("ended", ENDS)
def test_nothing_new_came(tmp_path: Path, ended: str) -> None:
    log = ENDS[ended](tmp_path)
    for _ in range(3):
        follower = resumed(log, tmp_path / "out", CONFIG)
        assert follower.report.position == log.end
        assert follower.report.notes == []


def test_started_and_killed_before_anything_came(tmp_path: Path) -> None:
    log = closed(tmp_path)
    open_follower(log, tmp_path / "out", CONFIG)
    log.write_to(log.last)
    catch_up(open_follower(log, tmp_path / "out", CONFIG))
    assert resumed(log, tmp_path / "out", CONFIG).report.compared_from > MADE.offsets[600]


@pytest.mark.parametrize("ended", ENDS)
@pytest.mark.parametrize("cut", [590, 610, 636, 300, 0])
@pytest.mark.parametrize("grown", [0, pytest.param(3, marks=pytest.mark.slow), 200])
def test_a_log_that_ends_before_what_was_noted(
    tmp_path: Path, ended: str, cut: int, grown: int
) -> None:
    """Follow a log that was truncated and then continued with other messages."""
    ENDS[ended](tmp_path)
    fresh = [record(n, store_timestamp=1_750_000_000_000, body=b"new") for n in range(900, 1100)]
    made = forge_log(RECORDS_MADE[:cut] + fresh, file_bytes=FILE_BYTES)
    log = GrowingLog(tmp_path / "store", made.files())
    for path in (log.path / "commitlog").iterdir():
        path.unlink()
    log.write_to(made.offsets[cut + grown] if cut + grown < len(made.offsets) else log.last)
    resumed(log, tmp_path / "out", CONFIG)
    log.write_to(log.last)
    follower = resumed(log, tmp_path / "out", CONFIG)
    assert (follower.report.compared_from > 0) == (cut + grown > 0)


def restored(files: Files, log: GrowingLog, end: int) -> None:
    for start, data in files:
        if start <= end:
            path = log.path / "commitlog" / f"{start:020d}"
            path.write_bytes(data[: max(end - start, 0)].ljust(len(data), b"\0"))


@pytest.mark.parametrize("ended", ENDS)
@pytest.mark.parametrize("same_size", [True, False])
def test_what_is_left_behind_a_cut_proves_nothing(
    tmp_path: Path, ended: str, same_size: bool
) -> None:
    """A broker that recovers its log truncates it without clearing the rest: valid old messages follow the new ones."""
    log = ENDS[ended](tmp_path)
    place = start_of(MADE.offsets[639])
    first = next(n for n, offset in enumerate(MADE.offsets) if offset >= place)
    numbers = range(first + 3, first + 6)
    size = {} if same_size else {"body": b""}
    again = forge_log(
        [
            record(
                n, store_timestamp=1_750_000_000_000, properties={"KEYS": f"z{n % 70:d}"}, **size
            )
            for n in numbers
        ],
        file_bytes=FILE_BYTES,
        start_offset=MADE.offsets[numbers[0]],
    )
    new = again.files()[0][1][: again.end_offset - again.start_offset]
    files = overwrite(MADE.files(), MADE.offsets[numbers[0]], new)
    restored(files, log, log.end)
    follower = open_follower(log, tmp_path / "out", CONFIG)
    catch_up(follower)
    follower.close()
    if same_size:
        assert_as_rebuilt(log, tmp_path / "out", CONFIG)
    else:  # a rebuild reports the rest as damage, a follower waits for it to be written
        assert follower.report.position == again.end_offset
        until = GrowingLog(tmp_path / "until", files)
        until.write_to(again.end_offset)
        assert_as_rebuilt(until, tmp_path / "out", CONFIG)


@pytest.mark.parametrize("ended", ENDS)
def test_messages_expire_while_nobody_follows(tmp_path: Path, ended: str) -> None:
    log = ENDS[ended](tmp_path)
    for path in sorted((log.path / "commitlog").iterdir())[:3]:
        path.unlink()
    before = sorted(path.name for path in (tmp_path / "out" / "index").iterdir())
    follower = open_follower(log, tmp_path / "out", CONFIG)
    assert follower.report.compared_from > MADE.offsets[500]
    catch_up(follower)
    follower.close()
    assert follower.report.damage == []
    left = sorted(path.name for path in (tmp_path / "out" / "index").iterdir())
    assert left == before[len(before) - len(left) :]
    again = open_follower(log, tmp_path / "out", CONFIG)
    assert again.report.compared_from > MADE.offsets[500]
    again.close()


@pytest.mark.parametrize("ended", [*ENDS, "not noted"])
def test_messages_that_expire_before_they_are_indexed_are_reported(
    tmp_path: Path, ended: str
) -> None:
    log = ENDS.get(ended, followed)(tmp_path)
    reached = log.end
    if ended == "not noted":
        no_note(tmp_path / "out")
    log.write_to(log.last)
    begins = start_of(MADE.offsets[800])
    expired(log, begins)
    follower = open_follower(log, tmp_path / "out", CONFIG)
    (lost,) = follower.report.damage
    assert (lost.kind, lost.start, lost.stop) == (Kind.EXPIRED_UNREAD, reached, begins)
    catch_up(follower)
    follower.close()
    (tmp_path / "out" / "commitlog").symlink_to(log.path / "commitlog")
    assert check_what_is_left(tmp_path / "out", CONFIG).dispatched
    (tmp_path / "out" / "commitlog").unlink()
    assert resumed_quietly(log, tmp_path / "out") == []


@pytest.mark.parametrize("ended", ENDS)
def test_files_that_cover_expired_messages_alone_are_deleted_at_the_next_start(
    tmp_path: Path, ended: str
) -> None:
    log = ENDS[ended](tmp_path)
    begins = start_of(MADE.offsets[500])
    expired(log, begins)
    files = len([*(tmp_path / "out").rglob("0*")])
    follower = open_follower(log, tmp_path / "out", CONFIG)
    assert follower.report.expired_files > 0
    assert len([*(tmp_path / "out").rglob("0*")]) < files
    ends = [decode_header(path.read_bytes()[:HEADER_BYTES]).end_physical_offset
            for path in (tmp_path / "out" / "index").iterdir()]  # fmt: skip
    assert min(ends) >= begins
    for queue in (tmp_path / "out" / "consumequeue").glob("*/*"):
        last_of_first = min(queue.iterdir()).read_bytes()[-ENTRY_BYTES:]
        assert decode_entry(last_of_first).physical_offset >= begins
    follower.close()
    assert resumed_quietly(log, tmp_path / "out") == []


def expired(log: GrowingLog, begins: int) -> None:
    for path in (log.path / "commitlog").iterdir():
        if int(path.name) < begins:
            path.unlink()


def resumed_quietly(log: GrowingLog, output: Path) -> list[object]:
    """Return the damage that a further run reports. Check that this run finds no expired files to delete."""
    follower = open_follower(log, output, CONFIG)
    follower.close()
    assert follower.report.expired_files == 0
    return [*follower.report.damage]


@pytest.mark.parametrize("ended", ENDS)
def test_files_of_the_index_that_were_begun_and_have_no_entries(tmp_path: Path, ended: str) -> None:
    """A message without keys that follows a full IndexFile creates the next file, which has no entries yet."""
    full = 2 * (CONFIG.index_items - 1)
    records = [record(n) for n in range(full)]
    records += [record(n, properties={}) for n in range(full, full + 40)]
    records += [record(n) for n in range(full + 40, full + 80)]
    made = forge_log(records, file_bytes=FILE_BYTES)
    log = GrowingLog(tmp_path / "store", made.files())
    for number in (*range(full - 1, full + 4), full + 39, full + 40, full + 41, full + 79):
        log.write_to(made.offsets[number])
        for _ in range(2):
            follower = open_follower(log, tmp_path / "out", CONFIG)
            assert number == full - 1 or follower.report.compared_from > 0
            catch_up(follower)
            follower.sync()
            assert follower.report.notes == []
            assert_as_rebuilt(log, tmp_path / "out", CONFIG)
            if ended != "killed":
                follower.close()


@pytest.mark.parametrize("ended", ENDS)
def test_a_log_without_keys(tmp_path: Path, ended: str) -> None:
    made = forge_log([record(n, properties={}) for n in range(400)], file_bytes=FILE_BYTES)
    log = GrowingLog(tmp_path / "store", made.files())
    for number in (200, 300, 300, 300, 399):
        log.write_to(made.offsets[number])
        follower = open_follower(log, tmp_path / "out", CONFIG)
        assert number == 200 or follower.report.compared_from > made.offsets[100]
        catch_up(follower)
        follower.sync()
        if ended != "killed":
            follower.close()
        assert_as_rebuilt(log, tmp_path / "out", CONFIG)


@pytest.mark.parametrize("seed", slow_from(2, range(6)))
@pytest.mark.parametrize("ended", ENDS)
def test_random_logs_with_a_start_for_each_step(tmp_path: Path, seed: int, ended: str) -> None:
    options = LogOptions(records=250, multi_dispatch=seed % 2 == 1)
    follow_step_by_step(tmp_path, random_log(seed, options), ended)


def follow_step_by_step(
    folder: Path, made: RandomLog, ended: str, check: Check = assert_as_rebuilt
) -> None:
    log = GrowingLog(folder / "store", [(start, bytes(data)) for start, data in made.files])
    for number in range(0, len(made.offsets), 13):
        log.write_to(made.offsets[number])
        follower = open_follower(log, folder / "out", CONFIG)
        catch_up(follower)
        if ended != "killed":
            follower.close()
        elif number % 3:
            follower.sync()
    log.write_to(log.last)
    resumed(log, folder / "out", CONFIG, check)


@pytest.mark.parametrize("ended", [*ENDS, "not noted"])
def test_files_of_a_queue_that_were_begun_for_an_entry_that_was_refused(
    tmp_path: Path, ended: str
) -> None:
    """A broker creates the file after a full one before it checks whether an entry is older than the end."""
    entries = CONFIG.queue_entries
    records = [record(n, topic="full", queue_id=1, queue_offset=n) for n in range(entries)]
    records += [record(n) for n in range(5)]
    records += [record(n, topic="full", queue_id=1, queue_offset=7) for n in range(2)]
    records += [record(n) for n in range(5, 200)]
    made = forge_log(records, file_bytes=FILE_BYTES)
    log = GrowingLog(tmp_path / "store", made.files())
    for number in (entries, entries + 5, entries + 6, entries + 7, entries + 60, 210, 217):
        log.write_to(made.offsets[number])
        for _ in range(2):
            follower = open_follower(log, tmp_path / "out", CONFIG)
            catch_up(follower)
            follower.sync()
            assert_as_rebuilt(log, tmp_path / "out", CONFIG)
            if ended == "ended cleanly":
                follower.close()
            elif ended == "not noted":
                no_note(tmp_path / "out")


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("ended", ENDS)
def test_random_logs_with_offsets_that_are_wrong(tmp_path: Path, seed: int, ended: str) -> None:
    made = random_log(seed, LogOptions(records=200, irregular=True))
    follow_step_by_step(tmp_path, made, ended, assert_same_messages)


def test_killed_behind_a_rebuild(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "store", MADE.files())
    log.write_to(MADE.offsets[600])
    begin(log.path, tmp_path / "out", CONFIG)
    rebuild(log.path, tmp_path / "out", CONFIG)
    assert resumed(log, tmp_path / "out", CONFIG).report.messages <= 1


@pytest.mark.parametrize("grown", [0, 100])
def test_what_was_rebuilt_just_now_is_not_compared(tmp_path: Path, grown: int) -> None:
    log = GrowingLog(tmp_path / "store", MADE.files())
    log.write_to(MADE.offsets[600])
    state = begin(log.path, tmp_path / "out", CONFIG)
    state.rebuilt_to = rebuild(log.path, tmp_path / "out", CONFIG).log_end
    log.write_to(MADE.offsets[600 + grown])
    with counting(log.path / "commitlog") as read:
        follower = Follower(log.path, tmp_path / "out", state)
    assert follower.report.compared_from == start_of(MADE.offsets[600] - 1)
    assert sum(read) < 5 * FILE_BYTES + 3 * (MADE.offsets[600 + grown] - MADE.offsets[600])
    catch_up(follower)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", CONFIG)
    assert resumed(log, tmp_path / "out", CONFIG).report.messages == 0


def test_checkpoints_after_one_that_does_not_match_prove_nothing(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "store", MADE.files())
    log.write_to(log.last)
    found = FollowedLog(StoreLog(log.path), ScanBuffers())
    heads = {n: found.head_at(MADE.offsets[n]) for n in (10, 200, 400)}
    checkpoints = [
        LogCheckpoint.of(MADE.offsets[n], head) for n, head in heads.items() if head is not None
    ]
    assert found.held(checkpoints) == checkpoints
    checkpoints[1] = LogCheckpoint.of(MADE.offsets[200], b"what was there once")
    assert found.held(checkpoints) == checkpoints[:1]
    sorted((log.path / "commitlog").iterdir())[0].unlink()
    found.list_files()
    assert found.held([checkpoints[0], checkpoints[2]]) == [checkpoints[2]], (
        "expired ones are excluded"
    )
