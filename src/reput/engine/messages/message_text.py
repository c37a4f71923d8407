"""Render for people: a body as JSON, text or hexadecimal, messages as a table with two lines each, and an answer."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from reput import base
from reput.base import PIPED_WIDTH, counted, format_time, one_line, printable
from reput.core import Basis, Coverage, QueryRecords, QueryResult, is_inner_batch, unwrap
from reput.errors import CorruptMessageError, UsageError
from reput.format.bodies import body_beginning
from reput.format.commit_log import MessageExt
from reput.format.properties import KEYS, TAGS, UNIQ_KEY

_UTF_8 = "utf-8"
_DUMP_WIDTH = 16
_PREVIEW_MESSAGES = 8
_DUMP_LIMIT_BYTES = 4096
_JSON_LIMIT_BYTES = 1 << 20
_TEXT_LIMIT_BYTES = 64 << 20


def charset_name(name: str) -> str:
    """Return Python's name of a charset. Raises UsageError if it is unknown."""
    try:
        "".encode(name)  # This raises LookupError for codecs that are not charsets, such as zlib.
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise UsageError(
            f"charset {name}: unknown; examples are utf-8, gb18030, gbk and big5",
            arguments=["charset"],
        ) from None


def body_preview(message: MessageExt, limit: int, charset: str = _UTF_8) -> str:
    """Return the beginning of the body in one line: `<12 bytes>` if it is binary, `<3 messages> ...` for a batch."""
    if is_inner_batch(message) and (batch := _batch_preview(message, limit, charset)):
        return batch
    # To show `limit` characters, read 8 times as many bytes. UTF-8 has up to 4 bytes per character, and `one_line` uses
    # up to twice `limit` characters, because it reduces each run of white space to one space.
    beginning, is_whole = body_beginning(message, 8 * limit)
    try:
        text = beginning.decode(charset)
    except UnicodeDecodeError as error:
        # An invalid byte among the last 3 may belong to a character that was cut in the middle.
        if is_whole or error.start < len(beginning) - 3:
            return _size_of(message)
        text = beginning[: error.start].decode(charset, "replace")
    except UnicodeError:  # Some codecs raise it without a position.
        return _size_of(message)
    return one_line(text, limit)


def _size_of(message: MessageExt) -> str:
    return f"<{counted(len(message.body), 'byte')}>"


def _batch_preview(message: MessageExt, limit: int, charset: str) -> str | None:
    """Return the number and the beginnings of the inner messages; None if the batch cannot be unwrapped."""
    try:
        inner = unwrap(message)
    except CorruptMessageError:
        return None
    bodies = " | ".join(
        body_preview(message, limit, charset) for message in inner[:_PREVIEW_MESSAGES]
    )
    return one_line(f"<{counted(len(inner), 'message')}> {bodies}", limit)


class BodyText(NamedTuple):
    """A body as text for people.

    Attributes:
        kind: One of `JSON`, `text`, `no text`, `empty`, `too large to be shown whole`.
        lines: Indented JSON, the text, or a hexadecimal dump.
        unshown_bytes: Number of bytes at the end that are not shown.
    """

    kind: str
    lines: str
    unshown_bytes: int = 0


def body_text(body: bytes, most_characters: int | None = None, charset: str = _UTF_8) -> BodyText:
    """Return a body as text for people. A body that is not text of this charset is shown in hexadecimal.

    Text other than JSON is shortened to `most_characters`. If a body exceeds 64 MiB, only its first bytes are returned,
    because formatting the whole body would take several times its size in memory.
    """
    if not body:
        return BodyText("empty", "")
    if len(body) > _TEXT_LIMIT_BYTES:
        return body_hex(body, "too large to be shown whole")
    try:
        text = body.decode(charset)
    except UnicodeError:
        return body_hex(body)
    if _is_json(text):
        return BodyText("JSON", printable(base.indented(text), keep="\n"))
    beginning = text if most_characters is None else text[:most_characters]
    unshown_bytes = (
        0 if len(beginning) == len(text) else len(text[len(beginning) :].encode(charset, "replace"))
    )
    return BodyText("text", printable(beginning, keep="\n\t"), unshown_bytes)


