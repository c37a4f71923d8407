"""The files of a store, opened to be read: CommitLog, ConsumeQueues, IndexFiles.

Works on a stopped broker's store, on a running broker's, on a copy of one. Not a byte is written
into it.
"""

from __future__ import annotations

import os
from os import PathLike, fspath
from types import TracebackType
from typing import Self

from reput.config import StoreConfig
from reput.errors import (
    CorruptMessageError,
    MessageNotFoundError,
    StoreNotFoundError,
    UsageError,
)
from reput.files.reader import FileReader
from reput.format.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
from reput.format.commit_log import MessageExt
from reput.format.file_names import CHECKPOINT_FILE, CONSUME_QUEUE_FOLDER, INDEX_FOLDER
from reput.store.commit_log import CommitLog
from reput.store.consume_queue_reader import ConsumeQueues
from reput.store.index_service import IndexService


class StoreReader:
    """An open store; a context manager. Not for use from several threads at once.

    commit_log, queues, index  its parts
    config                     the settings that its answers depend on
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        config: StoreConfig | None = None,
        broker_config: str | PathLike[str] | None = None,
        hash_slots: int | None = None,
        index_items: int | None = None,
        index: str | PathLike[str] | None = None,
    ) -> None:
        """Settings come from `config` or else from the file `broker_config`; `hash_slots` and
        `index_items` go before them, and are worked out from the IndexFiles where nothing tells
        them. `index` is another directory that holds index/, and perhaps consumequeue/.

        Raises StoreNotFoundError, StoreAccessError, FormatError, UsageError.
        """
        self.path = fspath(path)
        self._is_closed = False
        if config is not None and broker_config is not None:
            raise UsageError("config and broker_config are two answers to one question; give one")
        if config is None and broker_config is not None:
            config = StoreConfig.from_broker_config(broker_config)
        if config is not None:
            hash_slots = config.hash_slots if hash_slots is None else hash_slots
            index_items = config.index_items if index_items is None else index_items
        self.config = config or StoreConfig()
        if index is not None and not os.path.isdir(index):
            raise StoreNotFoundError(f"{fspath(index)}: no such directory (--index)")
        self.commit_log = CommitLog(self.path)
        indexes = self.path if index is None else fspath(index)
        has_queues = os.path.isdir(os.path.join(indexes, CONSUME_QUEUE_FOLDER))
        self.queues = ConsumeQueues(indexes if has_queues else self.path)
        self.index = IndexService(os.path.join(indexes, INDEX_FOLDER), hash_slots, index_items)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the maps of the files. A closed store answers nothing."""
        self._is_closed = True
        self.commit_log.close()
        self.index.close()

    def check_open(self) -> None:
        """Raises UsageError once the store is closed."""
        if self._is_closed:
            raise UsageError(f"{self.path}: the store is closed")

    def get(self, physical_offset: int) -> MessageExt:
        """The message that begins at this physical offset.

        Raises MessageNotFoundError, CorruptMessageError, StoreAccessError.
        """
        self.check_open()
        return self.commit_log.get(physical_offset)

    def get_by_queue(self, topic: str, queue_id: int, queue_offset: int) -> MessageExt:
        """The message with this number in a queue of a topic.

        Raises MessageNotFoundError, CorruptMessageError, StoreAccessError.
        """
        self.check_open()
        entry = self.queues.queue(topic, queue_id).entry(queue_offset)
        try:
            return self.commit_log.get(entry.physical_offset)
        except MessageNotFoundError as error:
            file = self.commit_log.file_at(entry.physical_offset)
            if file is None:
                raise
            raise CorruptMessageError(file.path, entry.physical_offset, str(error)) from None

    def checkpoint(self) -> Checkpoint:
        """What the broker last wrote to its checkpoint, or zeros. Raises StoreAccessError."""
        path = os.path.join(self.path, CHECKPOINT_FILE)
        if not os.path.isfile(path) or os.path.getsize(path) < CHECKPOINT_BYTES:
            return Checkpoint()
        with FileReader(path) as reader:
            return decode_checkpoint(reader.read(0, CHECKPOINT_BYTES))
