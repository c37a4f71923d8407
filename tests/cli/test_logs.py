"""The log of the library: at the requested level, one line each."""

import logging
import re
from pathlib import Path

import pytest

from reput.cli.logs import level_of, set_up
from reput.cli.main import FOUND, WRONG_USE
from reput.errors import UsageError
from reput.testing.builders import MESSAGE, write_log
from tests.cli.running import SIZES, one_line, reput, reput_process


@pytest.mark.parametrize(
    ("verbosity", "variable", "level"),
    [
        (0, None, logging.WARNING), (1, None, logging.INFO), (2, None, logging.DEBUG),
        (5, None, logging.DEBUG), (0, "info", logging.INFO), (0, "DEBUG", logging.DEBUG),
        (1, "debug", logging.INFO), (0, "", logging.WARNING),
    ],
)  # fmt: skip
def test_how_much_is_logged(verbosity: int, variable: str | None, level: int) -> None:
    assert level_of(verbosity, variable) == level


def test_a_level_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match="REPUT_LOG must be warning, info, debug, not 'loud'"):
        level_of(0, "loud")


def _logged(level: int, capsys: pytest.CaptureFixture[str]) -> str:
    root, own = logging.getLogger(), logging.getLogger("reput")
    handlers, before = list(root.handlers), own.level
    try:
        set_up(level)
        try:
            raise ValueError("why\nand more")
        except ValueError:
            logging.getLogger("reput.dispatch").exception("dispatch has stopped at %d\x1b", 7)
        logging.getLogger("reput.store").info("opened")
        logging.getLogger("elsewhere").info("chatter")
        return capsys.readouterr().err
    finally:
        root.handlers[:] = handlers
        own.setLevel(before)
        logging.captureWarnings(False)


def test_a_traceback_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    said = _logged(logging.WARNING, capsys)
    assert said == "reput: dispatch has stopped at 7\\x1b: ValueError: why\n"


def test_verbose_names_the_part_and_very_verbose_has_the_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = _logged(logging.INFO, capsys)
    assert said.endswith("\nreput: info: reput.store: opened\n")
    assert "Traceback" not in said
    assert "Traceback" in _logged(logging.DEBUG, capsys)


def test_the_options_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"topic":"T","body":"b"}\n')
    quiet = reput_process("put", tmp_path / "s", file, *SIZES)
    assert (quiet.code, quiet.err) == (FOUND, "")
    said = reput_process("-v", "put", tmp_path / "s", file).err
    assert said.startswith(f"reput: info: reput.store: {tmp_path / 's'}: ")
    again = reput_process("put", tmp_path / "s", file, env={"REPUT_LOG": "info"}).err
    assert re.sub(r"\d+", "N", again) == re.sub(r"\d+", "N", said)
    store = write_log(tmp_path / "q", [MESSAGE])
    ran = reput_process("query", store, "--topic", "T", "--key", "k", env={"REPUT_LOG": "x"})
    assert (ran.code, "REPUT_LOG must be" in one_line(ran)) == (WRONG_USE, True)
    assert "-v, --verbose" in reput("--help").out


def test_a_traceback_that_a_library_logs_as_text_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up(logging.WARNING)
    other = logging.getLogger("library")
    other.error("Traceback (most recent call last):\n  File x\nasyncio.CancelledError: gone\n")
    other.error("Exception in ASGI application\n", exc_info=ValueError("reason"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "reput: asyncio.CancelledError: gone",
        "reput: Exception in ASGI application: ValueError: reason",
    ]
