"""The log of a store cut into cells, by which candidates are counted and dealt out to tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from reput.log.files import CommitLogFile
from reput.lookup.candidates import CandidateRun
from reput.lookup.match_task import MatchTask, RunSlice
from reput.lookup.place import StorePlace

_CELL_BYTES = 16 << 20
_MOST_CELLS = 4096
_LEAST_TASK_CANDIDATES = 1 << 14
_MOST_TASK_CANDIDATES = 1 << 19


class Cells:
    """edges: int64, physical offsets at which cells begin, the last one's end with them."""

    def __init__(self, files: Sequence[CommitLogFile]) -> None:
        total = sum(file.size for file in files)
        step = max(_CELL_BYTES, -(-total // _MOST_CELLS))
        begins = [begin for file in files for begin in range(file.start, file.end, step)]
        edges = sorted({*begins, *(file.end for file in files)})
        self.edges: npt.NDArray[np.int64] = np.array(edges, np.int64)
        self._files = files
        starts = np.array([file.start for file in files])
        place = np.searchsorted(starts, self.edges[:-1], side="right") - 1
        self._file_of = place.tolist()  # of a cell between two files: that before it

    def tasks(
        self,
        store: StorePlace,
        runs: Iterable[CandidateRun],
        parallelism: int,
        first_number: int,
    ) -> list[MatchTask]:
        """The candidates of all runs, in tasks of about the same size, numbered from `first_number` on."""
        by_cell: dict[int, list[RunSlice]] = defaultdict(list)
        total = 0
        for run in runs:
            bounds = run.bounds.tolist()
            total += bounds[-1] - bounds[0]
            for cell, (start, stop) in enumerate(pairwise(bounds)):
                if start < stop:
                    by_cell[run.first_cell + cell].append(
                        RunSlice(run.path, run.segment, start, stop)
                    )
        share = total // (4 * parallelism) + 1
        share = min(max(share, _LEAST_TASK_CANDIDATES), _MOST_TASK_CANDIDATES)
        tasks: list[MatchTask] = []
        files: dict[CommitLogFile, list[RunSlice]] = defaultdict(list)
        taken = 0
        for cell in sorted(by_cell):
            file = self._files[self._file_of[cell]]
            if file.end <= self.edges[cell]:  # between two files: there is nothing to read
                continue
            files[file] += by_cell[cell]
            taken += sum(part.stop - part.start for part in by_cell[cell])
            if taken >= share:
                tasks.append(_task(first_number + len(tasks), store, files))
                files, taken = defaultdict(list), 0
        if files:
            tasks.append(_task(first_number + len(tasks), store, files))
        return tasks


def _task(number: int, store: StorePlace, files: dict[CommitLogFile, list[RunSlice]]) -> MatchTask:
    parts = tuple((file, tuple(_joined(slices))) for file, slices in files.items())
    return MatchTask(number, store, parts)


def _joined(slices: list[RunSlice]) -> list[RunSlice]:
    """The same rows; those of one run that follow each other as one slice."""
    joined: dict[str, list[RunSlice]] = defaultdict(list)
    for part in slices:
        of_run = joined[part.path]
        if of_run and of_run[-1].stop == part.start:
            of_run[-1] = of_run[-1]._replace(stop=part.stop)
        else:
            of_run.append(part)
    return [part for of_run in joined.values() for part in of_run]
