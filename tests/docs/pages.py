"""The worked examples of docs/format: find them in a page, with the bytes that they describe.

An example is a caption in backticks, a dump and a table:

    `orders/store/checkpoint`, 24 bytes from 0:

    ```text
    00000000  00 00 ...  |........|
    ```

    | at | bytes | field | value |
    |---|---|---|---|
    | 0 | `00 00 … 00` | name | `0` |
"""

import re
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
FORMAT_PAGES = CHECKOUT / "docs" / "format"
_DUMP_WIDTH = 16
_EXAMPLE = re.compile(
    r"^`(?P<store>\w+)/store/(?P<file>[^`]+)`, (?P<length>[\d,]+) bytes from (?P<start>[\d,]+):\n\n"
    r"```text\n(?P<dump>.*?)```\n\n"
    r"\| at \| bytes \| field \| value \|\n\|[-|]+\|\n(?P<rows>(?:\|[^\n]*\|\n)+)",
    re.MULTILINE | re.DOTALL,
)
_ROW = re.compile(r"\| (\d+) \| `([^`]+)` \| ([^|]+) \| `([^`]+)`")


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: the position in the example, the bytes in hexadecimal, and their meaning."""

    at: int
    bytes: str
    field: str
    value: str


@dataclass(frozen=True, slots=True)
class Example:
    """One worked example; `file` is below the store, `start` and `length` in bytes."""

    page: str
    store: str
    file: str
    start: int
    length: int
    dump: str
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        return f"{self.page}: {self.file} at {self.start}"


def examples(page: Path) -> list[Example]:
    """Every worked example of a page."""
    found = []
    for match in _EXAMPLE.finditer(page.read_text(encoding="utf-8")):
        lines = match["rows"].splitlines()
        rows = [_ROW.match(line) for line in lines]
        if None in rows:
            raise ValueError(
                f"{page.name}: this row of an example is malformed: {lines[rows.index(None)]}"
            )
        found.append(
            Example(
                page=page.name,
                store=match["store"],
                file=match["file"],
                start=int(match["start"].replace(",", "")),
                length=int(match["length"].replace(",", "")),
                dump=match["dump"],
                rows=tuple(Row(int(r[1]), r[2], r[3].strip(), r[4]) for r in rows if r),
            )
        )
    return found


def hex_dump(data: bytes, start: int) -> str:
    """Return the dump of an example: offset in the file, 16 bytes, and their ASCII."""
    lines = []
    for at in range(0, len(data), _DUMP_WIDTH):
        part = data[at : at + _DUMP_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start + at:08x}  {part.hex(' '):<{3 * _DUMP_WIDTH - 1}}  |{text}|\n")
    return "".join(lines)


def shows(stated: str, data: bytes) -> bool:
    """Return whether a table shows these bytes: in full, or first and last with an ellipsis between."""
    first, ellipsis, last = stated.partition(" … ")
    if not ellipsis:
        return data.hex(" ") == stated
    shorter = len(bytes.fromhex(first)) + len(bytes.fromhex(last)) < len(data)
    return shorter and data.startswith(bytes.fromhex(first)) and data.endswith(bytes.fromhex(last))
