"""Common parts of the tests of proofs: a store whose index has some of its messages, and the expected look-ups."""

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from reput.core.index.proofs import Proof, ProofCache, Stamps
from reput.core.index.reader import BrokenChainError, IndexFileReader
from reput.core.log.reader import CommitLogReader
from reput.core.query.message_store import MessageStore
from reput.core.store.store_reader import StoreReader
from reput.engine.compare.proof import prove
from reput.format.index_file import index_key, key_hash
from tests.oracle.forge import LogForge, RecordFields, forge_log
from tests.oracle.index_file import write_index_files
from tests.oracle.records import Record
from tests.oracle.walk import LogListing, read_log, walk

SLOTS, ITEMS = 20, 10_000
ITEMS_AT = 40 + 4 * SLOTS


def messages(count: int, body: bytes = b"body", first: int = 0) -> LogForge:
    """Return a log with this number of messages. Two in three have keys."""
    fields = [
        RecordFields(
            properties={"KEYS": f"k{n} every", "UNIQ_KEY": f"u{n}"} if n % 3 else {"A": "b"},
            body=body,
            store_timestamp=10_000 + 10 * n,
        )
        for n in range(first, first + count)
    ]
    return forge_log(fields, file_bytes=1 << 14)


def prove_and_keep(file: IndexFileReader, log: CommitLogReader) -> Proof:
    """Prove what a file covers, save the proof, and return it."""
    before = Stamps.before(file, log)
    found = prove(file, log)
    assert ProofCache().keep_proof(file, log, found, before) == bool(found.ranges)
    return found


def index_of(
    path: Path, files: LogListing, wanted: Callable[[Record], bool] = lambda _: True,
    slots: int = SLOTS, items: int = ITEMS,
) -> list[Path]:  # fmt: skip
    """Return the files of `path`/index, oldest first, as a broker would have written them for the wanted messages."""
    (path / "index").mkdir(exist_ok=True)
    dispatched = [record for record in walk(files).dispatched if wanted(record)]
    made = []
    for number, file in enumerate(
        write_index_files(dispatched, hash_slots=slots, index_items=items)
    ):
        made.append(path / "index" / f"{20260101000000000 + number}")
        made[-1].write_bytes(file.to_bytes())
    return made


def verdicts(path: Path, slots: int = SLOTS, items: int = ITEMS) -> list[Proof]:
    with StoreReader(path, hash_slots=slots, index_items=items) as store:
        return [prove(file, store.commit_log) for file in store.index.current()]


def keyed_records(path: Path) -> list[tuple[int, Record]]:
    return [
        (offset, record) for offset, record in walk(read_log(path)).records if record.index_keys
    ]


def missed(
    path: Path, found: Sequence[Proof], slots: int = SLOTS, items: int = ITEMS
) -> list[object]:
    """Return (file, offset, key) of messages in a proof's ranges that a look-up of the key misses without an error."""
    wrong: list[object] = []
    records = keyed_records(path)
    with StoreReader(path, hash_slots=slots, index_items=items) as store:
        for file, verdict in zip(store.index.current(), found, strict=True):
            for offset, record in records:
                if any(part.start <= offset < part.stop for part in verdict.ranges):
                    wrong += [
                        (file.name, offset, key)
                        for key in record.index_keys
                        if offset not in reached(file, record.topic, key)
                    ]
    return wrong


class Everything:
    """Contains every offset: after a look-up that reports damage, the log is scanned, which finds every message."""

    def __contains__(self, _: object) -> bool:
        return True


def reached(file: IndexFileReader, topic: str, key: str) -> "set[int] | Everything":
    try:
        return set(file.offsets(key_hash(index_key(topic, key))))
    except BrokenChainError:
        return Everything()


def change_words(path: Path, positions: Sequence[int], random: Random) -> None:
    """Change 32-bit words of a file: some by a small amount, some to any value."""
    data = bytearray(path.read_bytes())
    for at in positions:
        (word,) = struct.unpack_from(">I", data, at)
        other = random.choice(
            (
                0,
                word ^ 1 << random.randrange(32),
                word + 1,
                word - 1,
                random.randrange(1000),
                random.randrange(2**32),
            )
        )
        struct.pack_into(">I", data, at, other & 0xFFFFFFFF)
    path.write_bytes(data)


def with_random_damage(path: Path, count: int, random: Random, items: int) -> Iterator[int]:
    """Damage `count` words of the used part of an IndexFile. Yields their positions."""
    for _ in range(count):
        part = random.choice(
            (
                range(0, 40, 4),
                range(40, ITEMS_AT, 4),
                range(ITEMS_AT + 20, ITEMS_AT + 20 * items, 4),
            )
        )
        yield random.choice(part)


def query_misses(opened: MessageStore, path: Path) -> list[object]:
    """Return messages that a query for one of their keys misses although it reports a complete answer."""
    wrong: list[object] = []
    for offset, record in keyed_records(path):
        for key in record.index_keys:
            found = opened.query(record.topic, key)
            if found.is_complete and offset not in [
                message.physical_offset for message in found.messages
            ]:
                wrong.append((offset, key))
    return wrong
