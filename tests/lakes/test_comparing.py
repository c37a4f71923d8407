"""A store and an export compared: equal, an older export, a changed store, expired files, names."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.errors import UsageError
from reput.wings.inspect.comparing.difference import Difference, Part, What
from reput.wings.inspect.comparing.tables import diff_export
from reput.wings.lakes.tables.opening import ExportRows, open_export
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore, TornCase
from tests.lakes.exporting import FORMATS, expire, export, grow_to

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]


def compared(store: Path, folder: Path, name: str | None = None) -> Difference:
    return diff_export(str(store), open_export(str(folder)), name)


@pytest.mark.parametrize("layout", FORMATS)
def test_an_export_has_what_its_store_has(golden: Golden, tmp_path: Path, layout: str) -> None:
    store = golden("basic")
    export(store.path, tmp_path / "lake", layout, partition_by=("topic", "day"))
    found = compared(store.path, tmp_path / "lake")
    assert found.is_same
    assert found.equal_messages == len(store.messages)
    assert found.logs[0] == (0, store.messages[-1].physical_offset + store.messages[-1].size)
    assert found.logs[1].end == found.logs[0].end


@pytest.mark.slow
def test_rejected_rows_and_topics_and_times_are_asked_for_as_the_export_was(
    golden: Golden, tmp_path: Path
) -> None:
    store = golden("tricky").path
    export(store, tmp_path / "all", partition_by=("topic",))
    found = compared(store, tmp_path / "all")
    assert found.is_same
    assert found.equal_messages == len(golden("tricky").messages)
    topic = golden("basic").messages[0].topic
    columns = ("physical_offset", "topic", "body")
    export(golden("basic").path, tmp_path / "one", topics=(topic,), columns=columns)
    found = compared(golden("basic").path, tmp_path / "one")
    assert found.is_same
    assert found.equal_messages == sum(row.topic == topic for row in golden("basic").messages)
    assert "the export has no queue_id" in found.notes[0]


def test_an_older_export_lacks_the_messages_after_it(golden: Golden, tmp_path: Path) -> None:
    source = golden("basic")
    middle = source.messages[3000].physical_offset
    grow_to(source.path, tmp_path / "store", middle)
    export(tmp_path / "store", tmp_path / "lake")
    grow_to(source.path, tmp_path / "store", 1 << 40)
    found = compared(tmp_path / "store", tmp_path / "lake")
    missing = len(source.messages) - 3000
    assert found.counts == {(Part.MESSAGE, What.ONLY_IN_A): missing}
    assert found.behind == [missing, 0]
    assert found.examples[0].physical_offset_a == middle
    row = source.messages[3000]
    place = f"{row.topic}, queue {row.queue_id}, queue offset {row.queue_offset}"
    assert found.examples[0].place == place


@pytest.mark.slow
def test_what_expired_is_only_in_the_export(golden: Golden, tmp_path: Path) -> None:
    source = golden("basic")
    store = copy_store(source.path, tmp_path / "store")
    export(store, tmp_path / "lake")
    expire(store, 2)
    begin = int(min(path.name for path in (store / "commitlog").iterdir()))
    gone = sum(row.physical_offset < begin for row in source.messages)
    found = diff_export(str(store), open_export(str(tmp_path / "lake")), store_is_b=True)
    assert found.counts == {(Part.MESSAGE, What.ONLY_IN_A): gone}
    assert found.expired == [gone, 0]


def test_a_changed_message_is_different_in_the_columns_that_changed(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    export(store, tmp_path / "lake")
    row = next(row for row in golden("basic").messages if row.body_crc)
    path = store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[row.physical_offset + 16 + 3] ^= 1  # FLAG
    path.write_bytes(data)
    found = compared(store, tmp_path / "lake")
    assert found.counts == {(Part.MESSAGE, What.DIFFERENT): 1}
    (example,) = found.examples
    assert (example.physical_offset_a, example.detail) == (row.physical_offset, "flag")


@pytest.mark.slow
def test_damage_of_the_store_is_reported(torn: Torn, tmp_path: Path) -> None:
    case = torn("magic_first_lastfile_abort")
    export(case.before, tmp_path / "lake")
    found = compared(case.before, tmp_path / "lake")
    assert found.is_same
    assert [lost.start for lost in found.damage[0]] == [1310720]


@pytest.mark.slow
def test_a_store_is_known_by_its_name_or_by_its_bytes(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    export([store, golden("orders").path], tmp_path / "lake", names=("one", "other"))
    assert compared(store, tmp_path / "lake").is_same
    assert compared(golden("orders").path, tmp_path / "lake", "other").is_same
    with pytest.raises(UsageError, match=r"has no messages of .*; its stores are: one, other"):
        compared(golden("lmq").path, tmp_path / "lake")


def test_a_table_without_physical_offsets_is_refused(golden: Golden, tmp_path: Path) -> None:
    export(golden("basic").path, tmp_path / "lake", columns=("topic", "body"))
    with pytest.raises(UsageError, match="has no column physical_offset"):
        compared(golden("basic").path, tmp_path / "lake")


def test_a_format_that_cannot_be_read_back_is_refused(tmp_path: Path) -> None:
    class WriteOnly:
        name, layout = "lake", "elsewhere"

    with pytest.raises(UsageError, match="layout elsewhere cannot be read back"):
        ExportRows(WriteOnly(), "store", is_only_one=True)  # type: ignore[arg-type]


def test_the_command_compares_either_way(golden: Golden, tmp_path: Path) -> None:
    store, lake = golden("basic").path, tmp_path / "lake"
    export(store, lake)
    for pair in ((store, lake), (lake, store)):
        ran = reput("diff", *pair)
        assert (ran.code, ran.lines[-1]) == (0, "The messages are the same.")
    assert "ConsumeQueue" not in ran.out
    ran = reput("diff", lake, lake)
    assert ran.code == 2
    assert "compare an export with its store" in ran.err
    ran = reput("diff", store, store, "--name", "x")
    assert ran.code == 2
