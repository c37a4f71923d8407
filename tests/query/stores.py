"""Common parts of the tests of queries: stores built by the oracle, and the expected answers."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from reput.core.query.answers import QueryResult
from tests.golden.tables import MessageRow
from tests.oracle.consume_queue import write_consume_queues
from tests.oracle.forge import write_store
from tests.oracle.index_file import write_index_files
from tests.oracle.walk import LogListing, read_log, walk

ROLLBACK = 12
Keyed = dict[tuple[str, str], dict[int, int]]


def keyed_messages(messages: Sequence[MessageRow]) -> Keyed:
    """Return (topic, key) to {physical offset: store timestamp}, from a golden store's messages.tsv."""
    found: Keyed = defaultdict(dict)
    for row in messages:
        keys = [key for key in (row.keys or "").split(" ") if key]
        for key in [*([row.uniq_key] if row.uniq_key else []), *keys]:
            if row.sys_flag & ROLLBACK != ROLLBACK:
                found[row.topic, key][row.physical_offset] = row.store_timestamp
    return found


def walked_messages(store: Path) -> Keyed:
    """Return (topic, key) to {physical offset: store timestamp}, from the oracle's walk over a store's log.

    Records that state another offset than their place are left out: they are unreadable.
    """
    found: Keyed = defaultdict(dict)
    for offset, record in walk(read_log(store)).records:
        for key in record.index_keys if record.physical_offset == offset else ():
            found[record.topic, key][offset] = record.store_timestamp
    return found


def expected_offsets(keyed: Keyed, topic: str, key: str, begin: int, end: int) -> list[int]:
    stored = keyed.get((topic, key), {})
    return sorted((o for o, time in stored.items() if begin <= time <= end), reverse=True)


def offsets(result: QueryResult) -> list[int]:
    return [message.physical_offset for message in result.messages]


def build_store(path: Path, files: LogListing, hash_slots: int, index_items: int) -> Path:
    """Build a store from log files, with ConsumeQueues and IndexFiles as a broker would have written them."""
    write_store(path, [(start, bytes(data)) for start, data in files])
    found = walk(files)
    queues = write_consume_queues(
        found.dispatched, file_bytes=600, enable_multi_dispatch=False, enable_lmq=False
    )
    for (topic, queue_id), contents in queues.items():
        folder = path / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True)
        for name, data in contents.items():
            (folder / name).write_bytes(data)
    write_index(path, files, hash_slots, index_items)
    return path


def write_index(path: Path, files: LogListing, hash_slots: int, index_items: int) -> None:
    """Write `path`/index as a broker would have written it for these log files."""
    (path / "index").mkdir(exist_ok=True)
    made = write_index_files(walk(files).dispatched, hash_slots=hash_slots, index_items=index_items)
    for number, file in enumerate(made):
        (path / "index" / f"{20260101000000000 + number}").write_bytes(file.to_bytes())
