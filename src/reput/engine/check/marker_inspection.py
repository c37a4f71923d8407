"""Inspect a store's small files: checkpoint, abort, lock, the broker's JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from reput.base import Finding, Kind
from reput.errors import FormatError
from reput.format.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
from reput.io import LOCAL, Storage, size_of


@dataclass(slots=True)
class CheckpointInspection:
    """The times that a checkpoint states, in ms; 0 before the first flush."""

    path: str
    size_bytes: int
    checkpoint: Checkpoint
    kind: str = "checkpoint"
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class MarkerInspection:
    """A file `abort` or `lock`, or a file of config/. `meaning` explains it."""

    path: str
    size_bytes: int
    kind: str
    meaning: str
    findings: list[Finding] = field(default_factory=list)


def inspect_checkpoint(path: str, storage: Storage = LOCAL) -> CheckpointInspection:
    """Read a checkpoint.

    Raises StoreNotFoundError, StoreAccessError, and FormatError if the file is too short for its three timestamps.
    """
    size = size_of(path, storage)
    with storage.open(path) as reader:
        data = reader.read(0, min(size, CHECKPOINT_BYTES))
    try:
        found = CheckpointInspection(path, size, decode_checkpoint(data))
    except ValueError as error:
        raise FormatError(path, len(data), str(error)) from None
    if size != CHECKPOINT_BYTES:
        reason, at = f"has {size} bytes, not {CHECKPOINT_BYTES}", min(size, CHECKPOINT_BYTES)
        found.findings.append(Finding(Kind.CHECKPOINT, path, reason, at))
    for field_number, timestamp in enumerate(found.checkpoint.times):
        if timestamp < 0:
            reason = f"time {timestamp} is negative"
            found.findings.append(Finding(Kind.CHECKPOINT, path, reason, 8 * field_number))
    return found


def inspect_abort(path: str, storage: Storage = LOCAL) -> MarkerInspection:
    """Examine the file `abort`. Raises StoreAccessError."""
    meaning = "a broker runs on this store, or its last one crashed; the next start recovers"
    return MarkerInspection(path, size_of(path, storage), "abort", meaning)


def inspect_lock(path: str, storage: Storage = LOCAL) -> MarkerInspection:
    """Examine the file `lock`. Raises StoreAccessError."""
    meaning = "locked by a broker while it runs; its content does not matter"
    return MarkerInspection(path, size_of(path, storage), "lock", meaning)


def inspect_config(path: str, storage: Storage = LOCAL) -> MarkerInspection:
    """Examine the broker's JSON files. Raises StoreAccessError."""
    meaning = "settings or progress of the broker itself, as JSON; no message depends on it"
    return MarkerInspection(path, size_of(path, storage), "file of config/", meaning)
