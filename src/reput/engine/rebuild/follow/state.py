"""Load and save the state of a folder of indexes that follow a log.

`.reput-follow` contains the settings of the folder's files, and checkpoints: digests of messages, which identify the
log. `.reput-follow.known` is the recovery point of the indexes (`reput.engine.writer.recovery.recovery_point`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from reput.base import StoreConfig
from reput.engine.writer import survey_of
from reput.errors import StoreError, UsageError
from reput.format.file_names import CHECKPOINT_FILE, CONSUME_QUEUE_FOLDER, INDEX_FOLDER
from reput.format.untrusted_json import parse_json
from reput.io import DISK, Disk, FileReader, locked

STATE_FILE = ".reput-follow"
RECOVERY_POINT_FILE = f"{STATE_FILE}.known"
# Distance of checkpoints in the log's last file. It is larger than the bytes that a broker leaves unflushed. A recovery
# truncates only unflushed bytes, so the checkpoint before the newest one stays valid.
CHECKPOINT_SPACING_BYTES = 64 << 20
_NEWEST_CHECKPOINTS = 4
_MOST_CHECKPOINTS = 64
_MOST_BYTES = 1 << 20
_LOCK_FILE = ".reput-follow.lock"
_BUSY = "another process maintains these indexes; stop it, or choose another output"


@contextmanager
def owning(output: Path) -> Iterator[None]:
    """Lock the folder against other followers. Raises StoreLockedError, StoreAccessError."""
    with DISK.writing_to(output):
        Disk().make_folder(output)
    with DISK.anchored(output), locked(output / _LOCK_FILE, _BUSY, arguments=["output"]):
        yield


def has_indexes(output: Path) -> bool:
    """Return whether a rebuild has created the indexes already."""
    return (output / CONSUME_QUEUE_FOLDER).is_dir() and (output / INDEX_FOLDER).is_dir()


class LogCheckpoint(NamedTuple):
    """An indexed message: its physical offset, and a digest of the first bytes of its record."""

    physical_offset: int
    digest: str

    @classmethod
    def of(cls, physical_offset: int, head: bytes) -> LogCheckpoint:
        return cls(physical_offset, sha256(head).hexdigest()[:32])


@dataclass(slots=True)
class FollowState:
    """The state of a folder of indexes that follow a log.

    config       the settings with which the files were created
    checkpoints  oldest first; if the log was truncated and continued differently, the checkpoints after the truncation
                 no longer match
    is_fresh     whether the indexes are still as a rebuild of this log wrote them: no later message was added
    rebuilt_to   physical offset up to which a rebuild in this process has just indexed the log; otherwise None
    """

    folder: Path
    config: StoreConfig
    checkpoints: list[LogCheckpoint] = field(default_factory=list)
    is_fresh: bool = False
    rebuilt_to: int | None = None

    def add(self, checkpoint: LogCheckpoint, file_bytes: int) -> None:
        """Add a checkpoint. Of the older ones, keep one per CommitLog file, and several in the last file."""
        checkpoints = [
            *(old for old in self.checkpoints if old.physical_offset < checkpoint.physical_offset),
            checkpoint,
        ]
        last_file = checkpoint.physical_offset // file_bytes
        older = {}
        for old in checkpoints[:-_NEWEST_CHECKPOINTS]:
            file, within = divmod(old.physical_offset, file_bytes)
            older[file, within // CHECKPOINT_SPACING_BYTES if file == last_file else 0] = old
        self.checkpoints = [*older.values(), *checkpoints[-_NEWEST_CHECKPOINTS:]][
            -_MOST_CHECKPOINTS:
        ]

    def save(self, disk: Disk) -> None:
        """Write the state, durably. Raises StoreAccessError."""
        state = {"config": asdict(self.config), "checkpoints": self.checkpoints}
        disk.replace(self.folder / STATE_FILE, json.dumps(state).encode())


def begin(store: Path, output: Path, config: StoreConfig | None) -> FollowState:
    """Return the stored state of `output`.

    Without a stored state, create it from `config`. If `config` is None, derive the settings from the sizes of files.

    Raises StoreError, StoreAccessError, and UsageError if `config` differs from the stored settings.
    """
    Disk().make_folder(output)
    for name in (CHECKPOINT_FILE, STATE_FILE, RECOVERY_POINT_FILE):
        # A process that was killed while it replaced a file has left its temporary file.
        for path in output.glob(f"{name}.*.tmp"):
            Disk().delete(path)
    state = _read(output)
    if state is None:
        if config is None:
            facts = survey_of(output if has_indexes(output) else store)
            facts.require_certain()
            config = facts.config
        state = FollowState(output, config, is_fresh=True)
        state.save(Disk())
    elif config is not None and config != state.config:
        fields = asdict(state.config)
        names = ", ".join(name for name, value in asdict(config).items() if value != fields[name])
        raise UsageError(
            f"{output}: was created with other values of {names}; pass no settings to use the "
            f"folder's own, or choose another output",
            arguments=["output"],
        )
    return state


def _read(output: Path) -> FollowState | None:
    path = output / STATE_FILE
    try:
        content = parse_json(FileReader.content_of(path, _MOST_BYTES))
        checkpoints = [
            LogCheckpoint(int(offset), str(digest)) for offset, digest in content["checkpoints"]
        ]
        config = StoreConfig(**content["config"])
        return FollowState(output, config, checkpoints, is_fresh=not checkpoints)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"cannot be read: {error}; delete it and pass the settings again"
        raise StoreError(f"{path}: {reason}") from error
