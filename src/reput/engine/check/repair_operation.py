"""Define `reput.repair` and `reput.undo_repair`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from reput.base import Progress, Report, StoreConfig, checked, format_size, printable, silent
from reput.engine.check.repairing import driver
from reput.engine.check.repairing.driver import (
    check_repairable,
    plan_repair,
    repair_store,
    settle_repair,
)
from reput.engine.check.repairing.plan import Plan, Remaining
from reput.engine.check.run import warm_up
from reput.engine.stores import Chosen, log_bytes, opened_runner

REPAIR_SCHEMA = "reput-repair/1"
"""Version of the JSON form (docs/repair.md). The number is raised with every incompatible change."""
_ASSUMED = (
    "No IndexFile shows its sizes, so a broker's defaults are used. If the broker uses other sizes, pass "
    "--broker-config, or --hash-slots and --index-items."
)
_MOVE = (
    "A lost message without a placeholder gets a pre-blank entry in its queue, so that later entries "
    "keep their queue offsets. In %LMQ% queues, later entries may get other queue offsets."
)


@dataclass(frozen=True, slots=True, repr=False)
class RepairReport(Report):
    """The plan of a repair, and whether the repair was done."""

    plan: Plan
    is_done: bool

    @property
    def is_complete(self) -> bool:
        """Return whether the plan removes all damage."""
        return not self.plan.remaining

    def lines(self) -> Iterator[str]:
        yield from map(printable, _plan_lines(self.plan))
        if self.is_done:
            yield self.closing

    @property
    def closing(self) -> str:
        """Return the line that ends the report of a completed repair."""
        return f"Repaired; the old state is in {printable(str(self.plan.backup))}"

    def as_dict(self) -> dict[str, Any]:
        return {"schema": REPAIR_SCHEMA, **self.plan.as_json(), "done": self.is_done}


def prepare_repair(store: str | PathLike[str], *, plan_only: bool) -> None:
    """Finish or drop an interrupted repair, and refuse a store that cannot be repaired. With `plan_only`, only refuse.

    Raises StoreNotFoundError, StoreLockedError, StoreAccessError, StoreError.
    """
    if not plan_only:
        settle_repair(store)
    check_repairable(store)


@checked
def repair(
    store: str | PathLike[str],
    *,
    plan_only: bool = False,
    truncate_tail: bool = False,
    salvage: bool = False,
    config: StoreConfig | None = None,
    runner: Any = "auto",
    on_plan: Callable[[Plan], None] = lambda plan: None,
    progress: Progress = silent,
) -> RepairReport:
    """Repair the damage that `check` finds.

    A repair makes a plan, builds the repaired store beside the old one, checks it, and swaps the two. The old state is
    kept as a backup, and `undo_repair` swaps it back. If a repair is killed, the store is either unchanged or repaired.

    Args:
        store: The folder that contains `commitlog/`.
        plan_only: Return the plan, and change nothing.
        truncate_tail: Cut the bytes after the last verifiable record of the log.
        salvage: Fill damaged ranges of the log, so that the records after them are kept.
        config: The broker's settings; by default derived from the store's files.
        runner: "auto", "serial", "processes", "spark", or a SparkSession.
        on_plan: Called with the plan before it is executed.
        progress: Called with the phase, units done and units in all.

    Raises:
        StoreNotFoundError, StoreLockedError, StoreAccessError, StoreChangedError, StoreError, UsageError.
    """
    prepare_repair(store, plan_only=plan_only)
    with opened_runner(Chosen.of(runner), log_bytes(store), warm_up) as tasks:
        plan = plan_repair(
            store, config=config, truncate_tail=truncate_tail, salvage=salvage, runner=tasks,
            progress=progress,
        )  # fmt: skip
        on_plan(plan)
        is_done = not plan_only and not plan.is_empty
        if is_done:
            repair_store(plan, runner=tasks, progress=progress)
    return RepairReport(plan, is_done)


@dataclass(frozen=True, slots=True, repr=False)
class UndoReport(Report):
    """The result of undoing a repair.

    Attributes:
        number: The number of the undone repair.
        repaired: The folder with the repaired state.
    """

    store: str
    number: int
    repaired: str

    def lines(self) -> Iterator[str]:
        yield f"Undone; the repaired state is in {printable(self.repaired)}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": REPAIR_SCHEMA, "store": self.store, "undone": self.number,
            "repaired": self.repaired,
        }  # fmt: skip


@checked
def undo_repair(store: str | PathLike[str]) -> UndoReport:
    """Undo the last repair by swapping the old state back. The repaired state is kept beside the store.

    Raises:
        StoreNotFoundError: there is nothing to undo.
        StoreLockedError: a broker or another writer owns the store, or a repair is running.
        StoreError: the store was written after the repair, or is not the repaired store.
        StoreAccessError: the operating system refuses an operation.
    """
    attempt = driver.undo_repair(store)
    return UndoReport(fspath(store), attempt.number, str(attempt.undone))


def _plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the steps, the remaining damage, and the cost."""
    if plan.is_empty and not plan.remaining:
        yield f"{plan.store} is valid: nothing to repair"
        return
    yield f"Repair of {plan.store}"
    for step in plan.steps:
        change = f"{step.name}: {step.detail}" if step.detail else step.name
        yield f"  {step.verb:<8} {change} ({', '.join(step.why)})"
    if plan.is_empty:
        yield "  nothing is changed"
    for remaining in plan.remaining:
        yield f"  {'remains':<8} {remaining.finding.kind}: {remaining.finding}{_hint(remaining)}"
    if plan.is_empty:
        return
    if plan.entries_move:
        yield f"  {'note':<8} {_MOVE}"
    if plan.sizes_assumed:
        yield f"  {'note':<8} {_ASSUMED}"
    yield f"  {'backup':<8} {plan.backup}"
    needed, free = format_size(plan.needed_bytes), format_size(plan.free_bytes)
    yield f"  {'needs':<8} about {needed} beside the store ({free} are free), {_time(plan.seconds)}"


def _hint(remaining: Remaining) -> str:
    return f"; --{remaining.asked.replace('_', '-')} repairs it" if remaining.asked else ""


def _time(seconds: float) -> str:
    """Return an estimated time, rounded."""
    if seconds < 1:
        return "less than 1 s"
    return f"about {seconds:,.0f} s" if seconds < 120 else f"about {seconds / 60:,.0f} min"
