"""Entry point: the group of commands, and what becomes of every error.

A command is imported when it is called, so that none waits for another's libraries. Exit codes:

    0  done, or found            3  the input is damaged; what could be done is done
    1  nothing found             4  another obstacle: permissions, a full disk, no Java, a bug
    2  wrong usage               130, 141  interrupted; the reader of the output has gone
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from reput import __version__, errors
from reput.cli.arguments import in_options
from reput.kernels import on_compile
from reput.messages.text import printable

FOUND, NOT_FOUND, WRONG_USE, DAMAGED, FAILED = 0, 1, 2, 3, 4
INTERRUPTED, NO_READER = 130, 141

_COMMANDS = {
    "query": "reput.cli.query",
    "trace": "reput.cli.trace",
    "show": "reput.cli.show",
    "inspect": "reput.cli.inspect",
    "stats": "reput.cli.stats",
    "lag": "reput.cli.lag",
    "timer": "reput.cli.timer",
    "compacted": "reput.cli.compacted",
    "popped": "reput.cli.popped",
    "tiered": "reput.cli.tiered",
    "transactions": "reput.cli.transactions",
    "report": "reput.cli.report",
    "check": "reput.cli.check",
    "repair": "reput.cli.repair",
    "diff": "reput.cli.diff",
    "prove": "reput.cli.prove",
    "rebuild": "reput.cli.rebuild",
    "put": "reput.cli.put",
    "tail": "reput.cli.tail",
    "recover": "reput.cli.recover",
    "expire": "reput.cli.expire",
    "serve": "reput.cli.serve",
    "export": "reput.cli.export",
    "compact": "reput.cli.compact",
    "lookup": "reput.cli.lookup",
    "bench": "reput.cli.bench",
    "warm-up": "reput.cli.warm_up",
}


_QUICK = ("query", "trace", "show")
_COMPILING = "Compiling kernels for this processor, once"


class LazyGroup(click.Group):
    """A group that imports a command's module when somebody asks for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        command = getattr(import_module(module), "command", None) if module else None
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # it is where whoever started this closed it
                sys.stdout.flush()
        except BrokenPipeError:  # click would make it exit code 1, which is "nothing found" here
            raise _ReaderGone from None
        return result


class _ReaderGone(Exception):
    """Whoever read the output has closed it, as `head` does."""


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 found or done, 1 nothing found, 2 wrong usage, 3 damaged input, "
    "4 another obstacle (permissions, full disk, no Java). "
    "REPUT_DEBUG=1 prints the traceback of an unexpected error; REPUT_LOG=info or debug is -v or -vv.",
)
@click.version_option(__version__, prog_name="reput", message="%(prog)s %(version)s")
@click.option("-v", "--verbose", count=True, help="Log progress to stderr; -vv for details.")
@click.pass_context
def cli(ctx: click.Context, verbose: int) -> None:
    """Read, rebuild and query the message store of Apache RocketMQ 4.9 and 5.x, byte for
    byte.

    STORE is the directory that contains commitlog/: of a running broker, of a stopped one, or a
    copy. Only put, rebuild, repair, recover and expire write into it.
    """
    variable = os.environ.get("REPUT_LOG")
    # They log nothing but what was asked for, and answer before logging is imported.
    if verbose or variable or ctx.invoked_subcommand not in _QUICK:
        from reput.cli.logs import level_of, set_up

        set_up(level_of(verbose, variable))


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code. Never raises but for REPUT_DEBUG=1."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a store holds what an old terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    _announce_compiling()
    try:
        code = cli.main(args, prog_name="reput", standalone_mode=False)
    except _ReaderGone:
        # The interpreter flushes once more at its end; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("REPUT_DEBUG") == "1":
            raise
        line, code = explain(error)
        click.echo(f"reput: {printable(line)}", err=True)
    return code if isinstance(code, int) else FOUND


def _announce_compiling() -> None:
    """Print one line to stderr when a kernel must be compiled, which is slow but happens once."""
    done: list[str] = []

    def compiling(kernel: str) -> None:
        done.append(kernel)
        if sys.stderr is not None and sys.stderr.isatty():
            click.echo(f"\r{_COMPILING}: {len(done)}", nl=False, err=True)
            if len(done) == 1:
                atexit.register(click.echo, err=True)
        elif len(done) == 1:
            click.echo(f"{_COMPILING}.", err=True)

    if not on_compile:
        on_compile.append(compiling)


def explain(error: Exception) -> tuple[str, int]:
    """One line for a person, and the exit code."""
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        where = f" (see {context.command_path} --help)" if context else ""
        return error.format_message() + where, WRONG_USE
    if isinstance(error, errors.ReputError):
        return in_options(error) + _hint(error), exit_code(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}", FAILED
    if isinstance(error, OSError) and error.strerror:  # all other files are named in their errors
        return f"stdout or stderr: cannot be written: {error.strerror}", FAILED
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"unexpected {reason} (a bug; REPUT_DEBUG=1 shows the traceback)", FAILED


def _hint(error: errors.ReputError) -> str:
    """What to do, where a reader was refused and does not say so itself."""
    refused = isinstance(error.__cause__, PermissionError) and "permissions" not in str(error)
    return "; check its permissions, or run as a user who may read it" if refused else ""


def exit_code(error: errors.ReputError) -> int:
    """What a script should take an error for."""
    if isinstance(error, errors.MessageNotFoundError):
        return NOT_FOUND
    if isinstance(
        error, errors.UsageError | errors.StoreNotFoundError | errors.MessageRefusedError
    ):
        return WRONG_USE
    if isinstance(error, errors.FormatError | errors.StoreChangedError | errors.RejectedRowsError):
        return DAMAGED
    return FAILED
