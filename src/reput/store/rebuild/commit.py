"""The commit: name the new files, make them durable, swap them in, write `checkpoint`.

A crash before the first swap leaves the old store as it was; one between two swaps leaves a mixture of old and
new folders of the same log, each whole, and the next run makes both new.
"""

from __future__ import annotations

import os
from pathlib import Path

from reput.errors import StoreError
from reput.files.writer import (
    exchange,
    explained,
    make_folder,
    remove_tree,
    sync_folder,
    sync_tree,
    write_durable,
)
from reput.format.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from reput.format.file_names import (
    CHECKPOINT_FILE,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    index_file_names,
)
from reput.store.rebuild.staging import Staging
from reput.store.rebuild.write_files import IndexFileWritten, WriteJob, index_part


def name_index_files(
    job: WriteJob, folder: Path, written: list[IndexFileWritten], now_ms: int
) -> list[Path]:
    """Move the parts into `folder`, by the names a broker sorts them by. Raises StoreAccessError."""
    make_folder(folder)
    paths = []
    ordered = sorted(written)
    names = index_file_names([file.first_timestamp for file in ordered], now_ms)
    for file, name in zip(ordered, names, strict=True):
        path = folder / name
        _rename(index_part(job, file.number), path)
        paths.append(path)
    return paths


def swap_in(output: Path, staging: Staging) -> None:
    """Put each folder of staging.new in its place under `output`, then drop what was there.

    Raises StoreAccessError; the old folders are kept in staging.old until the new ones are in place.
    """
    sync_tree(staging.new)
    make_folder(staging.old)
    for name in (CONSUME_QUEUE_FOLDER, INDEX_FOLDER):
        fresh, place = staging.new / name, output / name
        if not fresh.exists():
            continue
        expected = _sizes(fresh)
        if place.exists():
            exchange(fresh, place)
            _rename(fresh, staging.old / name)
        else:
            _rename(fresh, place)
        sync_folder(output)
        if _sizes(place) != expected:
            raise StoreError(
                f"{place}: changed during the commit; the old files are in {staging.old}"
            )
    remove_tree(staging.old)


def _rename(source: Path, target: Path) -> None:
    with explained(target, "be renamed into place"):
        os.rename(source, target)


def _sizes(folder: Path) -> dict[str, int]:
    return {
        os.path.relpath(os.path.join(parent, name), folder): os.stat(
            os.path.join(parent, name)
        ).st_size
        for parent, _, names in os.walk(folder)
        for name in names
    }


def write_checkpoint(
    output: Path, staging: Staging, last_timestamp: int | None, index_timestamp: int | None
) -> Checkpoint:
    """Write a checkpoint with which a broker keeps the rebuilt files, after a clean end and after a crash.

    last_timestamp   of the log's last message, None when ConsumeQueues were not rebuilt
    index_timestamp  the latest end of any IndexFile, None when they were not rebuilt: after a crash the broker
                     deletes every IndexFile that ends later than this (IndexService.load, 4.9.3)
    What was not rebuilt keeps its old value.
    """
    path = output / CHECKPOINT_FILE
    old = _old_checkpoint(path)
    checkpoint = Checkpoint(
        old.physic_msg_timestamp if last_timestamp is None else last_timestamp,
        old.logics_msg_timestamp if last_timestamp is None else last_timestamp,
        old.index_msg_timestamp if index_timestamp is None else index_timestamp,
    )
    fresh = staging.new / CHECKPOINT_FILE
    write_durable(fresh, encode_checkpoint(checkpoint))
    with explained(path, "be replaced"):
        os.replace(fresh, path)
    sync_folder(output)
    return checkpoint


def _old_checkpoint(path: Path) -> Checkpoint:
    try:
        return decode_checkpoint(path.read_bytes())
    except (OSError, ValueError):
        return Checkpoint()
