"""Logs that grow, and followers of them, which are compared with a rebuild."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reput.base.config import StoreConfig
from reput.engine.rebuild.follow.follower import Follower
from reput.engine.rebuild.follow.state import RECOVERY_POINT_FILE, STATE_FILE, begin
from reput.io.disk import Disk
from tests.growing import write_in_place
from tests.oracle.consume_queue import ENTRY, PRE_BLANK
from tests.oracle.forge import Files, RecordFields, forge_log
from tests.rebuild.rebuilding import index_files, rebuild, tree


class GrowingLog:
    """A log that a broker has written up to some offset; the rest of its last file is zeros."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.path, self._files = folder, files
        self.end = files[0][0]
        (folder / "commitlog").mkdir(parents=True, exist_ok=True)

    @property
    def last(self) -> int:
        return self._files[-1][0] + len(self._files[-1][1])

    def write_to(self, end: int) -> None:
        self.end = end
        for start, data in self._files:
            path = self.path / "commitlog" / f"{start:020d}"
            if start <= end or start == self._files[0][0]:
                write_in_place(path, data[: max(end - start, 0)].ljust(len(data), b"\0"))
            else:
                path.unlink(missing_ok=True)


def open_follower(
    log: GrowingLog, output: Path, config: StoreConfig, disk: Disk | None = None
) -> Follower:
    return Follower(log.path, output, begin(log.path, output, config), disk)


def catch_up(follower: Follower) -> None:
    while follower.poll() or follower.has_more:
        pass


def assert_as_rebuilt(log: GrowingLog, output: Path, config: StoreConfig) -> None:
    """Compare every byte of every file, and every name."""
    fresh = output.with_name(f"rebuilt-{log.end}")
    rebuild(log.path, fresh, config)
    ours = {name: data for name, data in tree(output).items() if not name.startswith(STATE_FILE)}
    expected = tree(fresh)
    assert sorted(ours.keys() ^ expected.keys()) == []
    assert [name for name in ours if ours[name] != expected[name]] == []


def assert_same_messages(log: GrowingLog, output: Path, config: StoreConfig) -> None:
    """Compare every byte of the IndexFiles, and the order of entries of each queue, ignoring gaps between them.

    When a rebuild decides whether to fill a gap in the queue offsets, it knows the next message. A follower may not
    know it yet.
    """
    fresh = output.with_name(f"rebuilt-{log.end}")
    rebuild(log.path, fresh, config)
    assert index_files(output) == index_files(fresh)
    queues = {path.parent for path in (fresh / "consumequeue").glob("*/*/*")}
    for queue in queues:
        ours = output / queue.relative_to(fresh)
        assert _entries(ours) == _entries(queue), queue


Check = Callable[[GrowingLog, Path, StoreConfig], None]


def _entries(queue: Path) -> list[bytes]:
    data = b"".join(path.read_bytes() for path in sorted(queue.iterdir()))
    entries = [data[at : at + ENTRY.size] for at in range(0, len(data), ENTRY.size)]
    return [entry for entry in entries if any(entry) and entry != PRE_BLANK]


def resumed(
    log: GrowingLog, output: Path, config: StoreConfig, check: Check = assert_as_rebuilt
) -> Follower:
    """Return a follower that continued with the contents of `output`, to the end of the log."""
    follower = open_follower(log, output, config)
    catch_up(follower)
    follower.close()
    check(log, output, config)
    return follower


CONFIG = StoreConfig(queue_entries=20, hash_slots=11, index_items=60)
FILE_BYTES = 1 << 13
RECORDS = 900


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
    """Let a follower index 600 messages, save its state, and index 40 more without saving it again. Return the log."""
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


ENDS = {"killed": followed, "ended cleanly": closed}


def no_note(output: Path) -> None:
    (output / RECOVERY_POINT_FILE).unlink()