def body_hex(body: bytes, kind: str = "no text") -> BodyText:
    """Return a hexadecimal dump of the first 4 KiB of a body."""
    beginning = body[:_DUMP_LIMIT_BYTES]
    return BodyText(kind, hex_lines(beginning), len(body) - len(beginning))


def _is_json(text: str) -> bool:
    """Return whether a text is a JSON object or list. To bound the time, return False for texts above 1 MiB."""
    if len(text) > _JSON_LIMIT_BYTES or text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        # Do not convert numbers: Python refuses to convert very long ones.
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def hex_lines(data: bytes) -> str:
    """Return a hexadecimal dump: lines of the offset, 16 bytes, and their ASCII characters."""
    lines = []
    for at in range(0, len(data), _DUMP_WIDTH):
        part = data[at : at + _DUMP_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * _DUMP_WIDTH - 1}}  |{text}|")
    return "\n".join(lines)


_TOPIC_WIDTH = 60
_TAGS_WIDTH = 14
_KEYS_WIDTH = 48
_PREVIEW_CHARS = 400
_STORE_WIDTH = 40
# If a row is too long for the terminal, these columns become narrower, in this order, but no narrower than this. Time,
# topic, queue and offset stay whole: they lead to the message.
_SHRINKING = (("keys", 12), ("tags", 4), ("store", 12), ("keys", 4), ("topic", 20))
_GAP = "  "
# What a terminal shows bold or dim, and the end of both (ECMA-48, SGR).
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_TABLE_COLUMNS: tuple[str, ...] = ("stored (UTC)", "topic", "queue", "offset", "tags", "keys")


class MessageTable:
    """A table with two lines per message: place and fields, then the beginning of the body. It has one header.

    Of the library Rich, it uses only the widths of characters: importing the rest takes longer than a query.
    """

    def __init__(self, width: int, charset: str = _UTF_8, *, is_styled: bool = False) -> None:
        """Begin a table.

        Args:
            width: Characters per line.
            charset: The charset of bodies.
            is_styled: Whether the header is bold and bodies are dim, for a terminal.
        """
        self._width, self._charset, self._is_styled = width, charset, is_styled
        self._widths: list[int] = []

    def lines(self, messages: Sequence[MessageExt], stores: Sequence[str] = ()) -> Iterator[str]:
        """Yield the next lines of the table, for further messages. The first call also yields the header.

        Args:
            messages: The messages.
            stores: The name of each message's store, for a further column. If empty, the table has no such column.
        """
        names = _TABLE_COLUMNS
        rows: list[tuple[str, ...]] = [_cells(message) for message in messages]
        if stores:
            names = (*names[:1], "store", *names[1:])
            names_of_stores = [one_line(store, _STORE_WIDTH) for store in stores]
            rows = [
                (row[0], store, *row[1:]) for row, store in zip(rows, names_of_stores, strict=True)
            ]
        is_first = not self._widths
        # Keep the widths of earlier calls, so that the columns stay aligned.
        self._widths = _widths(names, rows, self._widths, self._width)
        if is_first:
            yield self._styled(self._line(names), _BOLD)
        for message, row in zip(messages, rows, strict=True):
            body = f"  {body_preview(message, _PREVIEW_CHARS, self._charset)}"
            yield self._line(row)
            yield self._styled(_shortened(body, self._width).rstrip(), _DIM)

    def _line(self, cells: Sequence[str]) -> str:
        texts = map(_shortened, cells, self._widths)
        padded = (
            text + " " * (width - cell_len(text))
            for text, width in zip(texts, self._widths, strict=True)
        )
        return _GAP.join(padded).rstrip()

    def _styled(self, line: str, style: str) -> str:
        return f"{style}{line}{_PLAIN}" if self._is_styled and line else line


def _shortened(text: str, width: int) -> str:
    """Return a text of at most this width on a terminal. The end of a longer text is replaced by an ellipsis."""
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


def table_lines(messages: Sequence[MessageExt]) -> Iterator[str]:
    """Yield the lines of a table in the form for pipes: without colours, and with a fixed width."""
    return MessageTable(PIPED_WIDTH).lines(messages)


