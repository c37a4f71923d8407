"""The plan of a repair: changes to each part of a store and their reasons, unchanged parts, and the cost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from reput.base import Finding, Kind, Repair, StoreConfig, counted
from reput.engine.check.checking.checked_store import CheckedStore
from reput.engine.check.checking.tally import MOST_OF_A_KIND
from reput.engine.check.repairing.log_damage import DamagedRange, placeholders_in
from reput.format import file_names
from reput.format.file_names import COMMIT_LOG_FOLDER, CONSUME_QUEUE_FOLDER, INDEX_FOLDER
from reput.io import TreeEntry

Verb = Literal["rebuild", "fill", "cut", "write", "remove", "keep"]
RepairOption = Literal["salvage", "truncate_tail"]

_MOVED = frozenset({Kind.MISPLACED_QUEUE_ENTRY, Kind.LMQ_OFFSETS_RESTARTED})
_NO_ENDS = "the database is lost or cannot be read, so queues whose messages have all expired restart at queue offset 0"


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a plan: the change to a file or folder of the store, and the findings that require it.

    why  kinds of these findings, or a reason in words if no finding requires the step
    """

    verb: Verb
    name: str
    detail: str
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remaining:
    """A finding that the repair does not remove.

    `asked` is the argument with which a repair would remove it; None if no argument would help.
    """

    finding: Finding
    asked: RepairOption | None = None


