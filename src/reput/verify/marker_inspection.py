"""What the small files of a store hold: checkpoint, abort, lock, the broker's JSON."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from reput.errors import FormatError, StoreAccessError
from reput.files.reader import FileReader
from reput.format.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
from reput.verify.problem import Problem


@dataclass(slots=True)
class CheckpointInspection:
    """Times in ms; 0 where nothing was flushed yet."""

    path: str
    size_bytes: int
    checkpoint: Checkpoint
    kind: str = "checkpoint"
    problems: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class MarkerInspection:
    """`abort`, `lock`, or a file of config/; `meaning` says it in words."""

    path: str
    size_bytes: int
    kind: str
    meaning: str
    problems: list[Problem] = field(default_factory=list)


def inspect_checkpoint(path: str) -> CheckpointInspection:
    """Raises StoreNotFoundError, StoreAccessError, FormatError for a file without three times."""
    with FileReader(path) as reader:
        size = os.stat(path).st_size
        data = reader.read(0, min(size, CHECKPOINT_BYTES))
    try:
        found = CheckpointInspection(path, size, decode_checkpoint(data))
    except ValueError as error:
        raise FormatError(path, len(data), str(error)) from None
    if size != CHECKPOINT_BYTES:
        found.problems.append(Problem(path, min(size, CHECKPOINT_BYTES), f"{size} bytes, not 4096"))
    for field_number, timestamp in enumerate(found.checkpoint):
        if timestamp < 0:
            found.problems.append(
                Problem(path, 8 * field_number, f"time {timestamp} is below zero")
            )
    return found


def inspect_abort(path: str) -> MarkerInspection:
    """Raises StoreAccessError."""
    meaning = "a broker runs on this store, or its last one crashed; the next start recovers"
    return MarkerInspection(path, _size(path), "abort", meaning)


def inspect_lock(path: str) -> MarkerInspection:
    """Raises StoreAccessError."""
    meaning = "locked by a broker while it runs; what the file holds does not matter"
    return MarkerInspection(path, _size(path), "lock", meaning)


def inspect_config(path: str) -> MarkerInspection:
    """Raises StoreAccessError."""
    meaning = "settings or progress of the broker itself, as JSON; no message depends on it"
    return MarkerInspection(path, _size(path), "file of config/", meaning)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise StoreAccessError(f"{path}: cannot be read: {error.strerror}") from error
