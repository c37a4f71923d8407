"""Run `reput check --scrub`: passes over stores, one after the other, until the command is stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

import click

from reput.base import Severity, printable
from reput.cli.main import DAMAGED
from reput.cli.many import code_of
from reput.cli.output import warn
from reput.errors import ReputError

if TYPE_CHECKING:
    from reput.base import Finding
    from reput.core import NamedStore

# A store that takes less time is not read more often than once in this time.
_LEAST_PASS_S = 3600.0


def scrub_stores(
    stores: Sequence[NamedStore],
    rate: int | None,
    passes: int | None,
    as_json: bool,
    fail_on: str,
) -> int:
    """Scrub the stores in turn: each once per pass. Return the exit code after the last pass.

    A store that cannot be read does not end the scrub of the others.
    """
    from reput.engine.stores import stores_of

    worst: set[Severity | None] = set()
    failed = False
    for number in range(1, passes + 1) if passes is not None else count(1):
        begun = time.monotonic()
        # A pattern may match other stores than in the last pass.
        for store in stores_of(stores):
            try:
                worst.add(_scrub_one(store, rate, as_json))
            except ReputError as error:
                failed = True
                warn(f"{store.name}: not read: {error}")
        if number != passes:
            time.sleep(max(begun + _LEAST_PASS_S - time.monotonic(), 0))
    if failed:
        return DAMAGED
    return code_of(Severity.worst(worst), fail_on)


def _scrub_one(store: NamedStore, rate: int | None, as_json: bool) -> Severity | None:
    from reput.engine.check import DEFAULT_RATE, finding_fields, finding_lines, scrub

    path, settings = store.arguments()

    def show(finding: Finding) -> None:
        if as_json:
            click.echo(json.dumps({"store": store.name, **finding_fields(finding, path)}))
        else:
            for line in finding_lines(finding, path):
                click.echo(line)

    config = settings.get("config")
    report = scrub(path, rate=rate or DEFAULT_RATE, config=config, on_finding=show)
    if as_json:
        fields = {name: value for name, value in report.as_dict().items() if name != "findings"}
        click.echo(json.dumps({**fields, "store": store.name}))
    else:
        click.echo(f"{printable(store.name)}: {report.headline}")
    return report.severity
