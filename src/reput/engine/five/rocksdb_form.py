"""Queues in RocksDB (5.x) as a form of the register: they are read, written, recovered and rebuilt through it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reput.base import StoreConfig
from reput.core import LastEntry, QueueForm, QueueIndex, QueueRecovery, QueuesOf, queue_database
from reput.engine.five.rocksdb_database import RocksDatabase, require_library
from reput.engine.five.rocksdb_reader import RocksQueues
from reput.engine.writer import StoreSurvey
from reput.format.file_names import CONSUME_QUEUE_FOLDER, DATABASE_SIGN, QUEUE_DATABASE_FOLDER
from reput.format.rocksdb_queue import decode_value, entry_key, queue_prefix
from reput.io import LOCAL

if TYPE_CHECKING:
    from reput.engine.rebuild import QueueBuild, Staging


class RocksDBForm(QueueForm):
    """All queues of a store in a database, in consumequeue/ or in a folder of its own (5.5).

    What writes queues is imported when it is used, because a query does not need it.
    """

    name, title = "rocksdb", "RocksDB"
    signs = tuple(
        f"{folder}/{DATABASE_SIGN}" for folder in (QUEUE_DATABASE_FOLDER, CONSUME_QUEUE_FOLDER)
    )
    has_all = states_end = True
    has_logics_timestamp = False

    def open(self, queues: QueuesOf) -> QueueIndex:
        """See QueueForm. The first request opens the database."""
        folder = queue_database(queues.store, queues.storage)
        return RocksQueues(folder, queues.storage, queues.open_log, queues.config.delay_table_ms())

    def folder(self, store: str) -> str:
        """See QueueForm. Raises StoreAccessError."""
        return queue_database(store, LOCAL)

    def end(self, store: str) -> int:
        """See QueueForm."""
        with closing(RocksDatabase(self.folder(store))) as database:
            return database.checkpoint()

    def last_entries(self, store: str) -> Iterator[LastEntry]:
        """See QueueForm.

        Compaction drops the entries of expired messages. Of a queue's last entry, the database may then have only the
        physical offset and the queue offset.
        """
        with closing(RocksDatabase(self.folder(store))) as database:
            for topic, queue_id, physical_offset, number in database.ends():
                value = database.get(entry_key(queue_prefix(topic, queue_id), number))
                decoded = None if value is None else decode_value(value)
                entry = None
                if decoded and decoded[0].physical_offset == physical_offset:
                    entry = decoded[0]
                yield LastEntry(topic, queue_id, number, physical_offset, entry)

    def topics(self, queues: QueuesOf) -> Collection[str]:
        """See QueueForm. Only the database is read, not the log, and only if it is on this machine."""
        if not queues.storage.is_local:
            return ()
        with closing(RocksDatabase(self.folder(queues.store))) as database:
            return {end.topic for end in database.ends()}

    def settings(self, config: StoreConfig) -> StoreConfig:
        """See QueueForm. In a broker of 5.3, only enableLmq controls multi-dispatch to queues in RocksDB."""
        version = config.store_version if config.is_five else "5.3"
        return replace(config, enable_multi_dispatch=config.enable_lmq, store_version=version)

    def require(self) -> None:
        """See QueueForm."""
        require_library()

    def recovery(
        self, store: Path, config: StoreConfig, batch_topics: frozenset[str]
    ) -> QueueRecovery:
        """See QueueForm."""
        from reput.engine.five.rocksdb_recovery import DatabaseRecovery

        return DatabaseRecovery(store, config, batch_topics)

    def build(
        self,
        staging: Staging,
        output: Path,
        source: StoreSurvey,
        *,
        in_place: bool,
        beside_files: bool,
    ) -> QueueBuild:
        """See RebuiltForm. Beside files, a database keeps its topics."""
        from reput.engine.five.rocksdb_build import DatabaseBuild

        topics: Collection[str] | None = None
        if beside_files and source.queue_form is self and source.has_queue_files:
            topics = self.topics(QueuesOf.of(source.path, source.storage))
        place = source.lost_database or queue_database(source.path, source.storage)
        name = os.path.basename(place)
        return DatabaseBuild(staging, output, name, topics, in_place=in_place)


ROCKSDB_FORM = RocksDBForm()
