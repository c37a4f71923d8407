"""Measure what the driver of each operation costs for stores that no test could fill.

`python -m tests.growth.simulated [FILES [STORES]]` prints a table.

A simulated store has the names and sizes of a large one, and is sparse: each log file of 1 GiB begins with the messages
of a few queues, then a blank record fills it. Each queue has one entry, and each IndexFile the items of its log files.
So the store is valid, and every operation is the real one. What tasks do is not counted, because a cluster does it.
Each operation runs in a process of its own, whose largest memory is that of the operation.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import reput
from benchmarks.many_stores import Untimed
from benchmarks.simulated import Size, driver_cost
from reput.engine.check.run import check_store
from reput.engine.lookup.arrow import find
from reput.engine.lookup.keys import Keys
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from reput.format.commit_log import MessageExt, encode, encode_blank
from reput.format.consume_queue import ConsumeQueueEntry, encode_entry
from reput.format.file_names import (
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    offset_file_name,
)
from reput.format.host import Host
from reput.format.index_file import (
    IndexHeader,
    IndexItem,
    encode_header,
    encode_item,
    file_bytes,
    index_key,
    item_position,
    key_hash,
    slot_position,
)
from reput.format.java_string import hash_code
from reput.wings.archive.archiver import archive_store
from reput.wings.fleet.survey import survey
from reput.wings.lakes.driver import export_sources
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.request import ExportRequest
from reput.wings.lakes.tables.opening import open_table

FILES, QUEUES, INDEX_FILES, STORES = 10_000, 20_000, 1_200, 1_000
MOST_MS, MOST_BYTES = 1.0, 1 << 30
"""What the driver may need: milliseconds of processor time for each log file or store, and bytes."""
SLOW = {
    ("prove", "log files"): "reads the log in its own process",
    ("archive", "log files"): "merges the indexes of archived files in its own process",
    ("look-up", "stores"): "opens each store in the driver",
    ("fleet", "stores"): "checks each store in its own process",
}
"""Operations whose process needs more time for each log file or store, each with the reason."""
_LOG_BYTES, _QUEUE_ENTRIES, _SLOTS, _ITEMS = 1 << 30, 300_000, 5_000_000, 20_000_000
_SMALL_BYTES = 1 << 12  # Of each log file in a store whose tasks read all its bytes.
_BEGIN_MS = 1_700_000_000_000
_HOST = Host("127.0.0.1", 10911)


class Simulated(NamedTuple):
    """The size of a store: numbers of log files, queues and IndexFiles, and the size of a log file."""

    files: int
    queues: int
    index_files: int
    log_bytes: int = _LOG_BYTES


class Cost(NamedTuple):
    """The cost of an operation for its driver: processor time, largest memory, and bytes of pickled tasks."""

    seconds: float
    memory: int
    sent: int


def write(path: Path, size: Simulated) -> Path:
    """Write a store of this size: one message for each queue, in its log files in turn."""
    log, index = path / COMMIT_LOG_FOLDER, path / INDEX_FOLDER
    for folder in (log, index):
        folder.mkdir(parents=True)
    per_file = -(-size.queues // size.files)
    for start in range(0, size.files, -(-size.files // size.index_files)):
        stop = min(start + -(-size.files // size.index_files), size.files)
        messages = []
        for file in range(start, stop):
            numbers = range(file * per_file, min((file + 1) * per_file, size.queues))
            messages += _write_log_file(log, file, size.log_bytes, numbers)
        _write_index_file(index, start, messages)
        for message in messages:
            queue = path / CONSUME_QUEUE_FOLDER / message.topic / "0"
            queue.mkdir(parents=True)
            code = hash_code(message.tags or "")
            entry = ConsumeQueueEntry(message.physical_offset, message.size_bytes, code)
            with (queue / offset_file_name(0)).open("wb") as opened:
                opened.write(encode_entry(entry))
                opened.truncate(20 * _QUEUE_ENTRIES)
    newest = _BEGIN_MS + size.files - 1
    (path / CHECKPOINT_FILE).write_bytes(encode_checkpoint(Checkpoint(newest, newest, newest)))
    return path


def _write_log_file(
    folder: Path, file: int, log_bytes: int, numbers: Sequence[int]
) -> list[MessageExt]:
    position, messages = file * log_bytes, []
    with (folder / offset_file_name(position)).open("wb") as opened:
        for number in numbers:
            properties = f"KEYS\x01k{number}\x02UNIQ_KEY\x01{number:032X}".encode()
            message = MessageExt(
                f"T{number}", 0, 0, position, 0, 0, 0, 0, _BEGIN_MS + file, _HOST, _BEGIN_MS + file,
                _HOST, 0, 0, b"body", properties,
            )  # fmt: skip
            record = encode(message)
            opened.write(record)
            messages.append(replace(message, size_bytes=len(record)))
            position += len(record)
        opened.write(encode_blank((file + 1) * log_bytes - position))
        opened.truncate(log_bytes)
    return messages


def _write_index_file(folder: Path, number: int, messages: Sequence[MessageExt]) -> None:
    begin = messages[0].store_timestamp
    items: list[IndexItem] = []
    slots: dict[int, int] = {}
    for message in messages:
        assert message.unique_key is not None
        for key in (message.unique_key, *message.keys):
            value = key_hash(index_key(message.topic, key))
            slot = value % _SLOTS
            items.append(IndexItem(value, message.physical_offset, 0, slots.get(slot, 0)))
            slots[slot] = len(items)
    header = IndexHeader(
        begin, messages[-1].store_timestamp, messages[0].physical_offset,
        messages[-1].physical_offset, len(slots), len(items) + 1,
    )  # fmt: skip
    with (folder / f"{20260101000000000 + number}").open("wb") as opened:
        opened.write(encode_header(header))
        for slot, item in slots.items():
            opened.seek(slot_position(slot))
            opened.write(item.to_bytes(4, "big"))
        opened.seek(item_position(_SLOTS, 1))
        opened.write(b"".join(map(encode_item, items)))
        opened.truncate(file_bytes(_SLOTS, _ITEMS))


def _check(stores: Sequence[Path], _: Path, runner: Untimed) -> None:
    for store in stores:
        assert not list(check_store(store, runner=runner))


def _prove(stores: Sequence[Path], _: Path, runner: Untimed) -> None:
    for store in stores:
        assert not any(file.proof.problems for file in reput.prove(store).files)


def _look_up(stores: Sequence[Path], work: Path, runner: Untimed) -> None:
    keys = Keys.of([(f"T{number}", f"k{number}") for number in range(5)])
    with find(list(map(str, stores)), keys, runner, staging=work) as found:
        assert found.answer.counts().messages == 5 * len(stores)


def _export(stores: Sequence[Path], work: Path, runner: Untimed) -> None:
    table = open_table(str(work / "table"), "parquet")
    sources = open_stores(list(map(str, stores)))
    assert export_sources(sources, table, ExportRequest(), lambda _: runner).rows


def _archive(stores: Sequence[Path], work: Path, runner: Untimed) -> None:
    for number, store in enumerate(stores):
        archive_store(str(store), str(work / str(number)), runner=runner)


def _fleet(stores: Sequence[Path], _: Path, runner: Untimed) -> None:
    for store in stores:
        assert survey(store).log_bytes


def _query(stores: Sequence[Path], _: Path, runner: Untimed) -> None:
    for store in stores:
        with reput.open_store(store) as opened:
            assert opened.query("T0", "k0").messages


OPERATIONS: dict[str, Callable[[Sequence[Path], Path, Untimed], None]] = {
    "query": _query, "check": _check, "prove": _prove, "look-up": _look_up, "archive": _archive,
    "export": _export, "fleet": _fleet,
}  # fmt: skip


def _run(operation: str, work: str, *stores: str) -> Cost:
    """Run an operation, and return its cost. This process must be new."""
    # The first run loads modules and kernels.
    for folder in ("first", "first-work"):
        (Path(work) / folder).mkdir()
    first = write(Path(work) / "first" / "store", Simulated(4, 8, 1, _SMALL_BYTES))
    OPERATIONS[operation]([first], Path(work) / "first-work", Untimed())
    runner = Untimed()
    begun = time.process_time()
    OPERATIONS[operation]([Path(store) for store in stores], Path(work), runner)
    seconds = time.process_time() - begun - runner.seconds
    return Cost(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, runner.sent)


def _rebuild(folder: Path, size: Simulated) -> Cost:
    """Return the cost of a rebuild, whose tasks are simulated: they would read all log files."""
    of_driver = Size(size.files, size.queues, 2 * (size.files << 20) // size.index_files)
    cost = driver_cost(folder, of_driver)
    memory = driver_cost(folder, of_driver, counts=True).memory
    return Cost(cost.seconds, memory, cost.sent)


def measured(operation: str, stores: Sequence[Path], work: Path) -> Cost:
    """Return the cost of an operation in a new process."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "tests.growth.simulated",
        operation,
        str(work),
        *map(str, stores),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{operation}: {result.stderr}")
    return Cost(*json.loads(result.stdout))


