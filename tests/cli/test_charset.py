"""Bodies in other charsets: text with --charset, and bytes without it."""

from pathlib import Path

import pytest

import reput
from reput.cli.main import FOUND, WRONG_USE
from tests.cli.running import one_line
from tests.cli.running import reput as run
from tests.small import SMALL_16K

TEXT = "价格：十二元"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with reput.open_store(tmp_path, "rw", config=SMALL_16K) as opened:
        opened.put(reput.Message("T", TEXT.encode("gb18030"), keys=("k",)))
        opened.put(reput.Message("T", TEXT.encode(), keys=("u",)))
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ("show", "T/0/0"),
        ("query", "--topic", "T", "--key", "k"),
        ("tail", "-n", "2"),
        ("find", "k"),
    ],
)
def test_a_body_is_text_in_its_charset(command: tuple[str, ...], store: Path) -> None:
    name, *rest = command
    ran = run(name, store, *rest, "--charset", "GBK")
    assert ran.code == FOUND
    assert TEXT in ran.out
    ran = run(name, store, *rest)
    assert (TEXT in ran.out) == (name == "tail")  # the second message is UTF-8


def test_a_charset_does_not_outlive_its_command(store: Path) -> None:
    assert TEXT in run("show", store, "T/0/0", "--charset", "gbk").out
    assert TEXT not in run("show", store, "T/0/0").out


def test_a_body_that_is_not_of_the_charset_is_shown_as_bytes(store: Path) -> None:
    ran = run("query", store, "--key", "k", "--charset", "ascii")
    assert f"<{len(TEXT.encode('gb18030'))} bytes>" in ran.out
    ran = run("show", store, "T/0/0", "--charset", "ascii")
    assert TEXT.encode("gb18030")[:4].hex(" ") in ran.out


def test_an_unknown_charset_is_refused(store: Path) -> None:
    ran = run("query", store, "--key", "k", "--charset", "gbx")
    assert ran.code == WRONG_USE
    assert "--charset gbx: unknown; examples are utf-8" in one_line(ran)
