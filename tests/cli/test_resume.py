"""Commands over several stores that are killed and continued with `--resume FILE`."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import reput as library
from reput import Message
from reput.cli.main import FOUND, WRONG_USE
from reput.engine.stores import over_stores
from reput.io.lock import locked
from tests.cli.running import one_line, reput
from tests.small import SMALL

_STORES = 5
_KILLED = """
import os, signal, sys
from reput.cli.main import main
from reput.engine.stores.journal import Journal
append, left = Journal._append, int(sys.argv[1])
def dying(self, line):
    global left
    left -= 1
    if left < 0:
        append(self, line)
        os.truncate(self._path, self._end - len(line) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    append(self, line)
Journal._append = dying
main(sys.argv[2:])
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    text = ""
    for n in range(_STORES):
        with library.open_store(tmp_path / f"s{n}", mode="rw", config=SMALL) as store:
            store.put_many(Message("orders", b"%d" % n, keys=[f"k{n}"]) for _ in range(n + 3))
        text += f'[[store]]\nname = "n{n}"\npath = "s{n}"\n'
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    return path


def _killed(after: int, *arguments: object) -> None:
    """Run a command. Kill it while it writes a line of its resume file, after `after` complete lines."""
    given = [sys.executable, "-c", _KILLED, str(after), *map(str, arguments)]
    ended = subprocess.run(given, capture_output=True, timeout=120, env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


def _kept(path: Path) -> list[str]:
    return [json.loads(line)["store"] for line in path.read_text().splitlines()[1:]]


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "checkpoint"
    }


@pytest.mark.parametrize(
    ("command", "after"),
    [
        (["check", "--quick", "--runner", "processes"], 3),
        *(
            pytest.param([name], after, marks=pytest.mark.slow)
            for name, after in {"check": 0, "stats": 2, "prove": 4, "fleet": 5}.items()
        ),
    ],
)
def test_a_killed_command_continues_with_the_stores_that_are_missing(
    fleet: Path, tmp_path: Path, command: list[str], after: int
) -> None:
    kept = tmp_path / "kept.jsonl"
    given = [command[0], "--stores", fleet, *command[1:]]
    _killed(after, *given, "--resume", kept)
    again, whole = reput(*given, "--resume", kept), reput(*given)
    assert (again.code, again.lines[-1]) == (whole.code, whole.lines[-1])
    if command[0] != "fleet":  # whose ages differ
        assert again.out == whole.out
    assert sorted(_kept(kept)) == [f"n{n}" for n in range(_STORES)]


@pytest.mark.parametrize("in_place", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_killed_rebuild_continues(fleet: Path, tmp_path: Path, *, in_place: bool) -> None:
    kept, out = tmp_path / "kept.jsonl", tmp_path / "out"
    given = ["rebuild", "--stores", fleet, "--resume", kept]
    assert reput("rebuild", "--stores", fleet, "--output", tmp_path / "whole").code == FOUND
    if in_place:
        for queue in tmp_path.glob("s*/consumequeue/*/*/*"):
            queue.write_bytes(bytes(queue.stat().st_size))
    else:
        given += ["--output", out]
    _killed(3, *given)
    assert reput(*given).code == FOUND
    for n in range(_STORES):
        expected = _files(tmp_path / "whole" / f"n{n}")
        made = _files(tmp_path / f"s{n}" if in_place else out / f"n{n}")
        assert {name: made[name] for name in expected} == expected
        assert any(name.startswith("index/") for name in expected)
    assert sorted(_kept(kept)) == [f"n{n}" for n in range(_STORES)]


def test_another_output_or_a_deleted_one_is_written_again(fleet: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    given = ["rebuild", "--stores", fleet, "--resume", kept, "--output"]
    assert reput(*given, tmp_path / "a").code == FOUND
    assert reput(*given, tmp_path / "b").code == FOUND
    assert len(list((tmp_path / "b").iterdir())) == _STORES
    shutil.rmtree(tmp_path / "b" / "n3")
    assert reput(*given, tmp_path / "b").code == FOUND
    assert len(list((tmp_path / "b").iterdir())) == _STORES


def test_a_killed_report_continues_and_has_the_page_of_each_store(
    fleet: Path, tmp_path: Path
) -> None:
    kept, page = tmp_path / "kept.jsonl", tmp_path / "cluster.html"
    given = ["report", "--stores", fleet, "--quick", "--output", page, "--resume", kept]
    _killed(3, *given)
    assert not page.exists()
    assert reput(*given).code == FOUND
    pages = tmp_path / "cluster.stores"
    assert len(list(pages.iterdir())) == _STORES
    first = _shown(page)
    assert first >= {"25", *(f"n{n}" for n in range(_STORES))}
    (pages / "2-n1.html").unlink()
    assert reput(*given).code == FOUND
    assert len(list(pages.iterdir())) == _STORES
    assert _shown(page) == first


def _shown(page: Path) -> set[str]:
    """Return the words of the tables and figures of a page. Ages grow, so they are left out."""
    words = re.sub(
        r"<svg.*?</svg>|<style.*?</style>|<[^>]+>", " ", page.read_text(), flags=re.DOTALL
    )
    return {word for word in words.split() if re.fullmatch(r"n\d|25|[5-7]", word)}


def test_answers_belong_to_the_settings_of_their_store_and_to_one_command(
    fleet: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.jsonl"
    given = ["check", "--quick", "--stores", fleet, "--resume", kept]
    assert reput(*given).code == FOUND
    fleet.write_text(fleet.read_text().replace('path = "s0"\n', 'path = "s0"\nlog_paths = ["x"]\n'))
    assert reput(*given).lines[-1].startswith("5 stores: 1 not read, 4 ok")
    with locked(kept, "held"):
        ran = reput(*given)
    assert "another command is using this file" in one_line(ran)
    stores = [library.NamedStore("n", str(tmp_path / "s1"))]
    options = {"secret_key": "swordfish"}
    over_stores(library.check, stores, storage_options=options, resume=tmp_path / "k")
    assert "swordfish" not in (tmp_path / "k").read_text()
    (tmp_path / "k").write_text('{"schema": 1}\n')
    assert reput(*given[:-1], tmp_path / "k").code == WRONG_USE
