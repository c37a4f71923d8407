"""Write queues anew, in the form that the store has or the user asks for. Files are this room's own form.

Another form (`reput.core.QueueForm`) takes part in a rebuild if it is a `RebuiltForm`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from reput.base import Result, StoreConfig, Task, agreeing, counted
from reput.core import (
    BOTH,
    FILES,
    ROCKSDB,
    LastEntry,
    Queue,
    QueueForm,
    configured_form,
    facts_of,
    form_names,
    queue_form,
    write_expired_queue,
)
from reput.engine.rebuild.expired import keep_expired_queues
from reput.engine.rebuild.queue_plan import (
    MOST_ENTRIES,
    PlanTask,
    QueueLayout,
    QueueTask,
    plan_queues,
    read_plan,
)
from reput.engine.rebuild.renumbered import renumbered_entries
from reput.engine.rebuild.report import RebuildReport
from reput.engine.rebuild.staging import Staging
from reput.engine.rebuild.staging_bucket import BucketStaging
from reput.engine.rebuild.stitch import LogSummary
from reput.engine.rebuild.write_files import QueuesWritten, WriteJob, write_queues
from reput.engine.writer import StoreSurvey
from reput.errors import MissingExtraError, StoreError, UsageError
from reput.format.consume_queue import MAX_QUEUE_OFFSET
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CONSUME_QUEUE_FOLDER,
    EXTENSION_FOLDER,
    is_folder_name,
)
from reput.io import DISK

_MOST_NAMES = 5


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

    def writer(self) -> WriteQueues:
        """Return the function that runs one of the planned tasks. Workers of other machines import it."""
        ...

    def finish(self, log: LogSummary, written: Sequence[object], report: RebuildReport) -> None:
        """Complete the queues. `written` has the results of all write tasks.

        Raises StoreAccessError, StoreChangedError.
        """
        ...


WriteQueues = Callable[[WriteJob, QueueTask], object]


class RunOne(Protocol):
    """Runs a function as one task and returns its result."""

    def __call__(self, function: Callable[[Task], Result], task: Task) -> Result: ...


@runtime_checkable
class RebuiltForm(Protocol):
    """A form of queues that a rebuild can write."""

    name: str

    def build(
        self,
        staging: Staging,
        output: Path,
        source: StoreSurvey,
        *,
        in_place: bool,
        beside_files: bool,
    ) -> QueueBuild:
        """Prepare to write the queues of the store in `output` into the folder `staging.new`.

        Args:
            staging: The folder for new files.
            output: The folder for the result.
            source: The store with the log.
            in_place: Whether `output` is that store.
            beside_files: Whether the rebuild also writes ConsumeQueue files.

        Raises MissingExtraError, FormatError, StoreAccessError.
        """
        ...


def forms_of(facts: StoreSurvey, name: str | None, only: str | None) -> tuple[QueueForm, ...]:
    """Return the forms of queues to write: those with this name, else that of the store or its broker.

    `only` is the part to rebuild. If it is "index", no queues are written. Raises UsageError.
    """
    if name == BOTH:
        return queue_form(FILES), queue_form(ROCKSDB)
    if name is not None:
        forms = {form: queue_form(form) for form in form_names()}
        names = [form for form in forms if forms[form].has_all]
        if name not in names:
            raise UsageError(
                f"queues must be {' or '.join(map(repr, [*names, BOTH]))}, not {name!r}",
                arguments=["queues"],
            )
        return (forms[name],)
    if (form := facts.last_form) is None:
        return (configured_form(facts.config),)
    if only != "index" and facts.has_queue_files:
        raise UsageError(
            f"{facts.path}: has ConsumeQueues in files and in {form.title}; pass queues='files', "
            f"queues={form.name!r} or queues={BOTH!r}",
            arguments=["queues"],
        )
    return (form,)


class FileQueues:
    """ConsumeQueue files, with batch queues and extension files if the store has them."""

    def __init__(
        self, staging: Staging | BucketStaging, output: Path | None, config: StoreConfig,
        batch_topics: frozenset[str], extended: bool, in_place: bool, new: Path | None = None, *,
        converts: bool = True,
    ) -> None:  # fmt: skip
        """Prepare to write new files into the folder `new`.

        The new files replace the old files in the folder `output`. Both folders are None if the result stays in object
        storage. If this form `converts`, queues that are only in another form get their last entries from there.
        """
        self._converts = converts
        self._in_place, self._staging = in_place, staging
        self._new, self._output, self._config = new, output, config
        self._batch_topics, self._extended = batch_topics, extended
        self._layout = QueueLayout()
        form = facts_of(output).queue_form if output is not None and in_place else None
        # A database in consumequeue/ is replaced by the files.
        old = set() if form is None else {os.path.basename(form.folder(str(output)))}
        self.without = tuple(old - {CONSUME_QUEUE_FOLDER})

    def plan(self, log: LogSummary, parallelism: int, run: RunOne) -> QueueLayout:
        """See QueueBuild."""
        kinds = {
            CONSUME_QUEUE_FOLDER: True, EXTENSION_FOLDER: self._extended,
            BATCH_QUEUE_FOLDER: bool(self._batch_topics),
        }  # fmt: skip
        for name in (name for name, has_kind in kinds.items() if has_kind):
            if self._new is not None:
                DISK.create_folder(self._new / name)
        task = PlanTask(
            str(self._staging.scanned), log.staged, str(self._staging.plan),
            str(self._output) if self._in_place else None, self._config.queue_file_bytes,
            entries_of_a_task(log, parallelism), log.misplaced > 0, bool(log.lost), log.begin,
            self._batch_topics, self._extended, isinstance(self._staging, BucketStaging),
        )  # fmt: skip
        self._layout = run(plan_queues, task)
        return self._layout

    def writer(self) -> WriteQueues:
        """See QueueBuild."""
        return write_queues

    def finish(self, log: LogSummary, written: Sequence[object], report: RebuildReport) -> None:
        """See QueueBuild."""
        if self._extended:
            report.note(_NO_BIT_MAPS)
        report.queues = self._layout.count
        old_entries = older = 0
        for result in written:
            if isinstance(result, QueuesWritten):
                report.queue_entries += result.entries
                report.queue_entries_dropped += result.dropped
                report.queue_blanks += result.blanks
                old_entries += result.old_entries
                older += result.older
        if older:
            report.note(
                f"{counted(older, 'message')} without an entry: older than their queue, whose topic was deleted and "
                "created again; reput check names them"
            )
        if old_entries:
            report.note(
                f"{counted(old_entries, 'entry', 'entries')} of unreadable messages {agreeing(old_entries, 'was')} "
                "kept from the old ConsumeQueues"
            )
        if report.queue_entries_dropped:
            report.note(
                f"{counted(report.queue_entries_dropped, 'entry', 'entries')} left out of the ConsumeQueues: an older "
                "message states the same or a later queue offset or place; a broker leaves them out as well"
            )
        if report.queue_blanks:
            report.note(
                f"{counted(report.queue_blanks, 'pre-blank entry', 'pre-blank entries', 'takes')} the places of lost "
                "messages, so that later entries keep their queue offsets"
            )
        self._note_unnamed(report)
        form = facts_of(report.store).queue_form
        if self._new is not None and form is not None:
            self._note_renumbered(form, self._new, log, report)
        if self._output is not None and self._new is not None:
            self._keep_expired(self._output, self._new, log, report)

    def _note_renumbered(
        self, form: QueueForm, new: Path, log: LogSummary, report: RebuildReport
    ) -> None:
        """Note which entries have other numbers than in the store's old form, such as RocksDB.

        RocksDB has an entry under the queue offset of its message, files have it at its place.
        """
        staged = [Path(self._staging.scanned, name) for name in log.staged]
        renumbered = renumbered_entries(new, staged, ())
        count = report.queue_entries_renumbered = sum(renumbered.values())
        if renumbered:
            report.note(
                f"{counted(count, 'entry', 'entries', 'has')} another number than in {form.title}, "
                f"{some_names(renumbered)}: like a 5.3 "
                "broker, files have the entries in the order of dispatch, without gaps; move the offsets that consumer "
                "groups have committed there"
            )

    def _keep_expired(
        self, output: Path, new: Path, log: LogSummary, report: RebuildReport
    ) -> None:
        """Keep the last entry of queues without a message in the log.

        This entry determines the next queue offset.
        """
        count = keep_expired_queues(output, new, log.begin)
        if self._batch_topics:
            count += keep_expired_queues(output, new, log.begin, BATCH_QUEUE_FOLDER)
        if count:
            report.note(
                f"{counted(count, 'queue')} without a message in the CommitLog {agreeing(count, 'was')} kept unchanged"
            )
        queues = set(read_plan(str(self._staging.plan)).queues)
        converted, lost, title = 0, 0, ""
        if (form := facts_of(output).queue_form) is not None:
            title = form.title
        for last in last_entries(output, report) if self._converts else ():
            folder = new / CONSUME_QUEUE_FOLDER / last.topic / str(last.queue_id)
            if Queue(last.topic, last.queue_id) in queues or folder.exists():
                continue
            if not self._can_convert(last, log.begin):
                lost += 1
                continue
            write_expired_queue(folder, self._config.queue_entries, last.queue_offset, last.expired)
            converted += 1
        if converted:
            report.note(
                f"the last entries of {counted(converted, 'queue')} without a message in the CommitLog were copied "
                "from "
                f"{title}, so queue offsets continue"
            )
        if lost:
            report.note(
                f"{counted(lost, 'queue')} without a message in the CommitLog existed in {title} only; queue "
                "offsets there "
                f"restart at 0"
            )

    def _can_convert(self, last: LastEntry, log_begin: int) -> bool:
        """Return whether the entry belongs to an expired message and can be written to a ConsumeQueue file.

        Queues of batch topics are excluded, because the sizes of their batches are unknown.
        """
        is_queue = is_folder_name(last.topic) and last.topic not in self._batch_topics
        is_place = 0 <= last.queue_offset <= MAX_QUEUE_OFFSET
        return is_queue and is_place and 0 <= last.physical_offset < log_begin

    def _note_unnamed(self, report: RebuildReport) -> None:
        if self._layout.unnamed:
            names = ", ".join(map(repr, self._layout.unnamed))
            report.note(f"no ConsumeQueue for topics that cannot name a folder: {names}")


_NO_BIT_MAPS = (
    "extension files have the filter bit maps of the store's old files; other units have no bit map, so a broker "
    "evaluates filters for them on the messages"
)


def entries_of_a_task(log: LogSummary, parallelism: int) -> int:
    """Return the number of entries per task: an equal share, at most `MOST_ENTRIES`."""
    entries = sum(split.entries for split in log.splits)
    return max(min(-(-entries // parallelism), MOST_ENTRIES), 1)


def some_names(queues: Iterable[Queue]) -> str:
    """Return the names of the first few queues, and how many more there are."""
    names = sorted(f"{queue.topic}/{queue.queue_id}" for queue in queues)
    further = len(names) - _MOST_NAMES
    more = f" and {counted(further, 'more queue')}" if further > 0 else ""
    return f"in {', '.join(names[:_MOST_NAMES])}{more}"


def last_entries(store: Path, report: RebuildReport) -> list[LastEntry]:
    """Return the last entries of a store's old queues in another form than files.

    Adds a note to the report if they are damaged.
    """
    if (form := facts_of(store).queue_form) is None:
        return []
    try:
        return list(form.last_entries(str(store)))
    except (StoreError, MissingExtraError) as error:
        report.note(f"ends of queues without a message in the CommitLog are lost: {error}")
        return []
