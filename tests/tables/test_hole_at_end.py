"""A record near the log's end whose first bytes are zeros looks like the unwritten rest of the file, and is not."""

from pathlib import Path

import pytest

import reput
from reput import Message, open_store
from reput.errors import CorruptMessageError
from tests.small import SMALL


@pytest.mark.parametrize("keys", [["k"], []], ids=["keys", "no keys"])
@pytest.mark.parametrize("zeros", [8, 64])
def test_messages_behind_zeros_are_not_dropped_in_silence(
    tmp_path: Path, keys: list[str], zeros: int
) -> None:
    path = tmp_path / "store"
    with open_store(path, mode="rw", config=SMALL) as store:
        put = store.put_many(Message("T", b"body %d" % n, keys=keys) for n in range(30))
        offset = put[-4].physical_offset
    file = path / "commitlog" / "00000000000000000000"
    with file.open("r+b") as log:
        log.seek(offset)
        log.write(bytes(zeros))
    with pytest.raises(CorruptMessageError, match="messages from here on are not read"):
        reput.dataset(path).to_table()
    report = reput.export(path, tmp_path / "out", to="parquet")
    assert (report.rows, "1 place" in str(report)) == (26, True)
    assert any(part["physical_offset"] == offset for part in reput.stats(path).as_dict()["damage"])
