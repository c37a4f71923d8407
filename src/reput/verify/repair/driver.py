"""The repair of a store: planned from what the check finds, built beside it, checked, swapped in as a whole.

Until the swap, which is one rename, the store is as it was; from then on it is as planned. The old state stays beside
it. Files that stay are in both by hard links, so nobody who has one open loses it, and a CommitLog file whose bytes
change is copied first.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from reput.config import StoreConfig
from reput.errors import StoreAccessError, StoreError, StoreNotFoundError
from reput.files.anchors import AnchoredRunner, anchored, real_path
from reput.files.copies import inode_of
from reput.files.lock import locked
from reput.files.writer import sync_folder
from reput.format.file_names import LOCK_FILE
from reput.tasks import Progress, Runner, SerialRunner, silent
from reput.verify.repair.build import build, check_still
from reput.verify.repair.places import AtStep, RepairPlaces, look_of_log
from reput.verify.repair.plan import Plan
from reput.verify.repair.planning import IN_USE, check_unchanged, make_plan, refuse


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo did: the number of the repair, and where the repaired state lies now."""

    number: int
    repaired: Path


def plan_repair(
    store: str | PathLike[str],
    *,
    config: StoreConfig | None = None,
    truncate_tail: bool = False,
    salvage: bool = False,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> Plan:
    """What a repair of a store would do; nothing is changed.

    Args:
        store: The folder that holds `commitlog/`.
        config: The broker's settings; what the store's own files show, where it is None.
        truncate_tail: Cut what follows the last verifiable record of the log.
        salvage: Fill damaged ranges of the log, so that a broker reads on to what follows them.
        runner: Runs the tasks; in this process, one after the other, where it is None.
        progress: Called as work is done.

    Raises:
        StoreNotFoundError: there is no CommitLog.
        StoreLockedError: a broker or another writer owns the store.
        StoreAccessError: something cannot be read.
        StoreError: there is a link in the store, or it cannot be swapped with a folder beside it.
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
    """Carry out a plan. Where it raises, or is killed, the store is as it was, or as planned.

    Args:
        plan: Made by `plan_repair`.
        runner: Runs the tasks; in this process, one after the other, where it is None.
        progress: Called as work is done.
        at: Called after each step.

    Raises:
        StoreChangedError: the store has changed since.
        StoreLockedError: a broker or another writer owns the store, or another repair runs.
        StoreAccessError: the operating system refuses something, or there is too little space.
        StoreError: what was built is not what the plan says; the store is left as it is.
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
            f"and {plan.free_bytes:,} are free; free some space and run it again"
        )
    with locked(plan.store / LOCK_FILE, IN_USE), places.owned():
        check_unchanged(plan)
        places.settle(at)
        # What it dropped had further names for files of the store.
        seen = check_unchanged(plan, linked=plan.inodes)
        attempt = places.new_attempt(plan.backup)
        with anchored(attempt.folder, owner=plan.store):
            at("begun")
            seen = build(plan, attempt.new, seen, runner, progress, at)
            record = attempt.write_record(plan.store)
            sync_folder(places.root)
            at("recorded")
            check_still(plan, seen)
            places.swap(record, attempt.new, attempt.backup, at)
            places.give(attempt)


def settle_repair(store: str | PathLike[str], at: AtStep = lambda step: None) -> None:
    """Finish or drop what an interrupted repair or undo left; nothing is done where there is none.

    Raises:
        StoreLockedError: a broker owns the store, or a repair runs.
        StoreAccessError: the operating system refuses something.
    """
    places = _places(store)
    if not places.attempts():
        return
    with ExitStack() as stack:
        stack.enter_context(places.held())
        if inode_of(places.store) is not None:
            stack.enter_context(locked(places.store / LOCK_FILE, IN_USE))
        stack.enter_context(places.owned())
        places.settle(at)


def undo_repair(store: str | PathLike[str], at: AtStep = lambda step: None) -> Undone:
    """Swap the state before the last repair back; the repaired one is kept beside the store.

    Raises:
        StoreNotFoundError: there is nothing to undo.
        StoreLockedError: a broker or another writer owns the store, or a repair runs.
        StoreError: the store was written since the repair, or is another one.
        StoreAccessError: the operating system refuses something.
    """
    settle_repair(store, at)
    places = _places(store)
    with places.held():
        return _undo(places, at)


def _undo(places: RepairPlaces, at: AtStep) -> Undone:
    done = [one for one in places.attempts() if inode_of(one.backup) is not None]
    if not done or inode_of(places.store) is None:
        raise StoreNotFoundError(
            f"{places.store}: no repair to undo; there is none in {places.root}"
        )
    attempt = done[-1]
    with locked(places.store / LOCK_FILE, IN_USE), places.owned():
        record = attempt.record()
        if record is None or inode_of(places.store) != record.new:
            raise StoreError(
                f"{attempt.folder}: is not a repair of the folder that is {places.store} now"
            )
        if look_of_log(places.store) != record.log:
            raise StoreError(
                f"{places.store}: its CommitLog was written after the repair, and those messages would be missing; "
                f"the state before it is in {attempt.backup}"
            )
        places.swap(record, attempt.backup, attempt.undone, at)
    return Undone(attempt.number, attempt.undone)


def _places(store: str | PathLike[str]) -> RepairPlaces:
    return RepairPlaces(Path(real_path(store)))


def check_repairable(store: str | PathLike[str]) -> None:
    """Refuse at once what a plan would refuse only later; nothing but names is looked at.

    Raises:
        StoreNotFoundError: there is no such folder, or a kill has left it without its name.
        StoreLockedError: a broker or another writer owns the store.
        StoreError: there is a link in it.
        StoreAccessError: something cannot be read.
    """
    places = _places(store)
    if inode_of(places.store) is not None:
        with places.held():
            refuse(places.store)
    elif places.attempts():
        raise StoreNotFoundError(
            f"{places.store}: a repair was killed while it swapped the store; repair it again, and not only "
            "to see the plan: that finishes the swap"
        )
    else:
        raise StoreNotFoundError(f"{places.store}: there is no such folder")
