"""DLedger logs: a header before each record, which no reader mistakes for something else."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from reput.cli.main import DAMAGED, FOUND
from reput.core.log.sources import StoreLog
from reput.core.log.walk import LogWalk
from reput.engine.messages.tail import LogTail, TailFilter
from reput.errors import StoreError
from reput.format.dledger import LEDGER_HEADER_BYTES, encode_header, is_end_mark, is_header
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.slow import examples
from tests.tables.reading import read

Golden = Callable[[str], GoldenStore]


def test_headers_are_those_of_the_broker(golden: Golden) -> None:
    store = golden("five_dledger")
    files = StoreLog(store.path).list().files
    for number, row in enumerate(store.messages):
        file = next(file for file in files if file.start <= row.physical_offset < file.end)
        position = row.physical_offset - LEDGER_HEADER_BYTES
        data = Path(file.path).read_bytes()[position - file.start :]
        header = encode_header(number, 0, position, row.size)
        assert data.startswith(header)
        assert is_header(data, position)
        assert not is_header(data, position + 1)
    for blank in store.blanks:
        file = next(file for file in files if file.start <= blank.physical_offset < file.end)
        data = Path(file.path).read_bytes()[blank.physical_offset - file.start :]
        assert is_end_mark(data, file.end - blank.physical_offset)


def test_a_walk_may_begin_at_a_record_or_its_header(golden: Golden) -> None:
    store = golden("five_dledger")
    places = [row.physical_offset for row in store.messages]
    with reput.open_store(store.path) as opened:
        for place in (places[7], places[7] - LEDGER_HEADER_BYTES, places[200]):
            walk = LogWalk(opened.commit_log, place)
            found = [record.physical_offset for record in walk]
            assert found == [one for one in places if one >= place]
            assert (walk.damage, walk.at_end) == ([], True)


def test_the_table_has_every_message(golden: Golden) -> None:
    store = golden("five_dledger")
    for split_bytes in (1 << 20, 4000):
        table = read(store.path, ["physical_offset", "topic"], split_bytes=split_bytes)
        assert table["physical_offset"].to_pylist() == [r.physical_offset for r in store.messages]
        assert table["topic"].to_pylist() == [row.topic for row in store.messages]


def test_a_record_that_is_lost_is_found_by_the_check(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_dledger").path, tmp_path / "store")
    assert run("check", str(store)).code == FOUND
    assert run("check", str(store), "--quick").code == FOUND
    path = min((store / "dledger-n0" / "data").iterdir())
    data = bytearray(path.read_bytes())
    row = golden("five_dledger").messages[3]
    data[row.physical_offset : row.physical_offset + row.size] = bytes(row.size)
    path.write_bytes(data)
    checked = run("check", str(store))
    assert checked.code == DAMAGED
    assert f"unreadable_record: {path}: offset {row.physical_offset}" in checked.out


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(data=st.data())
def test_damage_is_reported_or_does_no_harm(golden: Golden, data: st.DataObject) -> None:
    source = golden("five_dledger")
    rows = {row.physical_offset: row.size for row in source.messages}
    path = data.draw(st.sampled_from(sorted((source.path / "dledger-n0" / "data").iterdir())))
    content = path.read_bytes()
    changed = bytearray(content)
    at = data.draw(st.integers(0, len(content) - 1))
    match data.draw(st.sampled_from(["zero", "flip", "cut"])):
        case "zero":
            changed[at : at + 400] = bytes(len(changed[at : at + 400]))
        case "flip":
            changed[at] ^= 1 << data.draw(st.integers(0, 7))
        case _:
            del changed[at:]
    try:
        path.write_bytes(changed)
        with reput.open_store(source.path) as opened:
            end = LogTail(opened, TailFilter())
            found = [m.physical_offset for m in end.last(1000)]
            assert set(found) <= set(rows)
            if len(found) < len(rows):
                assert end.damage
    except StoreError as error:
        assert "\n" not in str(error)  # noqa: PT017
    finally:
        path.write_bytes(content)
