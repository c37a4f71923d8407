"""Write a copy of a store without the content of erased messages.

The log is written record by record, so bytes that belong to no record become zeros. ConsumeQueues are copied first, so
that entries keep their queue offsets in the rebuild. Then ConsumeQueues and IndexFiles are rebuilt from the new log.
The copy is checked before it gets its name. A killed erasure leaves a hidden folder beside the output. The next
erasure replaces this folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from reput.base import Progress, Runner, SerialRunner, Severity, StoreConfig, silent
from reput.core import BOTH, COMPACTION_LOGS, CommitLogFile
from reput.engine.check import check_store
from reput.engine.rebuild import rebuild_store
from reput.engine.writer import StoreSurvey
from reput.errors import StoreError, UsageError, refused_link
from reput.format.erasure import ChangedFile
from reput.format.file_names import (
    ABORT_COPY_FILE,
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMPACTION_FOLDER,
    CONFIG_FOLDER,
    EPOCH_FILE,
    IDENTITY_FILE,
    INDEX_FOLDER,
    KV_STORE_FOLDER,
    LOCK_FILE,
    OWNER_FILE,
    QUEUE_FOLDERS,
    RECOVERY_POINT_FILE,
    TIMER_LOG_FOLDER,
    TIMER_WHEEL_FILE,
)
from reput.io import DISK, FileReader, FileWriter, Location, TreeEntry, data_runs
from reput.wings.erase.overwriting import Eraser

_COPIED = frozenset(
    {
        CONFIG_FOLDER, CHECKPOINT_FILE, ABORT_COPY_FILE, EPOCH_FILE, IDENTITY_FILE, KV_STORE_FOLDER,
        TIMER_LOG_FOLDER, TIMER_WHEEL_FILE, *QUEUE_FOLDERS,
    }
)  # fmt: skip
"""Parts that are copied. They contain no bodies or keys of messages; only the queues contain hashes of tags.

