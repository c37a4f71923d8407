"""ConsumeQueues are written like the oracle's, entry by entry, in files as long as a broker's."""

from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.errors import StoreError
from reput.format.dtypes import MESSAGE_DTYPE
from reput.kernels.rows import new_rows
from reput.queues.kinds import queue_folder
from reput.queues.writer import ConsumeQueueWriter
from tests.oracle.consume_queue import ENTRY
from tests.oracle.consume_queue import ConsumeQueue as OracleQueue


class Entry(NamedTuple):
    """An entry to append, and the queue offset at which it belongs."""

    physical_offset: int
    queue_offset: int
    size: int = 10
    tags_code: int = -7


def append(queue: ConsumeQueueWriter, entries: list[Entry]) -> int:
    messages: Any = new_rows(len(entries), MESSAGE_DTYPE)
    for row, entry in enumerate(entries):
        for name in ("physical_offset", "size", "tags_code"):
            messages[row][name] = getattr(entry, name)
    offsets = np.array([entry.queue_offset for entry in entries], np.int64)
    return queue.append(messages, np.arange(len(entries)), offsets)


def oracle_files(entries: list[Entry], file_entries: int, cut: int = 0) -> dict[str, bytes]:
    """Return the oracle's files for entries that are appended in two parts, divided at `cut`."""
    queue = OracleQueue(file_entries * ENTRY.size)
    for part in (entries[:cut], entries[cut:]):
        following = [entry.queue_offset for entry in part[1:]]
        # An append knows the next message only within its part.
        for entry, after in zip_longest(part, following):
            queue.put(entry.physical_offset, entry.size, entry.tags_code, entry.queue_offset, after)
    return queue.padded()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


entry_lists = st.lists(
    st.builds(lambda at, n: Entry(at, n), st.integers(0, 300), st.integers(0, 30)), max_size=30
)


@given(entry_lists, st.sampled_from((1, 2, 5, 100)), st.integers(0, 30), st.booleans())
@example([Entry(10 * n, n) for n in (0, 1, 1)], 2, 0, False)  # the refused entry creates a file
@example([Entry(10 * n, n) for n in (0, 1, 1, 2)], 2, 3, True)
@example([Entry(0, 13), Entry(10, 14)], 5, 1, True)
# The bytes between messages 14 and 16 have room for message 15, so its missing entry becomes a gap.
@example([Entry(0, 14), Entry(101, 16), Entry(300, 17)], 1, 0, False)
@example([Entry(0, 14), Entry(101, 16), Entry(300, 17)], 1, 2, False)
def test_files_are_the_oracles(
    entries: list[Entry], file_entries: int, cut: int, close_between: bool
) -> None:
    with TemporaryDirectory() as folder:
        queue = ConsumeQueueWriter(Path(folder) / "t" / "0", file_entries)
        taken = append(queue, entries[:cut]) if entries[:cut] else 0
        if close_between:
            queue.close(sync=True)
        taken += append(queue, entries[cut:]) if entries[cut:] else 0
        queue.close(sync=False)
        assert files_of(Path(folder) / "t" / "0") == oracle_files(entries, file_entries, cut)
        assert taken <= len(entries)


@given(st.integers(0, 12), st.integers(1, 12), st.sampled_from((1, 3, 7, 50)))
def test_parts_of_a_queue_can_be_written_in_any_order(
    start: int, cut: int, file_entries: int
) -> None:
    entries = [Entry(10 * n, start + n) for n in range(cut + 5)]
    with TemporaryDirectory() as name:
        folder = Path(name) / "t" / "0"
        # The next part gets its place as an argument, and does not depend on the previous part.
        later = ConsumeQueueWriter(folder, file_entries, start + cut)
        assert append(later, entries[cut:]) == 5
        later.close(sync=False)
        first = ConsumeQueueWriter(folder, file_entries)
        assert append(first, entries[:cut]) == cut
        first.close(sync=False)
        assert files_of(folder) == oracle_files(entries, file_entries)


def test_a_queue_offset_below_0_is_never_taken(tmp_path: Path) -> None:
    queue = ConsumeQueueWriter(tmp_path / "q", 3)
    assert append(queue, [Entry(0, -1), Entry(10, -(2**63))]) == 0
    queue.close(sync=False)
    assert not (tmp_path / "q").exists()


def test_a_queue_can_start_where_no_one_ever_came(tmp_path: Path) -> None:
    queue = ConsumeQueueWriter(tmp_path / "q", 3)
    last = (2**63 - 1) // 20
    assert append(queue, [Entry(0, last)]) == 1
    queue.close(sync=False)
    assert files_of(tmp_path / "q") == oracle_files([Entry(0, last)], 3)


@pytest.mark.parametrize("topic", ["", ".", "..", "../x", "a/b", "a\0", "t" * 256])
def test_a_topic_that_is_no_folder_name_has_no_queue(tmp_path: Path, topic: str) -> None:
    with pytest.raises(StoreError, match="cannot be the name of a folder"):
        queue_folder(tmp_path, topic, 0)
