"""The plan of a repair: changes to each part of a store and their reasons, unchanged parts, and the cost."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from reput.base import Finding, Kind, StoreConfig
from reput.engine.check.checking.checked_store import CheckedStore
from reput.engine.check.checking.tally import MOST_OF_A_KIND, counted
from reput.engine.check.repair.log_damage import DamagedRange, placeholders_in
from reput.format.file_names import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    QUEUE_FOLDERS,
    parse_offset_file_name,
)
from reput.io import TreeEntry

Verb = Literal["rebuild", "fill", "cut", "write", "remove", "keep"]
Asked = Literal["salvage", "truncate_tail"]

_MOVED = frozenset({Kind.MISPLACED_QUEUE_ENTRY, Kind.LMQ_OFFSETS_RESTARTED})
_LOSSES = frozenset(
    {
        Kind.UNREADABLE_RECORD, Kind.RECORD_SIZE_MISMATCH, Kind.MISSING_LOG_FILE, Kind.LOG_FILE_SIZE,
    }
)  # fmt: skip
OF_QUEUES = frozenset(
    {
        Kind.PARTIAL_QUEUE_ENTRY, Kind.QUEUE_GAP, Kind.QUEUE_DISORDER, Kind.FOREIGN_QUEUE_ENTRY,
        Kind.MISSING_QUEUE_ENTRY, Kind.QUEUES_DELETED, Kind.MISSING_QUEUE, Kind.MISSING_QUEUE_FILE,
        Kind.QUEUE_FILE_SIZE, Kind.WRONG_QUEUE_ENTRY, Kind.UNDISPATCHED_TAIL, Kind.LOST_LOG_END,
        Kind.SKIPPED_AT_START,
    }
)  # fmt: skip
OF_INDEX = frozenset(
    {
        Kind.INDEX_FILE_SIZE, Kind.INDEX_HEADER, Kind.INDEX_SLOT, Kind.INDEX_ITEM,
        Kind.UNREACHABLE_INDEX_ITEM, Kind.BROKEN_INDEX_CHAIN, Kind.STALE_INDEX_ENTRY, Kind.INDEX_DELETED,
        Kind.MISSING_INDEX_ENTRY, Kind.INDEX_FILE_LOST, Kind.DUPLICATE_INDEX_ENTRY, Kind.INDEX_TIME,
        Kind.INDEX_FILE_ORDER, Kind.INDEX_AHEAD_OF_LOG, Kind.UNDISPATCHED_TAIL,
    }
)  # fmt: skip
OF_CHECKPOINT = frozenset({Kind.CHECKPOINT, Kind.CHECKPOINT_MISSING, Kind.CHECKPOINT_AHEAD})
OF_ABORT = frozenset({Kind.UNCLEAN_SHUTDOWN, Kind.CRASH_LOSES_INDEX})
_NO_ENDS = "the database cannot be read, so queues whose messages have all expired restart at queue offset 0"
OF_LOG = frozenset({Kind.UNREADABLE_RECORD, Kind.RECORD_SIZE_MISMATCH, Kind.BODY_CRC})


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
    asked: Asked | None = None


@dataclass(slots=True)
class Plan:
    """The plan of a store's repair.

    backup         folder of the old state after the repair
    findings       findings of the check, including findings for information only
    queues, index  whether ConsumeQueues and IndexFiles are rebuilt
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
        return {one.name: one.inode for one in self.seen}

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
        places = [one.start for one in self.ranges]
        if self.cut_at is not None:
            places.append(self.cut_at)
        names = (one.name.partition("/") for one in self.seen if not one.is_folder)
        starts = {
            name: parse_offset_file_name(name)
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
            one.finding.kind in _LOSSES and one.asked != "truncate_tail" for one in self.remaining
        )
        bare = any(not one.known or placeholders_in(one) < len(one.known) for one in self.ranges)
        return self.queues and (lost or bare)

    def expects(self, finding: Finding, root: Path) -> bool:
        """Return whether the plan leaves or causes this finding in the repaired store, which was built in `root`."""
        if not finding.is_wrong:
            return True
        # In a light queue, a lost message leaves no gap, so later entries change position.
        if finding.kind in _MOVED and (self.entries_move or self.ranges):
            return True
        left = [one.finding for one in self.remaining if one.finding.kind is finding.kind]
        # A check reports at most MOST_OF_A_KIND findings of one kind. It joins the rest into one finding, which names
        # only one of their files, so the other files are unknown.
        if len(left) > MOST_OF_A_KIND:
            return True
        name = os.path.relpath(finding.file, root)
        return any(os.path.relpath(one.file, self.store) == name for one in left)

    def keeps_entry(self, finding: Finding, root: Path) -> Finding | None:
        """Return a finding of the repaired store if the old store had it, and a rebuild cannot remove it.

        A message lost the property that names the queue. Without its entry, later entries would change position. The
        result names the file in the store.
        """
        name = os.path.relpath(finding.file, root)
        before = (one for one in self.findings if one.kind is Kind.FOREIGN_QUEUE_ENTRY)
        is_old = any(os.path.relpath(one.file, self.store) == name for one in before)
        is_kept = finding.kind is Kind.FOREIGN_QUEUE_ENTRY and is_old
        return replace(finding, file=str(self.store / name)) if is_kept else None

    def as_json(self) -> dict[str, Any]:
        """Return the plan as values for json.dumps."""
        return {
            "store": str(self.store),
            "backup": str(self.backup),
            "steps": [
                {"verb": one.verb, "name": one.name, "detail": one.detail, "why": list(one.why)}
                for one in self.steps
            ],
            "remaining": [{**one.finding.as_json(), "asked": one.asked} for one in self.remaining],
            "entries_move": self.entries_move,
            "sizes_assumed": self.sizes_assumed,
            "estimated_seconds": round(self.seconds, 1),
            "estimated_bytes": self.needed_bytes,
            "free_bytes": self.free_bytes,
        }