@dataclass(slots=True)
class Plan:
    """The plan of a store's repair.

    backup         folder of the old state after the repair
    findings       findings of the check, including findings for information only
    queues, index  whether ConsumeQueues and IndexFiles are rebuilt
    wheel          whether slots of the timer wheel are written
    dispatch_from  physical offset from which messages are dispatched to queues in RocksDB that are not rebuilt; None if
                   no messages are dispatched
    ranges         damaged ranges of the log that are filled
    cut_at         physical offset at which the log is cut; None if it is not cut
    file_bytes     size of a CommitLog file
    dropped        names in commitlog/ that the repaired store does not have
    sizes_assumed  whether the sizes of new IndexFiles are a broker's defaults
    seconds        estimated duration in seconds, derived from the duration of the check
    needed_bytes   estimate of the bytes written beside the store
    seen           state of every file when the plan was made
    """

    store: Path
    backup: Path
    config: StoreConfig
    findings: list[Finding]
    steps: list[Step] = field(default_factory=list)
    remaining: list[Remaining] = field(default_factory=list)
    queues: bool = False
    index: bool = False
    wheel: bool = False
    dispatch_from: int | None = None
    ranges: list[DamagedRange] = field(default_factory=list)
    cut_at: int | None = None
    file_bytes: int = 0
    dropped: frozenset[str] = frozenset()
    sizes_assumed: bool = False
    seconds: float = 0.0
    needed_bytes: int = 0
    free_bytes: int = 0
    seen: tuple[TreeEntry, ...] = ()

    @property
    def inodes(self) -> dict[str, int]:
        """Return the inodes that the files and folders had when the plan was made, by path in the store."""
        return {entry.name: entry.inode for entry in self.seen}

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not self.steps

    @property
    def changes_log(self) -> bool:
        return bool(self.ranges) or self.cut_at is not None

    @property
    def changed_files(self) -> frozenset[str]:
        """Return the names of the CommitLog files whose bytes or size change."""
        places = [damaged.start for damaged in self.ranges]
        if self.cut_at is not None:
            places.append(self.cut_at)
        names = (entry.name.partition("/") for entry in self.seen if not entry.is_folder)
        starts = {
            name: file_names.parse_offset_file_name(name)
            for folder, _, name in names
            if folder == COMMIT_LOG_FOLDER
        }
        return frozenset(
            name
            for name, start in starts.items()
            if start is not None and any(start <= at < start + self.file_bytes for at in places)
        )

    @property
    def entries_move(self) -> bool:
        """Whether entries of light queues (LMQ) may change position, because a lost message gets no placeholder.

        Entries of other queues keep their positions: the rebuild leaves a gap for each lost message.
        """
        lost = any(
            remaining.finding.kind.is_unreadable and remaining.asked != "truncate_tail"
            for remaining in self.remaining
        )
        bare = any(
            not damaged.known or placeholders_in(damaged) < len(damaged.known)
            for damaged in self.ranges
        )
        return self.queues and (lost or bare)

    def keep_remaining(self, findings: Collection[Finding], root: Path) -> None:
        """Keep only the remaining findings that the check of the repaired store, built in `root`, has found as well."""
        counts = Counter(finding.kind for finding in findings)
        places = {(finding.kind, os.path.relpath(finding.file, root)) for finding in findings}
        self.remaining = [
            remaining
            for remaining in self.remaining
            # Further findings of a kind are joined into one, which names only one of their files.
            if counts[remaining.finding.kind] > MOST_OF_A_KIND
            or (remaining.finding.kind, os.path.relpath(remaining.finding.file, self.store))
            in places
        ]

    def expects(self, finding: Finding, root: Path) -> bool:
        """Return whether the plan leaves or causes this finding in the repaired store, which was built in `root`."""
        if not finding.is_wrong:
            return True
        # In a light queue, a lost message leaves no gap, so later entries change position.
        if finding.kind in _MOVED and (self.entries_move or self.ranges):
            return True
        same_kind = [
            remaining.finding
            for remaining in self.remaining
            if remaining.finding.kind is finding.kind
        ]
        # A check reports at most MOST_OF_A_KIND findings of one kind. It joins the rest into one finding, which names
        # only one of their files, so the other files are unknown.
        if len(same_kind) > MOST_OF_A_KIND:
            return True
        name = os.path.relpath(finding.file, root)
        return any(os.path.relpath(finding.file, self.store) == name for finding in same_kind)

    def keeps_entry(self, finding: Finding, root: Path) -> Finding | None:
        """Return a finding of the repaired store if the old store had it, and a rebuild cannot remove it.

        A message lost the property that names the queue. Without its entry, later entries would change position. The
        result names the file in the store.
        """
        name = os.path.relpath(finding.file, root)
        before = (finding for finding in self.findings if finding.kind is Kind.FOREIGN_QUEUE_ENTRY)
        is_old = any(os.path.relpath(finding.file, self.store) == name for finding in before)
        is_kept = finding.kind is Kind.FOREIGN_QUEUE_ENTRY and is_old
        return replace(finding, file=str(self.store / name)) if is_kept else None

    def as_json(self) -> dict[str, Any]:
        """Return the plan as values for json.dumps."""
        return {
            "store": str(self.store),
            "backup": str(self.backup),
            "steps": [
                {"verb": step.verb, "name": step.name, "detail": step.detail, "why": list(step.why)}
                for step in self.steps
            ],
            "remaining": [
                {**remaining.finding.as_json(), "asked": remaining.asked}
                for remaining in self.remaining
            ],
            "entries_move": self.entries_move,
            "sizes_assumed": self.sizes_assumed,
            "estimated_seconds": round(self.seconds, 1),
            "estimated_bytes": self.needed_bytes,
            "free_bytes": self.free_bytes,
        }


def steps_of(plan: Plan, store: CheckedStore) -> Iterator[Step]:
    """Yield the steps of a plan for this store, in the order in which they are printed."""
    yield from _Steps(plan, store).steps()


def below(plan: Plan, folder: str) -> Sequence[TreeEntry]:
    """Return the files that a folder of the store had when the plan was made."""
    return [
        entry for entry in plan.seen if not entry.is_folder and entry.name.startswith(f"{folder}/")
    ]


