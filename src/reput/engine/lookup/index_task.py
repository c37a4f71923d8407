"""Search one part of an index for the keys in several parts of the key table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import BulkHits, BulkSearch
from reput.engine.lookup.candidates import PART_SHIFT, CandidateRun, Candidates, write_run
from reput.engine.lookup.key_parts import KeyPart, SortedKeys
from reput.io import StagedFiles

# A task writes a run (file of candidates) once it has more than this many candidates. The limit bounds its memory.
_RUN_CANDIDATES = 1 << 21


@dataclass(frozen=True, slots=True)
class IndexTask:
    """A task: look up keys in the part of an index that covers one segment of a store's log.

    parts  the parts of the key table to look up: number and files of each
    """

    store: int
    segment: int
    search: BulkSearch
    parts: tuple[tuple[int, KeyPart], ...]

    @property
    def weight(self) -> int:
        return 1 + self.search.weight(sum(part.keys for _, part in self.parts))


class IndexFound(NamedTuple):
    """The result of an IndexTask.

    runs  the files of candidates that the task has written
    lost  int64: the numbers that identify the keys with broken chains (`candidates.PART_SHIFT`)
    """

    runs: list[CandidateRun]
    store: int
    segment: int
    lost: npt.NDArray[np.int64]


def run_index_task(folder: str, edges: npt.NDArray[np.int64], task: IndexTask) -> IndexFound:
    """Run a task. The task may run twice, even at the same time. Raises StoreChangedError, StoreAccessError."""
    runs: list[CandidateRun] = []
    lost = [np.empty(0, np.int64)]
    waiting: list[tuple[int, SortedKeys, Candidates]] = []
    rows = 0

    def flush() -> None:
        name = f"index-{task.store}-{task.segment}-{task.parts[0][0]}-{len(runs)}"
        results = [(part, keys.batch, candidates) for part, keys, candidates in waiting]
        run = write_run(
            StagedFiles.attempt_path(folder, name), task.store, task.segment, edges, results
        )
        if run is not None:
            runs.append(run)

    # `find_each` requests the hashes of the next part only after the results of the previous part. So `asked.keys`
    # always belongs to the current results.
    requests = _Asked(task.parts)
    for place, hits in task.search.find_each(requests):
        number, keys = task.parts[place][0], requests.keys
        lost.append(_numbers(number, keys, hits.broken))
        waiting.append((number, keys, _candidates(keys, hits)))
        rows += len(waiting[-1][2].offsets)
        # Small parts of the key table share a run (file of candidates), so that there are fewer files to read.
        if rows > _RUN_CANDIDATES:
            flush()
            waiting, rows = [], 0
    flush()
    return IndexFound(runs, task.store, task.segment, np.concatenate(lost))


class _Asked:
    """Opens one part of the key table after the other, and yields its key hashes. `keys` are the open part's keys."""

    keys: SortedKeys

    def __init__(self, parts: Sequence[tuple[int, KeyPart]]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[npt.NDArray[np.int32]]:
        for _, part in self._parts:
            self.keys = SortedKeys(part.path)
            yield self.keys.hashes


def _candidates(keys: SortedKeys, hits: BulkHits) -> Candidates:
    which, rows = keys.rows_of(hits.which)
    return Candidates(hits.offsets[which], rows)


def _numbers(part: int, keys: SortedKeys, hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    _, rows = keys.rows_of(hashes)
    numbers: npt.NDArray[np.int64] = keys.batch.column("row").to_numpy()[rows].astype(np.int64)
    return numbers + (part << PART_SHIFT)
