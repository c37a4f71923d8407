"""Escape text from a store, so that its control characters do not reach the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def printable(text: str, keep: str = "") -> str:
    r"""Escape all unprintable characters of a text, as in \x1b or \u202e, except those in `keep`."""
    if text.isprintable():
        return text
    # Escape with a table. Joining single characters of a text of megabytes would take a hundred times its memory.
    hidden = (char for char in set(text) if not (char in keep or char.isprintable()))
    return text.translate({ord(char): char.encode("unicode_escape").decode() for char in hidden})


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 file", "2,000 files". The plural has an "s" unless it is given."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def one_line(text: str, limit: int) -> str:
    """Return the beginning of a text in one line of at most `limit` characters. White space is collapsed."""
    words = " ".join(text[: 2 * limit].split())
    shown = printable(words)
    return shown if len(shown) <= limit and len(text) <= 2 * limit else shown[: limit - 1] + "…"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its type if it has no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def lines_of(renderable: RenderableType, console: Console) -> list[str]:
    """Render something as a console would, and return the lines without trailing spaces."""
    with console.capture() as captured:
        console.print(renderable)
    return [line.rstrip() for line in captured.get().splitlines()]
