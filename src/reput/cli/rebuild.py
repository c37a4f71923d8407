"""Define the command `reput rebuild`, and run its `--follow`: print progress, and end cleanly on signals."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any

import click

from reput.base import Progress, counted, printable
from reput.cli.main import DAMAGED, FOUND
from reput.cli.many import answer_stores, refuse_settings, resume_option
from reput.cli.options import (
    SIZE,
    GivenStores,
    config_options,
    flag,
    given_config,
    path_option,
    queue_entries_option,
    refuse_other_log,
    refuse_part_of_store,
    report_format,
    runner_options,
    stores_argument,
)
from reput.cli.output import say_waiting, stderr_is_terminal, warn
from reput.cli.progress import PhaseBars, default_signals, signals_stop
from reput.engine.rebuild import FollowReport, RebuildReport, damage_lines, follow_log, rebuild
from reput.engine.stores import Chosen, log_bytes, split_logs, with_logs
from reput.engine.writer import KEPT_BY
from reput.errors import UsageError
from reput.io import Location

# Smaller splits than this cost more than the bytes in them.
_LEAST_SPLIT_BYTES = 1 << 14


@click.command(
    "rebuild",
    epilog="\b\nExamples:"
    "\n  reput rebuild /data/store --broker-config broker.conf --output /mnt/rebuilt"
    "\n  reput rebuild /data/store --output /mnt/live --follow",
)
@stores_argument
@click.option(
    "--only",
    type=click.Choice(["consumequeue", "index"]),
    help="Rebuild only these files.",
)
@path_option(
    "--output",
    "DIR|URL",
    "Folder, or URL of object storage, for the result; STORE is left unchanged.",
)
@click.option(
    "--staging",
    metavar="URL",
    help="Object storage for temporary files, if the workers share no folder.",
)
@click.option(
    "--queues",
    type=click.Choice(["files", "rocksdb", "both"]),
    help="Write queues as files, into RocksDB (5.x), or both (5.3.1).  [default: as the store has them]",
)
@click.option(
    "--index",
    type=click.Choice(["files", "rocksdb"]),
    help="Write the index of keys as IndexFiles or into RocksDB (5.4). Required if the store has keys in RocksDB only. "
    " [default: files]",
)
@config_options
@queue_entries_option
@click.option(
    "--split-size",
    type=SIZE,
    help="CommitLog bytes per task, such as 128MiB.",
)
@runner_options
@flag("--salvage", "After damage, resume at the next verifiable record, not at the next file.")
@flag("--follow", "After the rebuild, index new messages until Ctrl-C; needs --output.")
@resume_option
@report_format("json")
def command(
    targets: GivenStores,
    resume: str | None,
    output: str | None,
    broker_config: str | None,
    hash_slots: int | None,
    index_items: int | None,
    queue_entries: int | None,
    runner: Chosen,
    follow: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Rebuild consumequeue/ and index/ of STORE from its commitlog/, in parallel.

    The new files are identical to the files of a broker's dispatch, and have the sizes of the existing files. If no
    files exist and the broker does not use the default sizes, pass its settings. Stop the broker first, or use
    --output. The old files stay in place until the new ones are complete; after a kill, run the same command again to
    resume.

    --queues converts a 5.x store's queues: to files (storeType=default) or to a RocksDB database
    (storeType=defaultRocksDB), which needs reput[rocksdb]. It is required if a store has queues in both; --queues both
    keeps both kinds, each with its topics, and writes all topics twice in other stores (rocksdbCQDoubleWriteEnable).
    --index rocksdb writes the database of keys of a 5.4 broker (indexRocksDBEnable) in place of IndexFiles;
    existing IndexFiles stay.

    --follow maintains indexes while a broker, or a periodic copy, extends the log. It continues the indexes in
    --output, and rebuilds them first if they are missing. If there is no CommitLog yet, it waits for the first
    message. It may be killed and restarted at any time.
    Query these indexes with `reput query STORE --index DIR`.

    STORE and --output may be URLs of object storage (s3://, gs://, abfs://). The result is then published
    there as files; existing files are not replaced. See docs/object-storage.md.

    Several STOREs, or the stores of a fleet file, are rebuilt in parallel. With --output, each gets a folder in it.
    Settings come from each store's files, or from its configuration in the fleet file.

    If the CommitLog is in other folders (storePathCommitLog=a,b), write STORE,a,b and pass
    --output.

    Exits with 3 if the CommitLog is damaged: its readable part is rebuilt, the rest is reported.
    """
    if output is not None:
        refuse_part_of_store(output, "--output")
    split_size = options["split_size"]
    if split_size is not None and split_size < _LEAST_SPLIT_BYTES:
        raise UsageError(f"--split-size must be at least {_LEAST_SPLIT_BYTES}, not {split_size}")
    sizes = {"hash_slots": hash_slots, "index_items": index_items, "queue_entries": queue_entries}
    if targets.is_several or resume is not None:
        if follow:
            raise UsageError("--follow works with one store only")
        refuse_settings(broker_config, sizes)
        return _rebuild_stores(targets, output, as_json, resume, runner=runner, **options)
    store = targets.paths[0]
    if follow:
        if output is None:
            raise UsageError("--follow needs --output, because the store is only read")
        in_rocksdb = options["index"] == "rocksdb" or options["queues"] not in (None, "files")
        if in_rocksdb or any(options[name] for name in ("only", "salvage", "staging")):
            raise UsageError(
                "--follow: cannot be combined with --only, --salvage, --staging, --queues rocksdb, --queues both or "
                "--index rocksdb"
            )
    named, store = store, with_logs(*split_logs(store))
    if store != named and output is None:
        raise UsageError(f"{named}: pass --output, because the log is not in the store")
    refuse_other_log(store, broker_config)
    # Report a wrong path before searching for the settings. With --follow, the log may appear later.
    if not follow:
        log_bytes(store)
    config = given_config(
        store, broker_config, sizes, writes=True, unwritten=KEPT_BY[options["only"]]
    )
    if follow:
        return _follow(
            store, str(output), as_json, config=config, split_size=split_size, runner=runner
        )
    with PhaseBars() as progress:
        report = rebuild(
            store, output=output, config=config, runner=runner, progress=progress, **options
        )
    warn(*damage_lines(report.damage))
    click.echo(json.dumps(report.as_dict(), indent=2) if as_json else str(report))
    return DAMAGED if report.damage else FOUND


