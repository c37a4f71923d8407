"""Advice about topics and keys that a store does not have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from reput.nearest import nearest_first
from reput.text import printable

if TYPE_CHECKING:
    from reput.query.message_store import MessageStore

_MOST_NAMES = 8


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


def advise_on_key(key: str) -> None:
    """Print a line on stderr if a key that was not found looks like several keys."""
    parts = [part for part in re.split(r"[,\s]+", key) if part]
    if len(parts) > 1:
        click.echo(
            f"reput: if this key is {len(parts)} keys, ask for one after the other (--key {printable(parts[0])}), "
            "or for all with reput lookup",
            err=True,
        )
