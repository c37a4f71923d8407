"""Define the entry point: the group of commands, and the handling of every error.

Exit codes:

0  done, or found            3  the input is damaged; the rest was processed
1  nothing found, different  4  another failure: permissions, a full disk, no Java, a bug
2  wrong usage               5  warnings, but no damage
                             130 interrupted by Ctrl-C, 141 the reader of the output has closed it
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

import click

from reput import __version__, errors
from reput.base import did_you_mean, printable
from reput.cli.table import COMMANDS, REMOVED, SECTIONS, STATE, TIME_HELP
from reput.errors import ReputError
from reput.io import OpenFiles
from reput.kernels import on_compile

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Errors name arguments of the Python API. For the following arguments, the command-line option has a different name.
_OPTIONS = {
    "begin_ms": "--begin",
    "catalog_properties": "--catalog-property",
    "destination": "DEST",
    "end_ms": "--end",
    "http_hosts": "--http-host",
    "fail_on_data_loss=False": "--no-fail-on-data-loss",
    "json_mode": "--body-mode",
    "layout": "--to",
    "max_num": "--limit",
    "message_id": "--id",
    "most_entries": "--queue-messages",
    "most_messages": "--limit",
    "names": "--name",
    "physical_offset": "--message",
    "signing_key": "--sign",
    "queue_ids": "--queue-id",
    "retention_days": "--retention",
    "split_bytes": "--split-size",
    "tags": "--tag",
    "target_file_bytes": "--target-file-size",
    "tables": "--table",
    "topics": "--topic",
}
FOUND, NOT_FOUND, WRONG_USE, DAMAGED, FAILED, WARNED, UNREAD = 0, 1, 2, 3, 4, 5, 6
INTERRUPTED, NO_READER = 130, 141
# The distribution reput-slim lacks these libraries, and runs the kernels as plain Python.
_NOT_IN_SLIM = ("llvmlite", "numba", "pyarrow")
# Commands that should start quickly, because users notice the delay. These commands import `logging` only on request,
# because the import would be a large part of the delay.
_QUICK = ("find", "query", "trace", "show")
_NAMING = {"--key", "--id", "--topic", "--group"}
# Click's words, and clearer ones.
_CLEARER = {
    "Got unexpected extra": "extra",
    "valid integer range": "valid integer",
    "valid float range": "valid number",
    "valid float": "valid number",
}
_COMPILING = "Compiling kernels for this processor, once"


def option_of(argument: str) -> str:
    """Return the command-line option for an argument of the Python API."""
    return _OPTIONS.get(argument, f"--{argument.replace('_', '-')}")


def in_options(error: ReputError) -> str:
    """Return the message of an error, with arguments of the Python API replaced by options."""
    return error.worded(option_of)


class LazyGroup(click.Group):
    """A command group that imports a command's module on its first use, and lists commands in sections."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_of(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # An unknown command may be a command of RocketMQ's tool mqadmin, typed by habit. `advice` names the reput
        # command to use instead.
        if args and args[0][:1] != "-" and args[0] not in COMMANDS:
            from reput.cli.mqadmin import advice

            name = args[0]
            text = (
                f"use: reput state {name}"
                if name in STATE
                else REMOVED.get(name)
                or advice(name, args[1:])
                or f"no command {name!r}{did_you_mean(name, COMMANDS)}"
            )
            raise click.UsageError(text, ctx)
        # An empty shell variable is the usual reason. No message has such a name, so "nothing found" would mislead.
        for text, following in pairwise([*args, "-"]):
            option, equals, value = text.partition("=")
            if option in _NAMING and not (value if equals else following):
                raise click.UsageError(f"{option} is empty", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, entry.help) for name, entry in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        items = [
            CompletionItem(name, help=entry.help)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        # The inherited method would import every command to read its line of help.
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            # Flush here, so that a closed pipe or a full disk is reported as an error of the command.
            # Python sets sys.stdout to None if the parent process started this process with stdout closed.
            if sys.stdout is not None:
                sys.stdout.flush()
        # click would turn a BrokenPipeError into exit code 1, which means "nothing found" here.
        except BrokenPipeError:
            raise _ReaderGone from None
        return result


def command_of(name: str) -> click.Command:
    """Import the module of a command, and return the command."""
    entry = COMMANDS[name]
    module, _, attribute = entry.home.partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    command.short_help = entry.help
    if command.help is not None:
        command.help = command.help.replace("{times}", TIME_HELP)
    return command


class _ReaderGone(Exception):
    """Raised when the reader of stdout has closed it, as `head` does."""


def _diagnose(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from reput.cli.diagnose import lines

        for line in lines():
            click.echo(line)
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 found or done, 1 nothing found or different, 2 wrong usage, 3 damaged input, "
    "4 another failure (permissions, full disk, no Java), 5 warnings but no damage, 6 a store was not read, "
    "130 interrupted, 141 the reader of the output closed it. "
    "REPUT_DEBUG=1 prints the traceback of an unexpected error; REPUT_LOG=info or debug is -v or -vv.",
)
@click.version_option(__version__, prog_name="reput", message="%(prog)s %(version)s")
@click.option(
    "--diagnose", is_flag=True, is_eager=True, expose_value=False, callback=_diagnose,
    help="Show versions, caches, Java and missing extras, and exit.",
)  # fmt: skip
@click.option("-v", "--verbose", count=True, help="Log progress to stderr; -vv for details.")
@click.pass_context
def cli(ctx: click.Context, verbose: int) -> None:
    """Read and query message stores of Apache RocketMQ 4.9 and 5.x, and rebuild them byte for byte.

    STORE is the directory that contains commitlog/. Its broker may be running or stopped, and STORE
    may be a copy. Only put, rebuild, repair, recover, expire and serve --accept-sends write into it;
    archive and erase write into an ARCHIVE, export and compact-table into a table.
    """
    _announce_compiling(ctx.invoked_subcommand)
    variable = os.environ.get("REPUT_LOG")
    # Quick commands set up logging only on request, because importing it takes longer than the command.
    if verbose or variable or ctx.invoked_subcommand not in _QUICK:
        from reput.cli.logs import level_of, set_up

        set_up(level_of(verbose, variable))


def start() -> NoReturn:
    """Run the command line as a process of its own, and end the process."""
    codes: list[int] = []
    # Functions run at exit in reverse order, so this is the last one.
    atexit.register(_end, codes)
    code = main()
    if "pyarrow.dataset" in sys.modules:
        codes.append(code)
    # At exit, Arrow waits for requests to buckets, so a store that hangs would keep the process alive for minutes.
    limited = sys.modules.get("reput.engine.stores.limited")
    if limited is not None and limited.is_left_behind():
        _end([code])
    sys.exit(code)


def _end(codes: Sequence[int]) -> None:
    """End the process at once, if there is an exit code.

    After a read that was refused, threads of Arrow may still read through a file system that is written in Python, such
    as that of deltalake. The end of the interpreter would abort the process when they return to Python.
    """
    for code in codes:
        # A stream is None if the process was started with it closed.
        for stream in filter(None, (sys.stdout, sys.stderr)):
            try:
                stream.flush()
            except OSError:
                code = code or FAILED
        os._exit(code)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code. Raises only with REPUT_DEBUG=1."""
    for stream in (sys.stdout, sys.stderr):
        # Stores may contain characters that the terminal's encoding lacks. Escape them instead of failing.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    OpenFiles.allow()  # A store may have thousands of files, and the usual soft limit is 1,024.
    try:
        code = cli.main(args, prog_name="reput", standalone_mode=False)
    except _ReaderGone:
        # The interpreter flushes stdout once more when it exits. Discard this output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        # A group without a command prints its help, which `explain` would escape as the text of an error.
        click.echo(error.format_message(), err=True)
        return WRONG_USE
    except Exception as error:
        if os.environ.get("REPUT_DEBUG") == "1":
            raise
        line, code = explain(error)
        click.echo(f"reput: {printable(line)}", err=True)
    return code if isinstance(code, int) else FOUND


def _announce_compiling(command: str | None) -> None:
    """When a first kernel must be compiled, print a line, and compile all kernels of the command in parallel."""
    done: list[str] = []
    entry = COMMANDS.get(command or "")
    is_terminal = sys.stderr is not None and sys.stderr.isatty()

    def show(text: str) -> None:
        if is_terminal:
            click.echo(f"\r{_COMPILING}: {text}", nl=False, err=True)

    def compiling(kernel: str) -> None:
        done.append(kernel)
        if len(done) == 1 and is_terminal:
            # `show` overwrites one line of the terminal, without a line end. Write the line end when the process exits.
            atexit.register(click.echo, err=True)
        elif len(done) == 1:
            click.echo(f"{_COMPILING}.", err=True)
        show(str(len(done)))
        if len(done) == 1 and entry is not None and entry.kernels:
            from reput.kernels.ahead import compile_all

            compile_all([entry.kernels], lambda count, of: show(f"{count} of {of}"))

    on_compile[:] = [compiling]


def explain(error: Exception) -> tuple[str, int]:
    """Return one line about an error, and the exit code."""
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        where = f" (see {context.command_path} --help)" if context else ""
        if isinstance(error, click.NoSuchOption) and error.option_name == "--json":
            where = f"; use --format json{where}"
        # Click lists choices on lines of their own.
        text = " ".join(error.format_message().split()).removesuffix(".")
        # Only bugs are unexpected.
        for unclear, clear in _CLEARER.items():
            text = text.replace(unclear, clear)
        return text + where, WRONG_USE
    if isinstance(error, errors.ReputError):
        return in_options(error) + _hint(error), exit_code(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}", FAILED
    # If a file is the cause, the error has its name. Otherwise, a write to stdout or stderr has failed.
    if isinstance(error, OSError) and error.strerror:
        return f"stdout or stderr: cannot be written: {error.strerror}", FAILED
    if isinstance(error, ModuleNotFoundError) and error.name in _NOT_IN_SLIM:
        return (
            f"this command needs {error.name}, which reput-slim does not include; install reput instead",
            WRONG_USE,
        )
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"unexpected {reason} (a bug; REPUT_DEBUG=1 shows the traceback)", FAILED


def _hint(error: errors.ReputError) -> str:
    """Return advice about permissions if reading was refused and the error does not contain such advice."""
    refused = errors.is_refused(error) and "permissions" not in str(error)
    return "; check its permissions, or run as a user who may read it" if refused else ""


def exit_code(error: errors.ReputError) -> int:
    """Return the exit code for an error of the library."""
    if isinstance(error, errors.MessageNotFoundError):
        return NOT_FOUND
    if isinstance(
        error, errors.UsageError | errors.StoreNotFoundError | errors.MessageRefusedError
    ):
        return WRONG_USE
    if isinstance(error, errors.FormatError | errors.StoreChangedError | errors.RejectedRowsError):
        return DAMAGED
    return FAILED
