"""Words of messages: texts without control characters, counted nouns, sizes, and names that were perhaps meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_SIZE = re.compile(r"(\d{1,18})\s*(?:([kmgt])(i?b)?|b)?", re.IGNORECASE)
_STEPS = ("B", "KiB", "MiB", "GiB", "TiB")
_MOST_COMPARED = 10_000  # This many comparisons take about 0.1 s.
_LIKE = 0.6
PIPED_WIDTH = 100
"""The number of characters in a line of output that does not go to a terminal."""


def printable(text: str, keep: str = "") -> str:
    r"""Escape all unprintable characters of a text, as in \x1b or \u202e, except characters in `keep`."""
    if text.isprintable():
        return text
    # Escape with a table. Joining single characters of a text of megabytes would take a hundred times its memory.
    hidden = (char for char in set(text) if not (char in keep or char.isprintable()))
    return text.translate({ord(char): char.encode("unicode_escape").decode() for char in hidden})


_PLURAL_VERBS = {"has": "have", "is": "are", "was": "were", "does": "do", "its": "their"}


def counted(count: int, noun: str, plural: str = "", verb: str = "") -> str:
    """Return a number with its noun, and perhaps a verb: "1 file", "2,000 files", "1 file has", "2 files have".

    Args:
        count: The number.
        noun: The singular.
        plural: The plural; by default the singular with an "s".
        verb: The verb after the noun, in the singular.
    """
    words = f"{count:,} {noun if count == 1 else plural or noun + 's'}"
    return f"{words} {agreeing(count, verb)}" if verb else words


def agreeing(count: int, word: str) -> str:
    """Return a verb, or "its", as it is after this number of things: "has" or "have", "states" or "state"."""
    return word if count == 1 else _PLURAL_VERBS.get(word, word.removesuffix("s"))


def aligned(
    rows: Sequence[Sequence[str]], gap: str = "  ", texts: int | None = None
) -> Iterator[str]:
    """Yield the lines of a table. Columns after the first `texts` are right-aligned; by default, none is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if texts is None or number < texts else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield gap.join(cells).rstrip()


def one_line(text: str, limit: int) -> str:
    """Return the beginning of a text in one line of at most `limit` characters. White space is collapsed."""
    words = " ".join(text[: 2 * limit].split())
    line = printable(words)
    return line if len(line) <= limit and len(text) <= 2 * limit else line[: limit - 1] + "…"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its type if it has no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def lines_of(renderable: RenderableType, console: Console) -> list[str]:
    """Render something as a console would, and return the lines without trailing spaces."""
    with console.capture() as captured:
        console.print(renderable)
    return [line.rstrip() for line in captured.get().splitlines()]


def parse_size(text: str) -> int:
    """Parse a number of bytes. k, m, g and t stand for powers of 1024; kB, MB, GB and TB stand for powers of 1000.

    Raises ValueError.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a size: write 128MiB, or a number of bytes")
    base = 1000 if (match[3] or "").lower() == "b" else 1024
    return int(match[1]) * int(base ** ("kmgt".index(match[2].lower()) + 1) if match[2] else 1)


def format_size(size_bytes: float) -> str:
    """Format a number of bytes, as in `6.2 MiB`."""
    for step in _STEPS[:-1]:
        if abs(size_bytes) < 1024:
            return f"{size_bytes:,.0f} {step}" if step == "B" else f"{size_bytes:,.1f} {step}"
        size_bytes /= 1024
    return f"{size_bytes:,.1f} {_STEPS[-1]}"


def nearest_first(name: str, names: Sequence[str]) -> list[str]:
    """Sort names by their similarity to `name`, ignoring case."""
    return [other for _, other in _by_similarity(name, names[:_MOST_COMPARED])] + list(
        names[_MOST_COMPARED:]
    )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a suggestion for the end of an error message: "; did you mean topic?". Empty if no name is similar."""
    ranking = _by_similarity(name, list(names)[:_MOST_COMPARED])
    near = [candidate for likeness, candidate in ranking[:3] if likeness >= _LIKE]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _by_similarity(name: str, names: Sequence[str]) -> list[tuple[float, str]]:
    """Return pairs (similarity from 0 to 1, name), most similar first."""
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(b=name.casefold(), autojunk=False)

    def likeness(other: str) -> float:
        matcher.set_seq1(other.casefold())
        return matcher.ratio()

    ranking = [(likeness(other), other) for other in names]
    return sorted(ranking, key=lambda pair: (-pair[0], pair[1]))
