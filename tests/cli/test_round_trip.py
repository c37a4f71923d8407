"""`reput put` restores messages that `reput tail`, `query` and `export` printed as JSON lines."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reput as api
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.log.walk import LogWalk
from reput.format.commit_log import SYS_FLAG_STORE_HOST_V6, MessageExt
from tests.cli.running import reput
from tests.golden.stores import GoldenStore
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]
SIZES = (
    "--log-file-size",
    "1MiB",
    "--queue-entries",
    1000,
    "--hash-slots",
    100,
    "--index-items",
    4000,
)


def stored(path: Path) -> Iterator[MessageExt]:
    log = CommitLogReader(StoreLog(path))
    for record in LogWalk(log, log.min_offset):
        yield log.get(record.physical_offset)


def kept(message: MessageExt) -> tuple[object, ...]:
    """Return the parts of a message that do not depend on its store."""
    return (
        message.topic, message.queue_id, message.flag, message.sys_flag & ~SYS_FLAG_STORE_HOST_V6,
        message.born_timestamp, message.born_host, message.reconsume_times,
        message.prepared_transaction_offset, message.body, message.properties_bytes,
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", slow_from(2, ["basic", "tricky", "orders", "timed", "extremes", "git"])
)
def test_a_whole_store_through_a_pipe(golden: Golden, tmp_path: Path, name: str) -> None:
    source = golden(name).path
    command = [sys.executable, "-m", "reput"]
    printing = [*command, "tail", str(source), "--lines", "all", "--format", "jsonl"]
    putting = [*command, "put", str(tmp_path / "new"), *map(str, SIZES)]
    with subprocess.Popen(printing, stdout=subprocess.PIPE) as tail:
        put = subprocess.run(putting, stdin=tail.stdout, capture_output=True, check=False)
    assert (tail.returncode, put.returncode, put.stderr) == (0, 0, b"")
    expected = [kept(message) for message in stored(source)]
    assert [kept(message) for message in stored(tmp_path / "new")] == expected
    assert put.stdout.decode().startswith(f"Put {len(expected):,} messages in ")


def test_an_export(golden: Golden, tmp_path: Path) -> None:
    source, lines = golden("orders").path, tmp_path / "orders.jsonl"
    assert reput("export", source, lines, "--to", "jsonl").code == 0
    assert reput("put", tmp_path / "new", lines, *SIZES).code == 0
    expected = [kept(message) for message in stored(source)]
    assert [kept(message) for message in stored(tmp_path / "new")] == expected
    assert len(expected) == 19_622


def test_an_answer_to_a_query(golden: Golden, tmp_path: Path) -> None:
    lines = tmp_path / "messages.jsonl"
    query = ("query", golden("orders").path, "--topic", "orders", "--key", "customer-65")
    lines.write_bytes(reput(*query, "--format", "jsonl").raw)
    assert reput("put", tmp_path / "new", lines, *SIZES).code == 0
    with api.open_store(golden("orders").path) as store:
        expected = [kept(message) for message in store.query("orders", "customer-65").messages]
    assert [kept(message) for message in stored(tmp_path / "new")] == expected
    assert len(expected) == 14
