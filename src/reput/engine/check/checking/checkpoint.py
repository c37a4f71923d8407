"""Check the checkpoint of a store: its bytes, and its times compared with the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reput.base import Finding, Kind
from reput.errors import FormatError
from reput.format.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
from reput.format.file_names import CHECKPOINT_FILE
from reput.io import LOCAL, Storage, size_of

if TYPE_CHECKING:
    from reput.engine.check.checking.checked_store import CheckedStore


@dataclass(slots=True)
class CheckpointInspection:
    """The times that a checkpoint states, in ms; 0 before the first flush."""

    path: str
    size_bytes: int
    checkpoint: Checkpoint
    kind: str = "checkpoint"
    findings: list[Finding] = field(default_factory=list)


def inspect_checkpoint(path: str, storage: Storage = LOCAL) -> CheckpointInspection:
    """Read a checkpoint.

    Raises StoreNotFoundError, StoreAccessError, and FormatError if the file is too short for its three timestamps.
    """
    size = size_of(path, storage)
    with storage.open(path) as reader:
        data = reader.read(0, min(size, CHECKPOINT_BYTES))
    try:
        inspection = CheckpointInspection(path, size, decode_checkpoint(data))
    except ValueError as error:
        raise FormatError(path, len(data), str(error)) from None
    if size != CHECKPOINT_BYTES:
        reason, at = f"has {size} bytes, not {CHECKPOINT_BYTES}", min(size, CHECKPOINT_BYTES)
        inspection.findings.append(Finding(Kind.CHECKPOINT, path, reason, at))
    for field_number, timestamp in enumerate(inspection.checkpoint.times):
        if timestamp < 0:
            reason = f"time {timestamp} is negative"
            inspection.findings.append(Finding(Kind.CHECKPOINT, path, reason, 8 * field_number))
    return inspection


def checkpoint_findings(store: CheckedStore) -> Iterator[Finding]:
    """Yield findings about the bytes of the checkpoint. Raises StoreAccessError."""
    path = store.path / CHECKPOINT_FILE
    # Do not read the checkpoint of a running broker, which may be rewriting it. Do not follow a link, which may lead
    # out of the store.
    if store.has_checkpoint and not store.is_live and not path.is_symlink():
        try:
            yield from inspect_checkpoint(str(path)).findings
        except FormatError as error:
            yield Finding.of_error(Kind.CHECKPOINT, error)


def checkpoint_missing(store: CheckedStore) -> Iterator[Finding]:
    """Yield a finding if the store has no checkpoint."""
    path = str(store.path / CHECKPOINT_FILE)
    if store.has_checkpoint:
        return
    all_again = "deletes every IndexFile and dispatches the whole log again"
    yield Finding(
        Kind.CHECKPOINT_MISSING, path, "the file is missing",
        cost=f"after a crash a broker {all_again}",
        at_next_start=all_again if store.facts.has_abort else "writes one with zeros",
    )  # fmt: skip


def checkpoint_ahead(store: CheckedStore, latest: int | None) -> Iterator[Finding]:
    """Compare the checkpoint with the store timestamp (ms) of the latest message, and with the end of the log.

    Does nothing if `latest` is None.
    """
    if latest is None or store.is_live:
        return
    checkpoint, log_end = store.facts.checkpoint, store.facts.log.end
    outside = checkpoint.offsets_outside(log_end)
    times = len(checkpoint.times)
    for number, (name, value) in enumerate(checkpoint._asdict().items()):
        if number < times and value > latest:
            reason = f"{name} is {value}, but the last message was stored at {latest}"
        elif name in outside:
            reason = f"{name} is {value}, but the log ends at {log_end}"
        else:
            continue
        yield Finding(
            Kind.CHECKPOINT_AHEAD, str(store.path / CHECKPOINT_FILE), reason, 8 * number,
            cost="after a crash, a broker assumes that files are durable although they may not be",
            at_next_start="trusts it: checks and dispatches again from the last file only"
            if store.facts.has_abort
            else "trusts it, and keeps it until later messages are flushed",
        )  # fmt: skip
        return
