"""Stores that are built from a list of messages by the slow oracle, with several files of each kind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from zlib import compress

import reput
from reput.base.config import StoreConfig
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from tests.oracle.appended import appended
from tests.oracle.consume_queue import write_consume_queues
from tests.oracle.forge import LogForge, RecordFields, encode_properties, encode_record, write_store
from tests.oracle.records import MAGIC_V2, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tests.oracle.walk import walk
from tests.query.stores import write_index
from tests.rocksdb_queues import delete_queues
from tests.truth.messages import (
    COMPRESSED,
    INNER_BATCH,
    NEED_UNWRAP,
    InnerMessage,
    TrueMessage,
    Truth,
)

LOG_BYTES, QUEUE_BYTES, SLOTS, ITEMS = 1 << 14, 400, 64, 90
_EXPIRED = 3
_IN_BATCH_QUEUES = ("B", "rare")
HALF_TOPIC, SCHEDULE_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"
GROUP = "g-behind"
_BEGIN_MS = 1_700_000_000_000
_COUNT = 170
_RARE = (33, 120)


@dataclass(frozen=True)
class Built:
    """A store and its messages.

    Attributes:
        folder: The folder `store`, and for some stores the folder `archive`.
        earlier: The same store after half of the messages.
        other: A store of the same kind with other messages.
        is_archive: Whether the archive is read, and not the store.
    """

    folder: Path
    earlier: Path
    other: Path
    truth: Truth
    is_archive: bool = False

    @property
    def has_archive(self) -> bool:
        return (self.folder / "archive").is_dir()

    def opened(self, folder: Path) -> str:
        """Return the path to open, in a copy of `folder`."""
        if self.is_archive:
            return str(folder / "archive")
        if self.has_archive:
            return reput.with_archive(folder / "store", folder / "archive")
        return str(folder / "store")


def _plain(random: Random) -> Iterator[RecordFields]:
    """Yield messages of several topics: with and without keys, delayed, retried, in transactions, compressed."""
    time = _BEGIN_MS
    for number in range(_COUNT):
        # The clock is set back twice.
        time += random.choice((0, 1, 3, 10, 60)) if number % 70 != 69 else -90
        topic = random.choices(("A", "B", "%RETRY%g"), (60, 30, 6))[0]
        if number in _RARE:
            topic = "rare"
        properties = {"UNIQ_KEY": f"7F0000010A2B18B4AAC2{number:012X}"}
        if number % 7:
            properties["KEYS"] = f"k{number % 23} order-{number}"
        if number % 3:
            properties["TAGS"] = f"t{number % 3}"
        queue_id, flag, body = number % 3 if topic == "A" else 0, 0, random.randbytes(3) * 40
        if number % 13 == 5:
            body, flag = compress(body * 9), COMPRESSED
        elif number % 29 == 7:
            topic, queue_id = SCHEDULE_TOPIC, 2
            properties |= {"REAL_TOPIC": "A", "REAL_QID": "1", "DELAY": "3"}
        elif number % 31 == 9:
            topic, queue_id = HALF_TOPIC, 0
            properties |= {"REAL_TOPIC": "B", "REAL_QID": "0", "TRAN_MSG": "true"}
        elif number % 31 == 10:
            flag = TRANSACTION_COMMIT
        elif number % 37 == 11:
            flag = TRANSACTION_ROLLBACK
        elif number % 41 == 3:
            properties = {"TAGS": "t1"}
        yield RecordFields(
            topic=topic, queue_id=queue_id, sys_flag=flag, properties=properties, store_timestamp=time,
            born_timestamp=time - 3, body=random.choice((body, body * 3, body * 9)),
        )  # fmt: skip


def _with_light_queues(random: Random) -> Iterator[RecordFields]:
    """Yield the same messages; every second one is also in light queues."""
    ends = {"%LMQ%x": 0, "%LMQ%$A$y": 0}
    for number, fields in enumerate(_plain(random)):
        if number % 2 or fields.topic not in ("A", "B"):
            yield fields
            continue
        lights = list(ends) if number % 4 else ["%LMQ%x"]
        assert isinstance(fields.properties, dict)
        further = {
            "INNER_MULTI_DISPATCH": ",".join(lights),
            "INNER_MULTI_QUEUE_OFFSET": ",".join(str(ends[name]) for name in lights),
        }
        for name in lights:
            ends[name] += 1
        yield replace(fields, properties={**fields.properties, **further})


def _with_batches(records: Iterator[TrueMessage], random: Random) -> Iterator[TrueMessage]:
    """Replace some messages of a batch topic by inner batches, of which some are compressed."""
    for number, message in enumerate(records):
        if message.topic not in _IN_BATCH_QUEUES or message.fields.sys_flag or number % 4:
            yield message
            continue
        inner = tuple(
            InnerMessage(
                f"UNIQ_KEY\x017F0000010A2B18B4AAC3{number:010X}{place:02X}\x02KEYS\x01inner-{number % 17} i{place}\x02",
                random.randbytes(3) * 10,
            )
            for place in range(random.choice((1, 2, 4)))
        )
        body, flag = b"".join(one.encoded() for one in inner), INNER_BATCH | NEED_UNWRAP
        if number % 8:
            body, flag = compress(body), flag | COMPRESSED
        yield TrueMessage(replace(message.fields, body=body, sys_flag=flag), inner)


def _of_five(records: Iterator[RecordFields]) -> Iterator[TrueMessage]:
    """Yield messages as a 5.x broker stores them: some in the second version of records, some with a replaced id."""
    for number, fields in enumerate(records):
        text = encode_properties(fields.properties).decode() + "\x02"
        if number % 11 == 4:
            text += f"UNIQ_KEY\x017F0000010A2B18B4AAC4{number // 22:012X}\x02"
        magic = MAGIC_V2 if number % 5 == 0 else fields.magic
        yield TrueMessage(replace(fields, properties=text, magic=magic))


def _placed(messages: Iterable[TrueMessage]) -> tuple[LogForge, Truth]:
    """Put messages into a log, each with the next queue offset of its queue."""
    forge, ends, placed = LogForge(LOG_BYTES), dict[tuple[object, int], int](), []
    for message in messages:
        fields = message.fields
        place = fields.topic, fields.queue_id
        # Messages of a transaction that is not committed get no queue offset.
        if fields.sys_flag & TRANSACTION_ROLLBACK != TRANSACTION_ROLLBACK:
            fields = replace(fields, queue_offset=ends.get(place, 0))
            ends[place] = fields.queue_offset + max(len(message.inner), 1)
        if message.inner:
            count, first = len(message.inner), fields.queue_offset
            assert isinstance(fields.properties, str)
            text = f"{fields.properties}INNER_NUM\x01{count}\x02INNER_BASE\x01{first}\x02"
            fields = replace(fields, properties=text)
        at = forge.make_room(len(encode_record(fields)))
        fields = replace(fields, physical_offset=at)
        forge.put_bytes(encode_record(fields))
        placed.append(TrueMessage(fields, message.inner))
    return forge, Truth(tuple(placed))


def _write(path: Path, forge: LogForge, truth: Truth, *, light: bool) -> None:
    files = forge.files()
    write_store(path, files)
    queues = write_consume_queues(
        walk(files).dispatched,
        file_bytes=QUEUE_BYTES,
        enable_multi_dispatch=light,
        enable_lmq=light,
    )
    for (topic, queue_id), contents in queues.items():
        folder = path / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True)
        for name, data in contents.items():
            (folder / name).write_bytes(data)
    write_index(path, files, SLOTS, ITEMS)
    newest = max(message.time for message in truth.messages)
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(newest, newest, newest)))
    _write_config(path, truth, {})


def _write_config(path: Path, truth: Truth, attributes: dict[str, str]) -> None:
    topics = {
        name: {
            "topicName": name, "readQueueNums": 3, "writeQueueNums": 3, "perm": 6,
            "attributes": attributes if name in _IN_BATCH_QUEUES else {},
        }
        for name in truth.topics
    }  # fmt: skip
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    offsets: dict[str, dict[str, int]] = {}
    for topic, queue_id in truth.by_queue:
        offsets.setdefault(f"{topic}@{GROUP}", {})[str(queue_id)] = 0
    (path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


Records = Callable[[Random], Iterator[RecordFields]]


Write = Callable[[Path, LogForge, Truth], None]


def _built(folder: Path, messages: Callable[[int], list[TrueMessage]], write: Write) -> Built:
    """Build a store, its earlier state, and another store. `messages` returns the messages of a seed."""
    every = messages(7)
    _, truth = _placed(every)
    for path, some in (
        (folder / "now" / "store", every),
        (folder / "earlier", every[: len(every) // 2]),
        (folder / "other", messages(8)),
    ):
        write(path, *_placed(some))
    return Built(folder / "now", folder / "earlier", folder / "other", truth)


def _four(records: Records = _plain, *, light: bool = False) -> Callable[[Path], Built]:
    def messages(seed: int) -> list[TrueMessage]:
        return list(map(TrueMessage, records(Random(seed))))

    return lambda folder: _built(folder, messages, partial(_write, light=light))


def _in_folders(folder: Path) -> Built:
    """Build a store whose log is spread over two folders."""
    built = _four()(folder)
    for store in (built.folder / "store", built.earlier, built.other):
        for number, path in enumerate(sorted((store / "commitlog").iterdir())):
            target = store / f"commitlog{number % 2 + 1}"
            target.mkdir(exist_ok=True)
            path.rename(target / path.name)
        (store / "commitlog").rmdir()
    return built


def _derived(
    config: StoreConfig, *, in_batches: bool = False, without_mmap: bool = False
) -> Callable[[Path], Built]:
    """Return a function that builds a log of 5.x, whose queues and IndexFiles reput derives."""
    attributes = {"queue.type": "BatchCQ"} if in_batches else {}

    def messages(seed: int) -> list[TrueMessage]:
        found = _of_five(_plain(Random(seed)))
        return list(_with_batches(found, Random(seed)) if in_batches else found)

    def write(path: Path, log: LogForge, truth: Truth) -> None:
        write_store(path, appended(log, Random(3)) if without_mmap else log.files())
        if without_mmap:
            (path / "RocksDBMessageStore").mkdir()
        _write_config(path, truth, attributes)
        reput.rebuild(path, config=config, runner="serial")

    return lambda folder: _built(folder, messages, write)


def _changed(
    build: Callable[[Path], Built], change: Callable[[Path], None]
) -> Callable[[Path], Built]:
    """Return a function that builds stores, and then changes each."""

    def changed(folder: Path) -> Built:
        built = build(folder)
        for store in (built.folder / "store", built.earlier, built.other):
            change(store)
        return built

    return changed


def _with_keys_in_rocksdb(store: Path) -> None:
    """Replace the IndexFiles by the database of keys of a 5.4 broker."""
    reput.rebuild(store, only="index", index="rocksdb", config=_FIVE, runner="serial")
    shutil.rmtree(store / "index")


def _with_separate_database(store: Path) -> None:
    """Move the database of queues into the folder that a 5.5 broker may give it."""
    (store / "consumequeue").rename(store / "consumequeue_rocksdb")


def _with_queues_in_both(store: Path) -> None:
    """Add a database of the same queues to the queues in files."""
    other = store.with_name(f"{store.name}-in-rocksdb")
    reput.rebuild(
        store, only="consumequeue", queues="rocksdb", output=other, config=_FIVE, runner="serial"
    )
    for path in (other / "consumequeue").iterdir():
        path.rename(store / "consumequeue" / path.name)
    shutil.rmtree(other)


def _with_some_queues_in_both(store: Path) -> None:
    """Have topic A in both kinds, B in files only, and the rare topic in RocksDB only."""
    _with_queues_in_both(store)
    shutil.rmtree(store / "consumequeue" / "rare")
    delete_queues(store, "B")


def _archived(folder: Path) -> Built:
    """Build an archive of a whole store."""
    built = _four()(folder)
    reput.archive(built.folder / "store", built.folder / "archive", with_last=True)
    return replace(built, is_archive=True)


def _joined(folder: Path) -> Built:
    """Build a store whose first log files have expired, but are in its archive."""
    built = _four()(folder)
    reput.archive(built.folder / "store", built.folder / "archive")
    for path in sorted((built.folder / "store" / "commitlog").iterdir())[:_EXPIRED]:
        path.unlink()
    return built


_FIVE = StoreConfig(
    commit_log_file_bytes=LOG_BYTES, queue_entries=QUEUE_BYTES // 20, hash_slots=SLOTS, index_items=ITEMS,
    batch_queue_file_bytes=46 * 20, store_version="5.3",
)  # fmt: skip
BUILDERS: dict[str, Callable[[Path], Built]] = {
    "four": _four(),
    "light": _four(_with_light_queues, light=True),
    "folders": _in_folders,
    "batch": _derived(_FIVE, in_batches=True),
    "extension": _derived(replace(_FIVE, extension_files=True, extension_file_bytes=2048)),
    "rocksdb": _derived(replace(_FIVE, queues_in_rocksdb=True)),
    "separate": _changed(_derived(replace(_FIVE, queues_in_rocksdb=True)), _with_separate_database),
    "both": _changed(_derived(_FIVE), _with_queues_in_both),
    "tags": _derived(replace(_FIVE, store_version="5.5")),
    "selective": _changed(_derived(_FIVE), _with_some_queues_in_both),
    "without_mmap": _derived(_FIVE, without_mmap=True),
    "keys": _changed(_derived(_FIVE), _with_keys_in_rocksdb),
    "archive": _archived,
    "joined": _joined,
}
