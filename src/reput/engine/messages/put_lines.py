"""Put JSON Lines into a store, block by block.

Most lines are plain: compiled functions (`reput.kernels.json_messages`) can parse them into columns for one put. Python
reads all other lines.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from reput.core import CommitLogReader, LogWalk, StoreLog
from reput.engine import writer
from reput.engine.messages import json_lines
from reput.errors import MessageRefusedError
from reput.format.bodies import MAX_BODY_BYTES
from reput.format.host import Host, encode_host, parse_host
from reput.format.message_id import UNIQUE_KEY_BYTES
from reput.format.properties import UNIQ_KEY
from reput.kernels.jit import new_rows
from reput.kernels.json_messages import PADDING, SPANS_DTYPE, parse_lines
from reput.kernels.record_columns import number_runs
from reput.kernels.record_layout import PUT_DTYPE

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_FORM_OF_FOUR = writer.RecordForm()
# A byte may take six characters in JSON (\u0000), and a compressed body also appears in base64.
_LONGEST_LINE_BYTES = 8 * MAX_BODY_BYTES
_SHORT_RUN = 64
"""Fewest consecutive plain lines for which the compiled functions save time."""


class PlainLines(NamedTuple):
    """Consecutive plain lines, which are the lines that compiled functions can parse.

    messages: number of messages
    lines: number of lines, including blank ones
    stop: position of the first line that is not plain, or the end of the block
    """

    messages: int
    lines: int
    stop: int


class LineColumns:
    """Parses blocks of lines into columns.

    The columns of a `read` are valid only until the next `begin` or `read`, which reuses their memory.
    """

    def __init__(self, store_host: Host) -> None:
        self._store_host = store_host
        self._room = 0
        self._most = 0

    def begin(self, lines: bytes, newlines: int) -> None:
        """Begin a block of whole lines. `newlines` is the number of newlines in the block."""
        self._stop = len(lines)
        self._make_room(len(lines) + PADDING, newlines + 2)
        self._data[: self._stop] = np.frombuffer(lines, np.uint8)
        # Kernels load 8 bytes at a time, even beyond the last line. Write newlines there, which look like empty lines.
        self._data[self._stop : self._stop + PADDING] = 10

    def read(self, start: int) -> PlainLines:
        """Parse the lines from `start` to the first line that is not plain (see `PlainLines`)."""
        count, stop, lines = parse_lines(
            self._data, start, self._stop, self._rows, self._spans, self._body_at, self._bodies,
            self._head_at, self._heads, self._tail_at, self._tails, self._text,
        )  # fmt: skip
        self._count = int(count)
        return PlainLines(self._count, int(lines), min(int(stop), self._stop))

    def columns(self) -> writer.PutColumns:
        """Return the messages of the last `read` as columns.

        Raises:
            MessageRefusedError: the store refuses one of the messages.
            ValueError: a host is malformed.
        """
        count = self._count
        rows = self._rows[:count]
        topics, rows["topic"] = self._numbered("topic")
        hosts, rows["born_host"] = self._numbered("host")
        encoded = [encode_host(parse_host(host) if host else self._store_host) for host in hosts]
        texts = writer.Texts.of([_FORM_OF_FOUR.encode_topic(topic) for topic in topics])
        return writer.PutColumns(
            rows=rows,
            bodies=_texts(self._bodies, self._body_at, count),
            properties=self._properties(rows),
            topics=texts,
            hosts=writer.Texts.of(encoded),
            queues=writer.PutColumns.number_queues(rows, topics, rows["queue_id"].astype(np.int64)),
        )

    def _properties(self, rows: npt.NDArray[np.void]) -> list[tuple[bytes, writer.Texts]]:
        """Return the parts of the properties strings.

        If the put creates no unique keys, each string is one part. Otherwise, it has three parts: the text before the
        new unique key, the key, and the text after it.
        """
        heads = (b"", _texts(self._heads, self._head_at, len(rows)))
        creates_key = rows["reserved"].astype(np.int64)
        if not creates_key.any():
            return [heads]
        keys = writer.Texts(None, writer.Texts.bounds_of(creates_key * UNIQUE_KEY_BYTES))
        tails = (b"", _texts(self._tails, self._tail_at, len(rows)))
        return [heads, (UNIQ_KEY.encode(), keys), tails]

    def _numbered(self, name: str) -> tuple[list[str], npt.NDArray[np.int32]]:
        """Return the distinct texts of a field, and for each row the number of its text."""
        count = self._count
        starts = np.ascontiguousarray(self._spans[name][:count])
        stops = np.ascontiguousarray(self._spans[f"{name}_stop"][:count])
        # The hash table is at most half full, so that searches in it are short.
        slots = np.zeros(1 << (2 * count).bit_length(), np.int32)
        first, number = np.empty(count, np.int64), np.empty(count, np.int32)
        used = number_runs(self._data, starts, 0, stops, slots, first, number)
        texts = [
            self._data[starts[row] : stops[row]].tobytes().decode("ascii")
            for row in first[:used].tolist()
        ]
        return texts, number

    def _make_room(self, size: int, most: int) -> None:
        # Allocate more than needed, so that not every slightly larger block needs new buffers.
        if size > self._room:
            self._room = size = size + (size >> 2)
            self._data, self._bodies, self._heads, self._tails, self._text = (
                np.empty(size + PADDING, np.uint8) for _ in range(5)
            )
        if most > self._most:
            self._most = most = 2 * most
            self._rows, self._spans = new_rows(most, PUT_DTYPE), new_rows(most, SPANS_DTYPE)
            self._body_at, self._head_at, self._tail_at = (
                np.empty(most + 1, np.int64) for _ in range(3)
            )


def _texts(data: Bytes, at: Offsets, count: int) -> writer.Texts:
    return writer.Texts(data[: at[count]], at[: count + 1])


class PutStore(Protocol):
    """The interface of the store into which lines are put. `reput.WritableStore` implements it."""

    @property
    def path(self) -> str | PathLike[str]:
        """Return the directory that holds commitlog/."""

    def put(self, message: writer.Message) -> writer.PutResult:
        """See `reput.WritableStore.put`."""

    def put_many(self, messages: Sequence[writer.Message]) -> writer.PutResults:
        """See `reput.WritableStore.put_many`."""

    def put_columns(self, columns: writer.PutColumns) -> writer.PutColumnsResult:
        """See `reput.WritableStore.put_columns`."""

    @property
    def store_host(self) -> Host:
        """See `reput.WritableStore.store_host`."""

    @property
    def form(self) -> writer.RecordForm:
        """See `reput.WritableStore.form`."""

    def end_offset(self) -> int:
        """See `reput.WritableStore.end_offset`."""


@dataclass(slots=True)
class LinesReport:
    """The result of a put of lines. Offsets are physical.

    skipped: number of lines that were not a message, or that the store refused
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
    """Puts the lines of one stream. `report` is always up to date, even after an error.

    bad_line: called once per skipped line, with a text that names the line and its error; None if a bad line must stop
        the put
    progress: called after each block with the number of bytes read and the report
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
        """Put all lines. Raises LineError at the first bad line, unless bad lines are skipped."""
        began, done = time.monotonic(), 0
        # Messages contain no cycles, so garbage collection would examine them again and again in vain.
        gc.disable()
        try:
            for block in json_lines.read_blocks(stream, _LONGEST_LINE_BYTES):
                self._put_block(block)
                done += len(block.data)
                self._progress(done, self.report)
        finally:
            gc.enable()
            self.report.seconds = time.monotonic() - began

    def _put_block(self, block: json_lines.Block) -> None:
        """Put the lines of a block: compiled functions parse the plain lines, and Python parses all other lines.

        After a run of plain lines that is too short to save time (`_SHORT_RUN`), Python also parses the next 2 lines,
        even if they are plain. After each further short run, the number of these lines doubles. A long run resets it.
        Without this rule, a block in which plain and other lines alternate would start the compiled functions for every
        second line.
        """
        # The compiled functions support only the properties strings of 4.9. In 5.x, each string ends with a separator.
        if self._store.form != _FORM_OF_FOUR:
            self._put_any(block)
            return
        self._plain.begin(block.data, block.newlines)
        at, number, patience = 0, block.first_line, 1
        while at < len(block.data):
            plain = self._plain.read(at)
            part = json_lines.Block(number, block.data[at : plain.stop], plain.lines)
            if plain.messages and not self._put_plain():
                self._put_any(part)
            at, number = plain.stop, number + plain.lines
            patience = 1 if plain.messages > _SHORT_RUN else 2 * patience
            some = _first_lines(block, at, number, patience)
            self._put_any(some)
            at, number = at + len(some.data), number + some.newlines

    def _put_plain(self) -> bool:
        """Put the messages of the last `read`. If the store refuses any of them, put none and return False."""
        try:
            columns = self._plain.columns()
        except ValueError:  # The topic is refused, or a host is malformed.
            return False
        try:
            result = self._store.put_columns(columns)
        except MessageRefusedError:
            return False
        offsets = result.physical_offset
        self.report.count(len(offsets), int(offsets[0]), int(offsets[-1]))
        return True

    def _put_any(self, block: json_lines.Block) -> None:
        if not block.data:
            return
        try:
            numbers, messages = json_lines.read_messages(block)
        except json_lines.LineError:
            self._put_readable(block)
        else:
            self._put_many(numbers, messages)

    def _put_readable(self, block: json_lines.Block) -> None:
        """Put the lines of a block that contains a bad line, one by one."""
        numbers: list[int] = []
        messages: list[writer.Message] = []
        for number, line in block.lines():
            try:
                messages.append(json_lines.read_message(line))
                numbers.append(number)
            except json_lines.LineError as error:
                self._put_many(numbers, messages)
                numbers, messages = [], []
                self._take_bad(number, error)
        self._put_many(numbers, messages)

    def _put_many(self, numbers: Sequence[int], messages: list[writer.Message]) -> None:
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
        """Count the messages that were put from this physical offset on, before the store refused one."""
        end, count = self._store.end_offset(), 0
        if begin < end:
            with closing(CommitLogReader(StoreLog(self._store.path))) as log:
                for record in LogWalk(log, begin, end):
                    self.report.count(1, record.physical_offset, record.physical_offset)
                    count += 1
        return count

    def _put_one_by_one(self, numbers: Sequence[int], messages: list[writer.Message]) -> None:
        """Put messages one by one, to find which of them the store refuses."""
        for number, message in zip(numbers, messages, strict=True):
            try:
                offset = self._store.put(message).physical_offset
                self.report.count(1, offset, offset)
            except MessageRefusedError as error:
                self._take_bad(number, error)

    def _take_bad(self, number: int, error: ValueError) -> None:
        fault = f"line {number}: {error}"
        if self._bad_line is None:
            raise json_lines.LineError(fault) from None
        self.report.skipped += 1
        self._bad_line(fault)


def _first_lines(block: json_lines.Block, start: int, number: int, count: int) -> json_lines.Block:
    """Return `count` lines of a block. The first is line `number`, which begins at `start`."""
    stop = start
    for number_of_lines in range(count):
        end = block.data.find(b"\n", stop) + 1
        if not end:
            return json_lines.Block(number, block.data[start:], number_of_lines)
        stop = end
    return json_lines.Block(number, block.data[start:stop], count)
