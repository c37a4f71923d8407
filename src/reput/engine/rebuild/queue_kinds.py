"""The two forms in which a rebuild writes queues: files, or a RocksDB database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from reput.base import Result, StoreConfig, Task, counted
from reput.core import Queue, RocksDatabase, StoreFacts, create_database, facts_of
from reput.core.queues.rocksdb_writer import require_library
from reput.core.queues.writer import write_expired_queue
from reput.core.store.existing import expired_queue_ends, keep_expired_queues
from reput.engine.rebuild.old_queues import LogPart
from reput.engine.rebuild.queue_plan import (
    MOST_ENTRIES,
    PlanTask,
    QueueLayout,
    plan_queues,
    read_plan,
)
from reput.engine.rebuild.renumbered import renumbered_entries
from reput.engine.rebuild.report import RebuildReport
from reput.engine.rebuild.rocksdb_layout import RocksPlanTask, rocksdb_layout
from reput.engine.rebuild.rocksdb_tables import RocksTableWritten
from reput.engine.rebuild.staging import Staging
from reput.engine.rebuild.staging_bucket import BucketStaging
from reput.engine.rebuild.stitch import LogSummary
from reput.engine.rebuild.write_files import QueuesWritten
from reput.errors import MissingExtraError, StoreError, UsageError
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CONSUME_QUEUE_FOLDER,
    EXTENSION_FOLDER,
    is_folder_name,
)
from reput.format.rocksdb_queue import (
    CHECKPOINT_KEY,
    decode_value,
    encode_checkpoint,
    encode_end,
    end_key,
    entry_key,
    queue_prefix,
)
from reput.io import make_folder
from reput.kernels.queue_entries import MAX_QUEUE_OFFSET

QueueForm = Literal["files", "rocksdb"]
_MOST_NAMES = 5
QUEUE_FORMS: tuple[QueueForm, ...] = ("files", "rocksdb")


class QueueBuild(Protocol):
    """Plans the tasks that write queues, and completes the queues after the tasks.

    without  folders that the rebuild deletes, because a store with this form of queues does not have them
    """

    without: tuple[str, ...]

    def plan(self, log: LogSummary, parallelism: int, run: RunOne) -> QueueLayout:
        """Return the tasks that write the queues.

        The planning itself is also a task, which `run` executes, because the data of many queues do not fit into the
        driver's memory.
        """
        ...

    def finish(self, log: LogSummary, written: Sequence[object], report: RebuildReport) -> None:
        """Complete the queues. `written` has the results of all write tasks.

        Raises StoreAccessError, StoreChangedError.
        """
        ...


class RunOne(Protocol):
    """Runs a function as one task and returns its result."""

    def __call__(self, function: Callable[[Task], Result], task: Task) -> Result: ...


def kind_of(facts: StoreFacts, asked: str | None, only: str | None) -> QueueForm:
    """Return the form of queues to write: `asked`, else the form of the store or its broker. Raises UsageError.

    `only` is the part to rebuild. If it is "index", no queues are written.
    """
    if asked is not None and asked not in QUEUE_FORMS:
        raise UsageError(
            f"queues must be 'files' or 'rocksdb', not {asked!r}", arguments=["queues"]
        )
    for kind in QUEUE_FORMS:
        if asked == kind:
            return kind
    if only != "index" and facts.has_queue_database and facts.has_queue_files:
        raise UsageError(
            f"{facts.path}: has ConsumeQueues in files and in RocksDB; pass queues='files' or queues='rocksdb'",
            arguments=["queues"],
        )
    return "rocksdb" if facts.has_queue_database or facts.config.queues_in_rocksdb else "files"


class FileQueues:
    """ConsumeQueue files, with batch queues and extension files if the store has them."""

    without: tuple[str, ...] = ()

    def __init__(
        self, staging: Staging | BucketStaging, output: Path | None, config: StoreConfig,
        batch_topics: frozenset[str], extended: bool, in_place: bool, new: Path | None = None,
    ) -> None:  # fmt: skip
        """Prepare to write new files into the folder `new`.

        The new files replace the old files in the folder `output`. Both folders are None if the result stays in object
        storage.
        """
        self._in_place, self._staging = in_place, staging
        self._new, self._output, self._config = new, output, config
        self._batch_topics, self._extended = batch_topics, extended
        self._layout = QueueLayout()

    def plan(self, log: LogSummary, parallelism: int, run: RunOne) -> QueueLayout:
        """See QueueBuild."""
        kinds = {
            CONSUME_QUEUE_FOLDER: True, EXTENSION_FOLDER: self._extended,
            BATCH_QUEUE_FOLDER: bool(self._batch_topics),
        }  # fmt: skip
        for name in (name for name, is_there in kinds.items() if is_there):
            if self._new is not None:
                make_folder(self._new / name)
        task = PlanTask(
            str(self._staging.scanned), log.staged, str(self._staging.plan),
            str(self._output) if self._in_place else None, self._config.queue_file_bytes,
            entries_of_a_task(log, parallelism), log.misplaced > 0, bool(log.lost), log.begin,
            self._batch_topics, self._extended, isinstance(self._staging, BucketStaging),
        )  # fmt: skip
        self._layout = run(plan_queues, task)
        return self._layout

    def finish(self, log: LogSummary, written: Sequence[object], report: RebuildReport) -> None:
        """See QueueBuild."""
        if self._extended:
            report.note(_NO_BIT_MAPS)
        report.queues = self._layout.count
        kept = older = 0
        for result in written:
            if isinstance(result, QueuesWritten):
                report.queue_entries += result.taken
                report.queue_entries_dropped += result.dropped
                report.queue_blanks += result.blanks
                kept += result.kept
                older += result.older
        if older:
            report.note(
                f"{counted(older, 'message')} without an entry: older than their queue, whose topic was deleted and "
                "created again; reput check names them"
            )
        if kept:
            report.note(
                f"{kept:,} entries in the old ConsumeQueues lead to messages that cannot be read; they were kept"
            )
        if report.queue_entries_dropped:
            report.note(
                f"{counted(report.queue_entries_dropped, 'entry', 'entries')} left out of the ConsumeQueues: an older "
                "message states the same or a later queue offset or place; a broker leaves them out as well"
            )
        if report.queue_blanks:
            report.note(
                f"{report.queue_blanks:,} pre-blank entries take the places of lost messages, so "
                f"that later entries keep their queue offsets"
            )
        self._note_unnamed(report)
        if self._new is not None and facts_of(report.store).has_queue_database:
            self._note_renumbered(self._new, log, report)
        if self._output is not None and self._new is not None:
            self._keep_expired(self._output, self._new, log, report)

    def _note_renumbered(self, new: Path, log: LogSummary, report: RebuildReport) -> None:
        """Note which entries have other numbers than in the store's RocksDB database.

        RocksDB has an entry under the queue offset of its message, files have it at its place.
        """
        staged = [Path(self._staging.scanned, name) for name in log.staged]
        renumbered = renumbered_entries(new, staged, ())
        count = report.queue_entries_renumbered = sum(renumbered.values())
        if renumbered:
            report.note(
                f"{count:,} entries have other numbers than in RocksDB, {_names(renumbered)}: like a 5.3 broker, files "
                "have the entries in the order of dispatch, without gaps; move the offsets that consumer groups have "
                "committed there"
            )

    def _keep_expired(
        self, output: Path, new: Path, log: LogSummary, report: RebuildReport
    ) -> None:
        """Keep the last entry of queues without a message in the log.

        This entry determines the next queue offset.
        """
        kept = keep_expired_queues(output, new, log.begin)
        if self._batch_topics:
            kept += keep_expired_queues(output, new, log.begin, BATCH_QUEUE_FOLDER)
        if kept:
            report.note(f"{kept} queues without a message in the CommitLog were kept as they are")
        queues = set(read_plan(str(self._staging.plan)).queues)
        converted, lost = 0, 0
        for last in _last_entries(output, report):
            folder = new / CONSUME_QUEUE_FOLDER / last.queue.topic / str(last.queue.queue_id)
            if last.queue in queues or folder.exists():
                continue
            if not self._can_convert(last, log.begin):
                lost += 1
                continue
            write_expired_queue(folder, self._config.queue_entries, last.number, last.entry)
            converted += 1
        if converted:
            report.note(
                f"{converted} queues without a message in the CommitLog keep their queue offsets: their last "
                "entries were copied from RocksDB"
            )
        if lost:
            report.note(
                f"{lost} queues without a message in the CommitLog were in RocksDB only; their "
                f"queue offsets restart at 0"
            )

    def _can_convert(self, last: _LastEntry, log_begin: int) -> bool:
        """Return whether the entry belongs to an expired message and can be written to a ConsumeQueue file.

        Queues of batch topics are excluded, because the sizes of their batches are unknown.
        """
        is_queue = is_folder_name(last.queue.topic) and last.queue.topic not in self._batch_topics
        is_place = 0 <= last.number <= MAX_QUEUE_OFFSET and last.entry.physical_offset >= 0
        return is_queue and is_place and last.entry.physical_offset < log_begin

    def _note_unnamed(self, report: RebuildReport) -> None:
        if self._layout.unnamed:
            names = ", ".join(map(repr, self._layout.unnamed))
            report.note(f"no ConsumeQueue for topics that cannot name a folder: {names}")


_NO_BIT_MAPS = (
    "extension files have the filter bit maps of the store's old files; other units have no bit map, so a broker "
    "evaluates filters for them on the messages"
)


class QueueDatabase:
    """All queues in RocksDB."""

    without: tuple[str, ...] = (BATCH_QUEUE_FOLDER, EXTENSION_FOLDER)

    def __init__(self, staging: Staging, output: Path, in_place: bool) -> None:
        """Prepare the database. Raises MissingExtraError."""
        require_library()
        self._staging, self._new, self._output = staging, staging.new, output
        self._replaced = str(output / CONSUME_QUEUE_FOLDER) if in_place else None

    def plan(self, log: LogSummary, parallelism: int, run: RunOne) -> QueueLayout:
        """See QueueBuild."""
        share = entries_of_a_task(log, parallelism)
        scanned, plan = str(self._staging.scanned), str(self._staging.plan)
        part = LogPart(log.begin, log.end, log.lost, log.misplaced > 0)
        task = RocksPlanTask(scanned, log.staged, plan, share, part, self._replaced)
        return run(rocksdb_layout, task)

    def finish(self, log: LogSummary, written: Sequence[object], report: RebuildReport) -> None:
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
        report.queues = len(newest)
        refused, kept = sum(one.refused for one in tables), sum(one.kept for one in tables)
        report.queue_entries_dropped = replaced.total() + refused
        if kept:
            report.note(
                f"{kept:,} entries in the old database lead to messages that cannot be read; they were kept"
            )
        if refused:
            report.note(
                f"{refused:,} messages have no entry: they had none before, and another message has the "
                f"queue offset that they state"
            )
        if facts_of(report.store).has_queue_files:
            staged = [self._staging.scanned / name for name in log.staged]
            renumbered = renumbered_entries(Path(report.store), staged, replaced)
            report.queue_entries_renumbered = sum(renumbered.values())
            if renumbered:
                report.note(
                    f"{report.queue_entries_renumbered:,} entries have other numbers than in the ConsumeQueue "
                    f"files, {_names(renumbered)}: like a 5.3 broker, RocksDB stores them under the queue offsets of "
                    "their "
                    "messages; check the offsets that consumer groups have committed there"
                )
        if replaced:
            report.note(
                f"{replaced.total():,} entries have no place, {_names(replaced)}: a later message has the same queue "
                "offset; a 5.3 broker also keeps only the later entry"
            )
        expired = dict(expired_queue_ends(self._output, log.begin))
        for last in _last_entries(self._output, report):
            if last.entry.physical_offset < log.begin:
                expired[last.queue] = last.entry.physical_offset, last.number
        expired = {queue: place for queue, place in expired.items() if queue not in newest}
        if expired:
            report.note(
                f"the end positions of {len(expired)} queues without a message in the CommitLog were kept"
            )
        ends = {
            end_key(*queue): encode_end(*place) for queue, place in {**newest, **expired}.items()
        }
        # The database checkpoint is the log position up to which all messages have entries.
        ends[CHECKPOINT_KEY] = encode_checkpoint(max((table.stop for table in tables), default=0))
        paths = [table.path for table in tables if table.path is not None]
        create_database(self._new / CONSUME_QUEUE_FOLDER, paths, ends)


def entries_of_a_task(log: LogSummary, parallelism: int) -> int:
    """Return the number of entries per task: an equal share, at most `MOST_ENTRIES`."""
    entries = sum(split.entries for split in log.splits)
    return max(min(-(-entries // parallelism), MOST_ENTRIES), 1)


def _names(queues: Iterable[Queue]) -> str:
    """Return the names of the first few queues, and how many more there are."""
    names = sorted(f"{queue.topic}/{queue.queue_id}" for queue in queues)
    more = f" and {len(names) - _MOST_NAMES} more queues" if len(names) > _MOST_NAMES else ""
    return f"in {', '.join(names[:_MOST_NAMES])}{more}"


class _LastEntry(NamedTuple):
    """The last entry of a queue in a database, and its queue offset `number`."""

    queue: Queue
    number: int
    entry: ConsumeQueueEntry


def _last_entries(store: Path, report: RebuildReport) -> list[_LastEntry]:
    """Return the last entries of the store's old database. Adds a note to the report if the database is damaged.

    Compaction drops the entries of expired messages. Of a queue's last entry, the database may then have only the
    physical offset and the queue offset. Such an entry gets the size 1, which no reader uses, because its message has
    expired.
    """
    if (folder := facts_of(store).queue_database) is None:
        return []
    found: list[_LastEntry] = []
    try:
        with closing(RocksDatabase(folder)) as database:
            for topic, queue_id, physical_offset, number in database.ends():
                value = database.get(entry_key(queue_prefix(topic, queue_id), number))
                stored = None if value is None else decode_value(value)
                entry = ConsumeQueueEntry(physical_offset, 1, 0)
                if stored and stored[0].is_written and stored[0].physical_offset == physical_offset:
                    entry = stored[0]
                found.append(_LastEntry(Queue(topic, queue_id), number, entry))
    except (StoreError, MissingExtraError) as error:
        report.note(f"ends of queues without a message in the CommitLog are lost: {error}")
        return []
    return found
