"""Owning a store for the time of a command: one that is there, none is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from reput.cli.options import given_config, queue_entries_option, text_or_json, with_config_options
from reput.text import printable

if TYPE_CHECKING:
    from reput.query.writable_store import WritableStore

_OPTIONS = (queue_entries_option, text_or_json("Output format."))


def with_owner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `own`, and --format."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return with_config_options(command)


def own(store: str, broker_config: str | None, **sizes: int | None) -> WritableStore:
    """Open a store as its owner, and so recover it. Sizes not given are those of its files.

    Raises StoreNotFoundError, StoreLockedError where a broker runs on it, and what `open_store` raises.
    """
    from reput.log.sources import StoreLog
    from reput.query.open_store import open_store

    StoreLog(store).list()  # else a store would be created
    config = given_config(store, broker_config, sizes, writes=True)
    return open_store(store, mode="rw", config=config, **writer_settings(broker_config))


def writer_settings(broker_config: str | None) -> dict[str, Any]:
    """What the broker's configuration says of flushing and retention; prints what of it is not used."""
    if broker_config is None:
        return {}
    from reput.writer.writer_settings import BrokerSettings

    found = BrokerSettings.read(broker_config)
    if found.ignored:
        names = ", ".join(found.ignored)
        click.echo(f"reput: {printable(broker_config)}: not used: {names}", err=True)
    return asdict(found.writer)
