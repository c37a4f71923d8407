"""Define the command `reput repair`."""

from __future__ import annotations

import json

import click

from reput.cli import options
from reput.cli.main import DAMAGED, FOUND
from reput.cli.progress import PhaseBars
from reput.engine.check import Plan, RepairReport, prepare_repair, repair, undo_repair
from reput.engine.stores import Chosen
from reput.errors import UsageError


@click.command(
    "repair",
    epilog="\b\nExamples:"
    "\n  reput repair /data/store --plan"
    "\n  reput repair /data/store --broker-config broker.conf"
    "\n  reput repair /data/store --truncate-tail --salvage"
    "\n  reput repair /data/store --undo",
)
@options.store_argument
@options.flag("--plan", "Print the planned steps; change nothing.", "plan_only")
@options.flag("--undo", "Swap back the state before the last repair.")
@options.flag("--truncate-tail", "Cut the bytes after the CommitLog's last verifiable record.")
@options.flag("--salvage", "Fill damaged ranges of the CommitLog, and keep the records after them.")
@options.config_options
@options.queue_entries_option
@options.runner_options
@options.report_format("json")
def command(
    store: str,
    plan_only: bool,
    undo: bool,
    truncate_tail: bool,
    salvage: bool,
    broker_config: str | None,
    runner: Chosen,
    as_json: bool,
    **sizes: int | None,
) -> int:
    """Repair the damage that `reput check` finds in STORE: print the plan, then carry it out.

    The repaired store is built in STORE.reput-repair beside STORE, with hard links to unchanged
    files, and checked. Then the two folders are swapped by one rename. The old state is kept in
    STORE.reput-repair as a backup. A repair that is killed leaves STORE as it was or as planned; run
    it again to finish.

    The CommitLog changes only with --truncate-tail or --salvage, and then in copies of its files.
    --salvage writes a placeholder for each lost message that has a ConsumeQueue entry, so that no
    queue offset changes. Consumers receive the placeholders. Stop the broker first: a store has one
    owner at a time.

    Exits with 3 if damage remains that the given options do not repair.
    """
    if undo:
        if plan_only or truncate_tail or salvage:
            raise UsageError("--undo: cannot be combined with --plan, --truncate-tail or --salvage")
        undone = undo_repair(store)
        click.echo(json.dumps(undone.as_dict(), indent=2) if as_json else str(undone))
        return FOUND
    # Finish or undo an interrupted swap first. Otherwise `store` may be a half-built folder. Check the store before its
    # settings: if it cannot be repaired at all, the error should not be about settings.
    prepare_repair(store, plan_only=plan_only)
    config = options.given_config(store, broker_config, sizes, writes=True)
    with PhaseBars() as progress:

        def show(plan: Plan) -> None:
            with progress.aside():
                click.echo(RepairReport(plan, is_done=False))

        report = repair(
            store, plan_only=plan_only, truncate_tail=truncate_tail, salvage=salvage, config=config,
            runner=runner, progress=progress, **({} if as_json else {"on_plan": show}),
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
    elif report.is_done:
        click.echo(report.closing)
    return FOUND if report.is_complete else DAMAGED
