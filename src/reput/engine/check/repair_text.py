"""Format the plan of a repair as text."""

from __future__ import annotations

from collections.abc import Iterator

from reput.base import format_size
from reput.engine.check.repair.plan import Plan, Remaining

_ASSUMED = (
    "No IndexFile shows its sizes, so a broker's defaults are used. If the broker uses other sizes, pass "
    "--broker-config, or --hash-slots and --index-items."
)
_MOVE = (
    "A lost message without a placeholder gets a pre-blank entry in its queue, so that later entries "
    "keep their queue offsets. In %LMQ% queues, later entries may get other queue offsets."
)


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the steps, the remaining damage, and the cost."""
    if plan.is_empty and not plan.remaining:
        yield f"{plan.store} is valid: nothing to repair"
        return
    yield f"Repair of {plan.store}"
    for step in plan.steps:
        what = f"{step.name}: {step.detail}" if step.detail else step.name
        yield f"  {step.verb:<8} {what} ({', '.join(step.why)})"
    if plan.is_empty:
        yield "  nothing is changed"
    for one in plan.remaining:
        yield f"  {'remains':<8} {one.finding.kind}: {one.finding}{_hint(one)}"
    if plan.is_empty:
        return
    if plan.entries_move:
        yield f"  {'note':<8} {_MOVE}"
    if plan.sizes_assumed:
        yield f"  {'note':<8} {_ASSUMED}"
    yield f"  {'backup':<8} {plan.backup}"
    needed, free = format_size(plan.needed_bytes), format_size(plan.free_bytes)
    yield f"  {'needs':<8} about {needed} beside the store ({free} are free), {_time(plan.seconds)}"


def _hint(one: Remaining) -> str:
    return f"; --{one.asked.replace('_', '-')} repairs it" if one.asked else ""


def _time(seconds: float) -> str:
    """Return an estimated time, rounded."""
    if seconds < 1:
        return "less than 1 s"
    return f"about {seconds:,.0f} s" if seconds < 120 else f"about {seconds / 60:,.0f} min"
