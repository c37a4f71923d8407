"""Define the arguments and options that several commands share, and convert their values."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, wraps
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from reput import core
from reput.base import (
    StoreConfig,
    format_time,
    late,
    log_paths_of,
    now_ms,
    parse_duration,
    parse_size,
    parse_time,
    printable,
)
from reput.cli.output import CHARSET
from reput.engine import stores as engine_stores
from reput.errors import UsageError
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
)
from reput.io import Location, storage_of

if TYPE_CHECKING:
    from reput.cli.formats import Machine
    from reput.engine.stores import NamedStore
    from reput.engine.writer import WritableStore

# Few commands decode bodies.
_charset_name = late("reput.engine.messages", "charset_name")
# Few commands ask for the sizes of a store's files.
_survey_of = late("reput.engine.writer", "survey_of")
FORMATS = ("text", "json", "jsonl", "csv")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class StoreArgument(click.Path):
    """The path of a store, which is not touched: `click.Path` would wait for ever for a store on a dead mount."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value


def together(*options: Decorator) -> Decorator:
    """Return one decorator that adds several options; --help lists them in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        # Stacked decorators are applied from the bottom up, so the first option must be added last.
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def flag(name: str, text: str, argument: str | None = None) -> Decorator:
    """Add an option without a value, given to the command as `argument`: True if it is present."""
    names = (name,) if argument is None else (name, argument)
    return click.option(*names, is_flag=True, help=text)


def path_option(name: str, metavar: str, text: str, argument: str | None = None) -> Decorator:
    """Add an option whose value is a path or URL, given to the command as `argument`."""
    names = (name,) if argument is None else (name, argument)
    return click.option(*names, type=click.Path(), metavar=metavar, help=text)


def split_logs_option(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Convert a store argument, STORE or STORE,LOG,LOG, into the path to open."""
    return engine_stores.with_logs(*engine_stores.split_logs(value))


