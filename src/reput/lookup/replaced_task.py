"""Candidates by ids that a later one of the same record replaces (5.x): those of a log file, joined with all keys."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import StoreNotFoundError
from reput.findings import Finding
from reput.log.files import CommitLogFile
from reput.log.known_ranges import KnownRanges
from reput.log.reader import CommitLogReader
from reput.lookup.candidates import SCANNED, CandidateRun, write_run
from reput.lookup.key_parts import KeyPart
from reput.lookup.place import StorePlace
from reput.lookup.scan_task import Hits, joined_hits
from reput.lookup.wanted_hashes import wanted_hashes


@dataclass(frozen=True, slots=True)
class ReplacedIdTask:
    """Look for ids in what is known of a file, which a scan finds out if nothing is.

    wanted  path of the keys' hashes, as np.save has written them
    """

    place: StorePlace
    file: CommitLogFile
    wanted: str
    parts: tuple[tuple[int, KeyPart], ...]

    @property
    def store(self) -> int:
        return self.place.number

    @property
    def weight(self) -> int:
        return 1 + self.file.size


class ReplacedFound(NamedTuple):
    """Runs of candidates, and what could not be read."""

    store: int
    runs: list[CandidateRun]
    damage: tuple[Finding, ...] = ()


def run_replaced_task(
    folder: str, edges: npt.NDArray[np.int64], task: ReplacedIdTask
) -> ReplacedFound:
    """Safe to run twice, and beside itself. Raises StoreAccessError, StoreChangedError."""
    try:
        with closing(CommitLogReader(task.place.log)) as log:
            known = KnownRanges(log).learn(task.file, with_ids=True)
    except StoreNotFoundError:  # expired meanwhile
        return ReplacedFound(task.store, [])
    if known.ids is None:
        return ReplacedFound(task.store, [], known.damage)
    hashes = np.frombuffer(known.ids.hashes, np.int32).copy()  # kernels are compiled for these
    entries = wanted_hashes(task.wanted).find(hashes)
    hits = Hits(hashes[entries], np.frombuffer(known.ids.offsets, np.int64)[entries])
    path = Path(folder) / f"replaced-{task.store}-{task.file.start}"
    run = write_run(path, task.store, SCANNED, edges, joined_hits(task.parts, hits))
    return ReplacedFound(task.store, [] if run is None else [run], known.damage)
