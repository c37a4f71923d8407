"""Find replicas: stores with the same cluster and broker name, confirmed by samples of their logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from reput.base import Finding, Kind
from reput.core import CommitLogFile, OffsetRange, StoreLog, find_store
from reput.engine.stores.named_stores import NamedStore
from reput.errors import ReputError
from reput.io import Storage

_SAMPLES, _SAMPLE_BYTES = 16, 4096


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas among some stores.

    Attributes:
        first: A dict from the name of each replica to the name of its master, which is not itself among the keys.
        differing: Findings about stores with the same cluster and broker name, but different bytes.
    """

    first: dict[str, str]
    differing: tuple[Finding, ...]


def find_replicas(stores: Sequence[NamedStore]) -> Replicas:
    """Find replicas: stores with the same cluster and broker name, and the same bytes in samples of their logs.

    The store with the lowest broker id counts as the master. A store that cannot be read, or whose log does not overlap
    with the master's, is not a replica.
    """
    named = sorted((store for store in stores if store.broker), key=lambda store: store.log_name)
    first: dict[str, str] = {}
    differing: list[Finding] = []
    for _, group in groupby(named, key=lambda store: store.log_name):
        master, *replicas = sorted(group, key=lambda store: store.broker_id or 0)
        log = _log_of(master) if replicas else None
        for replica in replicas:
            theirs = _log_of(replica)
            if log is None or theirs is None:
                continue
            is_equal, differs_at = _compare(log, theirs)
            if differs_at is not None:
                differing.append(differs(replica.path, differs_at, master.name))
            elif is_equal:
                first[replica.name] = master.name
    return Replicas(first, tuple(differing))


def replicas_of(stores: Sequence[NamedStore]) -> dict[str, str]:
    """Find replicas by their settings only. Return the name of each replica's master, by the name of the replica."""
    first: dict[tuple[str, ...], str] = {}
    replicas: dict[str, str] = {}
    for store in sorted(
        (candidate for candidate in stores if candidate.broker),
        key=lambda candidate: candidate.broker_id or 0,
    ):
        if (master := first.setdefault(store.log_name, store.name)) != store.name:
            replicas[store.name] = master
    return replicas


def answered_by(
    stores: Sequence[NamedStore],
    is_complete: Sequence[bool],
    logs: Sequence[OffsetRange | None] = (),
) -> dict[str, str]:
    """Find replicas whose complete answers replace the incomplete answers of other stores.

    Returns a dict from the name of each replaced store to the name of its replica. A slave may lag behind its
    master, so a slave replaces the master only if it has the whole known range of the master's log.

    Args:
        stores: All stores.
        is_complete: For each store, whether its answer is complete.
        logs: The range of each store's log; None if unknown.
    """
    ranges = logs or [None] * len(stores)
    answers: dict[str, str] = {}
    every = list(zip(stores, is_complete, ranges, strict=True))
    for store, has_answered, log in every:
        if has_answered or not store.broker:
            continue
        for replica, is_whole, their_log in every:
            if not is_whole or replica.log_name != store.log_name:
                continue
            can_replace = (replica.broker_id or 0) <= (store.broker_id or 0)
            if log is not None and their_log is not None:
                can_replace |= their_log.start <= log.start and log.stop <= their_log.stop
            if can_replace and not find_replicas([replica, store]).differing:
                answers[store.name] = replica.name
                break
    return answers


def differs(path: str, physical_offset: int, replica: str) -> Finding:
    """Return the finding for a store whose log differs from the log of the store `replica`."""
    detail = f"differs at physical offset {physical_offset} from {replica}, which has the same cluster and broker name"
    return Finding(Kind.REPLICA_DIFFERS, path, detail, physical_offset=physical_offset)


@dataclass(frozen=True, slots=True)
class _Log:
    storage: Storage
    files: tuple[CommitLogFile, ...]

    def read(self, start: int, most: int) -> tuple[bytes, bool]:
        """Return bytes at a physical offset, and whether they lie in the last file, which may still be written."""
        for file in self.files:
            if file.start <= start < file.end:
                with self.storage.open(file.path) as reader:
                    data = reader.read(start - file.start, min(most, file.end - start))
                return data, file is self.files[-1]
        return b"", True


def _log_of(store: NamedStore) -> _Log | None:
    try:
        path, options = store.arguments()
        storage, place = find_store(path, options.get("storage_options"))
        return _Log(storage, tuple(StoreLog(place, storage).list().files))
    except ReputError:
        return None


def _compare(ours: _Log, replica: _Log) -> tuple[bool, int | None]:
    """Return whether the samples are equal, and the physical offset of the first difference."""
    has_equal = False
    try:
        for start in _sampled(ours, replica):
            (first, is_left_last), (right, is_right_last) = (
                log.read(start, _SAMPLE_BYTES) for log in (ours, replica)
            )
            # A new log file is full of zeros, and a replica that lags behind still has them. Ignore zeros at the end.
            written = min(
                _written(first) if is_left_last else len(first),
                _written(right) if is_right_last else len(right),
            )
            first, right = first[:written], right[:written]
            if first != right:
                at = next(
                    n for n, pair in enumerate(zip(first, right, strict=True)) if pair[0] != pair[1]
                )
                return False, start + at
            # Equal zeros prove nothing: new files of different logs are equal.
            has_equal |= _written(first) > 0
    except ReputError:  # The file expired during the comparison, or is unreadable.
        return False, None
    return has_equal, None


def _written(data: bytes) -> int:
    return len(data.rstrip(b"\0"))


def _sampled(ours: _Log, replica: _Log) -> Iterator[int]:
    """Yield physical offsets, evenly spread over the common range of both logs."""
    start = max(log.files[0].start for log in (ours, replica))
    stop = min(log.files[-1].end for log in (ours, replica))
    step = max((stop - start) // _SAMPLES, _SAMPLE_BYTES)
    yield from range(start, stop, step)
