"""Candidates out of one IndexFile: all chains of some parts' keys, walked side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import StoreChangedError, StoreNotFoundError
from reput.files.mapped_file import MappedFile
from reput.format.index_file import (
    HEADER_BYTES,
    ITEM_BYTES,
    decode_header,
    file_bytes,
    item_position,
)
from reput.kernels.index_chains import look_up_keys
from reput.query.bulk.candidates import PART_SHIFT, Candidates, Run, write_run
from reput.query.bulk.key_parts import KeyPart, SortedKeys

_RUN_CANDIDATES = 1 << 21


@dataclass(frozen=True, slots=True)
class IndexTask:
    """Look up parts in the IndexFile of one segment: physical offsets [begin, end) of a store's log."""

    store: int
    segment: int
    path: str
    hash_slots: int
    index_items: int
    begin: int
    end: int
    parts: tuple[tuple[int, KeyPart], ...]

    @property
    def weight(self) -> int:
        return 1 + sum(part.keys for _, part in self.parts)


class IndexFound(NamedTuple):
    """Runs of candidates; numbers (int64) of keys whose chains cannot be believed, of this segment."""

    runs: list[Run]
    store: int
    segment: int
    lost: npt.NDArray[np.int64]


class _Chains(NamedTuple):
    """`newest` is the number of the newest item."""

    slots: npt.NDArray[np.uint32]
    items: npt.NDArray[np.uint32]
    newest: int


def run_index_task(folder: str, edges: npt.NDArray[np.int64], task: IndexTask) -> IndexFound:
    """Safe to run twice, and beside itself. Raises StoreChangedError, StoreAccessError."""
    chains = _open(task)
    runs: list[Run] = []
    lost: list[npt.NDArray[np.int64]] = []
    waiting: list[tuple[int, SortedKeys, Candidates]] = []
    rows = 0

    def flush() -> None:
        path = Path(folder) / f"index-{task.store}-{task.segment}-{task.parts[0][0]}-{len(runs)}"
        found = [(part, keys.batch, candidates) for part, keys, candidates in waiting]
        run = write_run(path, task.store, task.segment, edges, found)
        if run is not None:
            runs.append(run)

    for number, part in task.parts:
        keys = SortedKeys(part.path)
        lost.append(np.empty(0, np.int64))
        done = 0
        room = len(keys.hashes) + (1 << 16)
        while done < len(keys.hashes):
            before = done
            done, hits, broken = _walk(chains, task, keys, done, room)
            if done == before:  # one key has more entries than there was room for
                room *= 2
                continue
            lost[-1] = np.append(lost[-1], _numbers(number, keys, broken))
            waiting.append((number, keys, hits))
            rows += len(hits.offsets)
            if rows > _RUN_CANDIDATES:
                flush()
                waiting, rows = [], 0
    flush()
    return IndexFound(runs, task.store, task.segment, np.concatenate(lost))


def _open(task: IndexTask) -> _Chains:
    try:
        file = MappedFile(task.path)
    except StoreNotFoundError:
        raise StoreChangedError(
            f"{task.path}: was deleted while it was searched; run it again"
        ) from None
    if file.size != file_bytes(task.hash_slots, task.index_items):
        raise StoreChangedError(
            f"{task.path}: changed its size while it was searched; run it again"
        )
    data = np.frombuffer(file.data, np.uint8)
    items_at = item_position(task.hash_slots, 0)
    slots = data[HEADER_BYTES:items_at].view(np.uint32)
    items = data[items_at:].view(np.uint32).reshape(-1, ITEM_BYTES // 4)
    newest = min(decode_header(file.data).next_item, task.index_items) - 1
    return _Chains(slots, items, newest)


def _walk(
    chains: _Chains, task: IndexTask, keys: SortedKeys, start: int, room: int
) -> tuple[int, Candidates, npt.NDArray[np.int64]]:
    """Keys done, counted by different hashes; candidates of those from `start` on; hashes whose chains are broken."""
    hits_key, hits_offset = np.empty(room, np.int32), np.empty(room, np.int64)
    broken = np.zeros(len(keys.hashes), np.uint8)
    done, hits = look_up_keys(
        chains.slots, chains.items, chains.newest, task.begin, task.end, keys.hashes, start,
        hits_key, hits_offset, broken,
    )  # fmt: skip
    whole = hits_key[:hits] < done
    which, rows = keys.rows_of(hits_key[:hits][whole])
    found = Candidates(hits_offset[:hits][whole][which], rows)
    return int(done), found, np.flatnonzero(broken[:done])


def _numbers(part: int, keys: SortedKeys, hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    _, rows = keys.rows_of(hashes)
    numbers: npt.NDArray[np.int64] = keys.batch.column("row").to_numpy()[rows].astype(np.int64)
    return numbers + (part << PART_SHIFT)
