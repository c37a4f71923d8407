"""Survey a store before it is written or checked: its settings, the ends of its log, and where its broker begins.

The facts that a reader needs are in `reput.core.StoreFacts`. Those here examine files and read samples. Each is read on
first use.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from reput.base import INDEX_SETTINGS, LOG_SETTING, QUEUE_SETTINGS, Finding, Kind, StoreConfig
from reput.core import CommitLogFile, CommitLogReader, ListedLog, LogListing, StoreFacts, StoreLog
from reput.engine.writer.file_sizes import (
    BROKER_NAMES,
    QUEUE_SIZES,
    Doubt,
    FileSizes,
    OddFile,
    sizes_of,
)
from reput.engine.writer.log_ends import LogEnds
from reput.engine.writer.message_database import dispatch_marks
from reput.engine.writer.recovery.broker_start import (
    DispatchPoint,
    KnownOffset,
    checked_from,
    known_offset,
    stated_offset,
)
from reput.errors import FormatError, MissingExtraError, StoreError, UsageError
from reput.format.file_names import (
    CONSUME_QUEUE_FOLDER,
    QUEUE_DATABASE_FOLDER,
    RECOVERY_POINT_FILE,
    is_index_file_name,
    parse_offset_file_name,
)
from reput.format.untrusted_json import parse_json
from reput.io import LOCAL, FileReader, Storage

# The first release with the setting `writeWithoutMmap`.
_WITHOUT_MMAP = "5.4"
_MOST_BYTES, _MOST_VALUES = 1 << 28, 8 << 20  # A queue has 7 values.

DATABASE_FIELD = "database"
"""The field of a recovery point with the folder of the queues' database; empty if the queues are in files."""
KEPT_BY: Mapping[str | None, tuple[str, ...]] = {
    None: (), "index": QUEUE_SETTINGS, "consumequeue": INDEX_SETTINGS,
}  # fmt: skip
"""Maps a rebuild's argument `only` (the files to rebuild; None for all) to the settings that the rebuild does not need.

A rebuild of IndexFiles does not need QUEUE_SETTINGS, and a rebuild of ConsumeQueues does not need INDEX_SETTINGS.
"""


