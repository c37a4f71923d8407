"""A message loses the property that names its light queues. No entry of another message moves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.base.tasks import SerialRunner
from reput.engine.rebuild.driver import rebuild_store
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.walk import walk
from tests.recovery.entries import entries_of, log_paths, read_log
from tests.slow import slow_from
from tests.writer.golden_puts import store_config

Golden = Callable[[str], GoldenStore]
PROPERTY = b"INNER_MULTI_DISPATCH\x01"
LOST_BYTES = 20


def zero_property(store: Path, physical_offset: int, at: int) -> None:
    """Zero 20 bytes of the property, from byte `at` on."""
    (path,) = [
        path
        for path in log_paths(store)
        if int(path.name) <= physical_offset < int(path.name) + path.stat().st_size
    ]
    data = bytearray(path.read_bytes())
    start = data.index(PROPERTY, physical_offset - int(path.name)) + at
    data[start : start + LOST_BYTES] = bytes(LOST_BYTES)
    path.write_bytes(data)


def run(golden: GoldenStore, store: Path, command: str) -> int:
    if command == "rebuild":
        rebuild_store(SerialRunner(), store, config=store_config(golden))
        return 0
    return reput(command, store, "--runner", "serial").code


@pytest.mark.every_case
@pytest.mark.parametrize("command", ["rebuild", "repair"])
@pytest.mark.parametrize("place", slow_from(1, ["40:0", "40:21", "3:0", "200:21", "-1:0", "-2:21"]))
def test_a_lost_property(golden: Golden, tmp_path: Path, command: str, place: str) -> None:
    source = golden("lmq")
    before = entries_of(source.path)
    named = [
        at for at, record in walk(read_log(source.path)).records
        if PROPERTY.decode() in record.properties_string
    ]  # fmt: skip
    number, at = map(int, place.split(":"))
    store = copy_store(source.path, tmp_path / "store")
    zero_property(store, named[number], at)
    # The entries of the message itself may remain, so a repair reports them.
    assert run(source, store, command) in (0, 3)
    after = entries_of(store)
    for queue, entries in before.items():
        moved = [n for n, entry in entries.items() if after.get(queue, {}).get(n) != entry]
        assert all(int.from_bytes(entries[n][:8], "big") == named[number] for n in moved), queue
