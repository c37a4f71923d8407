"""Putting JSON Lines into a store, block by block, and counting."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from typing import BinaryIO, Protocol

from reput.errors import MessageRefusedError
from reput.format.host import Host
from reput.log.reader import CommitLogReader
from reput.log.sources import StoreLog
from reput.log.walk import LogWalk
from reput.messages.bodies import MAX_BODY_BYTES
from reput.messages.json_lines import Block, LineError, read_blocks, read_message, read_messages
from reput.messages.line_columns import LineColumns
from reput.writer.put.columns import PutColumns, PutColumnsResult
from reput.writer.put.message import Message, PutResult
from reput.writer.put.record_form import FORM_OF_FOUR, RecordForm
from reput.writer.put.results import PutResults

# A byte may take six in JSON (\u0000), and a body that was compressed stands there twice.
_LONGEST_LINE_BYTES = 8 * MAX_BODY_BYTES
_SHORT_RUN = 64
"""Plain lines in a row that are worth a put of their own."""


class PutStore(Protocol):
    """What lines are put into: a `reput.WritableStore`."""

    @property
    def path(self) -> str | PathLike[str]:
        """The directory that holds commitlog/."""

    def put(self, message: Message) -> PutResult:
        """See `reput.WritableStore.put`."""

    def put_many(self, messages: Sequence[Message]) -> PutResults:
        """See `reput.WritableStore.put_many`."""

    def put_columns(self, columns: PutColumns) -> PutColumnsResult:
        """See `reput.WritableStore.put_columns`."""

    @property
    def store_host(self) -> Host:
        """See `reput.WritableStore.store_host`."""

    @property
    def form(self) -> RecordForm:
        """See `reput.WritableStore.form`."""

    def end_offset(self) -> int:
        """See `reput.WritableStore.end_offset`."""


@dataclass(slots=True)
class LinesReport:
    """What became of the lines; offsets are physical.

    skipped  lines that were no message, or that the store refused
    """

    messages: int = 0
    skipped: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    seconds: float = 0.0

    def count(self, messages: int, first_offset: int, last_offset: int) -> None:
        self.messages += messages
        if self.first_offset is None:
            self.first_offset = first_offset
        self.last_offset = last_offset


class LinesPut:
    """Puts the lines of one stream; `report` is right at any moment.

    bad_line  is called with the number and the fault of a line that is skipped; None where none may be
    progress  is called after each block with the number of bytes read
    """

    def __init__(
        self,
        store: PutStore,
        bad_line: Callable[[str], None] | None,
        progress: Callable[[int, LinesReport], None],
    ) -> None:
        self._store, self._bad_line, self._progress = store, bad_line, progress
        self._plain = LineColumns(store.store_host)
        self.report = LinesReport()

    def run(self, stream: BinaryIO) -> None:
        """Raises LineError for the first bad line unless they are skipped; all before it is put then."""
        began, done = time.monotonic(), 0
        gc.disable()  # nothing here needs it, and it would look through every block's messages
        try:
            for block in read_blocks(stream, _LONGEST_LINE_BYTES):
                self._put_block(block)
                done += len(block.data)
                self._progress(done, self.report)
        finally:
            gc.enable()
            self.report.seconds = time.monotonic() - began

    def _put_block(self, block: Block) -> None:
        """Plain lines as columns; what lies between them, and after a short run more than that, one by one."""
        if self._store.form != FORM_OF_FOUR:  # whose properties strings end otherwise
            self._put_any(block)
            return
        self._plain.begin(block.data, block.newlines)
        at, number, patience = 0, block.first_line, 1
        while at < len(block.data):
            plain = self._plain.read(at)
            part = Block(number, block.data[at : plain.stop], plain.lines)
            if plain.messages and not self._put_plain():
                self._put_any(part)
            at, number = plain.stop, number + plain.lines
            patience = 1 if plain.messages > _SHORT_RUN else 2 * patience
            some = _first_lines(block, at, number, patience)
            self._put_any(some)
            at, number = at + len(some.data), number + some.newlines

    def _put_plain(self) -> bool:
        """Put what was read last; False where some of it is refused, and nothing is put."""
        try:
            columns = self._plain.columns()
        except ValueError:  # a topic that is refused, or a host that is none
            return False
        try:
            result = self._store.put_columns(columns)
        except MessageRefusedError:
            return False
        offsets = result.physical_offset
        self.report.count(len(offsets), int(offsets[0]), int(offsets[-1]))
        return True

    def _put_any(self, block: Block) -> None:
        if not block.data:
            return
        try:
            numbers, messages = read_messages(block)
        except LineError:
            self._put_readable(block)
        else:
            self._put_many(numbers, messages)

    def _put_readable(self, block: Block) -> None:
        """A block of which some line is bad."""
        numbers: list[int] = []
        messages: list[Message] = []
        for number, line in block.lines():
            try:
                messages.append(read_message(line))
                numbers.append(number)
            except LineError as error:
                self._put_many(numbers, messages)
                numbers, messages = [], []
                self._take_bad(number, error)
        self._put_many(numbers, messages)

    def _put_many(self, numbers: Sequence[int], messages: list[Message]) -> None:
        if not messages:
            return
        begin = self._store.end_offset()
        try:
            results = self._store.put_many(messages)
        except MessageRefusedError:
            done = self._count_from(begin)
            self._put_one_by_one(numbers[done:], messages[done:])
        else:
            self.report.count(len(results), results[0].physical_offset, results[-1].physical_offset)

    def _count_from(self, begin: int) -> int:
        """How many messages were put, from this physical offset on, before one was refused."""
        end, count = self._store.end_offset(), 0
        if begin < end:
            with closing(CommitLogReader(StoreLog(self._store.path))) as log:
                for record in LogWalk(log, begin, end):
                    self.report.count(1, record.physical_offset, record.physical_offset)
                    count += 1
        return count

    def _put_one_by_one(self, numbers: Sequence[int], messages: list[Message]) -> None:
        """Messages of which some is refused."""
        for number, message in zip(numbers, messages, strict=True):
            try:
                offset = self._store.put(message).physical_offset
                self.report.count(1, offset, offset)
            except MessageRefusedError as error:
                self._take_bad(number, error)

    def _take_bad(self, number: int, error: ValueError) -> None:
        fault = f"line {number}: {error}"
        if self._bad_line is None:
            raise LineError(fault) from None
        self.report.skipped += 1
        self._bad_line(fault)


def _first_lines(block: Block, start: int, number: int, count: int) -> Block:
    """So many lines of a block from `start` on, where line `number` begins."""
    stop = start
    for found in range(count):
        end = block.data.find(b"\n", stop) + 1
        if not end:
            return Block(number, block.data[start:], found)
        stop = end
    return Block(number, block.data[start:stop], count)
