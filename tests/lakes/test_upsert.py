"""A table with one row per key has the messages that a compacted topic keeps, even if exports are killed."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.base.tasks import SerialRunner
from reput.engine.five.compacted import CompactedLog, compacted_queues
from reput.errors import StoreAccessError, UsageError
from reput.format.commit_log import MessageExt, decode_located
from reput.testing.builders import MESSAGE, write_log
from reput.wings.lakes import upsert as upserting
from reput.wings.lakes.compaction import compact_destination
from reput.wings.lakes.merging import shaped
from reput.wings.lakes.tables.opening import open_table
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import export, iceberg_table, offsets, read_table
from tests.lakes.test_kills import files_of_table
from tests.slow import examples

LAYOUTS = ("iceberg", "delta")
MOMENTS = ("export", "written", "merge", "pending", "published", "committed", "finished")


def message(key: str, body: bytes = b"x", topic: str = "orders", queue: int = 0) -> MessageExt:
    properties = f"KEYS\x01{key}".encode() if key else b"TAGS\x01t"
    return replace(MESSAGE, topic=topic, queue_id=queue, body=body, properties_bytes=properties)


def write(store: Path, messages: Sequence[MessageExt]) -> Path:
    shutil.rmtree(store, ignore_errors=True)
    return write_log(store, messages, file_bytes=1 << 20)


def kept(messages: Sequence[MessageExt]) -> list[int]:
    """Return the numbers of the messages that compaction keeps, decided one by one as in RocketMQ."""
    newest: dict[tuple[str, int, str], int] = {}
    for number, one in enumerate(messages):
        if keys := one.properties.get("KEYS", ""):
            newest[one.topic, one.queue_id, keys] = number
    return sorted(number for number in newest.values() if messages[number].body)


def upsert(store: Path, out: Path, layout: str, **options: Any) -> Any:
    return export(store, out, layout, incremental=True, upsert_by="key", **options)


def check(out: Path, layout: str, messages: Sequence[MessageExt]) -> None:
    table = read_table(out, layout)
    assert table["queue_offset"].to_pylist() == kept(messages)
    assert table["body"].to_pylist() == [messages[number].body for number in kept(messages)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.every_case
def test_the_newest_message_of_each_key_remains(tmp_path: Path, layout: str) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    messages = [message("a"), message("b"), message("a", b"new"), message("c", b""), message("")]
    first = upsert(write(store, messages), out, layout)
    check(out, layout, messages)
    assert (first.rows, first.rejects, first.superseded) == (2, 1, 0)
    assert first.reasons == {upserting.NO_KEYS: 1}
    messages += [
        message("b", b""), message("a", b"newer"), message("a", topic="other"), message("a", queue=1),
        message("c", b"now"), message("a b"), message("b a"),
    ]  # fmt: skip
    second = upsert(write(store, messages), out, layout)
    check(out, layout, messages)
    assert (second.rows, second.superseded) == (6, 2)
    assert "superseded    2 rows" in str(second)
    assert upsert(store, out, layout).rows == 0
    messages += [message(""), message("unknown", b"")]
    third = upsert(write(store, messages), out, layout)
    assert (third.rows, third.rejects, third.superseded) == (0, 1, 0)
    check(out, layout, messages)
    compact_destination(open_table(str(out), layout), lambda size: SerialRunner())
    messages += [message("a", b"after"), message("c", b"")]
    upsert(write(store, messages), out, layout)
    check(out, layout, messages)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("partition_by", [("topic",), ("topic", "day")])
def test_any_runs_keep_what_compaction_keeps(
    tmp_path: Path, layout: str, partition_by: tuple[str, ...]
) -> None:
    for seed in range(examples(1)):
        chance = random.Random(seed)
        store, out = tmp_path / f"store{seed}", tmp_path / f"out{seed}"
        messages: list[MessageExt] = []
        for number in range(5):
            messages += [
                message(
                    chance.choice(["", *"abcdefgh"]), chance.choice([b"", b"x", b"y" * 9]),
                    chance.choice(["orders", "ä b", "c%d"]), chance.randrange(2),
                )
                for _ in range(chance.randrange(1, 40))
            ]  # fmt: skip
            upsert(
                write(store, messages), out, layout, partition_by=partition_by,
                split_bytes=16 << 10, profile=chance.choice(["safe", "fast"]),
            )  # fmt: skip
            check(out, layout, messages)
            if number == 2:
                compact_destination(open_table(str(out), layout), lambda size: SerialRunner())
                check(out, layout, messages)
        assert len(offsets(read_table(out, layout, rejects=True))) == sum(
            "KEYS" not in one.properties for one in messages
        )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_of_many_commits_keeps_what_one_commit_keeps(tmp_path: Path, layout: str) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    chance = random.Random(1)
    messages = [
        message(chance.choice("abcde"), chance.choice([b"", b"x" * 1000])) for _ in range(300)
    ]
    report = upsert(
        write(store, messages), out, layout,
        split_bytes=16 << 10, commit_every=32 << 10, compact_after=3,
    )  # fmt: skip
    check(out, layout, messages)
    assert report.commits > 3
    assert report.rows - report.superseded == len(kept(messages))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_table_has_what_a_broker_s_compaction_has(
    golden: Callable[[str], GoldenStore], tmp_path: Path, layout: str
) -> None:
    """The table has the newest message per key, also for messages that the broker has not compacted yet."""
    path, out = golden("five_compaction").path, tmp_path / "out"
    topics = tuple({queue.topic for queue in compacted_queues(str(path))})
    export(path, out, layout, incremental=True, upsert_by="key", topics=topics)
    expected, records = set(), 0
    for queue in compacted_queues(str(path)):
        records += sum(1 for _ in CompactedLog(queue))
        for record in CompactedLog(queue).latest():
            one = decode_located(record.data, record.layout)
            expected.add((queue.topic, queue.queue_id, one.properties["KEYS"], one.queue_offset))
    rows = read_table(out, layout).select(["topic", "queue_id", "keys", "queue_offset"])
    found = {
        (row["topic"], row["queue_id"], " ".join(row["keys"]), row["queue_offset"])
        for row in rows.to_pylist()
    }
    assert found == expected
    assert len(rows) == len(expected) > 0
    messages = reput.dataset(path, ["topic"], topic=list(topics)).count_rows()
    assert len(expected) < records < messages


def killed_at(moment: str, store: Path, out: Path, layout: str) -> None:
    """Export in a new process that kills itself."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.lakes.test_upsert", moment, str(store), str(out), layout],
        cwd=Path(__file__).parents[2], capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