def main(files: str = str(FILES), stores: str = str(STORES)) -> int:
    """Print a row for each operation; return 1 if a driver needs too much time or memory."""
    share = int(files) / FILES
    large = Simulated(int(files), int(QUEUES * share), max(int(INDEX_FILES * share), 1))
    is_bad = False
    print(
        "| operation | of | ms for each | memory, MB | sent, bytes for each |\n|---|---|---|---|---|"
    )

    def tell(operation: str, what: str, count: int, cost: Cost) -> None:
        nonlocal is_bad
        each_ms = cost.seconds * 1e3 / count
        is_slow = each_ms > MOST_MS and (operation, what) not in SLOW
        is_bad = is_bad or is_slow or cost.memory > MOST_BYTES
        print(
            f"| {operation} | {count:,} {what} | {each_ms:.2f} | {cost.memory / 1e6:.0f} | {cost.sent / count:,.0f} |",
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="simulated") as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        tell("rebuild", "log files", large.files, _rebuild(folder / "rebuilt", large))
        store = write(folder / "large", large)
        for operation in ("query", "check", "prove", "look-up", "export"):
            tell(operation, "log files", large.files, measured(operation, [store], folder / "work"))
        shutil.rmtree(store)
        small = write(folder / "small", large._replace(log_bytes=_SMALL_BYTES))
        tell("archive", "log files", large.files, measured("archive", [small], folder / "work"))
        shutil.rmtree(small)
        # Written one by one: a copy of a sparse file has all its zeros.
        shape = Simulated(4, 8, 1, _SMALL_BYTES)
        many = [write(folder / "stores" / str(number), shape) for number in range(int(stores))]
        for operation in ("look-up", "export", "fleet"):
            tell(operation, "stores", len(many), measured(operation, many, folder / "work"))
    return int(is_bad)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in OPERATIONS:
        print(json.dumps(_run(*sys.argv[1:])))
    else:
        sys.exit(main(*sys.argv[1:]))
