"""Text out of a store on its way to a terminal, which it must not steer, whatever it holds."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """`text` with every character that is no sign escaped (\\x1b, \\u202e), but for `keep`."""
    if text.isprintable():
        return text
    return "".join(
        char if char in keep or char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )


def one_line(text: str, limit: int) -> str:
    """At most `limit` characters of `text`, in one line, white space made single."""
    words = " ".join(text[: 2 * limit].split())
    shown = printable(words)
    return shown if len(shown) <= limit and len(text) <= 2 * limit else shown[: limit - 1] + "…"
