"""What a folder of followed indexes remembers of how it was begun.

`.reput-follow` holds the settings that its files were made with, and marks by which a log is known again; beside it
`.reput-follow.known` tells how far the indexes were known to be good (`reput.store.recovery.known_good`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from reput.config import StoreConfig
from reput.errors import StoreError, UsageError
from reput.files.disk import Disk
from reput.files.lock import locked
from reput.format.file_names import CHECKPOINT_FILE, CONSUME_QUEUE_FOLDER, INDEX_FOLDER
from reput.store.rebuild.existing import config_of

STATE_FILE = ".reput-follow"
NOTE_FILE = f"{STATE_FILE}.known"
MARKED_BYTES = (
    64 << 20
)  # of the log's last file, between two marks: more than a broker has not flushed
_NEWEST_MARKS = 4
_MOST_MARKS = 64
_LOCK_FILE = ".reput-follow.lock"
_BUSY = "another process keeps these indexes; stop it, or choose another --output"


@contextmanager
def owning(output: Path) -> Iterator[None]:
    """Keep other followers out. Raises StoreLockedError, StoreAccessError."""
    Disk().make_folder(output)
    with locked(output / _LOCK_FILE, _BUSY):
        yield


def has_indexes(output: Path) -> bool:
    """Whether a rebuild has made them already."""
    return (output / CONSUME_QUEUE_FOLDER).is_dir() and (output / INDEX_FOLDER).is_dir()


class Mark(NamedTuple):
    """A message that was taken in: its physical offset, and a digest of its record's head."""

    physical_offset: int
    digest: str

    @classmethod
    def of(cls, physical_offset: int, head: bytes) -> Mark:
        return cls(physical_offset, sha256(head).hexdigest()[:32])


@dataclass(slots=True)
class FollowState:
    """What a folder of followed indexes remembers.

    config    the settings that its files were made with
    marks     oldest first; a log that was cut and written anew differs from one of them on
    is_fresh  nothing was followed yet: the indexes were made by a rebuild, of this very log
    rebuilt_to  they were so just now, of the messages before this physical offset
    """

    folder: Path
    config: StoreConfig
    marks: list[Mark] = field(default_factory=list)
    is_fresh: bool = False
    rebuilt_to: int | None = None

    def add(self, mark: Mark, file_bytes: int) -> None:
        """Remember a mark; of older ones one for each CommitLog file, and some more for the last."""
        marks = [*(old for old in self.marks if old.physical_offset < mark.physical_offset), mark]
        last_file = mark.physical_offset // file_bytes
        older = {}
        for old in marks[:-_NEWEST_MARKS]:
            file, within = divmod(old.physical_offset, file_bytes)
            older[file, within // MARKED_BYTES if file == last_file else 0] = old
        self.marks = [*older.values(), *marks[-_NEWEST_MARKS:]][-_MOST_MARKS:]

    def save(self, disk: Disk) -> None:
        """Durably. Raises StoreAccessError."""
        state = {"config": asdict(self.config), "marks": self.marks}
        disk.replace(self.folder / STATE_FILE, json.dumps(state).encode())


def begin(store: Path, output: Path, config: StoreConfig | None) -> FollowState:
    """What is remembered, or the beginning of it. The settings are those given, those of the files otherwise.

    Raises UsageError for settings other than those that the files were made with, StoreError, StoreAccessError.
    """
    Disk().make_folder(output)
    for name in (CHECKPOINT_FILE, STATE_FILE, NOTE_FILE):
        for path in output.glob(
            f"{name}.*.tmp"
        ):  # of one that was killed while it replaced the file
            Disk().delete(path)
    state = _read(output)
    if state is None:
        chosen = config or config_of(output if has_indexes(output) else store)
        state = FollowState(output, chosen, is_fresh=True)
        state.save(Disk())
    elif config is not None and config != state.config:
        raise UsageError(
            f"{output}: was begun with other settings; leave these out, or choose another --output"
        )
    return state


def _read(output: Path) -> FollowState | None:
    path = output / STATE_FILE
    try:
        stored = json.loads(path.read_bytes())
        marks = [Mark(int(offset), str(digest)) for offset, digest in stored["marks"]]
        config = StoreConfig(**stored["config"])
        return FollowState(output, config, marks, is_fresh=not marks)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"cannot be read: {error}; delete it and give the settings again"
        raise StoreError(f"{path}: {reason}") from error
