"""What to say of a topic that a store does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from reput.messages.text import printable

if TYPE_CHECKING:
    from reput.query.message_store import MessageStore

_MOST_NAMES = 8
_MOST_COMPARED = 10_000  # a comparison takes some ten microseconds


def advise_on_topic(store: MessageStore, topic: str | None) -> None:
    """One line on stderr where no queue of a topic exists: the topics that do, nearest names first.

    Nothing where consumequeue/ is empty: then it does not show which topics exist.
    """
    topics = store.topics()
    if topic is None or not topics or topic in topics:
        return
    names = nearest_first(topic, topics)[:_MOST_NAMES]
    more = len(topics) - len(names)
    listed = ", ".join(names) + (f" and {more:,} more" if more else "")
    click.echo(
        f"reput: {printable(store.path)}: no topic {printable(topic)}; it has {printable(listed)}",
        err=True,
    )


def nearest_first(topic: str, topics: Sequence[str]) -> list[str]:
    """The topics, those most like `topic` first; case does not matter."""
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(b=topic.casefold(), autojunk=False)

    def likeness(name: str) -> float:
        matcher.set_seq1(name.casefold())
        return matcher.ratio()

    compared = topics[:_MOST_COMPARED]
    return [*sorted(compared, key=lambda name: (-likeness(name), name)), *topics[_MOST_COMPARED:]]
