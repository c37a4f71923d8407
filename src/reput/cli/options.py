"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from reput.config import StoreConfig
    from reput.query.message_store import MessageStore

store_argument = click.argument("store", metavar="STORE", type=click.Path(readable=False))

_CONFIG_OPTIONS = (
    click.option(
        "--broker-config",
        type=click.Path(),
        metavar="FILE",
        help="The broker's own settings (broker.conf).",
    ),
    click.option(
        "--hash-slots", type=int, metavar="N", help="Slots of an IndexFile (maxHashSlotNum)."
    ),
    click.option(
        "--index-items", type=int, metavar="N", help="Items of an IndexFile (maxIndexNum)."
    ),
)


def with_config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --broker-config, --hash-slots and --index-items."""
    for option in reversed(_CONFIG_OPTIONS):
        command = option(command)
    return command


messages_format_option = click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "jsonl", "csv"]),
    default="table",
    show_default=True,
    help="How to print the messages.",
)
index_option = click.option(
    "--index",
    type=click.Path(),
    metavar="DIR",
    help="Take index/ and consumequeue/ from there, where a rebuild wrote them.",
)


def open_from(
    store: str,
    broker_config: str | None,
    hash_slots: int | None,
    index_items: int | None,
    index: str | None,
) -> MessageStore:
    """Open a store to read it. Raises what `reput.query.open_store` raises."""
    from reput.query.open_store import open_store

    return open_store(
        store,
        broker_config=broker_config,
        hash_slots=hash_slots,
        index_items=index_items,
        index=index,
    )


def config_from(
    broker_config: str | None, otherwise: StoreConfig | None = None, **given: int | None
) -> StoreConfig:
    """The broker's settings: its configuration file, else `otherwise`, else its defaults; then the options given.

    Raises StoreNotFoundError, UsageError.
    """
    from reput.config import StoreConfig

    config = (
        StoreConfig.from_broker_config(broker_config)
        if broker_config
        else otherwise or StoreConfig()
    )
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(config, **changes)
