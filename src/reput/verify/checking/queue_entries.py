"""Entries of ConsumeQueues held against the messages of one file of the log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files.open_files import OpenFiles
from reput.files.reader import FileReader
from reput.files.storage import LOCAL
from reput.findings import Finding, Kind
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.consume_queue_ext import LAST_ADDRESS
from reput.format.dtypes import ENTRY_DTYPE
from reput.format.file_names import EXTENSION_FOLDER
from reput.format.properties import LMQ_PREFIX
from reput.log.dispatch_batch import Queue
from reput.queues.reader import ExtensionFiles
from reput.verify.checking.light_queues import LightQueue, is_light
from reput.verify.checking.spans import Span
from reput.verify.checking.tally import Tally

if TYPE_CHECKING:
    from reput.verify.checking.log_check import Chunk

_UNNOTICED = "does not notice it"
Offsets = npt.NDArray[np.int64]


class QueuePiece(NamedTuple):
    """The entries of a queue that are of messages in one file of the log, and the files that hold them.

    span   None where there are none
    files  number of the first entry, entries, path
    stop   number of the queue's first entry that is not written, in whatever file
    """

    queue: Queue
    folder: str
    span: Span | None
    files: tuple[tuple[int, int, str], ...]
    stop: int = 0

    def place(self, entry: int) -> tuple[str, int]:
        """Path of the file that has, or should have, that entry, and its first byte there."""
        for first, count, path in self.files:
            if first <= entry < first + count:
                return path, (entry - first) * ENTRY_BYTES
        return self.folder, 0


class Entries(NamedTuple):
    """Columns of entries: their numbers, and what they say."""

    numbers: Offsets
    offsets: Offsets
    sizes: Offsets
    tags: Offsets

    def at(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Entries:
        return Entries(*(column[rows] for column in self))


def _read(piece: QueuePiece) -> Entries:
    """The written entries of the span that lie in the queue's files. Raises StoreError."""
    numbers, blocks = [np.empty(0, np.int64)], [np.empty(0, ENTRY_DTYPE)]
    wanted = range(0) if piece.span is None else range(piece.span.first, piece.span.last + 1)
    for first, count, path in piece.files:
        begin, stop = max(wanted.start, first), min(wanted.stop, first + count)
        if begin < stop:
            data = np.empty(stop - begin, ENTRY_DTYPE)
            with FileReader(path) as reader:
                reader.read_into(data.view(np.uint8), (begin - first) * ENTRY_BYTES)
            numbers.append(np.arange(begin, stop))
            blocks.append(data)
    data = np.concatenate(blocks)
    _resolve(data, piece)
    columns = (data[name].astype(np.int64) for name in ("physical_offset", "size", "tags_code"))
    entries = Entries(np.concatenate(numbers), *columns)
    return entries.at(entries.sizes > 0)  # others are not written: a gap, not a way to a message


def _resolve(data: npt.NDArray[np.void], piece: QueuePiece) -> None:
    """Put the tags codes of the queue's extension files in place of addresses; one that is lost stays wrong."""
    codes = data["tags_code"]
    addressed = np.flatnonzero(codes <= LAST_ADDRESS)
    if not len(addressed):
        return
    folder = Path(piece.folder)
    extensions = folder.parents[2] / EXTENSION_FOLDER / folder.parent.name / folder.name
    with closing(OpenFiles(LOCAL.open)) as open_files:
        units = ExtensionFiles(str(extensions), open_files)
        for row in addressed.tolist():
            unit = units.unit(int(codes[row]))
            if unit is not None:
                codes[row] = unit.tags_code


