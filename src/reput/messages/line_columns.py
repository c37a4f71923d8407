"""Lines of JSON as the columns of a put, as far as they are plain (`reput.kernels.json_messages`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.format.host import Host, encode_host, parse_host
from reput.format.properties import UNIQ_KEY
from reput.format.unique_key import UNIQUE_KEY_BYTES
from reput.kernels.json_messages import PADDING, SPANS_DTYPE, parse_lines
from reput.kernels.record_columns import number_runs
from reput.kernels.record_layout import PUT_DTYPE
from reput.kernels.rows import new_rows
from reput.writer.put.columns import PutColumns, Texts, ends_of_lengths, number_queues
from reput.writer.put.record_form import FORM_OF_FOUR

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


class PlainLines(NamedTuple):
    """Lines that were plain, one after the other.

    messages  how many
    lines     how many, blank ones included
    stop      where the first line begins that is not plain; the end, if all are
    """

    messages: int
    lines: int
    stop: int


class LineColumns:
    """Reads one block of whole lines; its memory serves for the next block, so columns are put before that."""

    def __init__(self, store_host: Host) -> None:
        self._store_host = store_host
        self._room = 0
        self._most = 0

    def begin(self, lines: bytes, newlines: int) -> None:
        """Take a block of lines, with so many newlines."""
        self._stop = len(lines)
        self._make_room(len(lines) + PADDING, newlines + 2)
        self._data[: self._stop] = np.frombuffer(lines, np.uint8)
        self._data[self._stop : self._stop + PADDING] = 10

    def read(self, start: int) -> PlainLines:
        """Read plain lines from the one that begins at `start` on."""
        count, stop, lines = parse_lines(
            self._data, start, self._stop, self._rows, self._spans, self._body_at, self._bodies,
            self._head_at, self._heads, self._tail_at, self._tails, self._text,
        )  # fmt: skip
        self._count = int(count)
        return PlainLines(self._count, int(lines), min(int(stop), self._stop))

    def columns(self) -> PutColumns:
        """The messages that were read last.

        Raises:
            MessageRefusedError: the store does not take one of them.
            ValueError: a host is none.
        """
        count = self._count
        rows = self._rows[:count]
        topics, rows["topic"] = self._numbered("topic")
        hosts, rows["born_host"] = self._numbered("host")
        encoded = [encode_host(parse_host(host) if host else self._store_host) for host in hosts]
        texts = Texts.of([FORM_OF_FOUR.encode_topic(topic) for topic in topics])
        return PutColumns(
            rows=rows,
            bodies=_texts(self._bodies, self._body_at, count),
            properties=self._properties(rows),
            topics=texts,
            hosts=Texts.of(encoded),
            queues=number_queues(rows, topics, rows["queue_id"].astype(np.int64)),
        )

    def _properties(self, rows: npt.NDArray[np.void]) -> list[tuple[bytes, Texts]]:
        """Whole strings; where a unique key is to be made, what comes before it, it, and what comes behind it."""
        heads = (b"", _texts(self._heads, self._head_at, len(rows)))
        made = rows["reserved"].astype(np.int64)
        if not made.any():
            return [heads]
        keys = Texts(None, ends_of_lengths(made * UNIQUE_KEY_BYTES))
        tails = (b"", _texts(self._tails, self._tail_at, len(rows)))
        return [heads, (UNIQ_KEY.encode(), keys), tails]

    def _numbered(self, name: str) -> tuple[list[str], npt.NDArray[np.int32]]:
        """The different texts of a span, and for each row which."""
        count = self._count
        starts = np.ascontiguousarray(self._spans[name][:count])
        stops = np.ascontiguousarray(self._spans[f"{name}_stop"][:count])
        slots = np.zeros(1 << (2 * count).bit_length(), np.int32)
        first, number = np.empty(count, np.int64), np.empty(count, np.int32)
        used = number_runs(self._data, starts, 0, stops, slots, first, number)
        texts = [
            self._data[starts[row] : stops[row]].tobytes().decode("ascii")
            for row in first[:used].tolist()
        ]
        return texts, number

    def _make_room(self, size: int, most: int) -> None:
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


def _texts(data: Bytes, at: Offsets, count: int) -> Texts:
    return Texts(data[: at[count]], at[: count + 1])
