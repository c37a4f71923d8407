"""Repair a store: build the repaired state beside the store, check it, and swap it in as a whole.

The plan comes from the findings of a check. Until the swap, which is one rename, the store is unchanged. After it, the
store is as planned, and the old state stays beside it. Both states share unchanged files by hard links, so a process
that has an unchanged file open can continue to use it. A CommitLog file whose bytes change is copied first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path

from reput import core
from reput.base import Kind, Progress, Runner, SerialRunner, StoreConfig, silent
from reput.engine.check.repairing.log_damage import filler
from reput.engine.check.repairing.places import AtStep, Attempt, RepairPlaces, look_of_log
from reput.engine.check.repairing.plan import Plan, Remaining, below
from reput.engine.check.repairing.planning import IN_USE, check_unchanged, make_plan, refuse
from reput.engine.check.run import check_store
from reput.engine.five import TimerWheel
from reput.engine.rebuild import STAGING_FOLDER, Only, expired_queues, rebuild_store
from reput.errors import StoreAccessError, StoreError, StoreNotFoundError
from reput.format import file_names
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from reput.format.file_names import COMMIT_LOG_FOLDER, CONFIG_FOLDER, TIMER_CHECK_FILE
from reput.format.index_file import HEADER_BYTES, decode_header
from reput.io import DISK, AnchoredRunner, FileReader, FileWriter, Location, TreeEntry, locked

# Files that a 5.x broker overwrites in place.
_OVERWRITTEN = frozenset({file_names.TIMER_WHEEL_FILE, f"{CONFIG_FOLDER}/{TIMER_CHECK_FILE}"})
# Files that are newly created for the repaired store.
_MADE_ANEW = frozenset(
    {
        file_names.LOCK_FILE,
        file_names.ABORT_FILE,
        file_names.CHECKPOINT_FILE,
        file_names.OWNER_FILE,
        file_names.RECOVERY_POINT_FILE,
        STAGING_FOLDER,
    }
)


def build(
    plan: Plan,
    new: Path,
    before: Sequence[TreeEntry],
    runner: Runner,
    progress: Progress,
    at: AtStep,
) -> Sequence[TreeEntry]:
    """Build the repaired store in `new`, check it, and make it durable.

    Args:
        plan: The plan of the repair.
        new: The folder, which is created.
        before: A listing of the old store's files, made just before this call.
        runner: Runs the tasks of the rebuild and the check.
        progress: Called as work is done.
        at: Called after each step.

    Returns:
        A new listing of the old store's files, made after hard links to them were created, for `check_still`.

    Raises:
        StoreChangedError: A file has changed since the plan was made.
        StoreError: The built store does not match the plan.
        StoreAccessError: The operating system refuses an operation.
    """
    # A broker may have started since the plan was made.
    check_unchanged(plan, before)
    DISK.create_folder(new)
    linked = _carry_over(plan, new)
    # A hard link updates the change time of a file. Later comparisons need the new times.
    before = check_unchanged(plan, before, linked)
    at("linked")
    _change_log(plan, new)
    at("log changed")
    _rebuild(plan, new, runner, progress)
    _dispatch_rest(plan, new)
    at("rebuilt")
    if plan.wheel:
        TimerWheel(new).write()
    _write_checkpoint(plan, new)
    at("checkpoint written")
    _check(plan, new, runner, progress)
    at("checked")
    _finish(plan, new)
    at("durable")
    return before


def check_still(plan: Plan, before: Sequence[TreeEntry]) -> None:
    """Raise StoreChangedError if a file of the old store has changed since `build` recorded it."""
    relinked = (*file_names.QUEUE_FOLDERS, file_names.EXTENSION_FOLDER) if plan.queues else ()
    check_unchanged(plan, before, relinked)


def _carry_over(plan: Plan, new: Path) -> set[str]:
    """Create the store's folders in `new`, and link the unchanged files there. Return the names of the linked files.

    Files that a broker changes in place are copied instead.
    """
    changed, linked = plan.changed_files, set()
    for entry in plan.seen:
        if not _stays(plan, entry, changed):
            continue
        path, target = plan.store / entry.name, new / entry.name
        if entry.is_folder:
            DISK.create_folder(target)
        elif _changes_in_place(plan.store, entry.name):
            DISK.copy_file(path, target, entry.inode)
        else:
            DISK.link(path, target, entry.inode)
            linked.add(entry.name)
    return linked


def _changes_in_place(store: Path, name: str) -> bool:
    """Return whether a broker changes the bytes of this file in place, as in files of the timer or of RocksDB.

    The repaired store needs a copy of such a file. With a hard link, the backup would change as well.
    """
    folder, file = os.path.split(name)
    is_part = not file.endswith(".sst") and core.facts_of(store).local_database(folder) is not None
    return name in _OVERWRITTEN or is_part


def _stays(plan: Plan, entry: TreeEntry, changed: frozenset[str]) -> bool:
    top, _, below = entry.name.partition("/")
    if top == COMMIT_LOG_FOLDER:
        # `dropped` may name a folder, because a folder in commitlog/ can keep a broker from starting. Drop its contents
        # as well.
        return below.split("/")[0] not in plan.dropped and below not in changed
    if top in file_names.QUEUE_FOLDERS:
        return not plan.queues
    if top == file_names.INDEX_FOLDER:
        return not plan.index
    return top not in _MADE_ANEW


def _change_log(plan: Plan, new: Path) -> None:
    """Copy the log files that change. In the copies, fill damaged ranges and cut the tail.

    The original files are not changed, because they become the backup.
    """
    for name in sorted(plan.changed_files):
        source, target = (root / COMMIT_LOG_FOLDER / name for root in (plan.store, new))
        # Writing to a hard link would change the backup as well.
        DISK.copy_file(source, target, plan.inodes[f"{COMMIT_LOG_FOLDER}/{name}"])
        start = int(name)
        with FileWriter(target, size=plan.file_bytes) as file:
            for damaged in plan.ranges:
                if start <= damaged.start < start + plan.file_bytes:
                    for offset, record in filler(damaged):
                        file.write(record, offset - start)
            if plan.cut_at is not None and start <= plan.cut_at < start + plan.file_bytes:
                _clear(file, target, plan.cut_at - start)
            file.sync()
        DISK.look_like(target, source)  # Brokers expire files by modification time.


def _clear(file: FileWriter, path: Path, position: int) -> None:
    """Zero all bytes from `position` on, so that no remaining bytes can become a record again."""
    with FileReader(str(path)) as reader:
        last = reader.last_nonzero(reader.size)
    file.write_zeros(position, position if last is None else last + 1)


def _rebuild(plan: Plan, new: Path, runner: Runner, progress: Progress) -> None:
    if not (plan.queues or plan.index):
        return
    kind: str | None = None
    if plan.queues:
        kind = _prepare_queues(plan, new)
    only: Only | None = None
    if not (plan.queues and plan.index):
        only = "consumequeue" if plan.queues else "index"
    # The log may still have damage that the plan does not repair. With `salvage`, the rebuild skips this damage.
    rebuild_store(
        runner, new, config=plan.config, only=only, queues=kind, index="files" if plan.index else None,
        salvage=True, progress=progress,
    )  # fmt: skip
    # The store has changed since its recovery point, which only told where the database was.
    DISK.remove_tree(new / file_names.RECOVERY_POINT_FILE)


def _dispatch_rest(plan: Plan, new: Path) -> None:
    """If queues are kept that state their end, as in RocksDB, add the entries that they lack, up to the log's end.

    A broker would not add the first of the missing entries. The repaired store has no file `abort`, so a broker assumes
    a clean shutdown. Then a 5.3.3 broker dispatches only messages that begin after the offset in the database, at which
    the last dispatched message ends. So the broker skips the message that begins exactly at this offset.
    """
    if plan.dispatch_from is not None:
        form = core.facts_of(new).queue_form or core.FILE_FORM
        files = core.StoreLog(new).list().files
        recovery = form.recovery(new, plan.config, core.batch_topics(str(new)))
        writer, rules, begin = recovery.run(files[0].start, files[-1].end)
        buffers = core.ScanBuffers()
        try:
            for file in files:
                if file.end > begin:
                    start = max(begin, file.start)
                    scan = core.FileScan(
                        file, start, file.end, core.ScanMode.SALVAGE, rules, buffers=buffers
                    )
                    for batch in scan.batches():
                        writer.append(batch)
        finally:
            writer.close(sync=True)


def _prepare_queues(plan: Plan, new: Path) -> str:
    """Prepare the parts of the old queues that a rebuild needs. Return how the new queues are stored."""
    kind, facts = core.FILES, core.facts_of(plan.store)
    # The folders of old queues that the rebuild reads. Their files are linked into the new state. The rebuild creates a
    # new folder and never changes these files, so the old state, which shares them, stays unchanged.
    folders: set[str] = set()
    if (form := facts.last_form) is not None:
        if facts.lost_database is not None:
            # It tells the rebuild in which folder the database was.
            point = file_names.RECOVERY_POINT_FILE
            DISK.copy_file(plan.store / point, new / point, plan.inodes[point])
        # Folders that are no queues have been linked with the rest of the store.
        folders = {Path(form.folder(str(plan.store))).name} & {*file_names.QUEUE_FOLDERS}
        if not facts.has_queue_files:
            _link_below(plan, new, folders)
            return form.name
        kind = core.BOTH
    # Create the folders of batch queues, but not their files. These folders may be the only evidence of which topics
    # have batch queues.
    for entry in plan.seen:
        top, _, topic = entry.name.partition("/")
        if entry.is_folder and top == file_names.BATCH_QUEUE_FOLDER and topic and "/" not in topic:
            DISK.create_folder(new / entry.name)
    # ConsumeQueueExt files contain bit maps, which the rebuild copies.
    if facts.has_extension_files:
        folders |= {file_names.CONSUME_QUEUE_FOLDER, file_names.EXTENSION_FOLDER}
    # The stated queue offsets of light queues do not show the positions of their entries, but the old entries do.
    if file_names.CONSUME_QUEUE_FOLDER not in folders:
        folders |= {
            entry.name
            for entry in plan.seen
            if entry.is_folder and core.is_light(_topic_folder(entry.name))
        }
    _link_below(plan, new, folders)
    _copy_expired_queues(plan, new)
    return kind


def _topic_folder(name: str) -> str:
    """Return the topic whose ConsumeQueues a folder of a store contains, or an empty text."""
    top, _, topic = name.partition("/")
    return topic if top == file_names.CONSUME_QUEUE_FOLDER and "/" not in topic else ""


def _link_below(plan: Plan, new: Path, folders: Iterable[str]) -> None:
    """Link the files of these folders, none of which may contain another."""
    for folder in folders:
        for entry in below(plan, folder):
            target = new / entry.name
            DISK.create_folder(target.parent)
            DISK.link(plan.store / entry.name, target, entry.inode)


def _copy_expired_queues(plan: Plan, new: Path) -> None:
    """Copy queues that have no messages left in the log, because brokers continue their queue offsets."""
    begin = core.StoreLog(new).list().begin
    for kind in (file_names.CONSUME_QUEUE_FOLDER, file_names.BATCH_QUEUE_FOLDER):
        for queue in expired_queues(plan.store, begin, kind):
            target = new / kind / queue.topic / queue.name
            DISK.create_folder(target)
            for entry in below(plan, str(Path(queue.path).relative_to(plan.store))):
                name = Path(entry.name).name
                if file_names.parse_offset_file_name(name) is not None:
                    DISK.remove_tree(target / name)
                    DISK.copy_file(plan.store / entry.name, target / name, entry.inode)


def _write_checkpoint(plan: Plan, new: Path) -> None:
    """Write a checkpoint with which a broker keeps every file when it starts, even if it starts after a crash.

    `reput.engine.rebuild.commit` explains the times in it. Additional fields of 5.x stay unchanged, unless they do not
    lie in the log.
    """
    last = max(_last_timestamp(new), 0)
    ends = [0]
    for path in core.index_paths(new / file_names.INDEX_FOLDER):
        with FileReader(str(path)) as reader:
            if reader.size >= HEADER_BYTES:
                ends.append(decode_header(reader.read(0, HEADER_BYTES)).end_timestamp)
    # As in `pipeline.commit`, the checkpoint's time for the queues is 0 if they are in RocksDB.
    form = core.facts_of(new).queue_form or core.FILE_FORM
    queued = last if form.has_logics_timestamp or core.facts_of(new).has_queue_files else 0
    checkpoint = Checkpoint(last, queued, max(ends))
    if not any(finding.kind is Kind.CHECKPOINT for finding in plan.findings):
        old = core.facts_of(plan.store).checkpoint
        checkpoint = checkpoint._replace(
            master_flushed_offset=old.master_flushed_offset, confirmed_offset=old.confirmed_offset
        ).without_offsets_outside(core.facts_of(new).log.end)
    DISK.write_durable(new / file_names.CHECKPOINT_FILE, encode_checkpoint(checkpoint))


def _last_timestamp(store: Path) -> int:
    """Return the store timestamp (ms) of the log's last message, or 0 for a log without messages."""
    # The last files may have no messages.
    for file in reversed(core.StoreLog(store).list().files):
        times = [
            int(batch.messages["store_timestamp"][-1])
            for batch in core.FileScan(file, file.start, file.end, core.ScanMode.SALVAGE).batches()
            if len(batch)
        ]
        if times:
            return times[-1]
    return 0


