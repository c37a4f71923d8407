"""Define the command `reput help`: help of a command, and topics that several commands share."""

from __future__ import annotations

import click

from reput.base import did_you_mean
from reput.cli.main import FOUND, cli
from reput.cli.table import TIME_HELP
from reput.errors import UsageError

_TOPICS = {
    "stores": (
        "What STORE may be",
        "The directory that contains commitlog/. It may belong to a running broker, to a stopped one, or be a copy.",
        "If the CommitLog lies in other folders (storePathCommitLog=a,b), name them after the store: STORE,a,b. "
        "Commands that write, and export, archive and serve, need commitlog/ in the store: a folder, or a link to it.",
        "Commands that read also take URLs (s3://bucket/store), patterns ('/data/broker-*/store'), and the folder or\n"
        "URL of an archive, which reput archive wrote.",
        "",
        "A fleet file (--stores) lists stores in TOML. Only path is required, which may be a pattern:",
        "",
        "  [[store]]",
        '  path = "/data/broker-a/store"',
        '  name = "broker-a"                    # in answers',
        '  cluster = "main"',
        '  broker = "broker-a"',
        '  broker_id = 0                        # 0 is the master',
        '  config = "/etc/broker-a.conf"        # the broker\'s configuration',
        '  archive = "s3://bucket/broker-a"     # read as the beginning of the log',
    ),
    "times": ("How times are written", TIME_HELP, "--begin and --end are store times; both are inclusive."),
    "formats": (
        "Output formats",
        "text: for people. json: one object. jsonl: one object per line. csv: one row per message.",
        "jsonl and csv have the same fields in every command (docs/message-json.md).",
        "With json, jsonl and csv, the searched range, notes and damage go to stderr.",
    ),
    "exit-codes": (
        "Exit codes",
        "0 done, or found. 1 nothing found, or different. 2 wrong usage. 3 damaged input; the rest was processed.",
        "4 another failure: permissions, a full disk, no Java, a bug. 5 warnings, but no damage;\n"
        "6 a store was not read;\n"
        "erase: other records or table rows have erased content.\n"
        "130 interrupted by Ctrl-C. 141 the reader of the output closed it, as head does.",
    ),
    "runners": (
        "Where tasks run (--runner)",
        "auto: this process for small stores, else Spark if it is installed. serial: this process.",
        "processes: several processes of this machine. spark: Spark, on --master (local[*] by default).",
    ),
    "environment": (
        "Environment variables",
        "REPUT_LOG=info or debug: same as -v or -vv. REPUT_DEBUG=1: print the traceback of an "
        "unexpected error.",
        "XDG_CACHE_HOME: folder of proofs, times of log ranges and compiled kernels (default ~/.cache).",
        "JAVA_HOME: the Java for Spark. NUMBA_CACHE_DIR: folder of compiled kernels, if not in XDG_CACHE_HOME.",
    ),
}  # fmt: skip


@click.command(
    "help",
    epilog="\b\nExamples:\n  reput help query\n  reput help times",
)
@click.argument("topic", metavar="[COMMAND|TOPIC]", nargs=-1)
def command(topic: tuple[str, ...]) -> int:
    """Explain COMMAND, or one of the topics: stores, times, formats, exit-codes, runners, environment."""
    if not topic:
        click.echo(cli.get_help(click.Context(cli, info_name="reput")))
        return FOUND
    name = " ".join(topic)
    if name in _TOPICS:
        title, *lines = _TOPICS[name]
        click.echo("\n".join([title, "", *lines]))
        return FOUND
    context = click.Context(cli, info_name="reput")
    entry: click.Command = cli
    for part in topic:
        inner = entry.get_command(context, part) if isinstance(entry, click.Group) else None
        if inner is None:
            names = [*_TOPICS, *cli.list_commands(context)]
            raise UsageError(f"no command or topic {name!r}{did_you_mean(name, names)}")
        entry, context = inner, click.Context(inner, parent=context, info_name=part)
    click.echo(entry.get_help(context))
    return FOUND
