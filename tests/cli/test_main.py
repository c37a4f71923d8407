"""The command as a whole: help, version, start-up, and the output of every kind of error."""

import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from reput import __version__, errors
from reput.cli import main as entry
from reput.cli.main import DAMAGED, FAILED, NOT_FOUND, WRONG_USE, explain
from tests.cli.running import REPUT, one_line, reput, reput_process
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


def all_errors() -> Iterator[type[errors.ReputError]]:
    for _, found in inspect.getmembers(errors, inspect.isclass):
        if issubclass(found, errors.ReputError):
            yield found


COMMANDS = (
    "find", "query", "trace", "show", "inspect", "stats", "report", "check", "repair", "diff", "prove", "rebuild",
    "put", "tail", "recover", "expire", "serve", "lookup", "export", "compact-table", "state", "warm-up", "completion",
    "help",
)  # fmt: skip
STORE = "a store that is there"
EXPECTED_CODES = {
    errors.ReputError: FAILED,
    errors.UsageError: WRONG_USE,
    errors.MissingExtraError: WRONG_USE,
    errors.JavaNotFoundError: FAILED,
    errors.SparkJobError: FAILED,
    errors.WorkerLostError: FAILED,
    errors.StoreError: FAILED,
    errors.StoreNotFoundError: WRONG_USE,
    errors.MessageNotFoundError: NOT_FOUND,
    errors.StoreAccessError: FAILED,
    errors.StoreLockedError: FAILED,
    errors.StoreUnreachableError: FAILED,
    errors.ObjectConflictError: FAILED,
    errors.StoreChangedError: DAMAGED,
    errors.StoreFailedError: FAILED,
    errors.MessageRefusedError: WRONG_USE,
    errors.RemotingError: FAILED,
    errors.RejectedRowsError: DAMAGED,
    errors.IndexFullError: FAILED,
    errors.FormatError: DAMAGED,
    errors.CorruptMessageError: DAMAGED,
}


@pytest.mark.parametrize("kind", list(all_errors()))
def test_every_error_is_one_line_and_an_exit_code(
    kind: type[errors.ReputError], monkeypatch: pytest.MonkeyPatch
) -> None:
    error: errors.ReputError
    if issubclass(kind, errors.CorruptMessageError):
        error = kind("/s/f", 7, "a\nb\x1b[31m", 7)
    elif issubclass(kind, errors.FormatError):
        error = kind("/s/f", 7, "a\nb\x1b[31m")
    else:
        error = kind("/s/f: a\nb\x1b[31m")

    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(entry.cli, "main", fail)
    ran = reput("query")
    assert ran.code == EXPECTED_CODES[kind]
    offset = " offset 7:" if isinstance(error, errors.FormatError) else ""
    assert one_line(ran) == f"reput: /s/f:{offset} a\\nb\\x1b[31m"


def test_a_bug_is_one_line_too_and_says_how_to_see_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RecursionError("too deep\nfor us")

    monkeypatch.setattr(entry.cli, "main", fail)
    monkeypatch.delenv("REPUT_DEBUG", raising=False)
    ran = reput("query")
    assert (ran.code, ran.out) == (FAILED, "")
    assert ran.err == (
        "reput: unexpected RecursionError: too deep\\nfor us "
        "(a bug; REPUT_DEBUG=1 shows the traceback)\n"
    )
    monkeypatch.setenv("REPUT_DEBUG", "1")
    with pytest.raises(RecursionError):
        reput("query")


def test_an_error_of_the_system_names_the_file() -> None:
    with pytest.raises(OSError, match="nowhere") as caught:
        Path("/nowhere/at/all").read_bytes()
    assert explain(caught.value) == ("/nowhere/at/all: No such file or directory", FAILED)


def test_a_refusal_says_what_to_do() -> None:
    refused = errors.StoreAccessError("/s/f: cannot be opened: Permission denied")
    refused.__cause__ = PermissionError()
    line = "/s/f: cannot be opened: Permission denied; check its permissions, or run as a user who may read it"
    assert explain(refused) == (line, FAILED)


@pytest.mark.usefixtures("ordinary_user")
@pytest.mark.parametrize("command", ["query", "show", "inspect", "rebuild", "tail"])
def test_a_store_that_may_not_be_read(command: str, tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    log.chmod(0)
    arguments = {"query": ["--topic", "t", "--key", "k"], "show": ["0"]}
    ran = reput(command, tmp_path, *arguments.get(command, []))
    log.chmod(0o700)
    assert ran.code == FAILED
    assert one_line(ran).startswith(f"reput: {log}: cannot be read: Permission denied; check its")


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(ctx: click.Context) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, "invoke", lambda self, ctx: interrupted(ctx))
    ran = reput("query")
    assert (ran.code, ran.out, ran.err.strip()) == (130, "", "")