def _widths(
    names: Sequence[str], rows: Sequence[tuple[str, ...]], earlier: Sequence[int], most: int
) -> list[int]:
    """Return the width of each column, so that a line has at most `most` characters if the columns permit this.

    The last column is as wide as the line permits, because later rows may need more.
    """
    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
    widths[-1] = _KEYS_WIDTH
    widths = list(map(max, widths, earlier)) if earlier else widths
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - most
    for name, least in _SHRINKING:
        if name in names and excess > 0:
            place = names.index(name)
            narrower = max(min(widths[place], least), widths[place] - excess)
            excess -= widths[place] - narrower
            widths[place] = narrower
    return widths


def _cells(message: MessageExt) -> tuple[str, ...]:
    properties = message.properties
    return (
        format_time(message.store_timestamp).replace("T", " ").removesuffix("Z"),
        one_line(message.topic, _TOPIC_WIDTH),
        f"{message.queue_id}/{message.queue_offset}",
        str(message.physical_offset),
        one_line(properties.get(TAGS, "-"), _TAGS_WIDTH),
        one_line(properties.get(KEYS) or properties.get(UNIQ_KEY, "-"), _KEYS_WIDTH),
    )


def answer_lines(answer: QueryResult) -> Iterator[str]:
    """Yield the output of `reput query`: the messages, what was searched, and what could not be read."""
    if answer.messages:
        yield from table_lines(answer.messages)
        yield ""
    yield from map(printable, answer_in_words(answer, "after"))
    for lost in answer.coverage.unreadable:
        yield f"reput: {printable(str(lost))}"


def answer_in_words(answer: QueryResult | QueryRecords, after: str) -> Iterator[str]:
    """Yield sentences about the number of messages and the coverage. `after` names the argument that takes a cursor."""
    count = len(answer.messages if isinstance(answer, QueryResult) else answer.records)
    messages = counted(count, "message") if count else "No message"
    more = f", and there are more: continue with {after} {answer.cursor}"
    yield f"{messages}." if answer.cursor is None else messages + more
    yield from coverage_in_words(answer.coverage)


def coverage_in_words(coverage: Coverage) -> Iterator[str]:
    """Yield sentences about the coverage, one per line."""
    archived = coverage.archive_indexes
    files = coverage.indexed_files - archived
    ways = [f"through {counted(files, 'IndexFile')} ({_bases(coverage)})"] if files else []
    if archived:
        ways.append(f"through {counted(archived, 'index', 'indexes')} of the archive")
    if coverage.scanned_bytes or not ways:
        ways.append(f"{counted(coverage.scanned_bytes, 'byte')} message by message")
    log = coverage.log
    yield f"Searched the CommitLog from {log.start:,} to {log.stop:,}, {' and '.join(ways)}."
    if coverage.inner_messages is not None:
        count = f"{counted(coverage.inner_messages, 'message')} inside inner batches"
        yield f"Compared {count}, whose keys a broker's index lacks, by scanning for them."
    yield from (f"Not used: {problem}" for problem in coverage.problems)
    if coverage.unreadable:
        lost = f"{counted(coverage.unreadable_bytes, 'byte')} could not be read"
        yield f"{lost}: messages in it are missing from this answer."
    yield from coverage.notes


def _bases(coverage: Coverage) -> str:
    """Return how many of the used IndexFiles are proven or spot-checked, such as `2 proven, 1 spot-checked`."""
    checked_files = coverage.spot_checked_files
    proven_files = coverage.indexed_files - coverage.archive_indexes - checked_files
    counts = ((proven_files, Basis.PROVEN), (checked_files, Basis.SPOT_CHECKED))
    return ", ".join(f"{count:,} {basis}" for count, basis in counts if count)


def coverage_fields(coverage: Coverage) -> dict[str, Any]:
    """Return the coverage as fields of JSON. docs/trace.md and docs/console-api.md describe the fields."""
    return {
        "begin": coverage.log.start,
        "end": coverage.log.stop,
        "index_files": coverage.indexed_files,
        "spot_checked_files": coverage.spot_checked_files,
        "scanned_bytes": coverage.scanned_bytes,
        "inner_messages": coverage.inner_messages,
        "problems": [problem.as_json() for problem in coverage.problems],
        "notes": list(coverage.notes),
    }
