"""The staging folder of a rebuild, in the output's file system.

.reput-rebuild/
  owner           locked while a rebuild runs
  run             the id of that run: a task of another one stops
  <fingerprint>/  scanned splits, named by their inputs: a killed run is resumed
  run-<id>/       of this run alone: a task that was cut off while another run began writes nowhere else
    plan/         which task writes which queue entries
    parts/        files that are being written
    new/          the folders that the commit swaps in
    old/          the folders that it swapped out, until the result is verified
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

from reput.config import StoreConfig
from reput.errors import StoreChangedError, StoreNotFoundError
from reput.files.anchors import boot_id, explained, is_own_folder, make_own_folder
from reput.files.reader import read_file
from reput.files.staged import join, reading
from reput.files.writer import make_folder, remove_tree, replacing, write_durable
from reput.log.files import CommitLogFile
from reput.tasks import Result, Task

STAGING_FOLDER = ".reput-rebuild"
RUN_FILE = "run"
# Raise this number when staged files change, so that files of another version are not reused.
_LAYOUT = 6


class FencedRun:
    """A run whose tasks stop once another one works in its place."""

    run: str

    @property
    def place(self) -> str:
        """Return a folder or URL."""
        raise NotImplementedError

    def fenced(self, function: Callable[[Task], Result]) -> Callable[[Task], Result]:
        """Return a function for tasks of this run, which stop if another run has started."""
        return partial(_of_run, self.place, self.run, function)


@dataclass(frozen=True)
class Staging(FencedRun):
    """The folder for unfinished files of one rebuild."""

    folder: Path
    fingerprint: str
    run: str = field(default_factory=lambda: uuid4().hex)

    @property
    def place(self) -> str:
        return str(self.folder)

    @property
    def own(self) -> Path:
        return self.folder / f"run-{self.run}"

    @property
    def plan(self) -> Path:
        return self.own / "plan"

    @property
    def scanned(self) -> Path:
        return self.folder / self.fingerprint

    @property
    def new(self) -> Path:
        return self.own / "new"

    @property
    def parts(self) -> Path:
        return self.own / "parts"

    @property
    def old(self) -> Path:
        return self.own / "old"

    @property
    def owner(self) -> Path:
        return self.folder / "owner"

    def create(self) -> None:
        """Create the folder. Raises StoreAccessError, also for a link.

        As root, delete a folder that another user may write: kernels trust staged files.
        """
        if os.geteuid() != 0:
            make_folder(self.folder)
            return
        with explained(self.folder, "be created"):
            try:
                if is_own_folder(self.folder):
                    return
                remove_tree(self.folder)
            except FileNotFoundError:
                pass
            make_own_folder(self.folder)

    def prepare(self) -> None:
        """Create the folders; delete unusable files of earlier runs. Raises StoreAccessError."""
        with replacing(self.folder / RUN_FILE) as attempt:
            write_durable(attempt, self.run.encode())
        make_folder(self.scanned)
        for entry in self.folder.iterdir():
            if entry not in (self.scanned, self.owner, self.folder / RUN_FILE):
                remove_tree(entry)
        for folder in (self.plan, self.parts, self.new):
            make_folder(folder)

    def remove(self) -> None:
        remove_tree(self.folder)


def _of_run(place: str, run: str, function: Callable[[Task], Result], task: Task) -> Result:
    try:
        with reading(join(place, RUN_FILE)) as path:
            current = read_file(path, len(run)).decode(errors="replace")
    except StoreNotFoundError:
        current = ""
    if current != run:
        raise StoreChangedError(
            f"{place}: {'another rebuild works' if current else 'no rebuild works'} there now; this task is of an "
            "earlier one, and stops"
        )
    return function(task)


def fingerprint(
    files: list[CommitLogFile], stamps: Mapping[int, object], config: StoreConfig, salvage: bool
) -> str:
    """Return a value that changes with every input of a scanned split: the log's files, the settings, this boot.

    `stamps` are the stamps of files that show their changes, by their start.

    Scanned splits are not synced: they survive a killed process, but not a power cut. A log that may change without a
    trace, as under a running broker, gets a new fingerprint each time, so its splits are not reused.
    """
    facts = {
        "layout": _LAYOUT,
        "boot": boot_id(),
        "files": [(file.path, file.start, stamps.get(file.start) or uuid4().hex) for file in files],
        "config": asdict(config),
        "salvage": salvage,
    }
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
