"""`reput lookup`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import csv_safe_option, format_option, reader_options, runner_options
from reput.errors import MissingExtraError, UsageError
from reput.operations.runners import INSTALL_SPARK, Chosen, has_spark, local_runner, spark_session
from reput.store.coverage_text import coverage_in_words
from reput.text import printable

if TYPE_CHECKING:
    from reput.lookup.arrow import Lookup
    from reput.lookup.lines import LineStyle
    from reput.lookup.local_files import Format
if TYPE_CHECKING:
    from reput.lookup.answer import LookupAnswer
    from reput.lookup.lines import LineFormat, LineStyle


@click.command(
    "lookup",
    short_help="Find the messages of many keys at once.",
    epilog="\b\nExamples:"
    "\n  reput lookup /data/store --keys orders.csv --output found"
    "\n  reput lookup brokers/*/store --keys keys.parquet --columns store,tags,body --output -",
)
@click.argument("stores", metavar="STORE...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--keys", required=True, metavar="FILE", help="The keys: .csv with names, or .parquet."
)
@click.option(
    "--output", required=True, metavar="DIR|-", help="A new directory of files; - is stdout."
)
@format_option(
    ("parquet", "jsonl", "csv"),
    "Format of the output.  [default: parquet for a directory, jsonl for stdout]",
)
@csv_safe_option
@click.option(
    "--iso-times",
    is_flag=True,
    help="JSON and CSV: times as 2026-11-20T08:00:00.000Z, not in milliseconds since 1970.",
)
@click.option("--columns", metavar="A,B,...", help="Columns of a message to return.")
@click.option(
    "--coverage",
    type=click.Choice(["rows", "summary"]),
    default="summary",
    show_default=True,
    help="What the answer covers: only is_complete in each row and the rest once in "
    "DIR.coverage.json, or all in each row.",
)
@reader_options
@runner_options
@click.option(
    "--staging",
    type=click.Path(),
    metavar="DIR",
    help="Staging folder, visible to all executors and writable by no one else.",
)
@click.option(
    "--staging-access",
    type=click.Choice(["private", "group"]),
    default="private",
    show_default=True,
    help="Who may read staged files: this user, or its group if executors run as other users.",
)
def command(
    stores: tuple[str, ...],
    keys: str,
    output: str,
    layout: Any,
    csv_safe: bool,
    iso_times: bool,
    columns: str | None,
    broker_config: str | None,
    index: str | None,
    chosen: Chosen,
    **asked: Any,
) -> int:
    """Find all messages of many keys, up to tens of millions, in one or several STOREs.

    FILE has the columns topic and key (a unique key, or one of a message's KEYS), and optionally
    begin and end: store times, both inclusive, in milliseconds or as 2026-11-20T08:00:00Z. Other
    columns are copied to the output. Every row is answered: with each message that has the key, or
    once with nulls. Topic and keys of every candidate are compared. What no IndexFile covers is
    scanned once for all keys. The column is_complete reports for each row whether all that was
    searched could be read; DIR.coverage.json, or stderr beside stdout, what was searched.

    Columns of a message by default: store, physical_offset, store_timestamp, queue_id, queue_offset,
    size, message_id, unique_key, tags. Others are body, body_error (why a body could not be
    decompressed), keys, properties, born_timestamp, born_host and the remaining fields of a message.
    docs/message-json.md defines the lines of JSON and CSV.

    Exits with 1 if nothing was found for any key, with 3 if something could not be read.
    """
    to_stdout = output == "-"
    layout = layout or ("jsonl" if to_stdout else "parquet")
    if iso_times and layout == "parquet":
        raise UsageError("--iso-times: for lines; Parquet has timestamps")
    if to_stdout and layout == "parquet":
        raise UsageError("--format parquet: is written to a directory (--output)")
    config = None
    if broker_config:
        from reput.cli.options import config_from

        config = config_from(broker_config, None)
    from reput.lookup.lines import LineStyle
    from reput.lookup.local_files import check_paths

    style = LineStyle(csv_safe, iso_times)
    check_paths(keys, None if to_stdout else output)
    if columns:
        asked["columns"] = [name.strip() for name in columns.split(",")]
    job = _LookupJob(stores, keys, None if to_stdout else output, layout, style)
    with _output_held(job), _found(job, chosen, config=config, index=index, **asked) as found:
        if to_stdout:
            print_rows(found.answer, layout, style)
        for line in remarks(found.answer, found.stores):
            click.echo(printable(line), err=to_stdout)
        if not found.answer.coverage.is_complete:
            return DAMAGED
        return FOUND if found.answer.counts().messages else NOT_FOUND


class _LookupJob(NamedTuple):
    """What is looked up, and where the answer goes; `output` is None for stdout."""

    stores: tuple[str, ...]
    keys: str
    output: str | None
    layout: Format
    style: LineStyle

    @property
    def needs_spark(self) -> bool:
        """Whether files lie where only Spark reads and writes them."""
        return "://" in self.keys or "://" in (self.output or "")


@contextmanager
def _output_held(job: _LookupJob) -> Iterator[None]:
    from reput.files.anchors import writing_to

    is_local = job.output is not None and "://" not in job.output
    with writing_to(job.output or "", job.stores) if is_local else nullcontext():
        yield


@contextmanager
def _found(job: _LookupJob, chosen: Chosen, **options: Any) -> Iterator[Lookup]:
    """The finished look-up, its output written. Its runner stays until the body ends."""
    from reput.cli.progress import PhaseBars
    from reput.log.paths import find_stores, log_bytes
    from reput.lookup.warm_up import warm_up

    # Before anything is started, which takes seconds: a wrong path is reported at once.
    size_bytes = sum(map(log_bytes, find_stores(job.stores)))
    if _is_spark(job, chosen, size_bytes):
        with spark_session(chosen, warm_up) as spark, _found_on_spark(spark, job, options) as found:
            yield found
        return
    from reput.lookup.arrow import find
    from reput.lookup.local_files import read_keys, write_answer

    with local_runner(chosen, size_bytes, warm_up) as runner:
        with PhaseBars() as progress:
            found = find(job.stores, read_keys(job.keys), runner, progress=progress, **options)
        with found:
            _write_coverage(job, found)
            if job.output:
                write_answer(runner, found, job.output, job.layout, job.style)
            yield found


@contextmanager
def _found_on_spark(spark: Any, job: _LookupJob, options: Any) -> Iterator[Lookup]:
    from reput.cli.progress import PhaseBars
    from reput.lookup.arrow import Keys
    from reput.lookup.local_files import write_answer
    from reput.spark import bulk_lookup, lookup_files
    from reput.spark.runner import FrameRunner, SparkRunner

    with PhaseBars() as progress:
        keys = _keys(spark, job.keys)
        runner = SparkRunner(spark) if isinstance(keys, Keys) else FrameRunner(spark)
        found = bulk_lookup.find_on_spark(
            spark, job.stores, keys, runner, progress=progress, **options
        )
    with found:
        if job.output and "://" in job.output:
            if found.answer.is_flat:
                lookup_files.write_coverage(spark, found, job.output)
            lookup_files.write_answer(spark, found, job.output, job.layout, job.style)
        elif job.output:
            _write_coverage(job, found)
            write_answer(runner, found, job.output, job.layout, job.style)
        yield found


def _keys(spark: Any, keys: str) -> Any:
    """Keys of a file are read here, which takes less than having Spark do it; of a folder it knows the layouts."""
    if "://" not in keys and Path(keys).is_file():
        from reput.lookup.local_files import read_keys

        return read_keys(keys)
    from reput.spark import lookup_files

    return lookup_files.read_keys(spark, keys)


def _write_coverage(job: _LookupJob, found: Lookup) -> None:
    """First: the answer appears as a whole, and then all that belongs to it is there."""
    from reput.lookup.local_files import write_coverage

    if job.output and found.answer.is_flat:
        write_coverage(found, job.output)


def _is_spark(job: _LookupJob, chosen: Chosen, size_bytes: int) -> bool:
    """Raises UsageError where Spark must run it and cannot."""
    if not job.needs_spark:
        return chosen.is_spark(size_bytes)
    if chosen.runner in ("serial", "processes"):
        raise UsageError("--keys, --output: Spark reads and writes URLs; leave out --runner")
    if not has_spark():
        raise MissingExtraError(f"--keys, --output: Spark reads and writes URLs: {INSTALL_SPARK}")
    return True


def print_rows(answer: LookupAnswer, layout: LineFormat, style: LineStyle | None = None) -> None:
    """All rows as JSON Lines or CSV, in UTF-8, part by part."""
    from reput.lookup.lines import PLAIN, answer_header, answer_lines
    from reput.messages.table_text import bytes_of

    for line in answer_header(answer, layout):
        click.echo(line)
    for number in range(len(answer.parts)):
        for lines in answer_lines(answer, number, layout, style or PLAIN, "\n"):
            click.echo(bytes(bytes_of(lines)), nl=False)


def remarks(answer: LookupAnswer, stores: Sequence[str]) -> Iterator[str]:
    """What was found and what the answer covers, one sentence per line."""
    counts = answer.counts()
    yield (
        f"{counts.rows:,} keys: {counts.found:,} have messages, {counts.messages:,} in all; "
        f"{counts.rows - counts.found:,} have none."
    )
    for store, coverage in zip(stores, answer.coverage.stores, strict=True):
        lines = [*coverage_in_words(coverage), *map(str, coverage.unreadable)]
        yield from (line if len(stores) == 1 else f"{store}: {line}" for line in lines)
    for lost in answer.coverage.lost:
        keys = f"{len(lost.numbers):,} key{'' if len(lost.numbers) == 1 else 's'}"
        yield f"Not used for {keys}: {lost.problem}"