def _rebuild_stores(
    targets: GivenStores, output: str | None, as_json: bool, resume: str | None, **options: Any
) -> int:
    stores = targets.named()
    for store in stores:
        if store.log_paths and output is None:
            raise UsageError(f"{store.name}: pass --output, because the log is not in the store")
    outputs = {}
    if output is not None:
        outputs = {store.name: _folder_of(output, store.name) for store in stores}
        stores = [
            replace(store, options={**store.options, "output": outputs[store.name]})
            for store in stores
        ]
    layout = "json" if as_json else "text"
    return answer_stores(rebuild, stores, layout, resume=resume, outputs=outputs, **options)


def _folder_of(output: str, name: str) -> str:
    """Return the folder in `output` for a store. Raises UsageError if the store's name cannot name a folder."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or Location.is_url(name):
        raise UsageError(
            f"--output: {name} cannot be the name of a folder; give the store another name in a fleet file"
        )
    return os.path.join(output, *parts)


def _follow(store: str, output: str, as_json: bool, **options: Any) -> int:
    """Follow a log until SIGINT or SIGTERM, and return the exit code."""
    stop, view = Event(), _View(output, as_json)
    with signals_stop(stop):
        report = follow_log(
            store, output, shown=_rebuild_bars, stop=stop, on_wait=partial(say_waiting, store),
            on_rebuilt=view.rebuilt, on_resume=view.resumed, on_step=view.step, **options,
        )  # fmt: skip
    view.end(report)
    return DAMAGED if report.damage or view.is_damaged else FOUND


@contextmanager
def _rebuild_bars() -> Iterator[Progress]:
    """Show progress bars during the first rebuild. A signal ends it at once, because a partial result is useless."""
    with default_signals(), PhaseBars() as progress:
        yield progress


class _View:
    """The output of one run of `--follow`.

    is_damaged: whether the first rebuild found damage
    """

    def __init__(self, output: str, as_json: bool) -> None:
        self._output, self._as_json = output, as_json
        self.is_damaged = False

    def rebuilt(self, report: RebuildReport) -> None:
        self.is_damaged = bool(report.damage)
        warn(*damage_lines(report.damage))
        click.echo(str(report), err=self._as_json)

    def resumed(self, report: FollowReport) -> None:
        click.echo(
            f"{printable(self._output)} has every message before {report.position:,}; "
            f"compared with the CommitLog from {report.compared_from:,} on.",
            err=self._as_json,
        )

    def step(self, report: FollowReport) -> None:
        if stderr_is_terminal():
            text = f"\rup to {report.position:,}, {counted(report.messages, 'message')} followed"
            click.echo(text, nl=False, err=True)

    def end(self, report: FollowReport) -> None:
        if stderr_is_terminal():
            click.echo(err=True)
        warn(*report.damage)
        if self._as_json:
            click.echo(json.dumps(report.as_dict(), indent=2))
        else:
            click.echo(str(report))
