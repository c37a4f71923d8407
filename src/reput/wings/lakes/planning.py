"""Plan an export: find its stores, and the range of each store's log that is not in the table yet.

The range begins at the table's mark for the store: the offset up to which the log has been exported to the table.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from reput.base import Finding, Runner, counted, no_progress, waiting
from reput.core import LogListing, ScanBuffers
from reput.engine.rebuild import find_log_end, not_whole
from reput.engine.stores import NamedStore, find_replicas, replicas_of
from reput.engine.tables import (
    Bounds,
    IndexBesideLog,
    ReadMark,
    ReadPlan,
    choices,
    find_logs,
    logs_of,
    named_from,
    plan_between,
    plan_reading,
)
from reput.errors import StoreChangedError, UsageError
from reput.io import Location
from reput.wings.lakes.commit import State
from reput.wings.lakes.report import ExportReport
from reput.wings.lakes.request import ExportRequest


def check_goes_on(source: LogListing, log_end: int, mark: ReadMark, destination: str) -> None:
    """Raise StoreChangedError if a store's log is not the log that was exported up to the offset in `mark`.

    Raises StoreError if the log cannot be read.
    """
    if why := mark.why_another(source, log_end):
        raise StoreChangedError(
            f"{source.name}: not the log that was exported to {destination} up to offset {mark.end}: {why}; "
            "it was truncated or replaced; export it to another place, or give it another name"
        )


def check_is_new(source: LogListing, marks: Mapping[str, ReadMark], destination: str) -> None:
    """Raise UsageError if the table already contains the messages of this log under another store name.

    Raises StoreError if the log cannot be read.
    """
    for name, mark in marks.items():
        if mark.is_of(source):
            raise UsageError(
                f"{source.name}: {destination} has the messages of this log under the name {name}; "
                f"pass names={name} to give the store this name again, or export to another place",
                arguments=["names"],
            )


class StoreExtent(NamedTuple):
    """The part of a store that an export reads.

    Attributes:
        bounds: Range of the log to export. It begins after the messages that the table already has, and ends at the end
            of the log.
        mark: After the export, the table has the store's messages up to this offset.
        is_whole: Whether only unwritten bytes follow the last valid record of the log.
        missing: A finding if the log has lost its newest messages, as the store's other files show.
    """

    bounds: Bounds
    mark: ReadMark
    is_whole: bool
    missing: Sequence[Finding]


def extents_of(
    sources: Sequence[LogListing],
    state: State | None,
    report: ExportReport,
    request: ExportRequest,
    runner: Runner | None = None,
) -> tuple[dict[str, Bounds], dict[str, ReadMark]]:
    """Return for each store the range of the log to export, and the mark (the range's end) to record after the export.

    Raises StoreError, and UsageError for a store that the table has under another name.
    """
    topics = choices(request.conditions(), "topic")
    find = partial(_extent_of, report.destination, None if state is None else state.marks, topics)
    # Requests to remote stores spend their time waiting, so they are sent in parallel.
    runner = runner or waiting(not all(source.is_local for source in sources))
    results = runner.run(find, sources, [1] * len(sources), no_progress)
    extents = {source.name: extent for source, extent in zip(sources, results, strict=True)}
    bounds = {name: extent.bounds for name, extent in extents.items()}
    report.stores = {name: (limits.start or 0, limits.stop or 0) for name, limits in bounds.items()}
    for name, extent in extents.items():
        report.missing = [*report.missing, *extent.missing]
        if not extent.is_whole:
            report.note(f"{name}: {not_whole(extent.mark.end)}")
    return bounds, {name: extent.mark for name, extent in extents.items()}


def _extent_of(
    destination: str,
    marks: Mapping[str, ReadMark] | None,
    topics: Collection[str] | None,
    source: LogListing,
) -> StoreExtent:
    with IndexBesideLog(source) as index:
        missing = index.find_lost_end(topics)
    end = find_log_end(source, ScanBuffers()) if index.log_end is None else index.log_end
    start = source.begin
    mark = None if marks is None else marks.get(source.name)
    if mark is not None:
        check_goes_on(source, end, mark, destination)
        start = mark.end
    elif marks is not None:
        check_is_new(source, marks, destination)
    # The mark contains the offset at which the next export continues (the end of the log now), and a digest of bytes
    # before this offset. These bytes never change, so the mark can be computed before the export. If the log is
    # replaced during the export, the next run finds that the digest does not match.
    return StoreExtent(Bounds(start, end), ReadMark.at(source, end), source.is_at_end(end), missing)


def most_bytes(sources: Sequence[LogListing], state: State | None) -> int:
    """Return an upper bound of the bytes that an export reads. The ends of the logs need not be known yet."""
    ends = {} if state is None else {name: mark.end for name, mark in state.marks.items()}
    return sum(
        max(file.end - max(file.start, ends.get(source.name, 0)), 0)
        for source in sources
        for file in source.files
    )


def plan_of(
    sources: Sequence[LogListing],
    bounds: dict[str, Bounds],
    request: ExportRequest,
    fail_on_data_loss: bool,
    split_bytes: int,
    report: ExportReport,
    use_indexes: bool = True,
    runner: Runner | None = None,
    with_notes: bool = True,
) -> ReadPlan:
    """Return the ranges to read. `with_notes` adds the notes of the plan to the report.

    Raises StoreError, and StoreChangedError for lost ranges if `fail_on_data_loss`.
    """
    plan = plan_between(sources, bounds, split_bytes=split_bytes)
    report.missing = [*report.missing, *(missing.lost for missing in plan.missing)]
    if plan.missing and fail_on_data_loss:
        name, lost, _ = plan.missing[0]
        raise StoreChangedError(
            f"{name}: {lost.length} bytes from offset {lost.start} on were lost before "
            "they were exported: they expired, or a file is missing; "
            "fail_on_data_loss=False continues after them",
            arguments=["fail_on_data_loss=False"],
        )
    conditions = request.conditions()
    # Stores without new messages need no plan.
    remaining = [source for source in sources if length_of(bounds[source.name])]
    if not conditions or not remaining:
        return plan
    plan = plan_reading(
        remaining, conditions, bounds=bounds, split_bytes=split_bytes, use_indexes=use_indexes,
        runner=runner,
    )  # fmt: skip
    if with_notes:
        report.note(*plan.notes)
    # An export with conditions on topics or times can find its messages through indexes, without reading the whole log.
    report.is_whole = False
    return plan


def open_stores(
    stores: Sequence[str | NamedStore],
    names: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    name_from: str | None = None,
) -> list[LogListing]:
    """Find the logs of these stores.

    `names` has one name per store. Without it, stores are named by their absolute paths.

    NamedStores have their own names, and options that take precedence. `name_from` names stores after their brokers,
    see `reput.engine.tables.naming`. `options` are the options of `find_logs`.

    Raises the errors of `find_logs`.
    """
    if not stores:
        raise UsageError("name a store to export")
    named = [store for store in stores if isinstance(store, NamedStore)]
    paths = [store for store in stores if not isinstance(store, NamedStore)]
    if named and names:
        raise UsageError(
            "names: omit it, because the fleet file has a name for each store", arguments=["names"]
        )
    if names and name_from is not None:
        raise UsageError("pass names or name_from, not both", arguments=["names", "name_from"])
    logs = named_from(_by_path(paths, names, options), name_from) if paths else []
    logs += logs_of(named, options)
    places: dict[str, str] = {}
    for source in logs:
        # A store may be given by several paths, for example through a link.
        place = Location.canonical(source.folder or source.name)
        if (name_of_place := places.setdefault(place, source.name)) != source.name:
            raise UsageError(
                f"{source.name}: is the same store as {name_of_place}; give the store only once"
            )
    if len(places) < len(logs) or len({source.name for source in logs}) < len(logs):
        twice = max(
            logs, key=lambda store: [name_of_place.name for name_of_place in logs].count(store.name)
        )
        raise UsageError(f"{twice.name}: two stores have this name; give each store its own name")
    return logs


def without_replicas(
    stores: Sequence[str | NamedStore],
) -> tuple[list[str | NamedStore], dict[str, str]]:
    """Drop stores that are replicas of others.

    Returns the stores to export, and the master's name for each dropped replica.
    Raises UsageError if replicas differ.
    """
    named = [store for store in stores if isinstance(store, NamedStore)]
    for difference in find_replicas(named).differing:
        raise UsageError(f"{difference}: exclude one of them, or give it another broker name")
    first = replicas_of(named)
    masters = [
        store for store in stores if not (isinstance(store, NamedStore) and store.name in first)
    ]
    return masters, first


def _by_path(
    paths: Sequence[str], names: Sequence[str], options: Mapping[str, str] | None
) -> list[LogListing]:
    paths = [path if "://" in path else os.path.abspath(path) for path in paths]
    if not names:
        return find_logs(paths, options)
    if len(names) != len(paths) or len(set(names)) < len(names):
        raise UsageError(
            f"names: pass {counted(len(paths), 'name')}, one per store, all different",
            arguments=["names"],
        )
    logs: dict[str, LogListing] = {}
    for path, name in zip(paths, names, strict=True):
        sources = find_logs([path], options)
        if len(sources) != 1:
            raise UsageError(
                f"names: {name} is given for {path}, which matches {counted(len(sources), 'store')}; "
                "pass the path and name of each store",
                arguments=["names"],
            )
        place = os.path.realpath(sources[0].name)
        if place in logs:
            raise UsageError(
                f"names: {name} is given for {path}, which is the same store as "
                f"{logs[place].name}; give the store only once",
                arguments=["names"],
            )
        logs[place] = replace(sources[0], name=name)
    return list(logs.values())


def check_apart(place: str | Path, sources: Sequence[LogListing]) -> None:
    """Raise UsageError if the destination lies in a store.

    The broker of the store might read the files of the table, or refuse to start because of them.
    """
    if Location.is_url(place):
        for source in sources:
            # The path of a log file is STORE/commitlog/NAME.
            roots = {posixpath.dirname(posixpath.dirname(file.path)) for file in source.files[:1]}
            if any(f"{place}/".startswith(f"{root}/") for root in roots):
                raise UsageError(f"{place}: lies in the store {source.name}; name a place outside")
        return
    for source in sources:
        if source.folder is not None:
            Location.refuse_inside(place, source.folder)


def length_of(bounds: Bounds) -> int:
    """Return the number of log bytes between these bounds."""
    return max((bounds.stop or 0) - (bounds.start or 0), 0)