The rebuild replaces the copied queues. It gives each new entry the queue offset of the old entry for the same message.
"""
_MADE_ANEW = frozenset({INDEX_FOLDER, ABORT_FILE, LOCK_FILE, OWNER_FILE, RECOVERY_POINT_FILE})
_HASHED_BYTES = 4 << 20


def check_source(facts: StoreSurvey, leave_out: Collection[str] = ()) -> None:
    """Raise UsageError if a copy of this store could still contain erased content.

    Raises:
        UsageError: A broker owns the store, or it has parts that may contain copies of messages.
        StoreAccessError.
    """
    if facts.ledger_folders:
        raise UsageError(
            f"{facts.path}: has a DLedger log, so its messages cannot be erased: this replica would "
            f"differ from the others"
        )
    if facts.is_live:
        raise UsageError(f"{facts.path}: a broker or another writer owns this store; stop it first")
    facts.require_certain()
    log = {os.path.basename(folder) for folder in facts.log_folders}
    for name in sorted(_top_names(facts.path)):
        path = os.path.join(facts.path, name)
        if os.path.islink(path) and name not in leave_out:
            raise refused_link(path)
        if name in log | _COPIED | _MADE_ANEW or name in leave_out or name.startswith("."):
            continue
        if name == COMPACTION_FOLDER and not _has_compaction_logs(Path(facts.path)):
            continue
        raise UsageError(
            f"{facts.path}: {name} may contain copies of messages, and reput cannot erase messages "
            f"in {name}; to exclude {name} from the new store, pass leave_out {name}",
            arguments=["leave_out"],
        )


def _top_names(path: str) -> list[str]:
    return os.listdir(path)


def _has_compaction_logs(store: Path) -> bool:
    """Return whether a store has compaction logs (5.x), which contain copies of messages."""
    folder = store / COMPACTION_LOGS
    return folder.is_dir() and any(not entry.is_folder for entry in DISK.tree_entries(folder))


class StoreCopy:
    """Writes the copy of a store.

    Attributes:
        files: The log files that changed.
        left_out: Parts of the store that were not copied.
    """

    def __init__(
        self, facts: StoreSurvey, output: Path, eraser: Eraser, leave_out: Collection[str],
        progress: Progress = silent, runner: Runner | None = None,
    ) -> None:  # fmt: skip
        self._facts, self._output, self._eraser = facts, output, eraser
        self._source = Path(facts.path).absolute()
        self._leave_out = frozenset(leave_out)
        self._new = output.parent / f".{output.name}.reput-erasing"
        self._progress, self._runner = progress, runner or SerialRunner()
        self.files: list[ChangedFile] = []
        self.left_out: list[str] = []

    def write(self, record: Callable[[], None]) -> None:
        """Write and check the copy, call `record` to write the record of the erasure, and then rename the copy.

        Raises:
            UsageError: The output exists.
            StoreChangedError: The store changed during the copy.
            StoreError: The copy is not valid, and was deleted.
            StoreAccessError.
        """
        check_output(self._output, self._source)
        DISK.remove_tree(self._new)
        DISK.create_folder(self._new)
        try:
            self._copy_parts()
            self._copy_log()
            self._rebuild()
            self._check()
            self._finish(record)
        except BaseException:
            DISK.remove_tree(self._new)
            raise

    def _copy_parts(self) -> None:
        for name in sorted(_top_names(str(self._source))):
            path = self._source / name
            if name in self._leave_out:
                self.left_out.append(name)
            elif name in _COPIED or name == COMPACTION_FOLDER:
                if not path.is_dir():
                    DISK.copy_file(path, self._new / name)
                    DISK.sync_file(self._new / name)
                    continue
                DISK.create_folder(self._new / name)
                for entry in DISK.tree_entries(path):
                    self._copy(path, name, entry)

    def _copy(self, folder: Path, name: str, entry: TreeEntry) -> None:
        target = self._new / name / entry.name
        if entry.is_folder:
            DISK.create_folder(target)
        elif entry.name != LOCK_FILE:
            DISK.copy_file(folder / entry.name, target, entry.inode)
            DISK.sync_file(target)

    def _copy_log(self) -> None:
        files = [file for file in self._facts.log.files if file.size]
        total, done = sum(file.size for file in files), 0
        for file in files:
            self._progress("copy", done, total)
            self._copy_log_file(file)
            done += file.size

    def _copy_log_file(self, file: CommitLogFile) -> None:
        path = Path(file.path).absolute()
        if not path.is_relative_to(self._source):
            raise UsageError(
                f"{file.path}: lies outside of the store; move it into the store first"
            )
        target = self._new / path.relative_to(self._source)
        DISK.create_folder(target.parent)
        with FileWriter(target, size=file.size) as writer:
            for run in self._eraser.runs(file):
                writer.write(run.data, run.position)
            writer.sync()
        DISK.look_like(target, path)  # Brokers expire files by their time of modification.
        if len(self._eraser.within(file.start, file.end)):
            self.files.append(ChangedFile(file.start, digest_of(path), digest_of(target)))

    def _rebuild(self) -> None:
        config: StoreConfig = self._facts.config
        has_both = self._facts.queue_form is not None and self._facts.has_queue_files
        rebuild_store(
            self._runner, self._new, config=config, progress=self._progress,
            queues=BOTH if has_both else None,
        )  # fmt: skip

    def _check(self) -> None:
        for finding in check_store(
            self._new, config=self._facts.config, runner=self._runner, progress=self._progress
        ):
            if finding.severity is Severity.DAMAGE:
                raise StoreError(
                    f"{self._output}: was not written, because the copy would not be valid: "
                    f"{finding}"
                )

    def _finish(self, record: Callable[[], None]) -> None:
        DISK.remove_tree(self._new / LOCK_FILE)  # The rebuild has created this lock.
        for entry in list(DISK.tree_entries(self._new)):
            if entry.is_folder:
                model = self._source / entry.name
                DISK.look_like(self._new / entry.name, model if model.is_dir() else self._source)
        DISK.look_like(self._new, self._source)
        DISK.sync_tree(self._new)
        # Check again, because another program may have created the output during the copy.
        check_output(self._output, self._source)
        # Record the erasure before the copy gets its name, so that after a kill no copy exists without this record.
        record()
        DISK.rename(self._new, self._output)
        DISK.sync_folder(self._output.parent)


def check_output(output: Path, source: Path) -> None:
    """Raise UsageError if no copy can be written at this path."""
    if output.exists() or output.is_symlink():
        raise UsageError(f"{output}: exists; choose a new folder", arguments=["output"])
    Location.refuse_inside(output, source, ["output"])
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder", arguments=["output"])


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    digest = hashlib.sha256()
    for data in _contents(path):
        digest.update(data)
    return digest.hexdigest()


def _contents(path: Path) -> Iterator[bytes]:
    with FileReader(str(path)) as reader:
        position = 0
        for begin, end in (*data_runs(reader, 0, reader.size), (reader.size, reader.size)):
            while position < end:
                is_hole = position < begin
                length = min((begin if is_hole else end) - position, _HASHED_BYTES)
                yield bytes(length) if is_hole else reader.read(position, length)
                position += length
