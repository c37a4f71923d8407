"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import click

from reput.cli.split_logs import split_logs_option

if TYPE_CHECKING:
    from reput.config import StoreConfig
    from reput.query.message_store import MessageStore

store_argument = click.argument("store", metavar="STORE", type=click.Path(readable=False))
read_store_argument = click.argument(
    "store", metavar="STORE", type=click.Path(readable=False), callback=split_logs_option
)
"""Of commands that only read: also STORE,LOG,LOG, see `reput.cli.split_logs`."""

_CONFIG_OPTIONS = (
    click.option(
        "--broker-config",
        type=click.Path(),
        metavar="FILE",
        help="The broker's configuration file (broker.conf).",
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


queue_entries_option = click.option(
    "--queue-entries",
    type=int,
    metavar="N",
    help="Entries of a ConsumeQueue file (mappedFileSizeConsumeQueue / 20).",
)
csv_safe_option = click.option(
    "--csv-safe",
    "csv_safe",
    is_flag=True,
    help="Prefix with ' CSV texts that a spreadsheet would run as formulas.",
)


class _Renamed(click.Choice[str]):
    """A choice whose old names still work, with a warning."""

    def __init__(self, choices: Sequence[str], old: Mapping[str, str]) -> None:
        super().__init__(choices)
        self._old = old

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self._old:
            warn_of_old(f"--format {value}", f"--format {self._old[value]}")
            value = self._old[value]
        return super().convert(value, param, ctx)


def warn_of_old(old: str, new: str) -> None:
    """Print that an old spelling still works, until the next release."""
    click.echo(f"reput: {old} is now {new}; the old spelling will be removed", err=True)


def format_option(
    choices: Sequence[str],
    what: str,
    default: str | None = None,
    old: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --format, given to the command as `layout`; jsonl and csv are the same everywhere (docs/message-json.md)."""
    return click.option(
        "--format",
        "layout",
        type=_Renamed(choices, old or {}),
        default=default,
        show_default=default is not None,
        help=what,
    )


messages_format_option = format_option(
    ("text", "jsonl", "csv"), "Output format.", "text", {"table": "text"}
)


def text_or_json(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --format text|json, given to the command as `layout`."""
    return format_option(("text", "json"), what, "text")


def report_format(
    machine: Literal["json", "jsonl"], what: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --format of text and one form for machines, given to the command as `as_json`; --json is its old spelling."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_layout(*args: Any, layout: str, json_flag: bool, **options: Any) -> Any:
            if json_flag:
                warn_of_old("--json", f"--format {machine}")
            return command(*args, as_json=json_flag or layout == machine, **options)

        old = click.option("--json", "json_flag", is_flag=True, hidden=True)
        return format_option(("text", machine), what, "text")(old(with_layout))

    return decorate


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Complete the topics of the store on the command line."""
    from reput.cli.completion import complete_topics as complete

    return list(complete(ctx, param, incomplete))


index_option = click.option(
    "--index",
    type=click.Path(),
    metavar="DIR",
    help="Folder with a rebuilt index/ and consumequeue/ to use instead.",
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


def given_config(
    store: str,
    broker_config: str | None,
    given: Mapping[str, int | str | None],
    *,
    writes: bool = False,
    kept: Collection[str] = (),
) -> StoreConfig | None:
    """The settings that the options give, the others as the store's files show them; None where they give none.

    Args:
        store: Its folder, which may not be there yet.
        broker_config: The broker's configuration file.
        given: Settings that options give.
        writes: Whether the command writes files in these sizes, which must be certain then.
        kept: Settings of files that it leaves as they are.

    Raises:
        UsageError: the files do not show a size for certain, or an option is wrong.
        StoreAccessError, StoreNotFoundError: something cannot be read.
    """
    if broker_config is not None:
        return config_from(broker_config, None, **given)
    named = [name for name, value in given.items() if value is not None]
    if not (named or writes):
        return None
    from reput.store.facts import facts_of

    facts = facts_of(store)
    if writes:
        facts.require_certain(but=[*named, *kept])
    return config_from(None, facts.config, **given) if named else None


def config_from(
    broker_config: str | None, otherwise: StoreConfig | None = None, **given: int | str | None
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
