"""Open a store for reading: CommitLog, ConsumeQueues, IndexFiles.

The store may belong to a running broker, to a stopped one, or be a copy. Nothing is written into it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from os import PathLike, fspath
from typing import TypedDict

from reput.base import Closing, Finding, StoreConfig, checked, late
from reput.core.index.forms import IndexOf, open_index
from reput.core.index.plan import Planner
from reput.core.index.proofs import Judge
from reput.core.index.set_reader import IndexFileSetReader
from reput.core.index.trust import RecallingJudge
from reput.core.log.known_ranges import KnownRanges
from reput.core.log.log_topics import LogQueues, LogTopics
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog, find_store
from reput.core.log.walk import lost_before
from reput.core.queues.queue_index import QueueIndex
from reput.core.queues.store_queues import open_queues
from reput.core.store.facts import StoreFacts, facts_of
from reput.core.store.parts import with_version
from reput.errors import (
    FormatError,
    MessageNotFoundError,
    StoreError,
    StoreNotFoundError,
    UsageError,
)
from reput.format.checkpoint import Checkpoint
from reput.format.commit_log import MessageExt
from reput.format.file_names import CONSUME_QUEUE_FOLDER, INDEX_FOLDER, is_folder_name
from reput.format.properties import PROPERTY_SEPARATOR
from reput.io import JoinedStorage, Storage, storage_of

# Number of log files whose first record is examined to find out whether a 5.x broker wrote the store.
_LOOKED_AT_FILES = 8
# Create the default settings once, because the check of all their fields takes longer than opening a file.
_DEFAULTS = StoreConfig()
_SEPARATOR = PROPERTY_SEPARATOR.encode()
# Only archives, and stores joined with theirs, load these.
_continued_queues = late("reput.wings.archive.joined_queues", "ContinuedQueues")
_may_have_replaced_ids = late("reput.wings.archive.key_search", "may_have_replaced_ids")
# Few readers ask for the items of tags.
_index_tags_from = late("reput.engine.writer.tag_items", "index_tags_from")
_SAMPLED_TOPICS = (
    "The topics of the log are spot-checked: topics without ConsumeQueues were looked for in samples of the log. "
    "`reput prove` finds all of them."
)


class ReaderOptions(TypedDict, total=False):
    """The keyword arguments of `StoreReader`."""

    config: StoreConfig | None
    broker_config: str | PathLike[str] | None
    hash_slots: int | None
    index_items: int | None
    index: str | PathLike[str] | None
    storage_options: Mapping[str, str] | None


class StoreReader(Closing):
    """An open store. It is a context manager, and can be used by one thread at a time.

    Attributes:
        commit_log, queues, index: The parts of the store.
        storage, path: The place of the store.
        log_storage: The storage of the log. If the store is read together with its archive, this storage joins both.
        own_log: The log of the store without the archive.
        has_all_entries: Whether the queues have an entry for each message of the log, as those of an archive.
        known_ranges: Remembered results of scans of the log: store times of messages, and message ids without an index
            entry.
        log_topics: The topics that occur in the log.
        config: The settings that answers depend on.
    """

    @checked
    def __init__(
        self,
        path: str | PathLike[str],
        *,
        config: StoreConfig | None = None,
        broker_config: str | PathLike[str] | None = None,
        hash_slots: int | None = None,
        index_items: int | None = None,
        index: str | PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Open a store, its commitlog folder, or a pattern that matches one of these.

        Args:
            path: A local path, or a URL of any file system (s3://bucket/store).
            config: The broker's settings.
            broker_config: The broker's configuration file, instead of `config`.
            hash_slots, index_items: Numbers of slots and items of an IndexFile, which override the settings. By
                default, they are derived from the IndexFiles.
            index: Another directory with index/, and perhaps consumequeue/, to use instead of the store's own.
            storage_options: Options of the file system (`s3.endpoint_override`, `fsspec.NAME`, ...).

        Raises StoreNotFoundError, StoreAccessError, FormatError, UsageError.
        """
        self.storage, self.path = find_store(path, storage_options)
        self.log_storage, self._log_path = self.storage, self.path
        joined = self.storage if isinstance(self.storage, JoinedStorage) else None
        if joined is not None:
            self.storage, self.path = joined.newer, joined.store
        self.has_all_entries = self.storage.is_archive
        self._is_closed = False
        if config is not None and broker_config is not None:
            raise UsageError("pass config or broker_config, not both")
        if config is None and broker_config is not None:
            config = StoreConfig.from_broker_config(broker_config)
        if config is not None:
            hash_slots = config.hash_slots if hash_slots is None else hash_slots
            index_items = config.index_items if index_items is None else index_items
        self.config = config or _DEFAULTS
        storage, indexes = self.storage, self.path
        if index is not None:
            storage, indexes = storage_of(index, storage_options)
            if not _is_folder(storage, indexes):
                raise StoreNotFoundError(
                    f"index {fspath(index)}: no such directory", arguments=["index"]
                )
        self.commit_log = self._open_log()
        self.own_log = self.commit_log if joined is None else self._open_own_log()
        self.known_ranges = KnownRanges(self.commit_log)
        self._log_queues = LogQueues(self.commit_log, self.known_ranges)
        self.log_topics = LogTopics(self.commit_log, self.known_ranges)
        # The topics of the log and the topics with queues, as last read, and both sorted.
        self._named: tuple[frozenset[str], list[str], list[str]] = frozenset(), [], []
        queues = storage, indexes
        if not _is_folder(storage, os.path.join(indexes, CONSUME_QUEUE_FOLDER)):
            queues = self.storage, self.path
        self.queues: QueueIndex = open_queues(queues[1], queues[0], self._open_own_log, self.config)
        if joined is not None:
            self.queues = _joined_queues(joined, self.queues, self.own_log)
        self.index = IndexFileSetReader(
            os.path.join(indexes, INDEX_FOLDER), hash_slots, index_items, storage
        )

    def _open_log(self) -> CommitLogReader:
        return CommitLogReader(StoreLog(self._log_path, self.log_storage, self._named_folders()))

    def _open_own_log(self) -> CommitLogReader:
        return CommitLogReader(StoreLog(self.path, self.storage, self._named_folders()))

    def _named_folders(self) -> Sequence[str] | None:
        """Return the log folders that the settings name, if they exist on this machine.

        A copy of a store has its log in its own folder, although the settings name the broker's folders.
        """
        named, storage = self.config.log_folders, self.storage
        exists = storage.is_local and all(_is_folder(storage, path) for path in named)
        return named if exists else None

    def close(self) -> None:
        """Close all files. The store cannot be used afterwards."""
        self._is_closed = True
        self.commit_log.close()
        self.own_log.close()
        self.queues.close()
        self.index.close()

    def check_open(self) -> None:
        """Raise UsageError if the store is closed."""
        if self._is_closed:
            raise UsageError(f"{self.path}: the store is closed; open it again")

    def get(self, physical_offset: int) -> MessageExt:
        """Return the message that begins at this physical offset.

        Raises MessageNotFoundError, CorruptMessageError, StoreAccessError, StoreChangedError.
        """
        self.check_open()
        return self.commit_log.get(physical_offset)

    def key_planner(self, judge: Judge | None = None) -> Planner:
        """Return the planner of searches by key, which divides the log into indexed parts and parts to scan.

        `judge` decides which parts of the log an IndexFile covers. By default, it uses remembered proofs, and spot
        checks of IndexFiles without a proof. Raises StoreAccessError.
        """
        facts = self._facts()
        source = IndexOf(
            self.log_storage, self.index, facts.message_databases, self.commit_log, self.own_log,
            judge or RecallingJudge(),
        )  # fmt: skip
        return Planner(self.commit_log, open_index(source), facts.checkpoint)

    def all_topics(self) -> list[str]:
        """Return all topics with messages in the log or with queues, sorted.

        Raises StoreAccessError, StoreChangedError.
        """
        names = self.queues.topics()
        if self.has_all_entries:
            return names
        of_log = self.log_topics.find()
        if (of_log, names) != self._named[:2]:
            self._named = of_log, names, sorted(of_log.union(names))
        return list(self._named[2])

    def notes_on_topics(self) -> tuple[str, ...]:
        """Return a note if the last call of `all_topics` looked for topics only in samples of the log."""
        return () if self.log_topics.are_all else (_SAMPLED_TOPICS,)

    def queues_of_log(self) -> frozenset[tuple[str, int]]:
        """Return (topic, queue id) of queues with messages in the log, as far as `has_lost` examines it.

        Raises StoreAccessError, StoreChangedError.
        """
        return frozenset() if self.has_all_entries else self._log_queues.find()

    def has_lost(self, topic: str, queue_id: int) -> bool:
        """Return whether the log has messages of a queue for which no entries exist.

        In a long log whose queues are not remembered, samples are read, and a queue counts as lost if its topic has
        messages in the log, but no queue at all. Raises StoreAccessError, StoreChangedError.
        """
        if self.has_all_entries or not is_folder_name(topic):
            return False
        if (topic, queue_id) in self._log_queues.find():
            return True
        if self._log_queues.are_all:
            return False
        return topic in self.log_topics.find() and not self.queues.list(topic)

    def newest_queued(self, topics: Collection[str] | None = None) -> int:
        """Return the greatest physical offset in the last entries of the queues of these topics (None: of all), or -1.

        Raises StoreAccessError.
        """
        newest = -1
        for topic, queue_id in self.queues.list():
            if topics is None or topic in topics:
                with suppress(MessageNotFoundError, FormatError):
                    queue = self.queues.queue(topic, queue_id)
                    newest = max(newest, queue.entry(queue.max_queue_offset() - 1).physical_offset)
        return newest

    def lost_end_of_queues(
        self, log_end: int, topics: Collection[str] | None = None
    ) -> Finding | None:
        """Return a finding if a queue of one of these topics refers to a message after the end of the log, else None.

        `topics` None stands for all topics. Raises StoreAccessError, StoreChangedError.
        """
        newest = self.newest_queued(topics)
        if newest < log_end:
            return None
        # The message may have been appended since `log_end` was found.
        self.commit_log.refresh()
        return lost_before(self.commit_log, log_end, newest, "a queue")

    @cached_property
    def may_have_replaced_ids(self) -> bool:
        """Return whether records may have several UNIQ_KEYs, of which an index has only the last one.

        Messages that a 5.x client sends as a list have several. A store without any sign of 5.x is assumed to have no
        such messages. Raises StoreAccessError.
        """
        if self.storage.is_archive or self.log_storage.is_joined:
            may_have: bool = _may_have_replaced_ids()(self.log_storage)
            if may_have or self.storage.is_archive:
                return may_have
        if self._facts().is_five:
            return True
        for file in self.own_log.files[:_LOOKED_AT_FILES]:
            with suppress(StoreError):
                _, data, layout = self.own_log.locate(file.start + file.gap)
                end = layout.properties_position + layout.properties_bytes
                # A 5.x broker ends each properties string with a separator; a 4.9 broker never does.
                if layout.properties_bytes and data.startswith(_SEPARATOR, end - 1):
                    return True
        return False

    @cached_property
    def index_tags_from(self) -> int | None:
        """Return the physical offset from which messages have index items for their tags (5.4).

        None if IndexFiles have no such items. Raises StoreAccessError.
        """
        if self.config.index_tags_from is not None:
            return self.config.index_tags_from
        config = with_version(self.config, self._facts().parts)
        tags_from: int | None = _index_tags_from()(
            self.index, self.commit_log, is_since_5_4=config.is_since_5_4
        )
        return tags_from

    def checkpoint(self) -> Checkpoint:
        """Return the broker's last checkpoint; zeros if the file is missing. Raises StoreAccessError."""
        return self._facts().checkpoint

    @property
    def is_live(self) -> bool:
        """Whether a process of this machine, such as a broker, owns the store."""
        return self._facts().is_live

    def _facts(self) -> StoreFacts:
        """Return the facts of the store. They are read again each time, because a broker may be changing the store."""
        return facts_of(self.path, storage=self.storage)


def _is_folder(storage: Storage, path: str) -> bool:
    entry = storage.entry(path)
    return entry is not None and entry.is_dir()


def _joined_queues(
    joined: JoinedStorage, newer: QueueIndex, own_log: CommitLogReader
) -> QueueIndex:
    """Join the queues of a store and its archive. `newer` are the store's own queues, `own_log` is its own log."""

    def begin() -> int:
        own_log.refresh()
        return own_log.min_offset

    queues: QueueIndex = _continued_queues()(newer, lambda: joined.older, begin)
    return queues
