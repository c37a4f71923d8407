"""Copies of some archived messages in a new store, and committed offsets of a restored one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.cli.main import main
from reput.errors import UsageError
from reput.format.untrusted_json import parse_java_json
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


def test_some_messages_are_copied_with_their_origin(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    store, copy = golden("orders").path, tmp_path / "copy"
    reput.archive(store, place, with_last=True)
    report = reput.restore(place, copy, topics=["orders"], keys=["customer-48"])
    with reput.open_store(store) as before, reput.open_store(copy) as after:
        expected = {
            one.physical_offset: one for one in before.query("orders", "customer-48").messages
        }
        found = after.query("orders", "customer-48").messages
        assert len(found) == len(expected) == report.messages > 0
        for one in found:
            origin = expected[int(one.properties["REPUT_ORIGIN_OFFSET"])]
            assert one.properties["REPUT_ORIGIN_QUEUE_OFFSET"] == str(origin.queue_offset)
            assert one.properties["REPUT_ORIGIN_STORE"] == place
            assert (one.body, one.keys, one.tags, one.queue_id) == (
                origin.body, origin.keys, origin.tags, origin.queue_id,
            )  # fmt: skip
            assert (one.born_timestamp, one.born_host) == (origin.born_timestamp, origin.born_host)
            own = {
                name: text for name, text in one.properties.items() if "REPUT_ORIGIN" not in name
            }
            assert own == origin.properties
        assert after.list_queues() == sorted({("orders", one.queue_id) for one in found})
    assert reput.check(copy).is_valid


def test_messages_of_batches_become_messages(golden: Golden, place: str, tmp_path: Path) -> None:
    store, copy = golden("five_batch").path, tmp_path / "copy"
    reput.archive(store, place, with_last=True)
    rows = reput.dataset(store, ["topic", "body"], unwrap_batches=True).to_reader().read_all()
    topics = sorted({topic for topic in rows.column("topic").to_pylist() if "Batch" in topic})
    report = reput.restore(place, copy, topics=topics)
    expected = sorted(
        body for topic, body in zip(*rows.to_pydict().values(), strict=True) if topic in topics
    )
    found = reput.dataset(copy, ["body", "sys_flag"]).to_reader().read_all()
    assert sorted(found.column("body").to_pylist()) == expected
    assert report.messages == len(expected)
    assert reput.check(copy).is_valid


def test_a_copy_needs_an_empty_folder(golden: Golden, place: str, tmp_path: Path) -> None:
    reput.archive(golden("lmq").path, place)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(UsageError, match="is not empty"):
        reput.restore(place, tmp_path / "full", topics=["t"])


def test_committed_offsets_end_where_their_restored_queue_ends(
    golden: Golden, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, restored = tmp_path / "store", tmp_path / "restored"
    copy_store(golden("orders").path, store)
    with reput.open_store(store) as opened:
        topic, queue_id = "orders", 0
        begin, end = (
            opened.min_queue_offset(topic, queue_id),
            opened.max_queue_offset(topic, queue_id),
        )
    with reput.open_store(store) as opened:
        until = opened.get_by_queue(topic, queue_id, begin + (end - begin) // 3).store_timestamp
    offsets = {f"{topic}@early": {str(queue_id): begin + 1}, f"{topic}@late": {str(queue_id): end}}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    reput.archive(store, place)
    assert main(["restore", place, str(restored), "--end", str(until)]) == 0
    with reput.open_store(restored) as opened:
        now = opened.max_queue_offset(topic, queue_id)
    assert now < end
    found = parse_java_json((restored / "config" / "consumerOffset.json").read_bytes())[
        "offsetTable"
    ]
    assert {key: {int(queue): offset for queue, offset in one.items()} for key, one in found.items()} == {
        f"{topic}@early": {queue_id: begin + 1}, f"{topic}@late": {queue_id: now},
    }  # fmt: skip
    assert "1 committed offset beyond the end" in capsys.readouterr().out


def test_the_command_copies(
    golden: Golden, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reput.archive(golden("orders").path, place)
    copy = str(tmp_path / "copy")
    assert main(["restore", place, copy, "--topic", "orders", "--key", "customer-48"]) == 0
    assert capsys.readouterr().out.startswith("Copied ")
