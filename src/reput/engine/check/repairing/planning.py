"""Derive the plan of a repair from the findings of a check, without changing the store."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from reput.base import Finding, Kind, Progress, Repair, Runner, StoreConfig
from reput.core import CommitLogFile, DispatchRules, FileScan, ScanMode, StoreFacts, facts_of
from reput.engine.check.checking.checked_store import CheckedStore, look_at
from reput.engine.check.checking.tally import MOST_OF_A_KIND
from reput.engine.check.repairing.log_damage import can_be_filled, ranges_to_fill, verifiable_end
from reput.engine.check.repairing.plan import Plan, Remaining, below, steps_of
from reput.engine.check.run import check_store
from reput.engine.writer import can_salvage, check_none_renamed, stated_start, survey_of
from reput.errors import StoreChangedError, StoreError, StoreLockedError, UsageError
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.file_names import (
    COMMIT_LOG_FOLDER,
    INDEX_FOLDER,
    LOCK_FILE,
    MESSAGE_DATABASE_FOLDERS,
    QUEUE_FOLDERS,
    offset_file_name,
)
from reput.format.index_file import ITEM_BYTES
from reput.io import DISK, Disk, FileReader, TreeEntry

_SAMPLE_BYTES = 4 << 20
# These repairs need no option.
_ALWAYS = Repair.QUEUES | Repair.INDEX | Repair.CHECKPOINT | Repair.ABORT | Repair.WHEEL
IN_USE = "a broker or another writer owns this store; stop it before a repair"


def rebuilt_bytes(files: Sequence[CommitLogFile], end: int, config: StoreConfig) -> tuple[int, int]:
    """Estimate the total size of all ConsumeQueues, and of all IndexFiles, from the first messages of the log.

    Raises StoreAccessError.
    """
    read = messages = keys = 0
    for file in files:
        stop = min(file.start + _SAMPLE_BYTES - read, file.end, end)
        if stop <= file.start:
            break
        scan = FileScan(file, file.start, stop, ScanMode.SALVAGE, DispatchRules.of(config))
        for batch in scan.batches():
            messages += len(batch)
            keys += len(batch.key_hash)
        read += stop - file.start
    if not read:
        return 0, 0
    share = (end - files[0].start) / read
    entries, items = int(messages * share), int(keys * share)
    index_files = items // (config.index_items - 1) + (items > 0)
    return entries * ENTRY_BYTES, items * ITEM_BYTES + index_files * 4 * config.hash_slots


def make_plan(
    store: Path,
    backup: Path,
    *,
    config: StoreConfig | None,
    truncate_tail: bool,
    salvage: bool,
    runner: Runner,
    progress: Progress,
) -> Plan:
    """Check a store, and plan its repair, without changing anything.

    Raises:
        StoreNotFoundError: The store has no CommitLog.
        StoreLockedError: A broker or another writer owns the store.
        StoreError: A CommitLog file has a wrong name.
        StoreAccessError: A file cannot be read, or the store contains a link.
    """
    # `refuse` also returns the state of all files (size, times). Call `refuse` before the check: the repair compares
    # the files with this state later, and so notices any change since the beginning of the check.
    entries = refuse(store)
    _refuse_options(store, truncate_tail, salvage)
    survey_of(store, config).require_certain()
    begin = time.monotonic()
    checked_store = look_at(store, config)
    findings = list(check_store(store, config=config, runner=runner, progress=progress))
    _refuse_exchanged(checked_store, findings)
    if not facts_of(store).ledger_folders:
        check_none_renamed(store, checked_store.files)
    plan = Plan(store, backup, checked_store.config, findings, seen=entries)
    # A repair takes about twice the time of the check, because it also rebuilds, and checks the result.
    plan.seconds = 2 * (time.monotonic() - begin)
    _Planning(plan, checked_store, truncate_tail, salvage).run(config is not None)
    return plan


def refuse(store: Path) -> tuple[TreeEntry, ...]:
    """Raise the errors of `make_plan` if a store cannot be repaired. Otherwise return its files."""
    facts = facts_of(store)
    if facts.is_live:
        raise StoreLockedError(f"{store / LOCK_FILE}: {IN_USE}")
    _refuse_parts(facts)
    return tuple(DISK.tree_entries(store))


def _refuse_options(store: Path, truncate_tail: bool, salvage: bool) -> None:
    """Raise UsageError if options request a change of the log that is impossible for this store."""
    if (truncate_tail or salvage) and facts_of(store).ledger_folders:
        raise UsageError(
            f"{store}: has a DLedger log, which only its group may change: repair the rest without "
            f"{'truncate_tail' if truncate_tail else 'salvage'}, and let this node copy the log from another node",
            arguments=["truncate_tail" if truncate_tail else "salvage"],
        )
    if salvage and not can_salvage(facts_of(store)):
        raise UsageError(
            f"{store}: has batch queues or queues in RocksDB, which cannot identify a lost message: restore the "
            "damaged CommitLog file from a replica, or repair the rest of the store without salvage",
            arguments=["salvage"],
        )


def _refuse_exchanged(store: CheckedStore, findings: Iterable[Finding]) -> None:
    """Raise StoreError if log files have exchanged names, because indexes of such a log would be wrong."""
    if not any(finding.kind is Kind.MISPLACED_RECORD for finding in findings):
        return
    new_paths = {
        Path(file.path): Path(file.path).with_name(offset_file_name(start))
        for file in store.files
        if (start := stated_start(file)) not in (None, file.start)
    }
    if not new_paths:
        return
    occupied = [path for path in new_paths.values() if path not in new_paths and path.exists()]
    if occupied or len(set(new_paths.values())) < len(new_paths):
        clear = ", ".join(path.name for path in new_paths)
        raise StoreError(
            f"{store.path}: these CommitLog files are copies of others, as the physical offsets "
            f"in their messages show: {clear}; move these copies out of the store, restore the right "
            f"files with these names from a replica, and repair the store again"
        )
    # Suggest renames in two steps, because each new name may still be the name of another file.
    aside = [
        f"mv {shlex.quote(str(path))} {shlex.quote(f'{new}.away')}"
        for path, new in new_paths.items()
    ]
    back = [
        f"mv {shlex.quote(f'{new}.away')} {shlex.quote(str(new))}" for new in new_paths.values()
    ]
    raise StoreError(
        f"{store.path}: these CommitLog files have exchanged names, as the physical offsets in "
        f"their messages show; rename them with these commands, then repair the store again: "
        f"{' && '.join([*aside, *back])}"
    )


def check_unchanged(
    plan: Plan, before: Sequence[TreeEntry] | None = None, linked: Collection[str] = ()
) -> Sequence[TreeEntry]:
    """Return the store's files if none has changed since the plan was made, or since `before`.

    Args:
        plan: The plan for the store.
        before: An earlier state to compare with; by default the plan's.
        linked: Files and folders whose change time is ignored, because the repair has added or removed a hard link.
            Only their modification time is compared, although a program can set it back.

    Raises:
        StoreChangedError: A file has changed.
    """
    now = tuple(DISK.tree_entries(plan.store))
    # Programs that read a RocksDB database create hard links to its files. This updates the files' change times, so a
    # new change time does not show that a file has changed.
    linked = {*linked, *MESSAGE_DATABASE_FOLDERS}
    if (form := facts_of(plan.store).form_of_remains) is not None:
        linked.add(Path(form.folder(str(plan.store))).name)

    def look(entries: Sequence[TreeEntry]) -> dict[str, tuple[int, ...]]:
        return {entry.name: _look(entry, linked) for entry in entries if entry.name != LOCK_FILE}

    if look(plan.seen if before is None else before) != look(now):
        raise StoreChangedError(
            f"{plan.store}: changed while it was checked; stop its writer, and repair it again"
        )
    return now


def _look(entry: TreeEntry, linked: Collection[str]) -> tuple[int, ...]:
    if entry.is_folder:
        return ()
    is_linked = entry.name in linked or entry.name.partition("/")[0] in linked
    return entry.inode, entry.size, entry.mtime_ns, 0 if is_linked else entry.changed_ns


class _Planning:
    """Fills a plan, finding by finding."""

    def __init__(self, plan: Plan, store: CheckedStore, truncate_tail: bool, salvage: bool) -> None:
        self._plan, self._store = plan, store
        self._truncate_tail, self._salvage = truncate_tail, salvage
        self._wrong = [finding for finding in plan.findings if finding.is_wrong]
        sizes = Counter(file.size for file in store.files)
        plan.file_bytes = sizes.most_common(1)[0][0]

    def run(self, config_is_given: bool) -> None:
        plan, wrong = self._plan, self._wrong
        if not wrong:
            return
        end = self._plan_log()
        plan.queues = self._has(Repair.QUEUES) or plan.changes_log
        plan.index = self._has(Repair.INDEX) or plan.changes_log
        plan.wheel = self._has(Repair.WHEEL)
        known_offset = self._store.facts.known_offset
        if known_offset.is_stated and not plan.queues and 0 <= known_offset.physical_offset < end:
            plan.dispatch_from = known_offset.physical_offset
        plan.dropped = plan.dropped | {
            Path(finding.file).name for finding in wrong if self._is_dropped(finding)
        }
        plan.remaining = list(self._remaining(end))
        if len(plan.remaining) == len(wrong):
            return
        plan.steps = list(steps_of(plan, self._store))
        plan.sizes_assumed = plan.index and not self._store.index and not config_is_given
        self._estimate()

    def _is_dropped(self, finding: Finding) -> bool:
        """Return whether a file that does not belong to a CommitLog is dropped. Files of a DLedger log stay."""
        folder = Path(finding.file).parent.name
        return bool(finding.kind.repair & Repair.DROP) and folder == COMMIT_LOG_FOLDER

    def _has(self, repair: Repair) -> bool:
        return any(finding.kind.repair & repair for finding in self._wrong)

    def _plan_log(self) -> int:
        """Plan to fill damaged ranges and to cut the tail of the log, if requested. Return the new end of the log."""
        plan, store = self._plan, self._store
        end = store.end
        if self._truncate_tail:
            tail = min(verifiable_end(store.files), store.ends.reader, end)
            if self._has_tail(tail) and tail <= store.files[-1].start + plan.file_bytes:
                end = plan.cut_at = tail
                # An empty, full-size file after the new end of the log can stay: brokers create such files in advance.
                plan.dropped = frozenset(
                    Path(file.path).name
                    for file in store.files
                    if file.start > tail and (file.size != plan.file_bytes or _holds(file))
                )
        if self._salvage:
            every = ranges_to_fill(
                store.files, self._damaged_files(), end, plan.file_bytes, store.queues
            )
            plan.ranges = [damaged for damaged in every if can_be_filled(damaged)]
        return end

    def _has_tail(self, tail: int) -> bool:
        last = self._store.files[-1]
        return any(
            finding.kind is Kind.TORN_LOG_END
            or (finding.kind is Kind.LOG_FILE_SIZE and finding.file == last.path)
            or (
                _is_salvaged(finding)
                and finding.physical_offset is not None
                and finding.start >= tail
            )
            for finding in self._wrong
        )

    def _damaged_files(self) -> set[str]:
        """Return the log files with damage, or all files if the check joined findings of several files into one."""
        damage = [finding for finding in self._wrong if _is_salvaged(finding)]
        # A check reports at most MOST_OF_A_KIND findings of one kind. It joins the rest into one finding, which names
        # only one of their files, so the other files are unknown.
        if max(Counter(finding.kind for finding in damage).values(), default=0) > MOST_OF_A_KIND:
            return {file.path for file in self._store.files}
        return {finding.file for finding in damage}

    def _remaining(self, end: int) -> Iterator[Remaining]:
        for finding in self._wrong:
            kind = finding.kind
            if kind.repair & _ALWAYS or self._is_dropped(finding):
                continue
            if kind is Kind.TORN_LOG_END:
                if self._plan.cut_at is None:
                    yield Remaining(finding, "truncate_tail")
            elif kind is Kind.LOG_FILE_SIZE:
                yield from self._odd_size(finding)
            elif _is_salvaged(finding):
                if not self._is_repaired(finding, end):
                    yield Remaining(finding, None if self._salvage else "salvage")
            else:
                yield Remaining(finding)

    def _odd_size(self, finding: Finding) -> Iterator[Remaining]:
        file = next(
            (log_file for log_file in self._store.files if log_file.path == finding.file), None
        )
        if file is None:
            yield Remaining(finding)
        elif file is self._store.files[-1]:
            if self._plan.cut_at is None:
                yield Remaining(finding, None if self._truncate_tail else "truncate_tail")
        elif not any(
            damaged.stop == file.start + self._plan.file_bytes for damaged in self._plan.ranges
        ):
            yield Remaining(finding, None if self._salvage else "salvage")

    def _is_repaired(self, finding: Finding, end: int) -> bool:
        """Return whether the damage of this finding, and of findings grouped with it, is filled or cut."""
        if finding.physical_offset is None:
            return False
        if finding.start >= end:
            return True
        return any(damaged.start <= finding.start < damaged.stop for damaged in self._plan.ranges)

    def _estimate(self) -> None:
        plan, store = self._plan, self._store
        changed = plan.changed_files
        copied = sum(
            entry.used_bytes
            for entry in below(plan, COMMIT_LOG_FOLDER)
            if Path(entry.name).name in changed
        )
        held_queues, held_index = (
            sum(entry.used_bytes for folder in folders for entry in below(plan, folder))
            for folders in (QUEUE_FOLDERS, (INDEX_FOLDER,))
        )
        queues, index = rebuilt_bytes(store.files, store.end, plan.config)
        plan.needed_bytes = copied
        if plan.queues:
            plan.needed_bytes += 2 * max(held_queues, queues)
        if plan.index:
            plan.needed_bytes += 2 * max(held_index, index)
        plan.free_bytes = Disk().usage(plan.store)[1]


def _is_salvaged(finding: Finding) -> bool:
    return bool(finding.kind.repair & Repair.SALVAGE)


def _holds(file: CommitLogFile) -> bool:
    with FileReader(file.path) as reader:
        return reader.last_nonzero(file.size) is not None


def _refuse_parts(facts: StoreFacts) -> None:
    """Raise UsageError for a store that cannot be repaired. The message states an alternative."""
    store = Path(facts.path)
    plain = (str(store / COMMIT_LOG_FOLDER),)
    if facts.log_folders not in (plain, facts.ledger_folders):
        raise UsageError(
            f"{store}: has its CommitLog in several folders, perhaps on several disks, which "
            f"repair cannot swap. Rebuild its indexes into another folder with reput rebuild, "
            f"and restore files of the log from a replica"
        )
    if (form := facts.last_form) is not None:
        form.require()