class _Steps:
    def __init__(self, plan: Plan, store: CheckedStore) -> None:
        self._plan, self._store = plan, store
        self._wrong = [finding for finding in plan.findings if finding.is_wrong]

    def steps(self) -> Iterator[Step]:
        plan = self._plan
        for damaged in plan.ranges:
            placeholders = placeholders_in(damaged)
            size = counted(damaged.stop - damaged.start, "byte")
            detail = f"{size} from physical offset {damaged.start}"
            if placeholders:
                detail += f", placeholders for {counted(placeholders, 'lost message')}"
            why = self._why(Repair.SALVAGE, damaged.start, damaged.stop)
            yield Step("fill", self._log_name(damaged.start), detail, why)
        if plan.cut_at is not None:
            detail = f"the bytes after physical offset {plan.cut_at}"
            why = self._why(Repair.TRUNCATE | Repair.SALVAGE, plan.cut_at)
            yield Step("cut", self._log_name(plan.cut_at), detail, why)
        for name in sorted(plan.dropped):
            why = self._why(Repair.DROP) or self._torn()
            yield Step("remove", f"{COMMIT_LOG_FOLDER}/{name}", "", why)
        changed = ("the log changes",) if plan.changes_log else ()
        if plan.queues:
            why = self._why(Repair.QUEUES) or changed
            for folder in file_names.QUEUE_FOLDERS:
                is_lost = folder == self._store.facts.lost_database
                if folder == CONSUME_QUEUE_FOLDER or self._has(folder) or is_lost:
                    yield Step("rebuild", f"{folder}/", self._replaced(folder), why)
        elif plan.dispatch_from is not None:
            rest = f"entries of messages from physical offset {plan.dispatch_from} on"
            yield Step("write", f"{CONSUME_QUEUE_FOLDER}/", rest, self._why(Repair.ABORT))
        if plan.index:
            why = self._why(Repair.INDEX) or changed
            yield Step("rebuild", f"{INDEX_FOLDER}/", self._replaced(INDEX_FOLDER), why)
        why = self._why(Repair.CHECKPOINT) or ("to match the rest",)
        yield Step("write", file_names.CHECKPOINT_FILE, "", why)
        if plan.wheel:
            yield Step(
                "write", file_names.TIMER_WHEEL_FILE, "the wrong slots", self._why(Repair.WHEEL)
            )
        if self._store.facts.has_abort:
            yield Step("remove", file_names.ABORT_FILE, "", self._why(Repair.ABORT))
        yield from self._links()

    def _torn(self) -> tuple[str, ...]:
        is_torn = any(finding.kind is Kind.TORN_LOG_END for finding in self._wrong)
        return (str(Kind.TORN_LOG_END),) if is_torn else ()

    def _why(self, repair: Repair, start: int = 0, stop: int = 1 << 63) -> tuple[str, ...]:
        """Return the kinds with this repair that the check found at physical offsets in [start, stop).

        Findings without an offset count as well.
        """
        findings = (finding for finding in self._wrong if finding.kind.repair & repair)
        in_range = (
            finding
            for finding in findings
            if finding.physical_offset is None or start <= finding.start < stop
        )
        return tuple(dict.fromkeys(str(finding.kind) for finding in in_range))

    def _log_name(self, offset: int) -> str:
        files = [file for file in self._store.files if file.start <= offset]
        return f"{COMMIT_LOG_FOLDER}/{Path(files[-1].path).name}"

    def _has(self, folder: str) -> bool:
        return any(entry.is_folder and entry.name == folder for entry in self._plan.seen)

    def _replaced(self, folder: str) -> str:
        files = list(below(self._plan, folder))
        size = sum(entry.size for entry in files)
        replaced = f"in place of {counted(len(files), 'file')}, {size:,} bytes" if files else ""
        path = str(self._plan.store / folder)
        is_lost = folder == self._store.facts.lost_database or any(
            finding.kind is Kind.QUEUE_FILE_SIZE and finding.file == path for finding in self._wrong
        )
        return "; ".join(filter(None, (replaced, _NO_ENDS if is_lost else "")))

    def _links(self) -> Iterator[Step]:
        plan = self._plan
        not_linked = plan.changed_files | plan.dropped
        for path in self._store.facts.log_folders:
            folder = os.path.relpath(path, plan.store)
            log = [
                entry
                for entry in below(self._plan, folder)
                if Path(entry.name).name not in not_linked
            ]
            if log:
                yield Step("keep", f"{folder}/", counted(len(log), "file"), ("hard links",))
        queues = [(folder, plan.queues) for folder in file_names.QUEUE_FOLDERS]
        for folder, is_new in (*queues, (INDEX_FOLDER, plan.index)):
            if not is_new and (files := below(self._plan, folder)):
                yield Step("keep", f"{folder}/", counted(len(files), "file"), ("hard links",))
