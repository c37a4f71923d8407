"""Define the command `reput prove`."""

from __future__ import annotations

import json
from typing import Any

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.many import answer_stores, resume_option
from reput.cli.options import (
    GivenStores,
    all_formats,
    reader_options,
    runner_options,
    stores_argument,
)
from reput.engine.check import prove
from reput.engine.stores import Chosen


@click.command(
    "prove",
    epilog="\b\nExample:\n  reput prove /data/store",
)
@stores_argument
@reader_options
@resume_option
@runner_options
@all_formats("json")
def command(
    targets: GivenStores, layout: str, resume: str | None, runner: Chosen, **opening: Any
) -> int:
    """Prove which part of the log each IndexFile of STORE covers, and remember the proofs.

    Queries and look-ups rely on these proofs. Without a proof they only spot-check an IndexFile.

    An IndexFile covers a range of the log if every key of every message in it has an entry that a
    look-up reaches. If the range has at most 64 MiB, all of it is read. For a larger range, all slots
    and entries of the IndexFile are checked; the log is read only where entries are far apart and at
    a thousand other positions. Proofs are kept in your cache folder (XDG_CACHE_HOME, or ~/.cache),
    and are valid until the file or the log changes. The proof of a file that is open for writing is
    not kept, as the file may change without a trace. The store is only read.

    Several STOREs, or those of a fleet file, are examined in parallel, with one line of output per
    store.

    Exits with 3 if an IndexFile does not cover all of the log between its first and its last message.
    """
    store = targets.single
    if store is None or resume is not None:
        return answer_stores(prove, targets, layout, resume=resume, runner=runner, **opening)
    report = prove(store, **opening)
    click.echo(json.dumps(report.as_dict(), indent=2) if layout == "json" else str(report))
    return FOUND if report.is_complete else DAMAGED
