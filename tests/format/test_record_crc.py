"""The CRC of a whole record in its last property, against the bytes that a 5.3.3 broker wrote."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.cli.main import DAMAGED
from reput.format.commit_log import (
    encode_crc_property,
    record_crc,
    record_crc_ok,
    stated_record_crc,
)
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@given(st.binary(max_size=200), st.integers(0, (1 << 31) - 1))
def test_the_property_comes_back(record: bytes, crc: int) -> None:
    data = record + encode_crc_property(crc)
    assert len(data) == len(record) + 20
    assert stated_record_crc(data) == crc
    whole = record + encode_crc_property(record_crc(data))
    assert record_crc_ok(whole)
    assert record_crc_ok(b"x" + whole) is (record_crc(b"x" + whole) == record_crc(whole))


@given(st.binary(max_size=60))
def test_records_without_it_state_nothing(record: bytes) -> None:
    if b"__CRC32#" not in record:
        assert stated_record_crc(record) is None
        assert record_crc_ok(record)


@pytest.mark.slow
def test_every_record_of_the_broker_matches(golden: Golden, tmp_path: Path) -> None:
    store = golden("five_crc")
    with reput.open_store(store.path) as opened:
        records = [opened.get_record(row.physical_offset) for row in store.messages]
    assert len(records) == 982
    assert all(record.endswith(encode_crc_property(record_crc(record))) for record in records)
    assert "damage:" not in run("check", store.path).out
    copy = copy_store(store.path, tmp_path / "store")
    path = min((copy / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[store.messages[5].physical_offset + 19] ^= 1  # a byte of FLAG, which no body CRC covers
    path.write_bytes(data)
    checked = run("check", copy)
    assert checked.code == DAMAGED
    assert f"body_crc: {path}: offset {store.messages[5].physical_offset}" in checked.out
