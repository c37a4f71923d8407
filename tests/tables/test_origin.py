"""The columns that show where a message comes from, and its real topic and queue."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import reput
from reput.errors import UsageError
from reput.testing.builders import MESSAGE, write_log
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
PLACE = ["topic", "queue_id", "real_topic", "real_queue_id"]


@pytest.mark.parametrize("name", ["basic", "tricky", "lmq"])
def test_other_messages_are_meant_for_their_own_queue(golden: Golden, name: str) -> None:
    rows = reput.dataset(golden(name).path, PLACE).to_table()
    own = rows.filter(pc.invert(pc.match_substring_regex(rows["topic"], "^%|SCHEDULE|TRANS")))
    assert len(own) > 50
    assert own["real_topic"].equals(own["topic"])
    assert own["real_queue_id"].equals(own["queue_id"])


def test_delayed_half_and_retried_messages_are_meant_for_the_queue_that_they_name(
    golden: Golden,
) -> None:
    rows = reput.dataset(golden("tricky").path, [*PLACE, "properties"]).to_table().to_pylist()
    found = Counter(
        (row["topic"], row["real_topic"]) for row in rows if row["topic"] != row["real_topic"]
    )
    assert found == {
        ("SCHEDULE_TOPIC_XXXX", "DelayTopic"): 11, ("SCHEDULE_TOPIC_XXXX", "TrickyTopic"): 6,
        ("SCHEDULE_TOPIC_XXXX", None): 2, ("RMQ_SYS_TRANS_HALF_TOPIC", "TranTopic"): 6,
        ("%RETRY%cg", "TrickyTopic"): 1, ("%DLQ%cg", None): 1,
    }  # fmt: skip
    for row in rows:
        if row["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC":
            assert row["real_queue_id"] == int(dict(row["properties"])["REAL_QID"])
        elif row["topic"].startswith("%"):
            assert row["real_queue_id"] is None


def test_brokers_are_named_by_a_pattern_and_filtered_by_it(golden: Golden, tmp_path: Path) -> None:
    for broker in ("a", "b"):
        copy_store(golden("lmq").path, tmp_path / "main" / broker / "store")
    paths = f"{tmp_path}/main/*/store"
    columns = ["store", "broker", "cluster", "physical_offset"]
    messages = reput.dataset(paths, columns, name_from=f"{tmp_path}/{{cluster}}/{{broker}}/store")
    rows = messages.to_table()
    half = len(rows) // 2
    assert rows["broker"].to_pylist() == ["a"] * half + ["b"] * half
    assert set(rows["store"].to_pylist()) == {"main/a", "main/b"}
    assert set(rows["cluster"].to_pylist()) == {"main"}
    for column, value in (("broker", "b"), ("store", "main/b")):
        found = messages.to_table(filter=pc.field(column) == value)
        assert found == rows.slice(half)
    # The missing log of store a causes no error, because a filter for store b excludes it.
    (tmp_path / "main" / "a" / "store" / "commitlog").rename(tmp_path / "gone")
    assert (
        reput.dataset(f"{tmp_path}/main/b/store", columns).to_table()["broker"].null_count == half
    )
    with pytest.raises(UsageError, match="does not match the store"):
        reput.dataset(f"{tmp_path}/main/b/store", name_from="/{broker}")


def test_stores_of_a_fleet_file(golden: Golden, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(
        f'[[store]]\nname = "one"\npath = "{golden("lmq").path}"\nbroker = "b-1"\ncluster = "c"\n'
        f'[[store]]\npath = "{golden("basic").path}"\n'
    )
    messages = reput.dataset(reput.NamedStore.read(fleet), ["store", "broker", "cluster"])
    found = set(map(tuple, (row.values() for row in messages.to_table().to_pylist())))
    assert found == {("one", "b-1", "c"), (str(golden("basic").path), None, None)}
    assert "one" in repr(messages)


def test_damage_has_the_names_of_its_broker(tmp_path: Path) -> None:
    write_log(tmp_path / "a", [MESSAGE] * 3)
    file = next((tmp_path / "a" / "commitlog").iterdir())
    data = bytearray(file.read_bytes())
    data[4:8] = b"oops"
    file.write_bytes(data)
    rows = reput.dataset(
        tmp_path / "a",
        ["broker", "corrupt_reason"],
        on_corrupt="row",
        name_from=f"{tmp_path}/{{broker}}",
    ).to_table()
    assert rows["broker"].to_pylist() == ["a"] * len(rows)
    assert rows["corrupt_reason"].null_count < len(rows)


def test_a_column_that_is_read_alone(golden: Golden) -> None:
    store = golden("basic").path
    alone = [reput.dataset(store, [name]).to_table()[name] for name in PLACE]
    assert pa.table(dict(zip(PLACE, alone, strict=True))) == reput.dataset(store, PLACE).to_table()
