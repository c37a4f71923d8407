"""Escape text of a store for a terminal, which control characters in it must not reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def printable(text: str, keep: str = "") -> str:
    r"""Return `text` with every unprintable character except those in `keep` escaped (\x1b, \u202e)."""
    if text.isprintable():
        return text
    # Not one by one: a text of megabytes would take a hundred times as much memory.
    hidden = (char for char in set(text) if not (char in keep or char.isprintable()))
    return text.translate({ord(char): char.encode("unicode_escape").decode() for char in hidden})


def one_line(text: str, limit: int) -> str:
    """At most `limit` characters of `text`, in one line, white space made single."""
    words = " ".join(text[: 2 * limit].split())
    shown = printable(words)
    return shown if len(shown) <= limit and len(text) <= 2 * limit else shown[: limit - 1] + "…"


def lines_of(renderable: RenderableType, console: Console) -> list[str]:
    """Return what a console would print, line by line."""
    with console.capture() as captured:
        console.print(renderable)
    return [line.rstrip() for line in captured.get().splitlines()]