def steps_of(plan: Plan, found: CheckedStore) -> Iterator[Step]:
    """Yield the steps of a plan for this store, in the order in which they are printed."""
    yield from _Steps(plan, found).all()


def below(plan: Plan, folder: str) -> Sequence[TreeEntry]:
    """Return the files that a folder of the store had when the plan was made."""
    return [one for one in plan.seen if not one.is_folder and one.name.startswith(f"{folder}/")]


class _Steps:
    def __init__(self, plan: Plan, found: CheckedStore) -> None:
        self._plan, self._found = plan, found
        self._wrong = [finding for finding in plan.findings if finding.is_wrong]

    def all(self) -> Iterator[Step]:
        plan = self._plan
        for one in plan.ranges:
            placeholders = placeholders_in(one)
            detail = f"{one.stop - one.start:,} bytes from physical offset {one.start}"
            if placeholders:
                detail += f", placeholders for {counted(placeholders, 'lost message')}"
            why = self._why(OF_LOG | {Kind.LOG_FILE_SIZE}, one.start, one.stop)
            yield Step("fill", self._log_name(one.start), detail, why)
        if plan.cut_at is not None:
            detail = f"the bytes after physical offset {plan.cut_at}"
            kinds = {Kind.TORN_LOG_END, Kind.LOG_FILE_SIZE} | OF_LOG
            why = self._why(kinds, plan.cut_at)
            yield Step("cut", self._log_name(plan.cut_at), detail, why)
        for name in sorted(plan.dropped):
            why = self._why({Kind.FOREIGN_LOG_FILE}) or self._why({Kind.TORN_LOG_END})
            yield Step("remove", f"{COMMIT_LOG_FOLDER}/{name}", "", why)
        changed = ("the log changes",) if plan.changes_log else ()
        if plan.queues:
            why = self._why(OF_QUEUES) or changed
            for folder in QUEUE_FOLDERS:
                if folder == CONSUME_QUEUE_FOLDER or self._has(folder):
                    yield Step("rebuild", f"{folder}/", self._held(folder), why)
        elif plan.dispatch_from is not None:
            rest = f"entries of messages from physical offset {plan.dispatch_from} on"
            yield Step("write", f"{CONSUME_QUEUE_FOLDER}/", rest, self._why(OF_ABORT))
        if plan.index:
            why = self._why(OF_INDEX) or changed
            yield Step("rebuild", f"{INDEX_FOLDER}/", self._held(INDEX_FOLDER), why)
        why = self._why(OF_CHECKPOINT) or ("to match the rest",)
        yield Step("write", CHECKPOINT_FILE, "", why)
        if self._found.facts.has_abort:
            yield Step("remove", ABORT_FILE, "", self._why(OF_ABORT))
        yield from self._kept()

    def _why(self, kinds: Iterable[Kind], start: int = 0, stop: int = 1 << 63) -> tuple[str, ...]:
        """Return the kinds among `kinds` that the check found at physical offsets in [start, stop).

        Findings without an offset count as well.
        """
        found = (one for one in self._wrong if one.kind in kinds)
        here = (one for one in found if one.physical_offset is None or start <= one.start < stop)
        return tuple(dict.fromkeys(str(one.kind) for one in here))

    def _log_name(self, offset: int) -> str:
        files = [file for file in self._found.files if file.start <= offset]
        return f"{COMMIT_LOG_FOLDER}/{Path(files[-1].path).name}"

    def _has(self, folder: str) -> bool:
        return any(one.is_folder and one.name == folder for one in self._plan.seen)

    def _held(self, folder: str) -> str:
        files = list(below(self._plan, folder))
        size = sum(one.size for one in files)
        held = f"in place of {counted(len(files), 'file')}, {size:,} bytes" if files else ""
        path = str(self._plan.store / folder)
        is_lost = any(one.kind is Kind.QUEUE_FILE_SIZE and one.file == path for one in self._wrong)
        return f"{held}; {_NO_ENDS}" if is_lost else held

    def _kept(self) -> Iterator[Step]:
        plan = self._plan
        gone = plan.changed_files | plan.dropped
        for path in self._found.facts.log_folders:
            folder = os.path.relpath(path, plan.store)
            log = [one for one in below(self._plan, folder) if Path(one.name).name not in gone]
            if log:
                yield Step("keep", f"{folder}/", counted(len(log), "file"), ("hard links",))
        queues = [(folder, plan.queues) for folder in QUEUE_FOLDERS]
        for folder, is_new in (*queues, (INDEX_FOLDER, plan.index)):
            if not is_new and (kept := below(self._plan, folder)):
                yield Step("keep", f"{folder}/", counted(len(kept), "file"), ("hard links",))