def refuse_logs_option(
    ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """Raise UsageError if a store argument names a CommitLog outside the store: this command needs it in the store."""
    for path in (value,) if isinstance(value, str) else value or ():
        store, logs = engine_stores.split_logs(path)
        if logs and os.path.isdir(store):
            advice = (
                f"link it: ln -s {quote(os.path.abspath(logs[0]))} {quote(os.path.join(store, COMMIT_LOG_FOLDER))}"
                if len(logs) == 1 and not os.path.lexists(os.path.join(store, COMMIT_LOG_FOLDER))
                else "move its files there"
            )
            raise UsageError(
                f"{path}: {ctx.info_name} needs the CommitLog in {os.path.join(store, COMMIT_LOG_FOLDER)}; {advice}"
            )
    return value


# With readable=True, click would refuse an unreadable path itself, without advice.
store_argument = click.argument(
    "store", metavar="STORE", type=click.Path(readable=False), callback=refuse_logs_option
)
read_store_argument = click.argument(
    "store", metavar="STORE", type=click.Path(readable=False), callback=split_logs_option
)
"""The STORE argument of commands that only read. STORE,LOG,LOG names a store with further folders of its CommitLog."""


@dataclass(frozen=True, slots=True)
class GivenStores:
    """The stores of a command line.

    paths: paths, URLs, patterns, or STORE,LOG,LOG (a store and further folders of its CommitLog)
    fleet: a fleet file with further stores
    archive: the archive of the store; only if there is exactly one store
    """

    paths: tuple[str, ...]
    fleet: str | None = None
    archive: str | None = None

    @property
    def is_several(self) -> bool:
        """Return whether answers must name the store: False if exactly one store is given, without a pattern."""
        return self.fleet is not None or len(self.paths) != 1 or Location.is_pattern(self.paths[0])

    @property
    def single(self) -> str | None:
        """Return the path to open if exactly one store is given, None if there are several.

        Raises StoreNotFoundError, StoreAccessError.
        """
        if self.is_several:
            return None
        store = engine_stores.with_logs(*engine_stores.split_logs(self.paths[0]))
        return store if self.archive is None else engine_stores.with_archive(store, self.archive)

    def named(self, limit_s: float | None = None) -> list[NamedStore]:
        """Return all stores without duplicates, waiting at most `limit_s` seconds for each path.

        Raises UsageError, StoreNotFoundError, StoreAccessError.
        """
        stores = engine_stores.stores_of([*listed_in(self.fleet), *self.paths], limit_s=limit_s)
        return stores if self.archive is None else [replace(stores[0], archive=self.archive)]


fleet_option = path_option(
    "--stores", "FILE", "A fleet file (TOML) with further stores; see reput help stores.", "fleet"
)


def listed_in(fleet: str | None) -> list[NamedStore]:
    """Return the stores of a fleet file; an empty list without a file.

    Raises UsageError, StoreNotFoundError, StoreAccessError.
    """
    return [] if fleet is None else engine_stores.NamedStore.read(fleet)


NO_STORE = "name a STORE, or a fleet file with --stores"
_NO_STORE = {
    "reput.cli.show": "name a STORE and a message: reput show STORE 53821; by key: reput find STORE KEY",
    "reput.cli.find": "name a STORE and the text to find: reput find STORE TEXT",
}
"""The error without a STORE, by the module of the command. The last word of `show` and `find` is not a STORE."""


def refuse_a_message(targets: GivenStores, advice: str = "reput find {store} {text}") -> None:
    """Raise UsageError if no STORE after the first is a path, because they are probably a key, an id or an offset."""
    store, *texts = targets.paths or ("",)
    if targets.fleet is not None or not texts or not os.path.isdir(store):
        return
    if any(os.sep in text or Location.is_pattern(text) or os.path.exists(text) for text in texts):
        return
    text = " ".join(texts)
    command = advice.format(store=quote(store), text=quote(text))
    raise UsageError(f"{text!r} is not a STORE; to find a message: {command}")


def refuse_part_of_store(path: str, argument: str = "STORE") -> None:
    """Raise UsageError if a path that will be written is a part of a store, such as its folder commitlog/."""
    above, name = os.path.split(os.path.abspath(path))
    parts = (COMMIT_LOG_FOLDER, CONSUME_QUEUE_FOLDER, INDEX_FOLDER)
    if name in parts and os.path.isdir(os.path.join(above, COMMIT_LOG_FOLDER)):
        raise UsageError(f"{argument} {path}: is a part of the store {above}")


def archive_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option --archive."""
    return click.option(
        "--archive",
        metavar="URL",
        help="Archive of STORE, a folder or URL: also read messages from it that have expired in STORE.",
    )(command)


def check_archived(stores: Sequence[str], archive: str | None, fleet: str | None = None) -> None:
    """Raise UsageError if --archive is combined with several stores."""
    if archive is not None and (
        fleet is not None or len(stores) != 1 or Location.is_pattern(stores[0])
    ):
        raise UsageError(
            "--archive: only for one STORE; for several, set archive in a fleet file and pass "
            "that with --stores"
        )


def stores_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add STORE... and --stores; the command gets them as `targets`."""

    @wraps(command)
    def with_targets(
        *args: Any,
        stores: tuple[str, ...],
        fleet: str | None,
        archive: str | None = None,
        **options: Any,
    ) -> Any:
        if not stores and fleet is None:
            raise UsageError(_NO_STORE.get(command.__module__, NO_STORE))
        check_archived(stores, archive, fleet)
        return command(*args, targets=GivenStores(stores, fleet, archive), **options)

    return together(
        click.argument("stores", metavar="[STORE]...", nargs=-1, type=StoreArgument()),
        fleet_option,
    )(with_targets)


def archived_stores_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add STORE..., --stores and --archive; the command gets them as `targets`."""
    return archive_option(stores_argument(command))


config_options = together(
    path_option(
        "--broker-config",
        "FILE",
        "The broker's configuration file (broker.conf). Without it, sizes come from the store's files.",
    ),
    click.option(
        "--hash-slots", type=int, metavar="N", help="Slots of an IndexFile (maxHashSlotNum)."
    ),
    click.option(
        "--index-items", type=int, metavar="N", help="Items of an IndexFile (maxIndexNum)."
    ),
)
"""The options --broker-config, --hash-slots and --index-items."""

index_option = path_option(
    "--index",
    "DIR",
    "Use the index/ and consumequeue/ of this folder, which rebuild --output wrote.",
)
reader_options = together(config_options, index_option)
"""The options of commands that open a store with `open_from`."""

queue_entries_option = click.option(
    "--queue-entries",
    type=int,
    metavar="N",
    help="Entries of a ConsumeQueue file (mappedFileSizeConsumeQueue / 20).",
)
csv_safe_option = flag(
    "--csv-safe", "CSV: put ' before texts that a spreadsheet would run as formulas."
)


def format_option(choices: Sequence[str], text: str, default: str | None = None) -> Decorator:
    """Add --format, given to the command as `layout`. docs/message-json.md defines jsonl and csv for all commands."""
    return click.option(
        "--format",
        "layout",
        type=click.Choice(choices),
        default=default,
        show_default=default is not None,
        help=text,
    )


def all_formats(
    machine: Machine,
    text: str = "Output format.",
    *,
    native: Collection[str] = (),
    further: Sequence[str] = (),
    row: str | None = None,
) -> Decorator:
    """Add --format text|json|jsonl|csv; the command gets `layout`: text, `machine`, or a form in `native` or `further`.

    Args:
        machine: The form with objects that the command prints.
        text: The help text.
        native: The forms that the command prints itself, besides text and `machine`.
        further: Further forms.
        row: See `run_as`.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_layout(*args: Any, layout: str, **options: Any) -> Any:
            if layout in ("text", machine, *native, *further):
                return command(*args, layout=layout, **options)
            from reput.cli.formats import run_as

            return run_as(layout, machine, row, partial(command, *args, layout=machine, **options))

        return format_option((*FORMATS, *further), text, "text")(with_layout)

    return decorate


def _keep_charset(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[CHARSET] = _charset_name()(value)


charset_option = click.option(
    "--charset",
    metavar="NAME",
    expose_value=False,
    callback=_keep_charset,
    help="Charset of bodies that are shown as text, such as gb18030; a JSON body stays as stored.  [default: utf-8]",
)
message_options = together(all_formats("jsonl", native=("csv",)), csv_safe_option, charset_option)
"""The options --format and --csv-safe of commands that print messages."""


def report_format(
    machine: Machine, text: str = "Output format.", row: str | None = None
) -> Decorator:
    """Add --format as `all_formats` does; the command gets the flag `as_json` for its form with objects."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_flag(*args: Any, layout: str, **options: Any) -> Any:
            return command(*args, as_json=layout == machine, **options)

        return all_formats(machine, text, row=row)(with_flag)

    return decorate


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics of the store that precedes the option on the command line."""
    # click stops parsing at the incomplete option. The arguments before it are only in ctx.args.
    paths = ctx.params.get("store") or ctx.params.get("stores") or tuple(ctx.args)
    topics: set[str] = set()
    for store in [paths] if isinstance(paths, str) else paths:
        for kind in (CONSUME_QUEUE_FOLDER, BATCH_QUEUE_FOLDER):
            folder = os.path.join(store, kind)
            if os.path.isdir(folder):
                topics.update(entry.name for entry in os.scandir(folder) if entry.is_dir())
    return [topic for topic in sorted(topics) if topic.startswith(incomplete)]


def topic_option(text: str) -> Decorator:
    """Add --topic, whose value a shell completes."""
    return click.option("--topic", metavar="T", shell_complete=complete_topics, help=text)


def open_from(
    store: str,
    broker_config: str | None,
    hash_slots: int | None,
    index_items: int | None,
    index: str | None,
) -> core.MessageStore:
    """Open a store to read it. Raises the errors of `reput.engine.stores.open_store`."""
    return engine_stores.open_store(
        store,
        broker_config=broker_config,
        hash_slots=hash_slots,
        index_items=index_items,
        index=index,
    )


def given_config(
    store: str,
    broker_config: str | None,
    settings: Mapping[str, int | str | None],
    *,
    writes: bool = False,
    unwritten: Collection[str] = (),
) -> StoreConfig | None:
    """Return the settings given by options, completed from the store's files. None if no option was given.

    Args:
        store: The folder of the store, which may not exist yet.
        broker_config: The broker's configuration file.
        settings: Settings by name; None for an option that was not given.
        writes: Whether the command writes files whose sizes the settings determine. If so, the sizes must be certain.
        unwritten: Settings for files that the command does not write. These need not be certain.

    Raises:
        UsageError: the files do not determine a size for certain, or an option is wrong.
        StoreAccessError, StoreNotFoundError: something cannot be read.
    """
    refuse_other_log(store, broker_config)
    if broker_config is not None:
        return config_from(broker_config, None, **settings)
    named = [name for name, value in settings.items() if value is not None]
    if not (named or writes):
        return None
    storage, path = storage_of(store)
    facts = _survey_of()(path, storage=storage)
    if writes:
        facts.require_certain(but=[*named, *unwritten])
    return config_from(None, facts.config, **settings) if named else None


def refuse_other_log(store: str, broker_config: str | None) -> None:
    """Raise UsageError if a store has no commitlog/, and its broker's configuration names another folder."""
    folders = () if broker_config is None else log_paths_of(broker_config)
    if (
        folders
        and os.path.isdir(store)
        and not os.path.isdir(os.path.join(store, COMMIT_LOG_FOLDER))
    ):
        named = ",".join((store, *folders))
        raise UsageError(
            f"{store}: has no commitlog/; {broker_config} names {', '.join(folders)}: pass {quote(named)} as STORE"
        )


def config_from(
    broker_config: str | None, otherwise: StoreConfig | None = None, **changes: int | str | None
) -> StoreConfig:
    """Return the settings of a broker, overridden by `changes`.

    The settings are read from the file `broker_config`. Without a file, the settings are taken from `otherwise`.
    Without both arguments, the defaults are used.

    Raises StoreNotFoundError, UsageError.
    """
    config = (
        StoreConfig.from_broker_config(broker_config)
        if broker_config
        else otherwise or StoreConfig()
    )
    values: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    return replace(config, **values)


class _Parsed(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A click type whose values are parsed by a function. The function raises ValueError for a wrong value."""

    def __init__(self, name: str, parse: Callable[[str], int]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE = _Parsed("SIZE", parse_size)
"""A number of bytes, written as `128MiB`, `64m` or `1000000`."""
RATE = _Parsed("RATE", lambda text: parse_size(text.removesuffix("/s")))
"""Bytes per second, written as `20MB/s`."""
DURATION = _Parsed("DURATION", parse_duration)
"""Milliseconds, written as `90s`, `36h` or `2d`."""
TIME = _Parsed("TIME", lambda text: parse_time(text, now_ms=now_ms()))
END_TIME = _Parsed("TIME", lambda text: parse_time(text, now_ms=now_ms(), is_end=True))
"""Milliseconds since 1970."""
time_window_options = together(
    click.option("--begin", type=TIME, help="Stored at this time or later."),
    click.option(
        "--end", type=END_TIME, help="Stored at this time or earlier; a date means the whole day."
    ),
)


def _named_values(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if wrong := next((name for name, equals, _ in pairs if not name or not equals), None):
        raise click.BadParameter(f"{wrong!r}: write NAME=VALUE", ctx, param)
    return {name: value for name, _, value in pairs}


catalog_properties = click.option(
    "--catalog-property",
    "catalog_properties",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_named_values,
    help="Iceberg: a property of the catalog, in pyiceberg's notation (type=glue); repeatable.",
)


def check_window(begin_ms: int | None, end_ms: int | None) -> None:
    """Raise UsageError if the times end before they begin, because they would silently match no message."""
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise UsageError(
            f"--begin {format_time(begin_ms)} is after --end {format_time(end_ms)}: swap them"
        )


def runner_options_of(default: engine_stores.RunnerName, text: str) -> Decorator:
    """Return a decorator that adds --runner and --master; the command gets them as `runner`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_runner(*args: Any, runner: str, master: str | None, **options: Any) -> Any:
            choice = engine_stores.Chosen(runner, master)
            return command(*args, runner=choice, **options)

        return together(
            click.option(
                "--runner",
                type=click.Choice(["auto", "serial", "processes", "spark"]),
                default=default,
                show_default=True,
                help=text,
            ),
            click.option(
                "--master", metavar="URL", help="The Spark master to run on.  [default: local[*]]"
            ),
        )(with_runner)

    return decorate


runner_options = runner_options_of(
    "auto",
    "Run the tasks in this process, in several processes, or on Spark. auto: this process for small stores,"
    " else Spark if it is installed.",
)
"""--runner and --master of commands whose best runner depends on the size of the stores."""

owner_options = together(config_options, queue_entries_option, all_formats("json"))
"""The options of commands that open a store for writing (with the function `own`), including --format."""


def own(
    store: str, broker_config: str | None, as_broker: bool = False, /, **sizes: int | None
) -> WritableStore:
    """Open an existing store for writing, and recover it. File sizes that are not given are taken from its files.

    With `as_broker`, a damaged log ends where a broker ends it, even if readable messages follow.

    Raises StoreNotFoundError, StoreLockedError if a broker runs on it, and the errors of `open_store`.
    """
    Location.refuse_url(store)
    core.StoreLog(store).list()  # Raises for a missing store, which open_store would create.
    config = given_config(store, broker_config, sizes, writes=True)
    settings = writer_settings(broker_config) | {"as_broker": as_broker}
    return engine_stores.open_store(store, mode="rw", config=config, **settings)


def writer_settings(broker_config: str | None) -> dict[str, Any]:
    """Return the broker's settings for flushing and retention. Print the names of settings that are not used."""
    if broker_config is None:
        return {}
    from reput.engine.writer import BrokerSettings

    settings = BrokerSettings.read(broker_config)
    if settings.ignored:
        names = ", ".join(settings.ignored)
        click.echo(f"reput: {printable(broker_config)}: not used: {names}", err=True)
    return asdict(settings.writer)
