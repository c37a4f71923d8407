"""List the commands: where each is defined, its line in the help, and the kernels that it needs.

A command's module is imported when the command is called: importing all of them would take seconds.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A command.

    Attributes:
        home: The module, and the name of the command in it.
        help: The line in the list of commands.
        kernels: The module whose `warm_up()` calls the kernels that the command needs.
    """

    home: str
    help: str
    kernels: str = ""


_WRITES, _CHECKS = "reput.engine.stores.warm_up", "reput.engine.check.run"
_REBUILDS, _EXPORTS = "reput.engine.rebuild.warm_up", "reput.wings.lakes.task"
# fmt: off
SECTIONS: dict[str, dict[str, Entry]] = {
    "Find messages": {
        "find": Entry("reput.cli.find:command", "Find messages by a key, id, offset or place, whichever the text is."),
        "query": Entry("reput.cli.query:command", "Find messages by key, id, or topic and time."),
        "show": Entry("reput.cli.show:command", "Show one message in full."),
        "tail": Entry("reput.cli.tail:command", "Print the last messages, and new ones as they arrive."),
        "trace": Entry(
            "reput.wings.inspect.command:trace_command", "Print the life of a message: retries, delays, transactions."),
        "lookup": Entry(
            "reput.cli.lookup:command", "Find the messages of many keys at once.",
            "reput.engine.lookup.warm_up"),
    },
    "Examine a store": {
        "fleet": Entry(
            "reput.wings.fleet.command:fleet_command", "Print the state of each store of a cluster in one line."),
        "inspect": Entry(
            "reput.wings.inspect.inspect_command:inspect_command",
            "Describe a store, a queue, or a single file of one."),
        "check": Entry(
            "reput.cli.check:command", "Check CommitLog, ConsumeQueues and IndexFiles against each other.", _CHECKS),
        "stats": Entry(
            "reput.wings.inspect.command:stats_command", "Measure a store: topics, queues, keys, IndexFiles, growth."),
        "report": Entry(
            "reput.wings.inspect.command:report_command", "Write a store's findings and figures as one HTML page."),
        "diff": Entry("reput.wings.inspect.command:diff_command", "Compare two stores, or a store and an export."),
        "prove": Entry("reput.cli.check:prove_command", "Prove which part of the log each IndexFile covers."),
        "state": Entry(
            "reput.wings.fleet.state_command:state_command",
            "Show lag, open transactions, timers, pops, compacted and tiered messages."),
    },
    "Repair a store": {
        "rebuild": Entry(
            "reput.cli.rebuild:command", "Rebuild consumequeue/ and index/ from the CommitLog.", _REBUILDS),
        "repair": Entry(
            "reput.cli.repair:command", "Repair a store: plan, build beside it, check, swap, keep a backup.", _CHECKS),
        "recover": Entry("reput.cli.recover:command", "Recover a store that was not shut down cleanly.", _WRITES),
    },
    "Move messages": {
        "export": Entry("reput.wings.lakes.command:export_command", "Write messages into a lake table.", _EXPORTS),
        "compact-table": Entry(
            "reput.wings.lakes.command:compact_table_command", "Combine small files of an exported table.", _EXPORTS),
        "put": Entry("reput.cli.put:command", "Put messages into a store.", _WRITES),
        "archive": Entry(
            "reput.wings.archive.command:archive_command",
            "Copy a store's log into a searchable archive, or verify one.", _REBUILDS),
        "restore": Entry(
            "reput.wings.archive.command:restore_command", "Restore a store from an archive.", _REBUILDS),
        "erase": Entry(
            "reput.wings.erase.command:erase_command", "Erase messages from a copy of a store, or from an archive.",
            "reput.wings.erase.overwriting"),
    },
    "Own and serve a store": {
        "serve": Entry(
            "reput.wings.console.command:serve_command", "Serve stores to RocketMQ clients and mqadmin.", _WRITES),
        "expire": Entry(
            "reput.wings.archive.expire_command:expire_command", "Delete the oldest files of a store.", _WRITES),
    },
    "Installation": {
        "help": Entry(
            "reput.cli.help:command",
            "Explain a command, or stores, times, formats, exit-codes, runners, environment."),
        "warm-up": Entry("reput.cli.installation:warm_up_command", "Compile the kernels ahead of time."),
        "completion": Entry(
            "reput.cli.installation:completion_command", "Print a script that completes commands, options and topics."),
    },
}
# fmt: on
COMMANDS = {name: entry for entries in SECTIONS.values() for name, entry in entries.items()}
STATE = ("lag", "transactions", "timer", "popped", "faults", "compacted", "tiered")
"""The commands of `reput state`."""
TIME_HELP = (
    "Times are ISO 8601 (2026-10-14, 2026-10-14T08:35:06.637+02:00; UTC if there is no zone), "
    'milliseconds since 1970, or "2h ago", "3 days ago", "now".'
)
"""The text for `{times}` in the help of a command."""
REMOVED = {
    "bench": "`reput bench` was removed; the source code of reput measures a store: python -m benchmarks.store STORE",
}
"""Former commands, and what to run instead."""
