"""The tables (TSV) beside a golden store, as typed rows.

Cells are escaped ``\\\\ \\t \\n \\r \\uXXXX`` (one escape per UTF-16 unit), null is ``\\N``, and a
line ends in LF only, since cells may hold other characters that Python takes for line ends.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAMED = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
_THROWN = "EXC:"


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One record in CommitLog order; `keys`, `uniq_key`, `tags_code` are as dispatched.

    The last three are of 5.3.3: the record's magic, and the queue offsets that it takes.
    """

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int
    store_timestamp: int
    sys_flag: int
    keys: str | None
    uniq_key: str | None
    body_crc: int
    body_length: int
    flag: int
    born_timestamp: int
    born_host: str
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    properties: str
    magic: int = 0xDAA320A7
    batch_size: int = 1
    base_offset: int | None = None


@dataclass(frozen=True, slots=True)
class BlankRow:
    """One end-of-file record."""

    physical_offset: int
    declared_size: int


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One consume queue, with queue offsets, `max_physical_offset`, and the broker's class (5.3.3)."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    max_physical_offset: int
    java_class: str = "ConsumeQueue"


@dataclass(frozen=True, slots=True)
class QueueEntryRow:
    """One entry of a queue of 5.3.3. `tags_code` may be an address in an extension file."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    batch_size: int
    compacted_offset: int


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The header of one index file, and its name."""

    file: str
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int


@dataclass(frozen=True, slots=True)
class QueryRow:
    """One query by key; `begin` and `end` in ms, both inclusive."""

    topic: str
    key: str
    max_num: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """The broker's answer to the query of the same position.

    `query_offset` and `index_last_update_*` are the result of IndexService.queryOffset,
    `query_message` and `message_last_update_*` the result of DefaultMessageStore.queryMessage.
    `client_matched` are the offsets of `query_message` that a client accepts. If both calls threw
    an exception, `error` is its class name, and all other fields are 0 or empty.
    """

    number: int
    index_last_update_timestamp: int
    index_last_update_physical_offset: int
    query_offset: tuple[int, ...]
    message_last_update_timestamp: int
    message_last_update_physical_offset: int
    query_message: tuple[int, ...]
    client_matched: tuple[int, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PutRow:
    """The result of one put. All fields after `status` are None if nothing was written."""

    number: int
    status: str
    physical_offset: int | None
    size: int | None
    store_timestamp: int | None
    queue_offset: int | None
    message_id: str | None


def unescape(cell: str) -> str | None:
    """Return the string of a cell; None for the null cell. Lone surrogates are kept."""
    if cell == r"\N":
        return None

    def one(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _NAMED[code]

    units = _ESCAPE.sub(one, cell)
    # Escapes are UTF-16 units: a surrogate pair is one character.
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def read_rows(path: Path) -> Iterator[list[str | None]]:
    """Return the rows of a table, without its `#` line of column names."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line_number, line in enumerate(lines):
            if line_number > 0 or not line.startswith("#"):
                yield [unescape(cell) for cell in line.removesuffix("\n").split("\t")]


def text(cell: str | None) -> str:
    """Return the cell as a string. Raises ValueError for a null."""
    if cell is None:
        raise ValueError("null where the table needs a string")
    return cell


def number(cell: str | None) -> int:
    return int(text(cell))


def optional_number(cell: str | None) -> int | None:
    return None if cell is None else int(cell)


def offsets(cell: str | None) -> tuple[int, ...]:
    """Return the offsets in a comma-separated cell."""
    return tuple(int(offset) for offset in text(cell).split(",") if offset)


def read_messages(path: Path) -> list[MessageRow]:
    return [
        MessageRow(
            physical_offset=number(row[0]),
            size=number(row[1]),
            topic=text(row[2]),
            queue_id=number(row[3]),
            queue_offset=number(row[4]),
            tags_code=number(row[5]),
            store_timestamp=number(row[6]),
            sys_flag=number(row[7]),
            keys=row[8],
            uniq_key=row[9],
            body_crc=number(row[10]),
            body_length=number(row[11]),
            flag=number(row[12]),
            born_timestamp=number(row[13]),
            born_host=text(row[14]),
            store_host=text(row[15]),
            reconsume_times=number(row[16]),
            prepared_transaction_offset=number(row[17]),
            properties=text(row[18]),
            **_of_five(row),
        )
        for row in read_rows(path)
    ]


def _of_five(row: list[str | None]) -> dict[str, int]:
    if len(row) < 22:
        return {}
    return {
        "magic": int(text(row[19]), 16),
        "batch_size": number(row[20]),
        "base_offset": number(row[21]),
    }


def read_blanks(path: Path) -> list[BlankRow]:
    return [BlankRow(*map(number, row)) for row in read_rows(path)]


def read_queues(path: Path) -> list[QueueRow]:
    return [
        QueueRow(
            text(row[0]), number(row[1]), number(row[2]), number(row[3]), number(row[4]),
            text(row[5]) if len(row) > 5 else "ConsumeQueue",
        )
        for row in read_rows(path)
    ]  # fmt: skip


def read_queue_entries(path: Path) -> list[QueueEntryRow]:
    return [QueueEntryRow(text(row[0]), *map(number, row[1:])) for row in read_rows(path)]


def read_index(path: Path) -> list[IndexRow]:
    return [IndexRow(text(row[0]), *map(number, row[1:])) for row in read_rows(path)]


def read_queries(path: Path) -> list[QueryRow]:
    return [QueryRow(text(row[0]), text(row[1]), *map(number, row[2:])) for row in read_rows(path)]


def read_answers(path: Path) -> list[AnswerRow]:
    return [_answer(row) for row in read_rows(path)]


def _answer(row: list[str | None]) -> AnswerRow:
    thrown = text(row[1])
    if thrown.startswith(_THROWN):
        return AnswerRow(number(row[0]), 0, 0, (), 0, 0, (), (), thrown.removeprefix(_THROWN))
    return AnswerRow(
        number=number(row[0]),
        index_last_update_timestamp=number(row[1]),
        index_last_update_physical_offset=number(row[2]),
        query_offset=offsets(row[3]),
        message_last_update_timestamp=number(row[4]),
        message_last_update_physical_offset=number(row[5]),
        query_message=offsets(row[6]),
        client_matched=offsets(row[7]),
    )


def read_puts(path: Path) -> list[PutRow]:
    return [
        PutRow(
            number=number(row[0]),
            status=text(row[1]),
            physical_offset=optional_number(row[2]),
            size=optional_number(row[3]),
            store_timestamp=optional_number(row[4]),
            queue_offset=optional_number(row[5]),
            message_id=row[6],
        )
        for row in read_rows(path)
    ]


def read_named(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table of five_life, by the names of their columns. Its cells have no escapes."""
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    names = lines[0].removeprefix("#").split("\t")
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines[1:]]