def _check(plan: Plan, new: Path, runner: Runner, progress: Progress) -> None:
    findings = list(check_store(new, config=plan.config, runner=runner, progress=progress))
    # Some findings that no step is for have gone with others, such as wrong numbers in a queue with exchanged files.
    plan.keep_remaining(findings, new)
    for finding in findings:
        # Damage that the plan does not repair is expected. Any other finding shows that the plan was wrong.
        if (remaining := plan.keeps_entry(finding, new)) is not None:
            plan.remaining.append(Remaining(remaining))
        elif not plan.expects(finding, new):
            raise StoreError(
                f"{plan.store}: unchanged, because the repaired store would not be valid: {finding}"
            )


def _finish(plan: Plan, new: Path) -> None:
    """Give the new store the owners, permissions and lock of the old store. Make it durable."""
    # The rebuild has created a `lock` of its own. Replace it by a hard link to the `lock` of the old store. The two
    # stores then share this file, so a process that locks one of them also locks the other.
    DISK.remove_tree(new / file_names.LOCK_FILE)
    DISK.link(plan.store / file_names.LOCK_FILE, new / file_names.LOCK_FILE)
    # A hard link already has the owner and permissions of the old file. Only new files need them.
    linked = {(entry.name, entry.inode) for entry in plan.seen}
    for entry in list(DISK.tree_entries(new)):
        path = new / entry.name
        old = plan.store / entry.name
        if entry.is_folder:
            DISK.look_like(path, old if old.is_dir() else plan.store)
        elif (entry.name, entry.inode) not in linked:
            DISK.own_like(path, plan.store)
        if not entry.is_folder:
            DISK.sync_file(path)
    DISK.look_like(new, plan.store)
    DISK.sync_tree(new)


