"""`reput repair`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import (
    given_config,
    queue_entries_option,
    store_argument,
    with_config_options,
)
from reput.cli.runners import Chosen, opened_runner, runner_options
from reput.errors import UsageError
from reput.messages.text import printable

if TYPE_CHECKING:
    from reput.verify.repair.plan import Plan

SCHEMA = "reput-repair/1"
"""Raised with every change that a program would have to know of; see docs/repair.md."""


@click.command(
    "repair",
    short_help="Repair a store: plan, build beside it, check, swap, keep a backup.",
    epilog="\b\nExamples:"
    "\n  reput repair /data/store --plan"
    "\n  reput repair /data/store --broker-config broker.conf"
    "\n  reput repair /data/store --truncate-tail --salvage"
    "\n  reput repair /data/store --undo",
)
@store_argument
@click.option("--plan", "plan_only", is_flag=True, help="Print what would be done; change nothing.")
@click.option("--undo", is_flag=True, help="Swap back the state before the last repair.")
@click.option(
    "--truncate-tail", is_flag=True, help="Cut what follows the CommitLog's last verifiable record."
)
@click.option(
    "--salvage",
    is_flag=True,
    help="Fill damaged ranges of the CommitLog, and so keep the records after them.",
)
@with_config_options
@queue_entries_option
@runner_options
@click.option("--json", "as_json", is_flag=True, help="Print the plan, and the outcome, as JSON.")
def command(
    store: str,
    plan_only: bool,
    undo: bool,
    truncate_tail: bool,
    salvage: bool,
    broker_config: str | None,
    runner: str | None,
    master: str | None,
    as_json: bool,
    **sizes: int | None,
) -> int:
    """Repair STORE as `reput check` finds it: print the plan, then carry it out.

    The repaired store is built in STORE.reput-repair beside STORE, with hard links to the files that
    stay, and checked. Then the two folders are swapped by one rename, and the old state is kept as
    the backup. A repair that is killed leaves STORE as it was or as planned; run it again to finish.

    The CommitLog changes only with --truncate-tail or --salvage, and then in copies of its files.
    --salvage puts a placeholder where a ConsumeQueue knows of a lost message, so that no queue offset
    changes; consumers receive it. Stop the broker first: a store has one owner at a time.

    Exits with 3 if damage remains that this repair leaves as it is.
    """
    if undo:
        if plan_only or truncate_tail or salvage:
            raise UsageError("--undo: not together with --plan, --truncate-tail or --salvage")
        return _undo(store, as_json)
    from reput.cli.rebuild_view import RebuildProgress
    from reput.log.paths import log_bytes
    from reput.verify.repair.driver import (
        check_repairable,
        plan_repair,
        repair_store,
        settle_repair,
    )
    from reput.verify.warm_up import warm_up

    if not plan_only:
        settle_repair(store)
    check_repairable(store)
    chosen, size_bytes = Chosen(runner, master), log_bytes(store)
    config = given_config(store, broker_config, sizes, writes=True)
    with opened_runner(chosen, size_bytes, warm_up) as tasks:
        with RebuildProgress() as progress:
            plan = plan_repair(
                store, config=config, truncate_tail=truncate_tail, salvage=salvage,
                runner=tasks, progress=progress,
            )  # fmt: skip
        if not as_json:
            _print_plan(plan)
        if not (plan_only or plan.is_empty):
            with RebuildProgress() as progress:
                repair_store(plan, runner=tasks, progress=progress)
    is_done = not plan_only and not plan.is_empty
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, **plan.as_json(), "done": is_done}, indent=2))
    elif is_done:
        click.echo(f"Repaired; the old state is in {printable(str(plan.backup))}")
    return DAMAGED if plan.remaining else FOUND


def _print_plan(plan: Plan) -> None:
    from reput.cli.repair_view import plan_text

    click.echo(plan_text(plan))


def _undo(store: str, as_json: bool) -> int:
    from reput.verify.repair.driver import undo_repair

    undone = undo_repair(store)
    if as_json:
        outcome: dict[str, Any] = {"schema": SCHEMA, "store": store, "undone": undone.number}
        click.echo(json.dumps({**outcome, "repaired": str(undone.repaired)}, indent=2))
    else:
        click.echo(f"Undone; the repaired state is in {printable(str(undone.repaired))}")
    return FOUND
