"""Rebuilds in tests: a store in, and the output compared with the files of a broker or of the oracle."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reput.base.config import StoreConfig
from reput.base.tasks import SerialRunner
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.report import RebuildReport
from reput.engine.rebuild.staging import STAGING_FOLDER
from reput.format.file_names import is_folder_name
from tests.golden.sparse import data_ranges
from tests.golden.stores import GoldenStore
from tests.oracle.consume_queue import write_consume_queues
from tests.oracle.forge import Files, write_store
from tests.oracle.index_file import IndexFile, write_index_files
from tests.oracle.records import Record
from tests.oracle.walk import Walk, walk

SMALL = StoreConfig(queue_entries=7, hash_slots=11, index_items=40)
"""Files so small that a few records fill several."""

_CHUNK_BYTES = 1 << 20


def golden_config(store: GoldenStore) -> StoreConfig:
    return StoreConfig.from_broker_config(store.root / "config.properties")


def rebuild(
    store: Path, output: Path, config: StoreConfig = SMALL, **options: Any
) -> RebuildReport:
    """Rebuild into another folder, in this process."""
    return rebuild_store(SerialRunner(), store, config=config, output=output, **options)


def rebuild_log(
    folder: Path, files: Files, config: StoreConfig = SMALL, **options: Any
) -> RebuildReport:
    """Rebuild a log of bytes into `folder`/out."""
    if not (folder / "store").exists():
        write_store(folder / "store", files)
    return rebuild(folder / "store", folder / "out", config, **options)


@dataclass(frozen=True)
class Expected:
    """The oracle's files for some records: ConsumeQueue files by name, IndexFiles in order."""

    queues: dict[str, bytes]
    index: list[IndexFile]


def expected_files(
    records: Sequence[Record], config: StoreConfig, lost: Sequence[tuple[int, int]] = ()
) -> Expected:
    """Return the files that a rebuild must write: none for queues whose topic is not a valid folder name.

    `lost` are the (physical offset, length) of unreadable parts of the log.
    """
    queues = write_consume_queues(
        records,
        file_bytes=config.queue_file_bytes,
        enable_multi_dispatch=config.enable_multi_dispatch,
        enable_lmq=config.enable_lmq,
        lost=lost,
    )
    named = {
        f"{topic}/{queue_id}/{name}": data
        for (topic, queue_id), files in queues.items()
        if is_folder_name(topic)
        for name, data in files.items()
    }
    index = write_index_files(records, hash_slots=config.hash_slots, index_items=config.index_items)
    return Expected(named, index)


def assert_oracle(output: Path, found: Walk, config: StoreConfig) -> None:
    """Check that `output` has exactly the files that the oracle writes for a walk, byte for byte."""
    lost = [(damage.offset, damage.length) for damage in found.damage]
    assert_files(output, expected_files(found.dispatched, config, lost))


def assert_files(output: Path, expected: Expected) -> None:
    assert queue_files(output) == expected.queues
    assert index_files(output) == [file.to_bytes() for file in expected.index]
    assert_nothing_left(output)


def assert_nothing_left(output: Path) -> None:
    entries = {path.name for path in output.iterdir()}
    assert STAGING_FOLDER not in entries
    assert entries >= {"checkpoint"}


def queue_files(output: Path) -> dict[str, bytes]:
    root = output / "consumequeue"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def index_files(output: Path) -> list[bytes]:
    """Return IndexFiles in the order in which a broker loads them."""
    return [path.read_bytes() for path in sorted((output / "index").iterdir())]


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_golden(output: Path, store: GoldenStore) -> None:
    """Every ConsumeQueue and IndexFile has the broker's bytes; only names of IndexFiles differ."""
    for folder in ("consumequeue", "index"):
        ours, theirs = _paths(output / folder), _paths(store.path / folder)
        if folder == "consumequeue":
            assert [p.relative_to(output) for p in ours] == [
                p.relative_to(store.path) for p in theirs
            ]
        assert len(ours) == len(theirs)
        different = [
            theirs.name for ours, theirs in zip(ours, theirs, strict=True) if not same(ours, theirs)
        ]
        assert different == []
    assert_nothing_left(output)


def _paths(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def same(left: Path, right: Path) -> bool:
    """Return whether two files have the same bytes; holes in both are not read."""
    if left.stat().st_size != right.stat().st_size:
        return False
    with left.open("rb") as one, right.open("rb") as other:
        for path in (left, right):
            for start, end in data_ranges(path):
                for at in range(start, end, _CHUNK_BYTES):
                    one.seek(at)
                    other.seek(at)
                    count = min(_CHUNK_BYTES, end - at)
                    if one.read(count) != other.read(count):
                        return False
    return True


def damage_of(report: RebuildReport) -> list[tuple[int, int]]:
    return [(damage.physical_offset or 0, damage.length) for damage in report.damage]


def assert_log_end(report: RebuildReport, found: Walk) -> None:
    """Check that a rebuild found the same end of the log as the oracle's walk.

    The walk reads nothing after damage in a file. If its log ends with such an unread rest, the rebuild may have found
    records in this rest. Then the rebuild's log ends after the last of them, at any place in the rest.
    """
    last = found.damage[-1] if found.damage else None
    if last is not None and last.offset + last.length == found.end_offset:
        assert last.offset <= report.log_end <= found.end_offset
    else:
        assert report.log_end == found.end_offset


def walked(files: Files) -> Walk:
    return walk(files)
