"""The staging folder of a rebuild, inside the output, so that both are in one file system.

.reput-rebuild/
  owner           locked while a rebuild runs
  run             the id of the current run; tasks of other runs stop
  <fingerprint>/  scanned splits; the name depends on their inputs, so a killed run can be resumed
  run-<id>/       files of one run; a leftover task of an earlier run writes only to its own folder
    plan/         which task writes which queue entries (plan-of-further-queues/ for queues in a second form)
    parts/        files that are being written (parts-of-further-queues/)
    new/          the folders that the commit swaps in
    old/          the folders that the commit swapped out, until the result is verified
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from posixpath import join
from uuid import uuid4

from reput.base import Result, StoreConfig, Task
from reput.core import CommitLogFile
from reput.errors import StoreChangedError, StoreNotFoundError, explained
from reput.io import DISK, FileReader, StagedFiles, boot_id

STAGING_FOLDER = ".reput-rebuild"
RUN_FILE = "run"
# Raise this number when the format of staged files changes, so that an upgraded reput does not
# reuse old files.
_LAYOUT = 7


class FencedRun:
    """A run whose tasks stop when another rebuild starts in the same place."""

    run: str

    @property
    def place(self) -> str:
        """Return the folder or URL of the staged files."""
        raise NotImplementedError

    def fenced(self, function: Callable[[Task], Result]) -> Callable[[Task], Result]:
        """Wrap a function for tasks, so that it raises StoreChangedError once another run has started."""
        return partial(_of_run, self.place, self.run, function)


@dataclass(frozen=True)
class Staging(FencedRun):
    """The staging folder of one rebuild."""

    folder: Path
    fingerprint: str
    run: str = field(default_factory=lambda: uuid4().hex)
    suffix: str = ""

    @property
    def place(self) -> str:
        return str(self.folder)

    @property
    def own(self) -> Path:
        return self.folder / f"run-{self.run}"

    @property
    def plan(self) -> Path:
        return self.own / f"plan{self.suffix}"

    @property
    def scanned(self) -> Path:
        return self.folder / self.fingerprint

    @property
    def new(self) -> Path:
        return self.own / "new"

    @property
    def parts(self) -> Path:
        return self.own / f"parts{self.suffix}"

    @property
    def old(self) -> Path:
        return self.own / "old"

    def of_further_queues(self) -> Staging:
        """Return the same folder, with another plan and other parts, for queues in a second form."""
        return replace(self, suffix="-of-further-queues")

    @property
    def owner(self) -> Path:
        return self.folder / "owner"

    def create(self) -> None:
        """Create the folder if it does not exist. Raises StoreAccessError.

        A symbolic link is refused: always if this process is root, otherwise if the caller holds the output as an
        anchor (see `reput.io.anchors`), as a rebuild does.

        If this process is root and another user can write in an existing folder, replace the folder by an empty one:
        that user may have forged staged files, and the compiled kernels do not check them.
        """
        if os.geteuid() != 0:
            DISK.create_folder(self.folder)
            return
        with explained(self.folder, "be created"):
            try:
                if DISK.is_own_folder(self.folder):
                    return
                DISK.remove_tree(self.folder)
            except FileNotFoundError:
                pass
            DISK.make_own_folder(self.folder)

    def prepare(self) -> None:
        """Create the folders of this run; delete files of earlier runs that cannot be reused.

        Raises StoreAccessError.
        """
        # Replace the run id first, so that tasks of an earlier run stop before their files are deleted.
        with DISK.replacing(self.folder / RUN_FILE) as attempt:
            DISK.write_durable(attempt, self.run.encode())
        DISK.create_folder(self.scanned)
        for entry in self.folder.iterdir():
            if entry not in (self.scanned, self.owner, self.folder / RUN_FILE):
                DISK.remove_tree(entry)
        for folder in (self.plan, self.parts, self.new):
            DISK.create_folder(folder)

    def prepare_further(self) -> None:
        """Create the folders that `prepare` has not created. Raises StoreAccessError."""
        for folder in (self.plan, self.parts):
            DISK.create_folder(folder)

    def remove(self) -> None:
        DISK.remove_tree(self.folder)


def _of_run(place: str, run: str, function: Callable[[Task], Result], task: Task) -> Result:
    try:
        with StagedFiles.reading(join(place, RUN_FILE)) as path:
            current = FileReader.content_of(path, len(run)).decode(errors="replace")
    except StoreNotFoundError:
        current = ""
    if current != run:
        raise StoreChangedError(
            f"{place}: {'another rebuild' if current else 'no rebuild'} is running there now; this task belongs "
            "to an earlier rebuild and stops"
        )
    return function(task)


def fingerprint(
    files: list[CommitLogFile], stamps: Mapping[int, object], config: StoreConfig, salvage: bool
) -> str:
    """Return a hash of all inputs of a scanned split: the log's files, the settings, and this boot of the machine.

    `stamps` maps the start offset of a file to its stamp (see `reput.io.stamps`). The mapping has only files whose
    stamp changes with every change of the file. For other files, the hash includes a random value: a running broker may
    change such a file without a change of its stamp, so its splits are never reused. Scanned splits are not synced, so
    they survive a killed process, but not a power cut. Therefore the hash includes the boot.
    """
    facts = {
        "layout": _LAYOUT,
        "boot": boot_id(),
        "files": [(file.path, file.start, stamps.get(file.start) or uuid4().hex) for file in files],
        "config": asdict(config),
        "salvage": salvage,
    }
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
