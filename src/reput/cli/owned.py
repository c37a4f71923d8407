"""Owning a store for the time of a command: one that is there, none is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from reput.cli.options import config_from, with_config_options

if TYPE_CHECKING:
    from reput.query.living_store import LivingStore

_OPTIONS = (
    click.option(
        "--queue-entries",
        type=int,
        metavar="N",
        help="Entries of a ConsumeQueue file (mappedFileSizeConsumeQueue / 20).",
    ),
    click.option(
        "--format",
        "layout",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="How to print what was done.",
    ),
)


def with_owner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `own`, and --format."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return with_config_options(command)


def own(store: str, broker_config: str | None, **sizes: int | None) -> LivingStore:
    """Open a store as its owner, and so recover it. Sizes not given are those of its files.

    Raises StoreNotFoundError, StoreLockedError where a broker runs on it, and what `open_store` raises.
    """
    from reput.query.open_store import open_store
    from reput.store.commit_log_files import list_commit_log_files
    from reput.store.rebuild.existing import config_of

    files = list_commit_log_files(store)
    known = replace(config_of(store), commit_log_file_bytes=files[0].size)
    return open_store(store, mode="rw", config=config_from(broker_config, known, **sizes))
