"""docs/what-changes.md and docs/killed.md: both tables have every command, and the help names commands that write."""

import inspect
import re
import subprocess
import sys

import click
import pytest

from reput.cli import main
from reput.cli.main import cli, command_of
from reput.cli.table import COMMANDS
from tests.cli.running import reput as run
from tests.docs.pages import CHECKOUT

_ROW = re.compile(r"^\| (?P<commands>`[^|]*) \| (?P<store>[^|]*) \|", re.MULTILINE)
_NAME = re.compile(r"`([a-z][a-z-]*)[^`]*`")


def rows(page: str) -> dict[str, list[str]]:
    """Return the first table of a page, by command."""
    text = (CHECKOUT / "docs" / page).read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for row in _ROW.finditer(text):
        for command in _NAME.findall(row["commands"]):
            found.setdefault(command, []).append(row["store"])
    return found


@pytest.mark.parametrize("page", ["what-changes.md", "killed.md"])
def test_every_command_is_there(page: str) -> None:
    commands = set(cli.list_commands(click.Context(cli)))
    assert len(commands) > 20
    assert sorted(commands - rows(page).keys()) == []
    assert sorted(rows(page).keys() - commands) == []


def test_the_reference_is_the_help_of_all_commands() -> None:
    script = CHECKOUT / "docs" / "site" / "commands.py"
    command = [sys.executable, str(script), "--print"]
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    written = (CHECKOUT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert written == page, "run: python docs/site/commands.py"


def source_of(command: str) -> str:
    """Return the source of a command: its module, or its function if the module defines several commands."""
    homes = [entry.home.partition(":")[0] for entry in COMMANDS.values()]
    home = COMMANDS[command].home.partition(":")[0]
    function = inspect.unwrap(command_of(command).callback or command_of)
    return inspect.getsource(sys.modules[home] if homes.count(home) == 1 else function)


def test_the_page_on_exit_codes_has_every_command_and_every_code() -> None:
    page = (CHECKOUT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    named = (
        "FOUND",
        "NOT_FOUND",
        "WRONG_USE",
        "DAMAGED",
        "FAILED",
        "WARNED",
        "UNREAD",
        "INTERRUPTED",
        "NO_READER",
    )
    assert codes == {getattr(main, name) for name in named}
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    assert {command for row in rows for command in _NAME.findall(row[1])} == set(
        cli.list_commands(click.Context(cli))
    )
    for row in rows:
        for command in _NAME.findall(row[1]):
            returned = re.findall(r"\breturn .*\b(NOT_FOUND|WARNED)\b", source_of(command))
            assert ("NOT_FOUND" in returned) <= bool(row[3].strip()), command
            assert ("WARNED" in returned) <= bool(row[5].strip()), command


def test_every_page_that_states_an_exit_code_links_to_the_page_of_all_codes() -> None:
    pages = [path for path in (CHECKOUT / "docs").rglob("*.md") if path.name != "exit-codes.md"]
    states = re.compile(r"exit codes?\b|\bexits? with\b", re.IGNORECASE)
    unlinked = [
        str(path.relative_to(CHECKOUT))
        for path in pages
        if states.search(text := path.read_text(encoding="utf-8")) and "exit-codes.md" not in text
    ]
    assert len(pages) > 100
    assert unlinked == []


def test_the_help_names_the_commands_that_write() -> None:
    help_text = " ".join(run("--help").out.split())
    (sentence,) = re.findall(r"Only ([^;]*) write into it", help_text)
    named = set(re.findall(r"[a-z-]{3,}", sentence)) - {"and", "--accept-sends"}
    writing = {
        command
        for command, says in rows("what-changes.md").items()
        if any(said != "nothing" for said in says)
    }
    assert writing == named


def test_the_security_page_names_the_commands_that_write() -> None:
    """Commands that write into a store, or into a place that the user names."""
    page = (CHECKOUT / "SECURITY.md").read_text(encoding="utf-8")
    promises = page[page.index("Reading writes nothing") : page.index("A reader survives a file")]
    named = set(_NAME.findall(promises))
    place = re.compile(r"FILE|DIR|DEST|ARCHIVE|STORE|destination")
    writing = set()
    for line in (CHECKOUT / "docs" / "what-changes.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and (cells[1] != "nothing" or place.search(cells[2])):
            writing.update(_NAME.findall(cells[0]))
    assert {"put", "archive", "restore", "erase"} <= writing
    assert sorted(writing - named) == []