@dataclass(frozen=True)  # Without slots=True, because cached properties need a __dict__.
class StoreSurvey(StoreFacts):
    """The facts of one store, its settings among them. Each is read on first use. After a change, call `refresh`.

    Attributes:
        given: The settings that the user gave; None to derive them from the files.
    """

    given: StoreConfig | None = None

    def refresh(self) -> StoreSurvey:
        """Return new facts, without the values read so far."""
        return StoreSurvey(self.path, self.storage, self.given)

    @cached_property
    def _sizes(self) -> FileSizes:
        return sizes_of(self)

    @property
    def config(self) -> StoreConfig:
        """Return the given settings, or else settings derived from the files, with a broker's defaults for the rest.

        `shown`, `doubts` and `odd_files` come from the same survey of the files. These three properties and `config`
        raise StoreAccessError.
        """
        return self._sizes.config

    @property
    def shown(self) -> Mapping[str, int]:
        """Return the settings that are certain from the store's files (mostly file sizes), by field of StoreConfig."""
        return self._sizes.shown

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Return the file sizes that the store's files do not show with certainty; empty if the user gave settings."""
        return self._sizes.doubts

    @property
    def odd_files(self) -> tuple[OddFile, ...]:
        """Return the files whose length differs from the size in `config`."""
        return self._sizes.odd_files

    @cached_property
    def ends(self) -> LogEnds:
        """Return where the log ends for readers, for a rebuild, and by its data. Raises StoreError."""
        return LogEnds.of(StoreLog(self.path, self.storage))

    def broker_start(self, files: Sequence[CommitLogFile]) -> int:
        """Return the physical offset from which a broker would check the log if it started now.

        `files` are the files of the log. Raises StoreAccessError.
        """
        storage = self.storage
        listing = LogListing(self.path, tuple(files), storage.open_file, is_local=storage.is_local)
        with closing(CommitLogReader(ListedLog(listing))) as log:
            return checked_from(log, self.dispatch_point(is_clean=not self.has_abort))

    def dispatch_point(self, *, is_clean: bool) -> DispatchPoint:
        """Return how far the store is dispatched, as its broker knows it. Raises StoreAccessError."""
        config = self.config
        point = DispatchPoint(
            self.checkpoint, is_clean, None, self.release,
            whole_records=config.check_record_crc, is_accelerated=config.accelerated_recovery,
        )  # fmt: skip
        # Only a 5.x broker uses its queues to choose the file from which it checks the log. Do not read the queues of
        # a remote store: they may be in RocksDB, which can open a database only in a local folder.
        if not config.is_five or not self.storage.is_local:
            return point
        second = None if self.known_offset.is_stated else self._stated_offset
        return replace(
            point, queues_end=self.known_offset, second_end=second, others=dispatch_marks(self)
        )

    @property
    def _stated_offset(self) -> int | None:
        try:
            return stated_offset(self.path)
        except (MissingExtraError, FormatError):
            return None

    @cached_property
    def release(self) -> str:
        """Return the release of the broker that recovers the store: "4.9", "5.3", "5.4" or "5.5".

        The settings name it, or the files of the store show it. Raises StoreAccessError.
        """
        shown = self.parts.least_version
        return max(shown, self.config.store_version or shown)

    @cached_property
    def known_offset(self) -> KnownOffset:
        """Return the physical offset at which the log ends according to the queues; -1 for an unreadable database.

        Raises StoreAccessError.
        """
        try:
            return known_offset(self.path)
        except (MissingExtraError, FormatError):
            return KnownOffset(-1, True)

    def findings(self) -> list[Finding]:
        """Return findings about missing log files, file sizes, the end of the log, and unknown files or folders.

        Findings about file sizes are reported if sizes are uncertain, or if files of one kind have several sizes.

        Raises StoreError.
        """
        sizes = [doubt.finding() for doubt in self.doubts]
        sizes += [odd.finding() for odd in self.odd_files if not self._is_unsettled(odd)]
        # While a broker writes, the end of the log is always incomplete.
        ends = [] if self.is_live else self.of_ends(self.ends)
        holes = self.holes
        if holes and self.is_live:
            # Files that the broker deleted while the folder was listed are no hole.
            begin = self.begin_now()
            holes = [hole for hole in holes if hole.start >= begin]
        return [*self.parts.findings, *holes, *sizes, *ends]

    def of_ends(self, ends: LogEnds) -> list[Finding]:
        """Return the findings about these ends of the log. Raises StoreAccessError.

        After a clean shutdown of a broker that may write without mmap, the rest of the last page is no finding.
        """
        return ends.findings(is_padded=self.release >= _WITHOUT_MMAP and not self.has_abort)

    def _is_unsettled(self, odd: OddFile) -> bool:
        """Return whether a file's size of 0 is no damage, because the store's owner was creating or deleting the file.

        The owner creates a file with 0 bytes, and then extends the file to its whole size at once.
        """
        if not self.is_live or odd.size:
            return False
        folder = os.path.dirname(odd.path)
        folders = self.log_folders if folder in self.log_folders else (folder,)
        names = [entry.name for place in folders for entry in self.storage.list(place)]
        if odd.kind is Kind.INDEX_FILE_SIZE:
            names = [name for name in names if is_index_file_name(name)]
        else:
            names = [name for name in names if parse_offset_file_name(name) is not None]
        # List the folder before reading the file's size. The owner completes a file before it creates the next one. So
        # if the list has a later file, this file is already complete, and a size of 0 is damage.
        entry = self.storage.entry(odd.path)
        return (
            entry is None
            or entry.stat().st_size > 0
            or os.path.basename(odd.path) == max(names, default="")
        )

    def require_certain(self, but: Collection[str] = ()) -> None:
        """Raise UsageError if a file size is uncertain. Call this method before files of this size are written.

        Args:
            but: Settings that are not checked, because they are known from elsewhere or not needed. The size of log
                files is never checked here: before messages are appended to a log, recovery checks the size of its
                files, and reports files of several sizes.

        Raises:
            UsageError: A size is uncertain. The message names the files and the settings.
        """
        for doubt in self.doubts:
            if not set(doubt.settings) <= {LOG_SETTING, *but}:
                raise UsageError(
                    f"{self.path}: {doubt}; nothing was changed; pass broker_config with {doubt.names}",
                    arguments=["broker_config"],
                )

    def require_shown(self) -> None:
        """Raise StoreError if the given settings contradict the sizes of existing files.

        A broker does not start with such files.

        Raises:
            StoreError: The sizes differ. The message names the setting.
        """
        units = {
            kind.setting: (f"its {kind.title} have", kind.unit, "bytes") for kind in QUEUE_SIZES
        }
        units |= {
            "hash_slots": ("its IndexFiles have", 1, "slots"),
            "index_items": ("its IndexFiles have", 1, "items"),
        }
        for setting, (files, unit, noun) in units.items():
            value = getattr(self.config, setting)
            evident = self.shown.get(setting, value)
            if value != evident:
                raise StoreError(
                    f"{self.path}: {files} {evident * unit:,} {noun}, not the {value * unit:,} of "
                    f"the settings "
                    f"({BROKER_NAMES[setting]}); omit the setting, or rebuild the indexes with "
                    f"it first"
                )


def recovery_file(path: Path) -> Any:
    """Return the content of a recovery point's file. Raises StoreAccessError, ValueError."""
    return parse_json(FileReader.content_of(path, _MOST_BYTES), _MOST_VALUES)


def stated_database(store: str) -> str:
    """Return the folder in which the recovery point says the queues' database is; empty if it says nothing."""
    try:
        content = recovery_file(Path(store, RECOVERY_POINT_FILE))
        name = content[DATABASE_FIELD]
    # Any other content is no recovery point, so it tells nothing.
    except (OSError, ValueError, TypeError, LookupError, StoreError):
        return ""
    return name if name in (CONSUME_QUEUE_FOLDER, QUEUE_DATABASE_FOLDER) else ""


def survey_of(
    store: str | os.PathLike[str], given: StoreConfig | None = None, storage: Storage = LOCAL
) -> StoreSurvey:
    """Return the facts of a store. They come from names, sizes, headers and samples, never from the whole log.

    Args:
        store: The folder of a store, or of indexes.
        given: The broker's settings; None to take the sizes from the files.
        storage: The storage that contains the folder.
    """
    return StoreSurvey(os.fspath(store), storage, given)
