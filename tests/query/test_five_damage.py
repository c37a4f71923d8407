"""After any single change to a file of a 5.x store, an error of one line reports it, or all answers are right."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from reput.engine.five.rocksdb_database import RocksDatabase
from reput.errors import FormatError
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.query.five_changes import PATTERNS, Changes

Golden = Callable[[str], GoldenStore]


def changed(golden: Golden, name: str, path: Path, count: int, seed: int) -> Changes:
    made = Changes(golden(name), path / "store", Random(seed))
    made.run(count)
    assert made.asked >= count // 3
    return made


@pytest.mark.every_case
@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_no_change_gives_a_wrong_answer(golden: Golden, name: str, tmp_path: Path) -> None:
    assert changed(golden, name, tmp_path, 4, seed=1).wrong == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_none_of_many_changes_gives_a_wrong_answer(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    made = changed(golden, name, tmp_path, 300, seed=2)
    assert made.wrong == []
    assert made.loud > 0 or name == "five_timer"


def test_a_damaged_block_of_a_database_is_an_error_not_an_end(
    golden: Golden, tmp_path: Path
) -> None:
    """The library's iterators end at a damaged block in the same way as after the last entry."""
    pytest.importorskip("rocksdict")
    folder = copy_store(golden("five_rocksdb").path / "consumequeue", tmp_path / "database")
    database = RocksDatabase(str(folder))
    whole, last = list(database.items(b"")), b"\xff" * 9
    database.close()
    path = max(folder.glob("*.sst"), key=lambda path: path.stat().st_size)
    data = path.read_bytes()
    for at in (100, len(data) // 2):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        damaged = RocksDatabase(str(folder))
        with pytest.raises(FormatError, match="RocksDB cannot read the database: "):
            list(damaged.items(b""))
        found: list[bytes] = []
        with pytest.raises(FormatError, match="RocksDB cannot read the database: "):
            found.extend(damaged.values(b"", last))
        assert len(found) < len(whole)
        damaged.close()
    path.write_bytes(data)
    again = RocksDatabase(str(folder))
    assert [value for _, value in whole] == list(again.values(b"", last))
    again.close()
