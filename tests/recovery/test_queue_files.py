"""The files of a queue as a crash left them: positions are found over files, pre-blank entries and pieces of a read."""

from pathlib import Path

import numpy as np
import pytest

from reput.engine.writer.recovery import queue_files
from reput.engine.writer.recovery.queue_files import QueueFiles
from reput.format.consume_queue import PRE_BLANK, ConsumeQueueEntry, encode_entry
from reput.io.disk import Disk
from tests.crash.power import Power
from tests.rebuild.rebuilding import tree

FILE_ENTRIES = 5
ZEROS = bytes(20)
BLANK = encode_entry(PRE_BLANK)


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_files, "_SOME_ENTRIES", 3)
    monkeypatch.setattr(queue_files, "_MANY_ENTRIES", 4)


def entry(number: int) -> bytes:
    """Return an entry of a message of 10 bytes."""
    return encode_entry(ConsumeQueueEntry(10 * number, 10, 7))


def queue_of(folder: Path, entries: list[bytes], first: int = 0) -> QueueFiles:
    """Return a queue whose file `first` begins with these entries. Its last file is filled with zeros."""
    folder.mkdir(parents=True, exist_ok=True)
    for at in range(0, len(entries), FILE_ENTRIES):
        data = b"".join(entries[at : at + FILE_ENTRIES]).ljust(FILE_ENTRIES * 20, b"\0")
        (folder / f"{(first * FILE_ENTRIES + at) * 20:020d}").write_bytes(data)
    return QueueFiles(folder, FILE_ENTRIES)


@pytest.mark.parametrize("first", [0, 3])
def test_the_last_entry_before_a_position_is_found_before_blanks(
    tmp_path: Path, first: int
) -> None:
    begin = first * FILE_ENTRIES
    kinds = "eebbbbbbbbbebbee"
    queue = queue_of(
        tmp_path, [entry(n + 1) if kind == "e" else BLANK for n, kind in enumerate(kinds)], first
    )
    for stop in range(len(kinds) + 1):
        expected = kinds.rfind("e", 0, stop)
        assert queue.last_before(begin + stop) == (begin + expected if expected >= 0 else -1)
        assert queue.end_before(begin + stop) == (10 * (expected + 2) if expected >= 0 else -1)
        after = kinds.find("e", stop)
        expected = after if after >= 0 else len(kinds)
        assert queue.next_entry(begin + stop, begin + len(kinds)) == begin + expected
    assert queue.last_before(begin) == -1


@pytest.mark.parametrize("first", [0, 3])
def test_entries_are_in_order_up_to_an_unwritten_one_and_one_that_leads_back(
    tmp_path: Path, first: int
) -> None:
    begin = first * FILE_ENTRIES
    whole = [entry(n + 1) for n in range(13)]
    assert queue_of(tmp_path / "unwritten", whole, first).ordered_stop(begin) == begin + 13
    for at in range(1, 13):
        back = [*whole[:at], entry(at), *whole[at + 1 :]]
        queue = queue_of(tmp_path / f"back {at}", back, first)
        assert queue.ordered_stop(begin) == begin + at
        assert queue.ordered_stop(begin + at) == begin + 13
        with_blank = queue_of(tmp_path / f"blank {at}", [*whole[:at], BLANK, *whole[at:]], first)
        assert with_blank.ordered_stop(begin) == begin + 14
    full = queue_of(tmp_path / "full", [entry(n + 1) for n in range(10)], first)
    assert full.ordered_stop(begin) == full.stop == begin + 10


def test_entries_of_missing_and_short_files_are_zeros(tmp_path: Path) -> None:
    entries = [entry(n + 1) for n in range(20)]
    queue_of(tmp_path, entries)
    (tmp_path / f"{100:020d}").unlink()
    (tmp_path / f"{200:020d}").write_bytes(b"".join(entries[10:12]))
    queue = QueueFiles(tmp_path, FILE_ENTRIES)
    expected = b"".join([*entries[:5], *[ZEROS] * 5, *entries[10:12], *[ZEROS] * 3, *entries[15:]])
    for begin in range(20):
        for stop in range(begin, 21):
            assert (
                queue.read_padded(begin, stop - begin).tobytes() == expected[begin * 20 : stop * 20]
            )
    # The queue ends at the first file that is missing.
    assert queue.read(3, 10).tobytes() == expected[60:100]
    assert queue.read(5, 1).tobytes() == b""


def test_written_entries_survive_a_power_cut(tmp_path: Path) -> None:
    root = tmp_path / "store"
    folder = root / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    positions = np.array([0, 1, 3, 4, 5, 12], np.int64)
    entries = [entry(n + 1) for n in range(13)]
    words = np.frombuffer(b"".join(entries[n] for n in positions), np.uint32).reshape(-1, 5)
    queue = QueueFiles(folder, FILE_ENTRIES)
    power = Power(root, keeps=0)
    with power.on():
        queue.write(positions, words, Disk())
    power.come_back()
    expected = [data if n in positions else ZEROS for n, data in enumerate(entries)]
    assert queue.read_padded(0, 13).tobytes() == b"".join(expected)


@pytest.mark.parametrize("position", [3, 5])
@pytest.mark.parametrize("has_next", [True, False])
def test_a_cut_survives_a_power_cut(tmp_path: Path, position: int, has_next: bool) -> None:
    root = tmp_path / "store"
    folder = root / "consumequeue" / "T" / "0"
    queue = queue_of(folder, [entry(n) for n in range(15 if has_next else 5)])
    (folder / f"{7:020d}").write_bytes(b"a name within a file")
    queue = QueueFiles(folder, FILE_ENTRIES)
    power = Power(root, keeps=0)
    with power.on():
        queue.cut(position, position, 0, Disk(), is_begun=position == 5).close(sync=False)
    power.come_back()
    # The first file is full, so the next one is kept, or made again, without entries.
    begun = {f"{100:020d}": b""} if position == 5 else {}
    kept = b"".join(entry(n) for n in range(position))
    there = {name: data.rstrip(b"\0") for name, data in tree(folder).items()}
    assert there == {f"{0:020d}": kept, **begun}


def test_the_next_entry_after_blanks_lies_before_the_stop(tmp_path: Path) -> None:
    queue = queue_of(tmp_path / "0", [entry(0), *[BLANK] * 5, entry(6), BLANK, entry(8)])
    assert [queue.next_entry(position, 9) for position in range(9)] == [0, *[6] * 6, 8, 8]
    # One read may take up to 3 entries, but no entry at or after the stop.
    for position in range(1, 6):
        for stop in range(7):
            assert queue.next_entry(position, stop) == max(position, stop)


def test_every_entry_is_yielded_also_after_a_hole(tmp_path: Path) -> None:
    queue_of(tmp_path / "0", [entry(n) for n in range(20)])
    (tmp_path / "0" / f"{100:020d}").unlink()
    queue = QueueFiles(tmp_path / "0", FILE_ENTRIES)
    for position in (0, 3, 5, 7, 12, 20):
        parts = {first: words.tobytes() for first, words in queue.all_entries(position)}
        starts = [max(start, position) for start in (0, 10, 15) if start + 5 > position]
        assert parts == {
            first: b"".join(entry(n) for n in range(first, first - first % 5 + 5))
            for first in starts
        }
