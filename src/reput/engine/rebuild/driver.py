"""Run a rebuild from beginning to end, with any runner."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from posixpath import join
from typing import Literal, NamedTuple, Protocol, cast

from reput.base import Progress, Result, Runner, StoreConfig, Task, counted, now_ms, silent
from reput.core import (
    CommitLogFile,
    CommitLogReader,
    DispatchRules,
    IndexFileReader,
    Proof,
    QueueForm,
    Stamps,
    StoreFacts,
    StoreLog,
    batch_topics,
    facts_of,
    index_form,
    index_paths,
)
from reput.engine.compare import reader_of, remember
from reput.engine.rebuild.batch_file import read_facts
from reput.engine.rebuild.commit import FolderTarget, RebuildCommit, Target
from reput.engine.rebuild.divided import divide
from reput.engine.rebuild.index_layout import IndexFileTask, index_layout
from reput.engine.rebuild.publish import BucketTarget, FetchedTarget
from reput.engine.rebuild.queue_kinds import (
    FileQueues,
    QueueBuild,
    RebuiltForm,
    WriteQueues,
    forms_of,
)
from reput.engine.rebuild.queue_pieces import join_pieces, write_objects
from reput.engine.rebuild.queue_plan import QueueTask
from reput.engine.rebuild.report import RebuildReport
from reput.engine.rebuild.scan_split import ScanJob, ScanTask, run_scan
from reput.engine.rebuild.splits import default_split_bytes, plan_splits
from reput.engine.rebuild.staging import STAGING_FOLDER, Staging, fingerprint
from reput.engine.rebuild.staging_bucket import BucketStaging
from reput.engine.rebuild.stitch import LogSummary, Stitcher
from reput.engine.rebuild.write_files import (
    IndexFileWritten,
    QueuesWritten,
    WriteJob,
    write_index_file,
    write_queues,
)
from reput.engine.writer import (
    KEPT_BY,
    LogEnds,
    LogPart,
    has_keys_in_rocksdb,
    keep_parts,
    keep_topics,
    survey_of,
)
from reput.errors import StoreError, UsageError
from reput.format.file_names import (
    INDEX_FOLDER,
    LOCK_FILE,
    MESSAGE_DATABASE_FOLDERS,
    index_file_names,
)
from reput.io import (
    DISK,
    AnchoredRunner,
    Location,
    OpenFile,
    PlacedRunner,
    StagedFiles,
    Stamp,
    Storage,
    locked,
    open_object_store,
    storage_of,
)

_SIZES_ASSUMED = (
    "the store has no IndexFile that shows hash slots and index items, so the broker's defaults were used; if the "
    "broker has other values, rebuild with its configuration, or pass the numbers of slots and items"
)
_QUEUE_SIZE_ASSUMED = (
    "the store has no ConsumeQueue file that shows the size of these files, so the broker's default was used; a broker "
    "with another size does not start: rebuild with its configuration"
)
# Two seconds: more than the resolution (one second) of the modification times of objects.
_REMOTE_TICK_NS = 2_000_000_000
# For this number of log files or more, tasks look up where the data of each file ends. For fewer files, the driver
# looks it up itself.
_MANY_FILES = 64
Only = Literal["consumequeue", "index"]


def rebuild_store(
    runner: Runner,
    store: str | os.PathLike[str],
    *,
    config: StoreConfig | None = None,
    only: Only | None = None,
    output: str | os.PathLike[str] | None = None,
    queues: str | None = None,
    index: str | None = None,
    split_size: int | None = None,
    salvage: bool = False,
    staging: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> RebuildReport:
    """Rebuild `consumequeue/` and `index/` of `store`.

    Unreadable parts of the log are not errors: the report has them as `damage`.

    Args:
        runner: Runs the tasks.
        store: Folder or URL of the store with the log.
        config: Sizes of files. By default, sizes come from the store's own files, or from a broker's defaults.
        only: The part to rebuild, 'consumequeue' or 'index'; both by default.
        output: Folder or URL for the result; by default, the store itself.
        queues: 'files', 'rocksdb' or 'both'; by default, the kind that the store has. 'both' keeps the topics that a
            store with both kinds has in RocksDB. Not with only='index'.
        index: 'files' (IndexFiles) or 'rocksdb' (the database of keys of a 5.4 broker); 'files' by default, but a store
            with keys in RocksDB only needs a value.
        split_size: Bytes of the CommitLog per scan task.
        salvage: Search for readable records after damage.
        staging: URL for temporary files, for tasks that share no folder. By default, temporary files are in the output.
        storage_options: Options for every URL.
        progress: Receives the phases scan and rescan (bytes of the log), then divide, write, join and publish (bytes
            written).

    Raises:
        StoreNotFoundError, StoreLockedError, StoreAccessError, StoreChangedError, UsageError.
    """
    if only not in (None, "consumequeue", "index"):
        raise UsageError(
            f"the argument `only` must be 'consumequeue' or 'index', not {only!r}",
            arguments=["only"],
        )
    _check_index_form(index, only, salvage)
    if queues is not None and only == "index":
        raise UsageError(
            "queues cannot be combined with only='index', which leaves them as they are",
            arguments=["queues", "only"],
        )
    if split_size is not None and split_size < 1:
        raise UsageError("split_size must be at least 1 byte", arguments=["split_size"])
    options = dict(storage_options or {})
    source = _Source.of(store, options)
    if index is None and only != "consumequeue":
        _refuse_new_index_form(facts_of(source.path, storage=source.storage))
    arguments = _Arguments(only, queues, split_size, salvage, config, index == "rocksdb")
    target = source.path if output is None else os.fspath(output)
    if arguments.has_index_database and (staging is not None or Location.is_url(target)):
        raise UsageError(
            "index='rocksdb' needs local folders for the output and for staging",
            arguments=["index"],
        )
    if Location.is_url(target):
        return _into_bucket(
            runner, source, target, staging or _below(target), arguments, options, progress
        )
    folder = Path(target).absolute()
    in_place = str(folder) == source.path
    access = DISK.anchored(folder) if in_place else DISK.reading_for(folder, [source.path])
    with access if source.is_folder else nullcontext():
        if staging is None:
            return _into_folder(
                AnchoredRunner(runner), source, folder, in_place, arguments, progress
            )
        return _by_bucket(runner, source, folder, in_place, staging, arguments, options, progress)


def _check_index_form(form: str | None, only: str | None, salvage: bool) -> None:
    """Raise UsageError for an unknown form of the index, and for arguments that do not apply to RocksDB."""
    if form not in (None, "files", "rocksdb"):
        raise UsageError(f"index must be 'files' or 'rocksdb', not {form!r}", arguments=["index"])
    if form == "rocksdb" and (only == "consumequeue" or salvage):
        raise UsageError(
            "index='rocksdb' cannot be combined with only='consumequeue' or salvage",
            arguments=["index"],
        )


def _refuse_new_index_form(facts: StoreFacts) -> None:
    """Raise UsageError for a store that has keys in RocksDB only: IndexFiles would be a new part of it."""
    if not facts.message_databases or index_paths(Path(facts.path, INDEX_FOLDER)):
        return
    if not has_keys_in_rocksdb(facts):
        return
    raise UsageError(
        f"{facts.path}: has keys in RocksDB, and no IndexFiles; pass index='rocksdb' to write the keys there, or "
        "index='files' to write IndexFiles",
        arguments=["index"],
    )


class RebuiltIndex(Protocol):
    """A form of the index of keys that a rebuild can write in place of IndexFiles."""

    def folder(self, facts: StoreFacts, *, in_place: bool) -> str:
        """Return the name of the folder into which the index is written.

        Raises UsageError, MissingExtraError, FormatError, StoreAccessError.
        """

    def write(self, source: StoreLog, start: int, stop: int, folder: Path) -> int:
        """Write the index of the messages in [start, stop). Return the number of keys. Raises StoreError."""


def _rocksdb_index() -> RebuiltIndex:
    return cast("RebuiltIndex", index_form("rocksdb"))


class _Source(NamedTuple):
    """The store whose log is read."""

    path: str
    storage: Storage

    @classmethod
    def of(cls, store: str | os.PathLike[str], options: Mapping[str, str]) -> _Source:
        storage, path = storage_of(store, options)
        return cls(os.path.abspath(path) if storage.is_local else path, storage)

    @property
    def is_folder(self) -> bool:
        return self.storage.is_local and os.path.isdir(self.path)


class _Arguments(NamedTuple):
    """The arguments of rebuild_store that its steps need."""

    only: Only | None
    queues: str | None
    split_size: int | None
    salvage: bool
    config: StoreConfig | None
    has_index_database: bool = False


class QueuePass(NamedTuple):
    """What writes the queues in one form, and the place for its plan and parts."""

    build: QueueBuild
    staging: Staging | BucketStaging


class _Survey(NamedTuple):
    """Facts about a store, collected before its log is read."""

    source: _Source
    files: list[CommitLogFile]
    open_file: OpenFile
    stamps: dict[int, Stamp]
    config: StoreConfig
    forms: tuple[QueueForm, ...]
    notes: list[str]
    ends: LogEnds
    fingerprint: str

    @property
    def log(self) -> StoreLog:
        return StoreLog(self.source.path, self.source.storage)

    def file_queues(
        self, staging: Staging | BucketStaging, output: Path | None, new: Path | None = None, *,
        in_place: bool = False, converts: bool = True,
    ) -> FileQueues:  # fmt: skip
        """Return what writes ConsumeQueue files, as `FileQueues` takes its arguments."""
        path, storage = self.source
        facts = facts_of(path, storage=storage)
        extended = self.config.extension_files or facts.has_extension_files
        topics = batch_topics(path, storage)
        return FileQueues(
            staging, output, self.config, topics, extended, in_place, new, converts=converts
        )

    def passes(
        self, staging: Staging, output: Path, *, only: Only | None, in_place: bool
    ) -> tuple[QueuePass, ...]:
        """Return what writes the queues into a folder, form by form."""
        facts = survey_of(self.source.path, storage=self.source.storage)
        passes: list[QueuePass] = []
        for form in () if only == "index" else self.forms:
            place = staging if not passes else staging.of_further_queues()
            build: QueueBuild
            if isinstance(form, RebuiltForm):
                build = form.build(
                    place, output, facts, in_place=in_place, beside_files=len(self.forms) > 1
                )
            else:
                build = self.file_queues(
                    place, output, staging.new, in_place=in_place, converts=len(self.forms) == 1
                )
            passes.append(QueuePass(build, place))
        return tuple(passes)

    def bucket_passes(
        self, staging: BucketStaging, output: Path | None, new: Path | None, only: Only | None
    ) -> tuple[QueuePass, ...]:
        """Return what writes the queues into object storage: always ConsumeQueue files."""
        if only == "index":
            return ()
        return (QueuePass(self.file_queues(staging, output, new), staging),)

    def report(self, output: str) -> RebuildReport:
        report = RebuildReport(self.source.path, output, config=self.config, notes=self.notes)
        ends = self.ends
        # Skip findings after the end of the rebuilt log: the report counts the bytes after this end as the log's torn
        # end.
        report.note(*[str(finding) for finding in ends.findings() if finding.start < ends.rebuild])
        return report


def _survey(source: _Source, arguments: _Arguments) -> _Survey:
    """Examine a store. Raises the errors of rebuild_store."""
    path, storage = source
    listing = StoreLog(path, storage).list()
    files = list(listing.files)
    stamps = Stamps.of_log(files) if storage.is_local else _remote_stamps(files)
    facts = survey_of(path, arguments.config, storage)
    facts.require_certain(but=KEPT_BY[arguments.only])
    notes = [str(odd) for odd in facts.odd_files] if arguments.config is None else []
    if (
        arguments.config is None
        and arguments.only != "consumequeue"
        and "hash_slots" not in facts.shown
    ):
        notes.append(_SIZES_ASSUMED)
    config = facts.config
    forms = forms_of(facts, arguments.queues, arguments.only)
    if (
        arguments.config is None
        and arguments.only != "index"
        and "queue_entries" not in facts.shown
        and not all(isinstance(form, RebuiltForm) for form in forms)
    ):
        notes.append(_QUEUE_SIZE_ASSUMED)
    for form in forms:
        config = form.settings(config)
    return _Survey(
        source, files, listing.open_file, stamps, config, forms, notes, facts.ends,
        fingerprint(files, stamps, config, arguments.salvage),
    )  # fmt: skip


def _remote_stamps(files: Sequence[CommitLogFile]) -> dict[int, Stamp]:
    """Return stamps (size and time), with which a change of an object can be noticed.

    Object times are whole seconds. An object that was just written may change again without a new time, so it gets no
    stamp.
    """
    settled = time.time_ns() - _REMOTE_TICK_NS
    return {
        file.start: Stamp(0, file.size, file.inode) for file in files if 0 < file.inode < settled
    }


def _into_folder(
    runner: Runner,
    source: _Source,
    output: Path,
    in_place: bool,
    arguments: _Arguments,
    progress: Progress,
) -> RebuildReport:
    survey = _survey(source, arguments)
    staging = Staging(output / STAGING_FOLDER, survey.fingerprint)
    passes = survey.passes(staging, output, only=arguments.only, in_place=in_place)
    target = FolderTarget(output, staging)
    report = survey.report(str(output))
    replaced = source.path if in_place else None
    database = None
    if arguments.has_index_database:
        facts = facts_of(source.path, storage=source.storage)
        database = staging.new / _rocksdb_index().folder(facts, in_place=in_place)
    rebuild = _Rebuild(
        runner, survey, staging, arguments.only, replaced, progress, report, passes, target, output,
        database,
    )  # fmt: skip
    with _owning(output, staging, in_place=in_place):
        rebuild.run(arguments)
    return report.sealed()


def _below(output: str) -> str:
    return f"{output.rstrip('/')}/{STAGING_FOLDER}"


def _bucket_staging(
    staging: str, survey: _Survey, only: Only | None, options: Mapping[str, str]
) -> BucketStaging:
    """Open the staging area in object storage. Raises UsageError, MissingExtraError, StoreAccessError."""
    if not Location.is_url(staging):
        raise UsageError(
            f"staging must be a URL of object storage, not {staging}; omit it to stage in a folder of the output",
            arguments=["staging"],
        )
    written = () if only == "index" else survey.forms
    if other := [form.title for form in written if isinstance(form, RebuiltForm)]:
        raise UsageError(
            f"ConsumeQueues in {other[0]} cannot be rebuilt with staging in object storage; pass "
            "queues='files', or use local folders for the output and for staging",
            arguments=["queues"],
        )
    return BucketStaging(open_object_store(staging, options), survey.fingerprint)


def _into_bucket(
    runner: Runner, source: _Source, output: str, place: str, arguments: _Arguments,
    options: Mapping[str, str], progress: Progress,
) -> RebuildReport:  # fmt: skip
    """Rebuild into object storage: stage the files there, then publish them."""
    survey = _survey(source, arguments)
    staging = _bucket_staging(place, survey, arguments.only, options)
    published = open_object_store(output, options)
    storage, path = storage_of(output, options)
    checkpoint = facts_of(path, storage=storage).checkpoint
    passes = survey.bucket_passes(staging, None, None, arguments.only)
    report = survey.report(output)
    StagedFiles.register_stores(places := (published, staging.store))
    rebuild = _Rebuild(
        PlacedRunner(AnchoredRunner(runner), places), survey, staging, arguments.only, None, progress,
        report, passes, target := BucketTarget(published, staging, arguments.only, checkpoint), None,
    )  # fmt: skip
    target.run_tasks = rebuild.run_tasks
    target.check_empty()
    rebuild.run(arguments)
    return report.sealed()


def _by_bucket(
    runner: Runner, source: _Source, output: Path, in_place: bool, place: str, arguments: _Arguments,
    options: Mapping[str, str], progress: Progress,
) -> RebuildReport:  # fmt: skip
    """Stage the new files of a rebuild in object storage, then fetch these files into the local folder `output`."""
    if in_place:
        raise UsageError(
            "a rebuild in place cannot stage in object storage, because tasks could not read the store's old "
            "ConsumeQueues; pass an output",
            arguments=["staging", "output"],
        )
    survey = _survey(source, arguments)
    staging = _bucket_staging(place, survey, arguments.only, options)
    local = Staging(output / STAGING_FOLDER, survey.fingerprint)
    passes = survey.bucket_passes(staging, output, local.new, arguments.only)
    report = survey.report(str(output))
    StagedFiles.register_stores(places := (staging.store,))
    # The tasks of an AnchoredRunner open this machine's output folder, so all executors must see it. With a remote
    # store, tasks use no folder of this machine, so a plain runner suffices.
    anchored_runner = AnchoredRunner(runner) if source.is_folder else runner
    rebuild = _Rebuild(
        PlacedRunner(anchored_runner, places), survey, staging, arguments.only, None, progress,
        report, passes, FetchedTarget(output, local, staging), output,
    )  # fmt: skip
    with _owning(output, local, in_place=False):
        local.prepare()
        rebuild.run(arguments)
    return report.sealed()


@contextmanager
def _owning(output: Path, staging: Staging, in_place: bool) -> Iterator[None]:
    """Lock the output and its staging folder against brokers and other rebuilds."""
    with ExitStack() as stack:
        with DISK.writing_to(output):
            DISK.create_folder(output)
        stack.enter_context(DISK.anchored(output))
        if in_place:
            busy = "a broker or another writer owns this store; stop it, or choose another output"
            stack.enter_context(locked(output / LOCK_FILE, busy, arguments=["output"]))
        # Create the staging folder only after taking the broker's lock: a refused rebuild must leave no folder in a
        # running broker's store.
        staging.create()
        stack.enter_context(DISK.anchored(staging.folder, owner=output))
        busy = "another rebuild is writing here; wait for it or stop it"
        stack.enter_context(locked(staging.owner, busy))
        yield


@dataclass(frozen=True, slots=True)
class _Rebuild:
    """One rebuild. Its steps fill the report."""

    runner: Runner
    survey: _Survey
    staging: Staging | BucketStaging
    only: Only | None
    replaced: str | None  # The path of the store if it is rebuilt in place, else None.
    progress: Progress
    report: RebuildReport
    queues: tuple[QueuePass, ...]  # Empty if no queues are written.
    target: Target
    output: Path | None  # None if the output is in object storage.
    index_database: Path | None = (
        None  # The folder of the index of keys in RocksDB; None to write IndexFiles.
    )

    @property
    def config(self) -> StoreConfig:
        return self.survey.config

    def run(self, arguments: _Arguments) -> None:
        times = [time.monotonic()]
        self.staging.prepare()
        self.target.clear()
        split_bytes = arguments.split_size or default_split_bytes(self.survey.files)
        log = self._scan(split_bytes, arguments.salvage)
        times.append(time.monotonic())
        proofs = self._write(log)
        times.append(time.monotonic())
        self._commit(log)
        self._remember(proofs)
        times.append(time.monotonic())
        report = self.report
        report.scan_s, report.write_s, report.commit_s = (
            after - before for before, after in pairwise(times)
        )
        report.total_s = times[-1] - times[0]

    def _scan(self, split_bytes: int, salvage: bool) -> LogSummary:
        """Scan every split. Repeat scans that guessed a wrong start, until all splits join."""
        files, data_end = self.survey.files, partial(_data_end, self.survey.source.storage)
        if len(files) < _MANY_FILES:
            data_ends = list(map(data_end, files))
        else:
            # There may be thousands of files, for example in object storage, so look up their ends in parallel.
            data_ends = self.run_tasks(data_end, files, [1] * len(files), "")
        splits = plan_splits(files, data_ends, split_bytes)
        ends = {file.start: end for file, end in zip(files, data_ends, strict=True)}
        rules = DispatchRules.of(self.config)
        job = ScanJob(str(self.staging.scanned), rules, salvage, self.survey.open_file)
        scan = partial(run_scan, job)
        stitcher = Stitcher(splits)
        tasks, phase = [ScanTask(split) for split in splits], "scan"
        while tasks:
            weights = [_data_bytes(task, ends[task.split.file.start]) for task in tasks]
            for summaries in self.run_tasks(scan, tasks, weights, phase):
                stitcher.take(summaries)
                self.report.rescanned += len(summaries) if phase == "rescan" else 0
            tasks, phase = stitcher.rescans(), "rescan"
        self.report.splits = len(splits)
        self.report.log_bytes = sum(ends.values()) - sum(ends)
        log = stitcher.log()
        self._report_log(log)
        self._keep_facts(stitcher)
        return log

    def _keep_facts(self, stitcher: Stitcher) -> None:
        """Remember store times, queues and topics of the log files, which the scans have collected in staged files."""
        source, staging = self.survey.source, self.staging
        if not source.is_folder or isinstance(staging, BucketStaging):
            return
        # The facts are only a cache. The rebuild is complete without them.
        with suppress(StoreError):
            for file, summaries in stitcher.readable_files():
                if not file.is_worth_keeping:
                    continue
                stamp = self.survey.stamps.get(file.start)
                texts = [
                    read_facts(join(str(staging.scanned), summary.staged)) for summary in summaries
                ]
                if stamp is not None and all(texts):
                    keep_parts(file, [text.encode() for text in texts], (file.start, *stamp))
            with closing(CommitLogReader(StoreLog(source.path))) as log:
                keep_topics(log)

    def run_tasks(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], weights: Sequence[int], phase: str
    ) -> list[Result]:  # fmt: skip
        """Run tasks that stop if another rebuild takes over. Progress is reported unless `phase` is empty."""
        progress = partial(self.progress, phase) if phase else _silent
        return self.runner.run(self.staging.fenced(function), tasks, weights, progress)

    def _run_one(self, function: Callable[[Task], Result], task: Task) -> Result:
        (result,) = self.run_tasks(function, [task], [1], "")
        return result

    def _report_log(self, log: LogSummary) -> None:
        report = self.report
        report.log_begin, report.log_end = log.begin, log.end
        if log.damage and log.damage[-1].stop == log.end:
            # Exclude the unreadable rest of the last file: the log ends after its last record.
            report.log_end = min(max(self.survey.ends.rebuild, log.damage[-1].start), log.end)
        report.torn_tail = log.torn
        report.messages, report.keys, report.damage = log.messages, log.keys, log.damage
        if misplaced := log.misplaced:
            report.note(
                f"{counted(misplaced, 'message', verb='states')} a physical offset other than its position, and is "
                "indexed at "
                "the stated offset"
            )
        if bad_multi := sum(split.bad_multi for split in log.splits):
            report.note(
                f"{counted(bad_multi, 'message', verb='has')} an invalid INNER_MULTI_QUEUE_OFFSET property"
            )

    def _write(self, log: LogSummary) -> dict[str, Proof | str]:
        """Write the new files into staging.

        Return for each IndexFile, by name, its proof, or the reason why it has none. Queries need not check a file that
        has a proof.
        """
        report = self.report
        indexes: Sequence[IndexFileTask] = ()
        if self.only != "consumequeue" and self.index_database is None:
            indexes = index_layout(log, self.config, self.survey.files)
        written: list[object] = []
        for queues in self.queues:
            written += self._write_queues(log, queues, indexes if not written else ())
        if not self.queues:
            written += self._write_tasks(self._job(log, self.staging), write_queues, indexes)
        if self.index_database is not None:
            report.index_entries = _rocksdb_index().write(
                self.survey.log, log.begin, report.log_end, self.index_database
            )
            return {}
        if self.only == "consumequeue":
            return {}
        return self._name_index_files(written)

    def _job(self, log: LogSummary, staging: Staging | BucketStaging) -> WriteJob:
        return WriteJob(
            self.report.store, str(staging.scanned), str(staging.plan), str(staging.parts),
            str(staging.new), self.config, LogPart(log.begin, log.end, log.lost, log.misplaced > 0),
            self.replaced, self.survey.source.storage,
        )  # fmt: skip

    def _write_queues(
        self, log: LogSummary, queues: QueuePass, indexes: Sequence[IndexFileTask]
    ) -> list[object]:
        """Write the queues in one form, and IndexFiles at the same time. Return the results of the tasks."""
        build, staging = queues
        if isinstance(staging, Staging):
            staging.prepare_further()
        job = self._job(log, staging)
        layout = build.plan(log, 2 * self.runner.parallelism, self._run_one)
        dividing = partial(divide, job.scanned, job.plan, job.parts)
        # Write tasks read the output files of the divide tasks. So all divide tasks must end before any write task
        # starts.
        self.run_tasks(dividing, layout.divides, [part.weight for part in layout.divides], "divide")
        written = self._write_tasks(job, build.writer(), [*indexes, *layout.tasks])
        weights = [part.weight for part in layout.joins]
        joined = self.run_tasks(partial(join_pieces, job), layout.joins, weights, "join")
        staged = [part.objects for part in written if isinstance(part, QueuesWritten)]
        self.target.take_queues(sum(staged) + sum(joined))
        build.finish(log, written, self.report)
        return written

    def _write_tasks(
        self, job: WriteJob, writer: WriteQueues, tasks: Sequence[IndexFileTask | QueueTask]
    ) -> list[object]:
        in_objects = isinstance(self.staging, BucketStaging)
        write = partial(write_objects if in_objects else partial(_write_one, writer), job)
        return self.run_tasks(write, tasks, [task.weight for task in tasks], "write")

    def _name_index_files(self, written: Sequence[object]) -> dict[str, Proof | str]:
        """Name the IndexFiles so that a broker, which sorts them by name, finds them in log order."""
        files = sorted(result for result in written if isinstance(result, IndexFileWritten))
        # A file is named after the time of its first entry. `index_file_names` makes equal times distinct. It also
        # lowers times in the future, because a broker names its next file by its clock, and that name must sort last.
        names = index_file_names([file.first_timestamp for file in files], now_ms())
        self.target.take_index_files(
            {file.number: name for file, name in zip(files, names, strict=True)}
        )
        self.report.index_files = len(files)
        ends = [file.header.end_timestamp for file in files]
        self.report.index_end_timestamp = max(ends, default=0)
        return {name: file.proof for name, file in zip(names, files, strict=True)}

    def _commit(self, log: LogSummary) -> None:
        sizes, report = self.target.sizes(), self.report
        of_database = [path for path in sizes if path.split(os.sep)[0] in MESSAGE_DATABASE_FOLDERS]
        report.queue_files = len(sizes) - report.index_files - len(of_database)
        report.bytes_written = sum(sizes.values())
        last = log.splits[-1].last_timestamp if log.splits else 0
        self.target.commit(
            RebuildCommit(
                None if self.only == "index" else last,
                None
                if self.only == "consumequeue" or self.index_database
                else report.index_end_timestamp,
                self.survey.files[-1].end if self.survey.files else 0,
                logics=any(form.has_logics_timestamp for form in self.survey.forms),
                without=self._without(),
            )
        )

    def _without(self) -> set[str]:
        """Return the folders that no form of the new queues has."""
        gone: list[set[str]] = [set(queues.build.without) for queues in self.queues]
        return set.intersection(*gone) if gone else set()

    def _remember(self, proofs: dict[str, Proof | str]) -> None:
        """Save the proofs of the new IndexFiles, so that queries need not spot-check the files."""
        if self.output is None:
            return
        problem = next((proof for proof in proofs.values() if isinstance(proof, str)), None)
        try:
            with closing(reader_of(self.report.store, self.survey.files)) as log:
                for name, proof in proofs.items():
                    if isinstance(proof, str):
                        break
                    self._keep(log, self.output / INDEX_FOLDER / name, proof)
        except StoreError as error:
            problem = str(error)
        # The proofs are only a cache. The rebuild is complete without them.
        if problem:
            self.report.note(
                f"queries will check the IndexFiles, because no proofs could be saved: {problem}"
            )

    def _keep(self, log: CommitLogReader, path: Path, proof: Proof) -> None:
        config = self.config
        with closing(IndexFileReader(str(path), config.hash_slots, config.index_items)) as file:
            remember(log, file, proof, self.survey.stamps)


def _data_end(storage: Storage, file: CommitLogFile) -> int:
    """Return the physical offset after the file's last nonzero byte. A hole at the end of the file is not read."""
    with storage.open(file.path) as reader:
        last = reader.last_nonzero(file.size)
    return file.start if last is None else file.start + last + 1


def _data_bytes(task: ScanTask, data_end: int) -> int:
    return max(min(task.split.stop, data_end) - task.split.begin, 1)


def _silent(done: int, total: int) -> None:
    """Ignore the progress of an unnamed phase."""


def _write_one(write: WriteQueues, job: WriteJob, task: IndexFileTask | QueueTask) -> object:
    return write_index_file(job, task) if isinstance(task, IndexFileTask) else write(job, task)
