"""The entries of a form of queues as arrays, and how recovery compares them with messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reput.core import QueueKind
from reput.engine.compare import Offsets
from reput.engine.writer.recovery.queue_files import is_blank, physical_offsets
from reput.format.dtypes import MESSAGE_DTYPE, RawEntries, new_entries
from reput.kernels.queue_entries import lay_out_entries

Flags = npt.NDArray[np.bool_]
Entries = npt.NDArray[Any]
"""The entries of a queue in the layout of its form, one per row."""
Messages = npt.NDArray[np.void]


class EntryLayout:
    """The entries of a form of queues as rows of an array, and how they compare with messages.

    The fields of an entry that a message has under the same name must be equal. Forms with other rules override
    methods.
    """

    def __init__(self, kind: QueueKind) -> None:
        self.dtype = kind.dtype.newbyteorder("=")
        names = [name for name, _ in kind.fields if name in (MESSAGE_DTYPE.names or ())]
        self._shared = [name for name in names if name != "queue_offset"]

    def new(self, count: int) -> Entries:
        return np.zeros(count, self.dtype)

    def expected(
        self, messages: Messages, rows: npt.NDArray[np.int64], queue_offsets: Offsets
    ) -> Entries:
        """Return the entries that dispatch would write for these rows of a batch's messages."""
        entries = self.new(len(rows))
        for name in self._shared:
            entries[name] = messages[name][rows]
        return entries

    def differs(self, entries: Entries, expected: Entries) -> Flags:
        """Return for each entry whether it is not the expected one. Its queue offset is not compared."""
        wrong = np.zeros(len(entries), np.bool_)
        for name in self._shared:
            wrong |= entries[name] != expected[name]
        return wrong

    def agree(self, entries: Entries, expected: Entries) -> bool:
        """Return whether no entry differs."""
        return not self.differs(entries, expected).any()

    def correct(self, entries: Entries, rows: npt.NDArray[np.intp], expected: Entries) -> None:
        """Set the fields that messages state in the entries `rows`."""
        for name in self._shared:
            entries[name][rows] = expected[name]

    def offsets(self, entries: Entries) -> Offsets:
        """Return the physical offsets of entries."""
        return entries["physical_offset"].astype(np.int64)

    def is_blank(self, entries: Entries) -> Flags:
        """Return for each entry whether it is only a placeholder (pre-blank)."""
        return np.zeros(len(entries), np.bool_)

    def spans(self, entries: Entries) -> Offsets:
        """Return how many queue offsets each entry covers."""
        return np.ones(len(entries), np.int64)

    def number(self, entries: Entries, numbers: Offsets) -> None:
        """Set the queue offsets of entries that contain them."""

    def complete(self, entries: Entries, expected: Entries) -> None:
        """Set the fields of entries that are written again, and that neither a batch nor the old entry states."""

    def redo(self, entry: Entries, expected: Entries) -> int:
        """Correct the last entry of a queue, whose record may have been incomplete when the entry was written.

        Both arrays have one row. Returns the number of changed entries.
        """
        return 0


class _WordLayout(EntryLayout):
    """ConsumeQueue entries, as words: one comparison of bytes per entry."""

    def __init__(self) -> None:
        pass

    def new(self, count: int) -> RawEntries:
        return new_entries(count)

    def expected(
        self, messages: Messages, rows: npt.NDArray[np.int64], queue_offsets: Offsets
    ) -> RawEntries:
        words = new_entries(len(rows))
        lay_out_entries(messages, rows, words)
        return words

    def differs(self, entries: RawEntries, expected: RawEntries) -> Flags:
        wrong: Flags = (entries != expected).any(axis=1)
        return wrong

    def agree(self, entries: RawEntries, expected: RawEntries) -> bool:
        # Nearly all batches agree, and this takes less time than `differs`.
        return bool((entries == expected).all())

    def offsets(self, entries: RawEntries) -> Offsets:
        return physical_offsets(entries)

    def is_blank(self, entries: RawEntries) -> Flags:
        return is_blank(entries)


WORDS = _WordLayout()