def test_an_interrupted_process_is_quiet(golden: Golden) -> None:
    """Ctrl-C reaches the process while it writes."""
    script = (
        "import os, signal, sys, click\n"
        "click.echo = lambda *args, **options: os.kill(os.getpid(), signal.SIGINT)\n"
        "from reput.cli.main import main\n"
        "sys.exit(main())\n"
    )
    store = golden("orders").path
    ended = subprocess.run(
        [sys.executable, "-c", script, "show", str(store), "0", "--body-only"],
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert (ended.returncode, ended.stderr.strip()) == (128 + signal.SIGINT, b"")


def test_a_reader_who_goes_away_is_no_error(golden: Golden) -> None:
    query = [
        str(REPUT),
        "query",
        str(golden("orders").path),
        "--topic",
        "orders",
        "--key",
        "customer-65",
    ]
    with subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaints = process.stderr.read()
        assert (process.wait(), complaints) == (141, b"")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_has_an_example(command: str) -> None:
    ran = reput(command, "--help")
    assert ran.code == 0
    usage, _, example = ran.out.replace("Examples:", "Example:").partition("Example:\n")
    assert usage.startswith(f"Usage: reput {command} [OPTIONS]")
    asked_of = {"warm-up": "", "completion": "", "help": "", "state": " lag /"}.get(command, " /")
    assert f"reput {command}{asked_of}" in example.splitlines()[0]


def test_version_and_help() -> None:
    assert reput_process("--version").out == f"reput {__version__}\n"
    ran = reput_process("--help")
    assert ran.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in ran.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "no command 'frobnicate'"),
        (["query"], "STORE"),
        (["query", "/s", "--topic", "t"], "/s: not a RocketMQ store"),
        (["query", "/s", "--topic", "t", "--key", "k", "--begin", "soon"], "'soon' is not a time"),
        (["query", "/s", "--topic", "t", "--key", "k", "--limit", "many"], "--limit"),
        (["query", "/s", "--topic", "t", "--key", "k", "--format", "xml"], "--format"),
        (["show", "/s"], "STORE"),
        (["inspect"], "PATH"),
        (["rebuild", "/s", "--only", "lock"], "--only"),
        (["rebuild", "/s", "--split-size", "much"], "'much' is not a size"),
        (["rebuild", STORE, "--hash-slots", "0"], "--hash-slots"),
        (["rebuild", STORE, "--index-items", "1"], "--index-items"),
        (["rebuild", STORE, "--queue-entries", "0"], "--queue-entries"),
        (["rebuild", STORE, "--broker-config", "/no/broker.conf"], "/no/broker.conf"),
        (["tail", "/s", "--lines", "few"], "'few' is neither a number of messages"),
        (["tail", "/s", "--lines", "0"], "--lines 0 without --follow"),
        (["tail", "/s", "--tag", "||"], "no tag"),
        (["tail", "/no/store"], "/no/store: not a RocketMQ store"),
        (["query", "/no/store", "--topic", "t", "--key", "k"], "/no/store: not a RocketMQ store"),
        (["show", "/no/store", "0"], "/no/store: not a RocketMQ store"),
        (["inspect", "/no/store"], "/no/store: no such file"),
        (["rebuild", "/no/store"], "/no/store: not a RocketMQ store"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, golden: Golden
) -> None:
    store = golden("orders").path
    ran = reput(*(store if argument == STORE else argument for argument in arguments))
    assert ran.code == WRONG_USE
    assert says in one_line(ran)
    assert ran.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["query", "--topic", "orders", "--key", "order-100377"],
        ["trace", "--key", "order-100377"],
        ["show", "53821"],
        ["tail", "--topic", "orders"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_looking_something_up_loads_neither_numba_nor_spark(
    arguments: list[str], golden: Golden
) -> None:
    script = (
        "import sys\n"
        "from reput.cli.main import main\n"
        "code = main()\n"
        "print(code, *sorted({'numba', 'pyspark', 'pandas', 'pyarrow'} & set(sys.modules)), "
        "file=sys.stderr)\n"
    )
    if arguments[0] != "--help":
        arguments = [arguments[0], str(golden("orders").path), *arguments[1:]]
    ended = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        timeout=600,
        check=True,
        env=os.environ,
    )
    assert ended.stderr.decode().splitlines()[-1] == "0"


def test_a_command_ends_with_its_code_while_threads_of_arrow_read() -> None:
    """The end of the interpreter would abort the process (SIGABRT)."""
    command = [sys.executable, "-m", "tests.cli.arrow_at_exit"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (DAMAGED, "the output\n", "")
