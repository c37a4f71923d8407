"""Commands and look-ups of golden stores on a real S3 API server: they answer as on a local disk."""

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

import reput as api
from reput.errors import StoreNotFoundError
from reput.log.waiting import wait_for_log
from reput.tasks import SerialRunner
from tests.cli.running import Ran, reput
from tests.lookup.looking_up import Asked, bulk
from tests.remote.conftest import Pair

Task = TypeVar("Task")
Result = TypeVar("Result")


class SendingRunner(SerialRunner):
    """Runs each task as another process would get it."""

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
    """What tells commands where the server is, and who asks."""
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
    assert "s3://bucket/store: IndexFiles are proved only on a local file system" in ran.err


@pytest.mark.usefixtures("environment")
def test_checks_of_a_store_elsewhere_are_refused_in_one_line(pair: Pair, tmp_path: Path) -> None:
    for command in (["check"], ["report", "--output", tmp_path / "page.html"]):
        ran = reput(*command, pair.url)
        assert ran.code == 2
        assert f"{pair.url}: a store is checked only on a local file system" in ran.err


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
