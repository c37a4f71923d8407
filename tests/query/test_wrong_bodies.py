"""An answer with a message whose body was changed reports it."""

from collections.abc import Callable
from pathlib import Path

import reput
from reput.base.findings import Kind
from reput.engine.messages.tail import LogTail, TailFilter
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore


def test_queries_and_tails_name_messages_with_a_wrong_crc(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    rows = [row for row in golden("orders").messages if row.topic == "shipments"]
    last = max(rows, key=lambda row: row.physical_offset)
    store = copy_store(golden("orders").path, tmp_path / "store")
    with reput.open_store(store) as opened:
        (key, *_) = opened.get(last.physical_offset).keys
        assert opened.query("shipments", key).notes == ()
        assert LogTail(opened, TailFilter("shipments")).last(1)
    assert reput.tail(store, 1, topic="shipments").is_complete

    path = max(
        one for one in (store / "commitlog").iterdir() if int(one.name) <= last.physical_offset
    )
    with path.open("r+b") as file:
        file.seek(last.physical_offset - int(path.name) + 8)
        file.write(b"\1\2\3\4")
    note = f"1 message has a body with a wrong CRC: offset {last.physical_offset}."
    with reput.open_store(store) as opened:
        found = opened.query("shipments", key)
        assert found.notes == (note,)
        assert [one.body_crc_ok for one in found].count(False) == 1
        *_, steps = opened.query_steps("shipments", key)
        assert steps.notes == (note,)  # type: ignore[union-attr]
    assert note in str(reput.find([store], key))
    newest = reput.tail(store, 1, topic="shipments")
    assert [one.kind for one in newest.damage] == [Kind.BODY_CRC]
    assert not newest.is_complete
