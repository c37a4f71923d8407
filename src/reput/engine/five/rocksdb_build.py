"""Write the queues of a store into RocksDB in a rebuild: plan tables, write them in tasks, join them to a database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from reput.base import agreeing, counted
from reput.core import Queue, facts_of
from reput.engine import rebuild
from reput.engine.five.rocksdb_database import require_library
from reput.engine.five.rocksdb_layout import RocksPlanTask, rocksdb_layout
from reput.engine.five.rocksdb_tables import RocksTableWritten, write_rocksdb_table
from reput.engine.five.rocksdb_writer import create_database
from reput.engine.rebuild import some_names
from reput.engine.writer import LogPart
from reput.format.file_names import BATCH_QUEUE_FOLDER, CONSUME_QUEUE_FOLDER, EXTENSION_FOLDER
from reput.format.rocksdb_queue import CHECKPOINT_KEY, encode_checkpoint, encode_end, end_key
from reput.io import DISK


class DatabaseBuild:
    """Writes all queues into a new database."""

    without: tuple[str, ...] = (BATCH_QUEUE_FOLDER, EXTENSION_FOLDER)

    def __init__(
        self,
        staging: rebuild.Staging,
        output: Path,
        name: str,
        topics: Collection[str] | None,
        *,
        in_place: bool,
    ) -> None:
        """Prepare the database in the folder `name`, with some topics or all. Raises MissingExtraError."""
        require_library()
        self._staging, self._new, self._output = staging, staging.new, output
        self._name, self._topics = name, None if topics is None else frozenset(topics)
        self._replaced = str(output / name) if in_place else None

    def plan(
        self, log: rebuild.LogSummary, parallelism: int, run: rebuild.RunOne
    ) -> rebuild.QueueLayout:
        """See QueueBuild."""
        share = rebuild.entries_of_a_task(log, parallelism)
        scanned, plan = str(self._staging.scanned), str(self._staging.plan)
        part = LogPart(log.begin, log.end, log.lost, log.misplaced > 0)
        task = RocksPlanTask(scanned, log.staged, plan, share, part, self._replaced, self._topics)
        return run(rocksdb_layout, task)

    def writer(self) -> rebuild.WriteQueues:
        """See QueueBuild."""
        return write_rocksdb_table

    def finish(
        self, log: rebuild.LogSummary, written: Sequence[object], report: rebuild.RebuildReport
    ) -> None:
        """See QueueBuild."""
        tables = [result for result in written if isinstance(result, RocksTableWritten)]
        newest: dict[Queue, tuple[int, int]] = {}
        replaced: Counter[Queue] = Counter()
        for table in tables:
            report.queue_entries += table.entries
            replaced.update(table.replaced)
            for end in table.ends:
                queue = Queue(end.topic, end.queue_id)
                place = end.physical_offset, end.queue_offset
                # Several RocksDB table files may have entries of one queue. The newest entry may be in any of them.
                newest[queue] = max(newest.get(queue, place), place)
        report.queues = max(report.queues, len(newest))
        refused = sum(result.refused for result in tables)
        old_entries = sum(result.old_entries for result in tables)
        report.queue_entries_dropped = replaced.total() + refused
        if old_entries:
            report.note(
                f"{counted(old_entries, 'entry', 'entries')} of unreadable messages {agreeing(old_entries, 'was')} "
                "kept from the old database"
            )
        if refused:
            report.note(
                f"{counted(refused, 'message', verb='has')} no entry, as before, because another message has "
                "the stated queue offset"
            )
        if facts_of(report.store).has_queue_files:
            staged = [self._staging.scanned / name for name in log.staged]
            renumbered = rebuild.renumbered_entries(Path(report.store), staged, replaced)
            report.queue_entries_renumbered = sum(renumbered.values())
            if renumbered:
                report.note(
                    f"{counted(report.queue_entries_renumbered, 'entry', 'entries', 'has')} another number than in "
                    f"the ConsumeQueue files, {some_names(renumbered)}: like a 5.3 broker, RocksDB stores them "
                    "under the queue offsets "
                    "of their messages; check the offsets that consumer groups have committed there"
                )
        if replaced:
            report.note(
                f"{counted(replaced.total(), 'entry', 'entries', 'has')} no place, {some_names(replaced)}: a later "
                "message has the same "
                "queue offset; a 5.3 broker also keeps only the later entry"
            )
        expired = dict(rebuild.expired_queue_ends(self._output, log.begin))
        for last in rebuild.last_entries(self._output, report):
            if last.physical_offset < log.begin:
                place = last.physical_offset, last.queue_offset
                expired[Queue(last.topic, last.queue_id)] = place
        expired = {queue: place for queue, place in expired.items() if queue not in newest}
        if expired:
            report.note(
                f"the end positions of {counted(len(expired), 'queue')} without a message in the CommitLog were kept"
            )
        ends = {
            end_key(*queue): encode_end(*place) for queue, place in {**newest, **expired}.items()
        }
        # The database checkpoint is the log position up to which all messages have entries.
        ends[CHECKPOINT_KEY] = encode_checkpoint(max((table.stop for table in tables), default=0))
        paths = [table.path for table in tables if table.path is not None]
        # A broker has this folder in every store, and a rebuild replaces the queue files in it.
        DISK.create_folder(self._new / CONSUME_QUEUE_FOLDER)
        create_database(self._new / self._name, paths, ends)
