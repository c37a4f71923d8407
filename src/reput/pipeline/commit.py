"""The commit: name the new files, make them durable, swap them in, write `checkpoint`.

A crash before the first swap leaves the old store as it was; one between two swaps leaves a mixture of old and
new folders of the same log, each whole, and the next run makes both new.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from reput.errors import StoreError
from reput.files.writer import (
    exchange,
    make_folder,
    put_in_place,
    remove_tree,
    rename,
    sync_folder,
    sync_tree,
    write_durable,
)
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CHECKPOINT_FILE,
    CONSUME_QUEUE_FOLDER,
    EXTENSION_FOLDER,
    INDEX_FOLDER,
    index_file_names,
)
from reput.pipeline.staging import Staging
from reput.pipeline.write_files import IndexFileWritten, WriteJob, index_part
from reput.store.facts import facts_of


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
        rename(index_part(job, file.number), path)
        paths.append(path)
    return paths


def swap_in(output: Path, staging: Staging, without: Collection[str] = ()) -> None:
    """Put each folder of staging.new in its place under `output`, then drop what was there, and folders `without`.

    Raises StoreAccessError; the old folders are kept in staging.old until the new ones are in place.
    """
    sync_tree(staging.new)
    make_folder(staging.old)
    for name in (CONSUME_QUEUE_FOLDER, BATCH_QUEUE_FOLDER, EXTENSION_FOLDER, INDEX_FOLDER):
        fresh, place = staging.new / name, output / name
        if not fresh.exists():
            continue
        expected = _sizes(fresh)
        if place.exists():
            exchange(fresh, place)
            rename(fresh, staging.old / name)
        else:
            rename(fresh, place)
        sync_folder(output)
        if _sizes(place) != expected:
            raise StoreError(
                f"{place}: changed during the commit; the old files are in {staging.old}"
            )
    for name in without:
        if (output / name).exists():
            rename(output / name, staging.old / name)
    sync_folder(output)
    remove_tree(staging.old)


def _sizes(folder: Path) -> dict[str, int]:
    return {
        os.path.relpath(os.path.join(parent, name), folder): os.stat(
            os.path.join(parent, name)
        ).st_size
        for parent, _, names in os.walk(folder)
        for name in names
    }


def write_checkpoint(
    output: Path,
    staging: Staging,
    last_timestamp: int | None,
    index_timestamp: int | None,
    *,
    in_rocksdb: bool = False,
) -> Checkpoint:
    """Write a checkpoint with which a broker keeps the rebuilt files, after a clean end and after a crash.

    last_timestamp   of the log's last message, None when ConsumeQueues were not rebuilt
    index_timestamp  the latest end of any IndexFile, None when they were not rebuilt: after a crash the broker
                     deletes every IndexFile that ends later than this (IndexService.load, 4.9.3)
    in_rocksdb       the queues are in RocksDB: a broker leaves their time at what it is
    What was not rebuilt keeps its old value.
    """
    path = output / CHECKPOINT_FILE
    old = facts_of(output).checkpoint
    checkpoint = old
    if last_timestamp is not None:
        checkpoint = checkpoint._replace(physic_msg_timestamp=last_timestamp)
        if not in_rocksdb:
            checkpoint = checkpoint._replace(logics_msg_timestamp=last_timestamp)
    if index_timestamp is not None:
        checkpoint = checkpoint._replace(index_msg_timestamp=index_timestamp)
    fresh = staging.new / CHECKPOINT_FILE
    write_durable(fresh, encode_checkpoint(checkpoint))
    put_in_place(fresh, path)
    sync_folder(output)
    return checkpoint