def plan_repair(
    store: str | PathLike[str],
    *,
    config: StoreConfig | None = None,
    truncate_tail: bool = False,
    salvage: bool = False,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> Plan:
    """Plan a repair of a store, without changing anything.

    Args:
        store: The folder that contains `commitlog/`.
        config: The broker's settings; by default derived from the store's files.
        truncate_tail: Whether to cut the bytes after the last verifiable record of the log.
        salvage: Whether to fill damaged ranges of the log, so that a broker reads the messages after them.
        runner: Runs the tasks; by default this process does, one after the other.
        progress: Called as work is done.

    Raises:
        StoreNotFoundError: The store has no CommitLog.
        StoreLockedError: A broker or another writer owns the store.
        StoreAccessError: A file cannot be read.
        StoreError: The store contains a link, or its folder cannot be replaced by a repaired one.
    """
    places = _places(store)
    check_repairable(store)
    with places.held():
        return make_plan(
            places.store, places.next().backup, config=config, truncate_tail=truncate_tail,
            salvage=salvage, runner=AnchoredRunner(runner or SerialRunner()), progress=progress,
        )  # fmt: skip


def repair_store(
    plan: Plan,
    *,
    runner: Runner | None = None,
    progress: Progress = silent,
    at: AtStep = lambda step: None,
) -> None:
    """Carry out a plan. After an error or a kill, the store is either unchanged or as planned.

    Args:
        plan: The result of `plan_repair`.
        runner: Runs the tasks; by default this process does, one after the other.
        progress: Called as work is done.
        at: Called after each step.

    Raises:
        StoreChangedError: The store has changed since the plan was made.
        StoreLockedError: A broker or another writer owns the store, or another repair runs.
        StoreAccessError: The operating system refuses an operation, or there is too little space.
        StoreError: The built store does not match the plan. The store is unchanged.
    """
    if plan.is_empty:
        return
    places = RepairPlaces(plan.store)
    with places.held():
        _carry_out(plan, places, AnchoredRunner(runner or SerialRunner()), progress, at)


def _carry_out(
    plan: Plan, places: RepairPlaces, runner: Runner, progress: Progress, at: AtStep
) -> None:
    places.check_disk()
    if plan.needed_bytes > plan.free_bytes:
        raise StoreAccessError(
            f"{plan.store.parent}: the repair needs about {plan.needed_bytes:,} bytes, "
            f"but only {plan.free_bytes:,} are free; free some space and run it again"
        )
    with locked(plan.store / file_names.LOCK_FILE, IN_USE), places.owned():
        check_unchanged(plan)
        # An interrupted repair may have left the old and the new store half swapped.
        places.settle(at)
        # `settle` may have removed hard links to files of the store, which updates the files' change times.
        entries = check_unchanged(plan, linked=plan.inodes)
        attempt = places.new_attempt(plan.backup)
        with DISK.anchored(attempt.folder, owner=plan.store):
            at("begun")
            entries = build(plan, attempt.new, entries, runner, progress, at)
            record = attempt.write_record(plan.store)
            DISK.sync_folder(places.root)
            at("recorded")
            # A program that ignores the lock may have written to the old store during the build. Its changes would be
            # missing from the repaired store.
            check_still(plan, entries)
            places.swap(record, attempt.new, attempt.backup, at)
            places.give(attempt)


def settle_repair(store: str | PathLike[str], at: AtStep = lambda step: None) -> None:
    """Finish or drop an interrupted repair or undo, if there is one.

    Raises:
        StoreLockedError: A broker owns the store, or a repair runs.
        StoreAccessError: The operating system refuses an operation.
    """
    places = _places(store)
    if not places.attempts():
        return
    with ExitStack() as stack:
        stack.enter_context(places.held())
        if DISK.inode_of(places.store) is not None:
            stack.enter_context(locked(places.store / file_names.LOCK_FILE, IN_USE))
        stack.enter_context(places.owned())
        places.settle(at)


def undo_repair(store: str | PathLike[str], at: AtStep = lambda step: None) -> Attempt:
    """Swap the store back to its state before the last repair. Return the repair; `undone` has its state.

    Raises:
        StoreNotFoundError: There is nothing to undo.
        StoreLockedError: A broker or another writer owns the store, or a repair runs.
        StoreError: The store was written since the repair, or the path has another store now.
        StoreAccessError: The operating system refuses an operation.
    """
    settle_repair(store, at)
    places = _places(store)
    with places.held():
        return _undo(places, at)


def _undo(places: RepairPlaces, at: AtStep) -> Attempt:
    done = [attempt for attempt in places.attempts() if DISK.inode_of(attempt.backup) is not None]
    if not done or DISK.inode_of(places.store) is None:
        raise StoreNotFoundError(f"{places.store}: no repair to undo; {places.root} contains none")
    attempt = done[-1]
    with locked(places.store / file_names.LOCK_FILE, IN_USE), places.owned():
        record = attempt.record()
        if record is None or DISK.inode_of(places.store) != record.new:
            raise StoreError(
                f"{places.store}: was replaced by another folder after its repair, so the repair cannot be undone; "
                f"the state before the repair is in {attempt.backup}"
            )
        if look_of_log(places.store) != record.log:
            raise StoreError(
                f"{places.store}: its CommitLog was written after the repair, and an undo would lose the new messages; "
                f"the state before the repair is in {attempt.backup}"
            )
        places.swap(record, attempt.backup, attempt.undone, at)
    return attempt


def _places(store: str | PathLike[str]) -> RepairPlaces:
    Location.refuse_url(store)
    return RepairPlaces(Path(DISK.real_path(store)))


def check_repairable(store: str | PathLike[str]) -> None:
    """Refuse stores that cannot be repaired. This is quick, because it reads only the names of files.

    Raises:
        StoreNotFoundError: The folder is missing, perhaps because a repair was killed while it swapped the folders.
        StoreLockedError: A broker or another writer owns the store.
        StoreError: The store contains a link.
        StoreAccessError: A file cannot be read.
    """
    places = _places(store)
    if DISK.inode_of(places.store) is not None:
        with places.held():
            refuse(places.store)
    elif places.attempts():
        raise StoreNotFoundError(
            f"{places.store}: a repair was killed while it swapped the store; run the repair "
            f"(not only its plan) again to finish the swap"
        )
    else:
        raise StoreNotFoundError(f"{places.store}: no such folder")
