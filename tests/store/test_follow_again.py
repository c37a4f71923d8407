"""A follower that is started again reads of the log what came since, however its predecessor ended."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reput.config import StoreConfig
from reput.files.reader import FileReader
from reput.store import followed_log
from reput.store.follow import Follower
from reput.store.follow_state import NOTE_FILE, Mark, begin
from reput.store.followed_log import FollowedLog
from reput.store.scan import ScanBuffers
from tests.oracle.forge import Files, RecordFields, forge_log, overwrite
from tests.oracle.random_logs import LogOptions, RandomLog, random_log
from tests.slow import slow_from
from tests.store.following import GrowingLog, assert_as_rebuilt, catch_up, open_follower, taken_up
from tests.store.rebuilding import rebuild

CONFIG = StoreConfig(queue_entries=20, hash_slots=11, index_items=60)
FILE_BYTES = 1 << 13
RECORDS = 900


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_log, "_SETTLED_S", 0)


def record(number: int, **fields: Any) -> RecordFields:
    made = RecordFields(
        topic=f"T{number % 2}", queue_id=number % 3, queue_offset=number // 6,
        store_timestamp=1_700_000_000_000 + number, properties={"KEYS": f"k{number % 70}"},
        body=b"b" * (number % 90),
    )  # fmt: skip
    return replace(made, **fields)


RECORDS_MADE = [record(number) for number in range(RECORDS)]
MADE = forge_log(RECORDS_MADE, file_bytes=FILE_BYTES)


def followed(folder: Path) -> GrowingLog:
    """A log that was followed to two thirds, noted there, and followed on for a while."""
    log = GrowingLog(folder / "store", MADE.files())
    log.write_to(MADE.offsets[600])
    follower = open_follower(log, folder / "out", CONFIG)
    catch_up(follower)
    follower.sync()
    log.write_to(MADE.offsets[640])
    catch_up(follower)
    return log


def closed(folder: Path) -> GrowingLog:
    log = followed(folder)
    follower = open_follower(log, folder / "out", CONFIG)
    catch_up(follower)
    follower.close()
    return log


ENDS = {"killed": followed, "ended in order": closed}


@contextmanager
def counting(folder: Path) -> Iterator[list[int]]:
    """Bytes that are read of the files in a folder."""
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
        follower = taken_up(log, tmp_path / "out", CONFIG)
        assert follower.report.position == log.end
        assert follower.report.notes == []


def test_started_and_killed_before_anything_came(tmp_path: Path) -> None:
    log = closed(tmp_path)
    open_follower(log, tmp_path / "out", CONFIG)
    log.write_to(log.last)
    catch_up(open_follower(log, tmp_path / "out", CONFIG))
    assert taken_up(log, tmp_path / "out", CONFIG).report.compared_from > MADE.offsets[600]


def overwritten(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


def no_note(output: Path) -> None:
    (output / NOTE_FILE).unlink()


def nonsense_noted(output: Path) -> None:
    (output / NOTE_FILE).write_text('{"form": 1, "end": [], "lock": 0}')


def garbled_note(output: Path) -> None:
    overwritten(output / NOTE_FILE, 20, b"\xff\xff\xff")


def foreign_note(output: Path) -> None:
    other = output.parent / "other"
    log = GrowingLog(other / "store", MADE.files())
    log.write_to(MADE.offsets[500])
    follower = open_follower(log, other / "out", CONFIG)
    catch_up(follower)
    follower.close()
    shutil.copy(other / "out" / NOTE_FILE, output / NOTE_FILE)
    shutil.rmtree(other)


def a_queue_file_less(output: Path) -> None:
    sorted((output / "consumequeue" / "T0" / "2").iterdir())[1].unlink()


def the_last_queue_file_less(output: Path) -> None:
    sorted((output / "consumequeue" / "T0" / "2").iterdir())[-1].unlink()


def a_queue_less(output: Path) -> None:
    shutil.rmtree(output / "consumequeue" / "T1" / "1")


def a_queue_more(output: Path) -> None:
    shutil.copytree(output / "consumequeue" / "T1" / "1", output / "consumequeue" / "T1" / "7")


def other_tags_in_a_full_queue_file(output: Path) -> None:
    overwritten(sorted((output / "consumequeue" / "T0" / "2").iterdir())[0], 19, b"\x07")


def an_index_file_less(output: Path) -> None:
    sorted((output / "index").iterdir())[1].unlink()


def the_last_index_file_less(output: Path) -> None:
    sorted((output / "index").iterdir())[-1].unlink()


def other_items_in_a_full_index_file(output: Path) -> None:
    overwritten(sorted((output / "index").iterdir())[2], 200, b"\x01\x02\x03")


def other_items_in_the_last_index_file(output: Path) -> None:
    path = sorted((output / "index").iterdir())[-1]
    overwritten(path, 40 + 4 * CONFIG.hash_slots + 20 + 2, b"\x55")


HARMS = (
    no_note, nonsense_noted, garbled_note, foreign_note, a_queue_file_less,
    the_last_queue_file_less, a_queue_less, a_queue_more, other_tags_in_a_full_queue_file,
    an_index_file_less, the_last_index_file_less, other_items_in_a_full_index_file,
    other_items_in_the_last_index_file,
)  # fmt: skip


@pytest.mark.parametrize("ended", ENDS)
@pytest.mark.parametrize("harm", HARMS)
def test_whatever_was_done_to_the_indexes_is_healed(
    tmp_path: Path, harm: Callable[[Path], None], ended: str
) -> None:
    log = ENDS[ended](tmp_path)
    harm(tmp_path / "out")
    log.write_to(MADE.offsets[700])
    compared_from = taken_up(log, tmp_path / "out", CONFIG).report.compared_from
    assert compared_from == 0 or (ended == "killed" and harm is the_last_queue_file_less)


def other_tags_in_the_last_queue_file(output: Path) -> None:
    overwritten(sorted((output / "consumequeue" / "T0" / "2").iterdir())[-1], 19, b"\x07")


def other_checkpoint(output: Path) -> None:
    overwritten(output / "checkpoint", 3, b"\x07")


def nothing_but_a_time(output: Path) -> None:
    os.utime(sorted((output / "index").iterdir())[-1])


@pytest.mark.parametrize(
    "harm", [other_tags_in_the_last_queue_file, other_checkpoint, nothing_but_a_time]
)
def test_any_change_since_an_end_in_order_is_noticed(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    log = closed(tmp_path)
    harm(tmp_path / "out")
    assert taken_up(log, tmp_path / "out", CONFIG).report.compared_from == 0


@pytest.mark.parametrize("ended", ENDS)
@pytest.mark.parametrize("cut", [590, 610, 636, 300, 0])
@pytest.mark.parametrize("grown", [0, pytest.param(3, marks=pytest.mark.slow), 200])
def test_a_log_that_ends_before_what_was_noted(
    tmp_path: Path, ended: str, cut: int, grown: int
) -> None:
    """And was written anew from there."""
    ENDS[ended](tmp_path)
    fresh = [record(n, store_timestamp=1_750_000_000_000, body=b"new") for n in range(900, 1100)]
    made = forge_log(RECORDS_MADE[:cut] + fresh, file_bytes=FILE_BYTES)
    log = GrowingLog(tmp_path / "store", made.files())
    for path in (log.path / "commitlog").iterdir():
        path.unlink()
    log.write_to(made.offsets[cut + grown] if cut + grown < len(made.offsets) else log.last)
    taken_up(log, tmp_path / "out", CONFIG)
    log.write_to(log.last)
    follower = taken_up(log, tmp_path / "out", CONFIG)
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
    """A broker that recovers its log cuts it without clearing what follows: old messages, whole, behind new ones."""
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
    else:  # a rebuild takes what is left for damage, this for what is to be written yet
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


@pytest.mark.parametrize("ended", ENDS)
def test_files_of_the_index_that_were_begun_and_have_no_entries(tmp_path: Path, ended: str) -> None:
    """Messages without keys behind one that fills a file: it is followed by one with the time of the last entry."""
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


def follow_step_by_step(folder: Path, made: RandomLog, ended: str) -> None:
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
    taken_up(log, folder / "out", CONFIG)


@pytest.mark.parametrize("ended", [*ENDS, "not noted"])
def test_files_of_a_queue_that_were_begun_for_an_entry_that_was_refused(
    tmp_path: Path, ended: str
) -> None:
    """A broker makes the file behind a full one before it looks at an entry from before the end."""
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
            if ended == "ended in order":
                follower.close()
            elif ended == "not noted":
                no_note(tmp_path / "out")


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("ended", ENDS)
def test_random_logs_with_offsets_that_are_wrong(tmp_path: Path, seed: int, ended: str) -> None:
    follow_step_by_step(tmp_path, random_log(seed, LogOptions(records=200, irregular=True)), ended)


def test_killed_behind_a_rebuild(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "store", MADE.files())
    log.write_to(MADE.offsets[600])
    begin(log.path, tmp_path / "out", CONFIG)
    rebuild(log.path, tmp_path / "out", CONFIG)
    assert taken_up(log, tmp_path / "out", CONFIG).report.messages <= 1


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
    assert taken_up(log, tmp_path / "out", CONFIG).report.messages == 0


def test_marks_behind_one_that_does_not_hold_prove_nothing(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "store", MADE.files())
    log.write_to(log.last)
    found = FollowedLog(log.path, CONFIG, ScanBuffers())
    heads = {n: found.head_at(MADE.offsets[n]) for n in (10, 200, 400)}
    marks = [Mark.of(MADE.offsets[n], head) for n, head in heads.items() if head is not None]
    assert found.held(marks) == marks
    marks[1] = Mark.of(MADE.offsets[200], b"what was there once")
    assert found.held(marks) == marks[:1]
    sorted((log.path / "commitlog").iterdir())[0].unlink()
    found.list_files()
    assert found.held([marks[0], marks[2]]) == [marks[2]], "what has expired is left out"
