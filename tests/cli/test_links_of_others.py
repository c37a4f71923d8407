"""As root, no command writes through a link that another user has put in the path of its output."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import reput as api
from reput.cli.main import cli
from reput.cli.table import COMMANDS
from tests.cli.running import SIZES, Ran, reput
from tests.small import SMALL_64K

OTHER = 12_345
_ROOT = Path(__file__).parents[2]
READING = frozenset(
    {
        "find", "query", "show", "tail", "fleet", "inspect", "diff", "prove", "stats", "state", "help", "warm-up",
        "completion",
    }
)  # fmt: skip
"""Commands that write only the caller's cache, and `--resume FILE`, which `check` stands for."""


class Inputs(NamedTuple):
    """The files that the commands read."""

    store: Path
    archive: Path
    folder: Path
    offset: int


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    folder = tmp_path_factory.mktemp("inputs")
    for name in ("store", "other"):
        with api.open_store(folder / name, mode="rw", config=SMALL_64K) as opened:
            opened.put_many(api.Message("T", bytes(900), [f"k{n}"]) for n in range(150))
    api.archive(folder / "store", folder / "archive")
    (folder / "keys.csv").write_text("topic,key\nT,k4\n")
    (folder / "in.jsonl").write_text('{"topic": "T", "body": "b"}\n')
    with api.open_store(folder / "archive") as archive:
        (message,) = archive.query("T", "k4").messages
    return Inputs(folder / "store", folder / "archive", folder, message.physical_offset)


_Run = Callable[[Inputs, Path], Ran]


def _erase(given: Inputs, place: Path) -> Ran:
    copy = given.folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    return reput(
        "erase", given.store, "--key", "k4", "--reason", "x", "--output", copy, "--audit", place
    )


def _prove(given: Inputs, place: Path) -> Ran:
    return reput("archive", "--verify", given.archive, "--message", given.offset, "--proof", place)


def _look_up(given: Inputs, place: Path) -> Ran:
    return reput(
        "lookup",
        given.store,
        "--keys",
        given.folder / "keys.csv",
        "--output",
        place,
        "--runner",
        "serial",
    )


def _resume(given: Inputs, place: Path) -> Ran:
    return reput(
        "check", given.store, given.folder / "other", "--resume", place, "--runner", "serial"
    )


WRITING: dict[str, _Run] = {
    "archive": lambda given, place: reput("archive", given.store, place),
    "archive --proof": _prove,
    "check": _resume,
    "compact-table": lambda given, place: reput("compact-table", place),
    "erase": lambda given, place: reput(
        "erase", given.store, "--key", "k4", "--reason", "x", "--output", place
    ),
    "erase --audit": _erase,
    "expire": lambda given, place: reput("expire", place, "--before", "2001-01-01"),
    "export": lambda given, place: reput("export", given.store, place, "--runner", "serial"),
    "export --to jsonl": lambda given, place: reput("export", given.store, place, "--to", "jsonl"),
    "lookup": _look_up,
    "lookup --staging": lambda given, place: reput(
        "lookup", given.store, "--keys", given.folder / "keys.csv", "--output", given.folder / "rows.csv",
        "--staging", place, "--runner", "serial",
    ),
    "put": lambda given, place: reput("put", place, given.folder / "in.jsonl", *SIZES),
    "rebuild": lambda given, place: reput(
        "rebuild", given.store, "--output", place, "--runner", "serial"
    ),
    "rebuild --follow": lambda given, place: reput(
        "rebuild", given.store, "--follow", "--output", place, "--runner", "serial"
    ),
    "recover": lambda given, place: reput("recover", place),
    "repair": lambda given, place: reput("repair", place),
    "report": lambda given, place: reput("report", given.store, "--output", place),
    "restore": lambda given, place: reput("restore", given.archive, place),
    "serve": lambda given, place: reput("serve", place, "--accept-sends", "--listen", "127.0.0.1:0"),
    "serve --audit-log": lambda given, place: reput(
        "serve", given.store, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--audit-log", place
    ),
    "trace": lambda given, place: reput(
        "trace", given.store, "--topic", "T", "--key", "k4", "--output", place
    ),
}  # fmt: skip


def _state(folder: Path) -> dict[Path, tuple[int, int, bytes]]:
    return {
        path: (
            path.lstat().st_mode,
            path.lstat().st_uid,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


def _options(command: click.Command, path: str) -> Iterator[str]:
    """Yield the options of a command and its subcommands that lead to a file or folder, after the command's name."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None
            yield from _options(below, f"{path} {name}".strip())
        return
    for one in command.params:
        if isinstance(one, click.Option) and (
            isinstance(one.type, click.Path) or one.opts[0] in _TEXTS
        ):
            yield f"{path} {one.opts[0]}"


_TEXTS = ("--output", "--staging")
"""Options that lead to a file or to a URL."""
_READ = frozenset(
    {
        "--acl", "--broker-config", "--http-token-file", "--http-users", "--index", "--sign", "--stores", "--tls-cert",
        "--tls-key", "--verify",
    }
)  # fmt: skip
"""Options that lead to files which are only read."""
_OTHERS = frozenset({"rebuild --staging"})
"""Options that lead to object storage only."""


def test_each_option_writes_or_only_reads() -> None:
    """A new option that leads to a file must be among these, or in the list of commands that write."""
    options = {one for one in _options(cli, "") if one.split()[-1] not in _READ}
    attacked = {name for name in WRITING if "--" in name}
    # The other commands of the list pass their main place: an argument, or an output without which they do not run.
    plain = {f"{name} --output" for name in WRITING}
    resumed = {one for one in options if one.endswith(" --resume")}
    assert options - attacked - plain - resumed - _OTHERS == set()


def test_each_command_writes_or_only_reads() -> None:
    """A new command must be in one of the two lists, and in SECURITY.md if it writes."""
    writing = {name.split()[0] for name in WRITING}
    assert writing.isdisjoint(READING)
    assert writing | READING == set(COMMANDS)
    text = " ".join((_ROOT / "SECURITY.md").read_text().split())
    assert [
        name for name in sorted(WRITING) if f"`{name}" not in text and f" {name}`" not in text
    ] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root follows links with more rights")
@pytest.mark.every_case
@pytest.mark.parametrize("below", ["place", "folder/place"])
@pytest.mark.parametrize("name", WRITING)
def test_nothing_is_written_through_a_link_of_another_user(
    inputs: Inputs, tmp_path: Path, name: str, below: str
) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_bytes(b"root's")
    (home / "link").symlink_to(outside)
    for path in (home, home / "link"):
        os.chown(path, OTHER, OTHER, follow_symlinks=False)
    before = _state(outside)
    ran = WRITING[name](inputs, home / "link" / below)
    assert _state(outside) == before
    assert ran.code
    assert "Traceback" not in ran.err