class LoggedQueues:
    """What the queues hold of one file of the log, chunk by chunk."""

    def __init__(
        self,
        pieces: tuple[QueuePiece, ...],
        dispatched_to: int,
        dispatched_from: int | None,
        tally: Tally,
    ) -> None:
        """Raises StoreError. The offsets are those of `LogTask`."""
        self._pieces = {piece.queue: piece for piece in pieces}
        self._entries = {piece.queue: _read(piece) for piece in pieces}
        self._dispatched_to, self._dispatched_from = dispatched_to, dispatched_from
        self._tally = tally
        self.without_queue: dict[Queue, tuple[int, int]] = {}
        self.light: dict[Queue, LightQueue] = {
            queue: LightQueue() for queue in self._pieces if is_light(queue)
        }

    @property
    def has_light(self) -> bool:
        return bool(self.light)

    def entries_within(self, start: int, stop: int) -> int:
        """How many entries lead to offsets from `start` to `stop`."""
        return sum(
            int(np.count_nonzero((entries.offsets >= start) & (entries.offsets < stop)))
            for entries in self._entries.values()
        )

    def compare(self, chunk: Chunk) -> None:
        """Note what is wrong with the entries of a chunk's messages."""
        for queue in sorted({*chunk.queues, *self._entries}):
            none = np.empty(0, np.int64)
            rows, queue_offset = chunk.queues.get(queue, (none, none))
            entries = self._entries.get(queue)
            if entries is None:
                self._note_absent(queue, chunk, rows)
                continue
            inside = (entries.offsets >= chunk.start) & (entries.offsets < chunk.stop)
            self._compare(chunk, self._pieces[queue], rows, queue_offset, entries.at(inside))

    def _note_absent(self, queue: Queue, chunk: Chunk, rows: Offsets) -> None:
        count, first = self.without_queue.get(queue, (0, int(chunk.offsets[rows[0]])))
        self.without_queue[queue] = count + len(rows), first

    def _compare(
        self,
        chunk: Chunk,
        piece: QueuePiece,
        rows: Offsets,
        queue_offset: Offsets,
        found: Entries,
    ) -> None:
        offsets = chunk.offsets[rows]
        if not np.array_equal(offsets, found.offsets):
            rows, queue_offset, found = self._paired(chunk, piece, rows, queue_offset, found)
        self._note_wrong(chunk, piece, rows, found)
        light = self.light.get(piece.queue)
        if light is not None:
            taken = np.array(chunk.taken.get(piece.queue, ()), np.int64)
            light.add(
                found.offsets, queue_offset - found.numbers, chunk.times[rows], taken,
                lambda row: _misplaced(piece, found, queue_offset, row),
            )  # fmt: skip
            return
        moved = np.flatnonzero(found.numbers != queue_offset)
        if len(moved):
            made = _misplaced(piece, found, queue_offset, int(moved[0]))
            self._tally.add(
                made.kind, made.file, len(moved), lambda: made, chunk.times[rows[moved]]
            )

    def _paired(
        self,
        chunk: Chunk,
        piece: QueuePiece,
        rows: Offsets,
        queue_offset: Offsets,
        found: Entries,
    ) -> tuple[Offsets, Offsets, Entries]:
        """Note messages without an entry and entries without a message; return the others, one for one."""
        offsets = chunk.offsets[rows]
        has_entry = np.isin(offsets, found.offsets)
        self._note_missing(chunk, piece, rows[~has_entry], queue_offset[~has_entry])
        first = np.sort(np.unique(found.offsets, return_index=True)[1])  # repeats are disorder
        found = found.at(first)
        is_of_one = np.isin(found.offsets, offsets)
        foreign = found.at(~is_of_one & ~chunk.in_damage(found.offsets))
        self._note(
            Kind.FOREIGN_QUEUE_ENTRY, piece, foreign,
            lambda: f"entry {foreign.numbers[0]} leads to {foreign.offsets[0]}, where no message "
            "of this queue begins",
        )  # fmt: skip
        found = found.at(is_of_one)
        order = np.argsort(found.offsets, kind="stable")
        return rows[has_entry], queue_offset[has_entry], found.at(order)

    def _note_missing(
        self, chunk: Chunk, piece: QueuePiece, rows: Offsets, queue_offset: Offsets
    ) -> None:
        offsets = chunk.offsets[rows]
        late = offsets >= self._dispatched_to
        # What a broker drops has a number that the queue has already; others are lost.
        is_lmq = piece.queue.topic.startswith(LMQ_PREFIX)
        again = (queue_offset < piece.stop) & is_lmq & ~late
        kinds = (
            (Kind.UNDISPATCHED_TAIL, late),
            (Kind.LMQ_OFFSETS_RESTARTED, again),
            (Kind.MISSING_QUEUE_ENTRY, ~late & ~again),
        )
        for kind, chosen in kinds:
            if not chosen.any():
                continue
            at, entry = int(offsets[chosen][0]), int(queue_offset[chosen][0])
            path, position = piece.place(entry)
            made = Finding(
                kind, path,
                f"no entry {entry} of queue {piece.queue.queue_id} of {piece.queue.topic}",
                position, at, at_next_start=self._at_next_start(kind),
            )  # fmt: skip
            self._tally.add(
                kind, path, int(chosen.sum()), partial(replace, made), chunk.times[rows[chosen]]
            )

    def _at_next_start(self, kind: Kind) -> str:
        if kind is Kind.UNDISPATCHED_TAIL:
            return (
                f"dispatches messages from {self._dispatched_from} on; indexes those that do not begin before the end "
                "of the newest IndexFile"
            )
        return "does not notice it; the entries stay missing"

    def _note_wrong(self, chunk: Chunk, piece: QueuePiece, rows: Offsets, found: Entries) -> None:
        sizes, tags = chunk.sizes[rows], chunk.tags[rows]
        wrong = np.flatnonzero((found.sizes != sizes) | (found.tags != tags))
        self._note(
            Kind.WRONG_QUEUE_ENTRY, piece, found.at(wrong),
            lambda: f"entry {found.numbers[wrong[0]]} has size {found.sizes[wrong[0]]} and tags "
            f"code {found.tags[wrong[0]]}, its message {sizes[wrong[0]]} and {tags[wrong[0]]}",
            chunk.times[rows[wrong]],
        )  # fmt: skip

    def _note(
        self,
        kind: Kind,
        piece: QueuePiece,
        wrong: Entries,
        detail: Callable[[], str],
        times: Offsets | None = None,
    ) -> None:
        if not len(wrong.numbers):
            return
        path, position = piece.place(int(wrong.numbers[0]))
        at = int(wrong.offsets[0])
        self._tally.add(
            kind, path, len(wrong.numbers),
            lambda: Finding(kind, path, detail(), position, at, at_next_start=_UNNOTICED), times,
        )  # fmt: skip


def _misplaced(piece: QueuePiece, found: Entries, queue_offset: Offsets, row: int) -> Finding:
    number = int(found.numbers[row])
    path, position = piece.place(number)
    detail = f"entry {number} is of the message with queue offset {queue_offset[row]}"
    at = int(found.offsets[row])
    return Finding(Kind.MISPLACED_QUEUE_ENTRY, path, detail, position, at, at_next_start=_UNNOTICED)
