"""Commands and look-ups of golden stores on a real S3 API server: the answers equal those of a local disk."""

import pickle
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click
import pytest

import reput as api
from reput.base.tasks import SerialRunner
from reput.cli.main import cli
from reput.engine.stores.opening import wait_for_log
from reput.errors import StoreNotFoundError
from tests.cli.running import Ran, reput
from tests.golden.sparse import copy_store
from tests.lookup.looking_up import Asked, bulk
from tests.remote.conftest import Pair
from tests.remote.s3_server import upload_whole

Task = TypeVar("Task")
Result = TypeVar("Result")


class SendingRunner(SerialRunner):
    """Pickles each task, as for another process."""

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: Callable[[int, int], None],
    ) -> list[Result]:
        sent = pickle.loads(pickle.dumps(function)), pickle.loads(pickle.dumps(tasks))
        return super().run(*sent, weights, progress)


@pytest.fixture
def environment(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return the environment for commands: the server's address, and credentials."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", pair.options["s3.access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", pair.options["s3.secret_key"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{pair.options['s3.endpoint_override']}")


def _asked(pair: Pair) -> list[tuple[str, str]]:
    rows = dict.fromkeys((query.topic, query.key) for query in pair.golden.queries)
    return [row for row in rows if row[1].isprintable() and not row[1].startswith("-")]


@pytest.mark.slow
@pytest.mark.usefixtures("environment")
def test_commands_print_the_same(pair: Pair) -> None:
    def same(command: str, *more: object) -> Ran:
        here, there = reput(command, pair.golden.path, *more), reput(command, pair.url, *more)
        assert pair.as_local(there.out) == here.out
        assert pair.as_local(there.err) == here.err
        assert there.code == here.code
        return there

    found = [
        same("query", "--topic", topic, "--key", key, "--format", "jsonl").code
        for topic, key in _asked(pair)[:3]
    ]
    assert 0 in found
    last = max(row.physical_offset for row in pair.golden.messages)
    assert same("show", last).code == 0
    assert same("tail", "-n", 5).out
    file = min((pair.golden.path / "commitlog").iterdir()).name
    there = reput("inspect", f"{pair.url}/commitlog/{file}")
    here = reput("inspect", pair.golden.path / "commitlog" / file)
    assert pair.as_local(there.out).split() == here.out.split()


@pytest.mark.usefixtures("environment")
def test_waiting_for_a_log_finds_one_elsewhere(pair: Pair) -> None:
    waits: list[str] = []
    assert wait_for_log(pair.url, lambda: False, lambda: waits.append("waits"))
    assert not waits
    with pytest.raises(StoreNotFoundError, match="not a RocketMQ store"):
        wait_for_log(f"{pair.url}/nowhere", lambda: False, lambda: None)


def test_proofs_of_a_store_elsewhere_are_refused_in_one_line() -> None:
    ran = reput("prove", "s3://bucket/store")
    assert ran.code == 2
    assert "s3://bucket/store: IndexFiles can be proved only in a local store" in ran.err


# Arguments of every command that reads a store, or why the command reads no remote store, or writes.
ANSWERS: dict[str, tuple[str, ...]] = {
    "find": ("LAST",), "query": ("--topic", "TOPIC", "--begin", "2020-01-01"), "show": ("LAST",), "tail": ("-n", "1"),
    "trace": ("--key", "KEY", "--topic", "TOPIC"), "lookup": ("--keys", "KEYS", "--output", "OUT"),
    "fleet": (), "inspect": (), "check": (), "stats": (), "report": ("--output", "OUT.html"),
    "diff": ("HERE",), "rebuild": ("--output", "OUT"), "export": ("OUT",),
}  # fmt: skip
REFUSES: dict[str, tuple[tuple[str, ...], str]] = {
    "prove": ((), "IndexFiles can be proved only in a local store"),
    "recover": ((), "this command needs a store on a local file system"),
    "expire": (("--before", "now"), "this command needs a store on a local file system"),
    "repair": ((), "this command needs a store on a local file system"),
    "put": (("--topic", "T", "--body", "x"), "this command needs a store on a local file system"),
    "archive": (("OUT",), "only local stores can be archived"),
    "erase": (("--output", "OUT", "--key", "k", "--reason", "x"), "can be erased only from local stores"),
}  # fmt: skip
NO_STORE = {"state", "serve", "restore", "compact-table", "help", "warm-up", "completion"}
"""Commands that take a table, an archive or no path; and `state` and `serve`, which have their own tests."""


@pytest.mark.usefixtures("environment")
def test_every_command_reads_a_store_elsewhere_or_says_why_not(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert {*ANSWERS, *REFUSES, *NO_STORE} == set(cli.list_commands(click.Context(cli)))
    query, messages = pair.golden.queries[0], pair.golden.messages
    keys = tmp_path / "keys.csv"
    keys.write_text(f"topic,key\n{query.topic},{query.key}\n")
    names = {
        "TOPIC": query.topic, "KEY": query.key, "HERE": str(pair.golden.path), "KEYS": str(keys),
        "LAST": str(max(row.physical_offset for row in messages)),
    }  # fmt: skip
    for number, (name, given) in enumerate(ANSWERS.items()):
        arguments = [names.get(one, one.replace("OUT", f"{tmp_path}/{number}")) for one in given]
        ran = reput(name, pair.url, *arguments)
        assert ran.code == 0, (name, ran.err)
        assert not any(path.name.startswith("s3:") for path in tmp_path.iterdir()), name
    for name, (given, why) in REFUSES.items():
        ran = reput(name, pair.url, *(one.replace("OUT", f"{tmp_path}/refused") for one in given))
        assert (ran.code, ran.out) == (2, ""), name
        assert ran.err.startswith(f"reput: {pair.url}: "), ran.err
        assert why in ran.err
        assert ran.err.count("\n") == 1


@pytest.mark.usefixtures("environment")
def test_checks_of_a_store_elsewhere_find_the_same(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    damaged = tmp_path / "damaged"
    copy_store(pair.golden.path, damaged)
    file = min((damaged / "commitlog").iterdir())
    data = bytearray(file.read_bytes())
    data[4] ^= 1
    file.write_bytes(data)
    url = upload_whole(damaged, f"damaged-{pair.golden.name}", pair.options)
    for here, there in ((pair.golden.path, pair.url), (damaged, url)):
        for more in ((), ("--quick",), ("--format", "jsonl")):
            expected, found = reput("check", here, *more), reput("check", there, *more)
            assert found.out.replace(there, str(here)) == expected.out
            assert (found.code, found.err) == (expected.code, expected.err)
    assert found.code == 3
    page = tmp_path / "page.html"
    ran = reput("report", "--output", page, url)
    assert ran.code == 3, ran.err
    assert url in page.read_text()
    assert not list(temporary.iterdir())


def test_datasets_and_exports_take_the_options_of_a_store_elsewhere(
    pair: Pair, tmp_path: Path
) -> None:
    here = api.dataset(pair.golden.path).to_table()
    there = api.dataset(pair.url, storage_options=pair.options).to_table()
    columns = [name for name in here.column_names if name != "store"]
    assert there.select(columns) == here.select(columns)
    for name in ("table", "lines.jsonl"):
        report = api.export(
            pair.url, tmp_path / name, to="jsonl" if name.endswith("jsonl") else "parquet",
            storage_options=pair.options, runner="processes" if name == "table" else "auto",
        )  # fmt: skip
        assert report.rows == here.num_rows


def test_look_ups_find_the_same_in_tasks_that_are_sent(pair: Pair, tmp_path: Path) -> None:
    asked: list[Asked] = [(*row, None, None) for row in _asked(pair)[:200]]
    asked.append(("no-such-topic", "no-such-key", None, None))
    here = bulk(tmp_path / "here", [pair.golden.path], asked)
    there = bulk(tmp_path / "there", [pair.url], asked, None, pair.options, SendingRunner())
    assert any(found.offsets for found in here)
    assert there == here
