"""The full check of a store: every record of the log is reachable once by queue and key, by the oracle's rules."""

from collections import Counter
from pathlib import Path

from reput.base.config import StoreConfig
from tests.oracle.comparing import different_queue_files, index_paths
from tests.oracle.consume_queue import ENTRY, write_consume_queues
from tests.oracle.index_file import HEADER, ITEM, key_hash
from tests.oracle.records import Record
from tests.oracle.walk import Walk, read_log, walk

PRE_BLANK_SIZE = 2**31 - 1


def check_store(store: Path, config: StoreConfig) -> Walk:
    """Check that the log has no damage, ConsumeQueues equal the oracle's bytes, and IndexFiles have each key once."""
    found = walk(read_log(store))
    assert found.damage == []
    assert [record.physical_offset for record in found.dispatched] == [
        at for at, _ in found.records
    ]
    queues = write_consume_queues(
        found.dispatched,
        file_bytes=config.queue_file_bytes,
        enable_multi_dispatch=config.enable_multi_dispatch,
        enable_lmq=config.enable_lmq,
    )
    assert different_queue_files(store, queues) == []
    check_index(store, config, found.dispatched)
    return found


def check_what_is_left(store: Path, config: StoreConfig) -> Walk:
    """Check a store like `check_store`, but ignore queue entries of expired messages."""
    found = walk(read_log(store))
    assert found.damage == []
    log_begin = read_log(store)[0][0]
    expected: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = {}
    for record in found.dispatched:
        queue = expected.setdefault((record.topic, record.queue_id), {})
        queue[record.queue_offset] = (
            record.physical_offset, record.total_size, record.tags_code,
        )  # fmt: skip
    there = {}
    for folder in (store / "consumequeue").glob("*/*"):
        entries = queue_entries(folder, config)
        live = {
            position: entry
            for position, entry in entries.items()
            if entry[0] >= log_begin and entry[1] != PRE_BLANK_SIZE
        }
        if live:
            there[folder.parent.name, int(folder.name)] = live
    assert there == expected
    check_index(store, config, found.dispatched, log_begin)
    return found


def queue_entries(folder: Path, config: StoreConfig) -> dict[int, tuple[int, int, int]]:
    """Return all entries of a queue that are not zero, by number."""
    found = {}
    for path in folder.iterdir():
        data = path.read_bytes()
        assert len(data) == config.queue_file_bytes
        for at in range(0, len(data), ENTRY.size):
            if any(data[at : at + ENTRY.size]):
                found[(int(path.name) + at) // ENTRY.size] = ENTRY.unpack_from(data, at)
    return found


def check_index(
    store: Path, config: StoreConfig, records: list[Record], log_begin: int | None = None
) -> None:
    """Check that the index has the entries of the records, in order, and that the chains reach all of them."""
    expected = [
        (key_hash(record.topic, key), record.physical_offset)
        for record in records
        for key in record.index_keys
    ]
    found = []
    paths = index_paths(store)
    for path in paths:
        data = path.read_bytes()
        assert len(data) == config.index_file_bytes
        count = HEADER.unpack_from(data)[5]
        items_at = HEADER.size + 4 * config.hash_slots
        items = [ITEM.unpack_from(data, items_at + ITEM.size * n) for n in range(max(count, 1))]
        assert path == paths[-1] or count == config.index_items
        reached: Counter[int] = Counter()
        used = 0
        for slot in range(config.hash_slots):
            number = int.from_bytes(
                data[HEADER.size + 4 * slot : HEADER.size + 4 * slot + 4], "big"
            )
            used += number > 0
            while number:
                assert items[number][0] % config.hash_slots == slot
                reached[number] += 1
                assert items[number][3] < number
                number = items[number][3]
        assert reached == Counter(range(1, len(items)))
        assert used == HEADER.unpack_from(data)[4]
        if count > 1:
            assert HEADER.unpack_from(data)[3] == items[-1][1]
        found += [(item[0], item[1]) for item in items[1:]]
    if log_begin is not None:
        found = [item for item in found if item[1] >= log_begin]
    assert found == expected