def die_at(moment: str) -> Callable[[str, int, int], None]:
    def die(phase: str, done: int, total: int) -> None:
        if phase == moment and done:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_run_again(tmp_path: Path, layout: str, moment: str) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    messages = [message(key) for key in "abcabc"] + [message("")]
    for more in ([], [message("a", b"new"), message("b", b""), message("d"), message("")]):
        messages += more
        killed_at(moment, write(store, messages), out, layout)
    upsert(store, out, layout)
    check(out, layout, messages)
    assert len(read_table(out, layout, rejects=True)) == 2
    named = files_of_table(out, layout)
    live = [
        path
        for path in out.rglob("*.parquet")
        if "_delta_log" not in path.parts
    ]  # fmt: skip
    assert len(live) >= named


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_cannot_be_copied_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    messages = [message("a"), message("b"), message("c")]
    upsert(write(store, messages), out, layout)
    write(store, [*messages, message("a", b"new")])
    whole = shaped
    monkeypatch.setattr(upserting, "shaped", lambda rows, schema: whole(rows.slice(1), schema))
    with pytest.raises(StoreAccessError, match="nothing was committed"):
        upsert(store, out, layout)
    check(out, layout, messages)


def test_rows_of_another_writer_are_replaced_if_they_can_be(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    messages = [message("a")]
    upsert(write(store, messages), out, "iceberg")
    table = iceberg_table(out)
    table.append(table.scan().to_arrow())
    messages.append(message("a", b"new"))
    assert upsert(write(store, messages), out, "iceberg").superseded == 2
    check(out, "iceberg", messages)
    table = iceberg_table(out)
    with table.update_spec() as spec:
        spec.add_identity("topic")
    table.append(table.scan().to_arrow())
    with pytest.raises(UsageError, match="wrote files with another partition spec"):
        upsert(write(store, [*messages, message("a")]), out, "iceberg")


@pytest.mark.parametrize(
    ("layout", "asked", "reason"),
    [
        ("parquet", {}, "upsert_by needs a local table of layout iceberg or delta"),
        ("delta", {"columns": ("topic", "key")}, "needs the columns store, queue_id, keys"),
        ("delta", {"on_corrupt": "row"}, "damaged ranges have no key"),
        ("delta", {"upsert_by": "id"}, "upsert_by must be 'key', not 'id'"),
    ],
)
def test_what_cannot_be_an_upsert_table(
    tmp_path: Path, layout: str, asked: dict[str, Any], reason: str
) -> None:
    store = write(tmp_path / "store", [message("a")])
    with pytest.raises(UsageError, match=reason):
        export(store, tmp_path / "out", layout, **{"upsert_by": "key", **asked})


def test_a_table_is_of_one_kind(tmp_path: Path) -> None:
    store, out = write(tmp_path / "store", [message("a")]), tmp_path / "out"
    export(store, out, "delta")
    with pytest.raises(UsageError, match="created with another upsert_by"):
        upsert(write(store, [message("a"), message("a")]), out, "delta")


def test_a_table_of_newest_messages_is_not_compared_with_a_log(tmp_path: Path) -> None:
    store, out = write(tmp_path / "store", [message("a"), message("a")]), tmp_path / "out"
    upsert(store, out, "delta")
    with pytest.raises(UsageError, match="only the newest message of each key"):
        reput.diff(store, out)


if __name__ == "__main__":
    moment, store_path, out_path, chosen = sys.argv[1:]
    upsert(Path(store_path), Path(out_path), chosen, progress=die_at(moment))
