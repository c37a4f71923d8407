"""Recovery of a broker's stores, valid and damaged: the log ends where the broker ends it, and is indexed once."""

from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.core.log.files import CommitLogFile
from reput.engine.writer.put.message import Message
from reput.engine.writer.recovery.log import _clear
from reput.engine.writer.store_writer import StoreWriter
from reput.engine.writer.writer_settings import WriterSettings
from reput.errors import StoreError
from reput.format.commit_log import encode_blank
from reput.io.disk import Disk
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenLibrary, GoldenStore, TornCase
from tests.oracle.walk import read_log, walk
from tests.recovery.checking import check_index, check_store
from tests.small import SMALL
from tests.writer.golden_puts import store_config

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]

CASES = (
    "abort_clean", "checkpoint_future_abort", "checkpoint_missing_abort",
    "checkpoint_missing_noabort", "cq_deleted_noabort", "cq_last_entry_zeroed",
    "cq_one_topic_deleted", "crc_late_abort", "crc_late_noabort", "crc_old_abort",
    "crc_old_noabort", "index_count_zero_abort", "index_count_zero_noabort",
    "index_deleted_abort", "index_deleted_noabort", "index_header_zero_noabort",
    "index_junk_file", "index_last_entry_half", "index_short_file", "kill9", "lmq_restart",
    "magic_first_lastfile_abort", "name_collision", "size_bigger_noabort", "tail_noabort",
)  # fmt: skip
REFUSED = "short_file"
AS_BROKER = WriterSettings(as_broker=True)
SOUND_LOGS = ("lmq_restart", "name_collision")


def broker_log(case: TornCase) -> dict[str, bytes]:
    """Return the log that the broker recovered in the case, without later messages and without bytes after its end."""
    if case.root.name in SOUND_LOGS:
        return {path.name: path.read_bytes() for path in (case.before / "commitlog").iterdir()}
    folder = case.after / "commitlog"
    end = max(row.physical_offset + row.size for row in case.messages)
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    size = case.commit_log_file_bytes
    last = files[f"{end - end % size:020d}"]
    if last[end % size + 4 : end % size + 8] == bytes.fromhex("cbd43194"):
        end += size - end % size  # the blank is part of the log
    return {
        name: data[: max(end - int(name), 0)].ljust(len(data), b"\0")
        if int(name) <= end < int(name) + len(data)
        else data
        for name, data in files.items()
    }


def test_no_case_is_left_out(golden_library: GoldenLibrary, torn: Torn) -> None:
    torn(REFUSED)
    assert sorted([*CASES, REFUSED]) == golden_library.torn_names()


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_store(torn: Torn, tmp_path: Path, name: str) -> None:
    case = torn(name)
    store = copy_store(case.before, tmp_path / "store")
    config = store_config(case)
    writer = StoreWriter(store, config, AS_BROKER)
    report = writer.recovery
    writer.close()
    found = {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()}
    assert found == broker_log(case)
    log = walk(read_log(store))
    assert log.end_offset == report.log_end
    if not log.damage and name != "head_deleted" and name != "expired":
        check_store(store, config)
    check_index(store, config, log.dispatched)
    again = StoreWriter(store, config)
    result = again.put(Message("TopicA", b"more", ["K1"]))
    assert result.physical_offset >= report.log_end
    assert again.recovery.is_clean
    assert again.recovery.truncated_bytes == 0
    again.close()
    check_index(store, config, walk(read_log(store)).dispatched)


@pytest.mark.parametrize("ending", ["after", "after_more"])
@pytest.mark.parametrize("name", CASES)
def test_what_a_broker_made_of_damage(torn: Torn, tmp_path: Path, name: str, ending: str) -> None:
    """Entries that the broker omitted, repeated, or wrote for messages that it cut off are repaired."""
    case = torn(name)
    if not (case.root / ending).exists():
        assert ending == "after_more"
        return
    store = copy_store(case.root / ending, tmp_path / "store")
    StoreWriter(store, store_config(case), AS_BROKER).close()
    check_index(store, store_config(case), walk(read_log(store)).dispatched)


def test_a_store_that_no_broker_starts_on(torn: Torn, tmp_path: Path) -> None:
    store = copy_store(torn(REFUSED).before, tmp_path / "store")
    with pytest.raises(StoreError, match="must have one size"):
        StoreWriter(store, store_config(torn(REFUSED)))
    assert not (store / "abort").exists()


@pytest.mark.parametrize("name", ["basic", "timed", "orders"])
def test_a_sound_store_stays_as_it_is(golden: Golden, tmp_path: Path, name: str) -> None:
    case = golden(name)
    store = copy_store(case.path, tmp_path / "store")
    StoreWriter(store).close()
    for folder in ("commitlog", "consumequeue"):
        for path in (case.path / folder).rglob("*"):
            if path.is_file():
                assert (store / path.relative_to(case.path)).read_bytes() == path.read_bytes()
    index = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    assert index == [path.read_bytes() for path in sorted((case.path / "index").iterdir())]


@pytest.mark.parametrize("number", [0, -1])
def test_a_log_is_not_continued_without_a_file_that_was_renamed(
    tmp_path: Path, number: int
) -> None:
    """Without the renamed file, new messages would get the physical offsets of its messages."""
    with reput.open_store(tmp_path, mode="rw", config=SMALL) as opened:
        opened.put_many(Message("T", bytes(40), [f"k{n}"]) for n in range(120))
    file = sorted((tmp_path / "commitlog").iterdir())[number]
    away = file.rename(file.with_name(f"{file.name}.bak"))
    names = sorted((tmp_path / "commitlog").iterdir())
    with pytest.raises(StoreError, match=f"rename it to {file.name}, or move it out"):
        StoreWriter(tmp_path)
    assert sorted((tmp_path / "commitlog").iterdir()) == names
    file.write_bytes(away.read_bytes())  # now it is a copy
    (away.parent / "folder").mkdir()
    with reput.open_store(tmp_path, mode="rw") as opened:
        assert len(opened.query("T", "k119").messages) == 1


@pytest.mark.every_case
@pytest.mark.parametrize("kept", [0, 50, 92, 93, 96, 99])
def test_cleared_bytes_are_counted_up_to_the_last_one(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x01" * 98 + bytes(2))
    assert _clear(CommitLogFile(0, 100, str(path)), kept, Disk()) == max(98 - kept, 0)
    assert path.read_bytes() == (b"\x01" * min(kept, 98)).ljust(100, b"\0")
    # A blank record, which only fills the rest of a file, does not count.
    path.write_bytes(b"\x01" * 90 + encode_blank(10) + bytes(2))
    assert _clear(CommitLogFile(0, 100, str(path)), 90, Disk()) == 0
    assert path.read_bytes() == (b"\x01" * 90).ljust(100, b"\0")
