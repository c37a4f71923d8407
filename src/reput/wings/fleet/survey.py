"""Describe each store of a fleet in one line: findings, newest message, growth, index coverage, lag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike, fspath
from typing import Any, Unpack

from reput.base import (
    Finding,
    FindingsReport,
    Kind,
    Severity,
    aligned,
    checked,
    counted,
    format_days,
    format_duration,
    format_size,
    now_ms,
    one_line,
)
from reput.core import ReaderOptions
from reput.engine.check import check
from reput.engine.stores import StoreAnswer, StoresReport, open_store
from reput.wings.fleet.figures import FileProof, measure
from reput.wings.fleet.lag import lag_cells
from reput.wings.fleet.thresholds import Thresholds
from reput.wings.inspect.api import TopicGrowth
from reput.wings.serve import GroupLag

_NAME_WIDTH, _FINDING_WIDTH = 48, 100
# The cells whose figures may be unknown, and the metrics of these figures.
_CELLS = {
    "newest": "newest_message_seconds",
    "per day": "growth_bytes_per_day",
    "full in": "days_until_full",
    "indexed": "index_coverage_ratio",
    "lag": "group_lag_messages",
    "oldest": "group_lag_seconds",
    "unreadable": "unreadable_bytes",
    "proof": "proof_age_seconds",
}
_COLUMNS = ("store", "state", *_CELLS, "")
_UNKNOWN, _NONE = "?", "none"


@dataclass(frozen=True, slots=True, repr=False)
class SurveyReport(FindingsReport):
    """The state of one store of a fleet. Unknown figures are None.

    Attributes:
        findings: Findings of the quick check, of figures beyond their limits, and damage that a scrub has found.
        log_bytes: Bytes from the first message to the end of the log.
        newest_ms: Store time of the newest message, ms since 1970.
        bytes_per_day: Growth of the log during its last day, or since its beginning if it is younger.
        days_until_full: Days until the disk is full if the log and its indexes keep this growth, and nothing expires.
        indexed: Share of the log that IndexFiles cover, from 0 to 1.
        lag: Largest lag of any consumer group, in messages, and the name of this group.
        surveyed_ms: Time of the survey, ms since 1970.
        groups: The lag of each consumer group in messages and in time: the largest first, unknown lags last.
        topics: The growth of each topic, the largest first.
        files: The age of the last proof of each file, the oldest first; empty if no scrub has read the store.
        metrics: The figures of the whole store by the names of their metrics.
        unknown: The reason why a figure is unknown, by the name of its metric.
        unread: What the quick check did not read: bytes of the log, queue entries, index items, units of the timer log,
            and a list of the names of further parts.
    """

    findings: tuple[Finding, ...]
    log_bytes: int
    newest_ms: int | None
    bytes_per_day: float | None
    days_until_full: float | None
    indexed: float | None
    lag: tuple[int, str] | None
    surveyed_ms: int
    groups: tuple[GroupLag, ...] = ()
    topics: tuple[TopicGrowth, ...] = ()
    files: tuple[FileProof, ...] = ()
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, int | list[str]] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        return " ".join(cells_of(self.as_dict()))

    def lines(self) -> Iterator[str]:
        yield self.headline

    def as_dict(self) -> dict[str, Any]:
        findings = [finding.as_json() for finding in self.findings]
        topics = [topic._asdict() for topic in self.topics]
        files = [
            {"file": proof.file, "proof_age_seconds": proof.proof_age_seconds}
            for proof in self.files
        ]
        return {**asdict(self), "findings": findings, "topics": topics, "files": files}


@checked
def survey(
    store: str | PathLike[str],
    *,
    thresholds: Thresholds | None = None,
    **reading: Unpack[ReaderOptions],
) -> SurveyReport:
    """Run a quick check of a store, measure it, and compare its figures with limits. Nothing is written.

    Args:
        store: The folder that contains `commitlog/`.
        thresholds: Limits for the figures; by default those of `Thresholds()`.
        reading: Settings as for `open_store`.

    Raises:
        StoreNotFoundError, StoreAccessError, UsageError.
    """
    # A quick check needs no tasks, and many stores are surveyed in parallel already.
    report = check(fspath(store), quick=True, config=reading.get("config"), runner="serial")
    with open_store(store, **reading) as reader:
        figures, surveyed_ms = measure(reader), now_ms()
        is_live = reader.storage.is_local and reader.is_live
    limits = thresholds or Thresholds()
    beyond = limits.findings(fspath(store), figures, surveyed_ms, is_live=is_live)
    reported = {(finding.kind, finding.file) for finding in report.findings}
    scrubbed = (
        finding for finding in figures.damage if (finding.kind, finding.file) not in reported
    )
    return SurveyReport(
        (*report.findings, *scrubbed, *beyond), figures.log_bytes, figures.newest_ms, figures.bytes_per_day,
        figures.days_until_full, figures.indexed, figures.largest_lag, surveyed_ms,
        figures.groups, figures.topics, figures.files, figures.metrics, figures.unknown,
        report.as_dict()["unread"] or {},
    )  # fmt: skip


def fleet_lines(report: StoresReport[SurveyReport]) -> Iterator[str]:
    """Yield a table with one line per store, the worst first, then why figures are unknown, then the counts."""
    rows = [_COLUMNS, *(_row(answer) for answer in report.worst_first())]
    yield from aligned(rows)
    for finding in report.differing:
        yield one_line(f"{finding.severity}: {finding.kind}: {finding}", 2 * _FINDING_WIDTH)
    yield from _unknown_lines(report)
    yield report.headline


def _unknown_lines(report: StoresReport[SurveyReport]) -> Iterator[str]:
    """Yield a line per reason why figures of the table are unknown, with the stores for which it holds."""
    stores: dict[tuple[str, str], list[str]] = {}
    for answer in report.answers:
        if answer.report is None:
            continue
        unknown = answer.report.as_dict().get("unknown", {})
        cells: dict[str, list[str]] = {}
        for cell, name in _CELLS.items():
            if name in unknown:
                cells.setdefault(unknown[name], []).append(cell)
        for reason, names in cells.items():
            stores.setdefault((", ".join(names), reason), []).append(answer.store)
    for (cell_names, reason), where in stores.items():
        more = f" and {counted(len(where) - 1, 'more store')}" if len(where) > 1 else ""
        place = one_line(where[0], _NAME_WIDTH) + more
        yield f"? {place}: {cell_names} unknown: {one_line(reason, 2 * _FINDING_WIDTH)}"


def _row(answer: StoreAnswer[Any]) -> tuple[str, ...]:
    start = one_line(answer.store, _NAME_WIDTH), str(answer.state)
    if answer.report is None:
        return (*start, *[_UNKNOWN] * len(_CELLS), one_line(answer.headline, _FINDING_WIDTH))
    *figures, worst = cells_of(answer.report.as_dict())
    return (*start, *figures, worst or (str(Kind.REPLICA_DIFFERS) if answer.differs else ""))


def cells_of(fields: Mapping[str, Any]) -> Sequence[str]:
    """Return the cells of a store's line, from the fields of `SurveyReport.as_dict`."""
    metrics, lag, unknown = fields["metrics"], fields["lag"], fields.get("unknown", {})
    days, seconds = fields["days_until_full"], metrics.get("group_lag_seconds")
    newest, per_day, indexed = fields["newest_ms"], fields["bytes_per_day"], fields["indexed"]
    return (
        _UNKNOWN if newest is None else f"{format_duration(fields['surveyed_ms'] - newest)} ago",
        _UNKNOWN if per_day is None else format_size(per_day),
        _UNKNOWN if days is None else f"{format_days(days)} d" if days else "now",
        _UNKNOWN if indexed is None else f"{int(100 * indexed)}%",
        _group_cell(
            unknown, "lag", "" if lag is None else f"{lag[0]:,} {one_line(lag[1], _NAME_WIDTH)}"
        ),
        _group_cell(unknown, "oldest", lag_cells(1, seconds)[1] if seconds else ""),
        _UNKNOWN if (lost := metrics.get("unreadable_bytes")) is None else format_size(lost),
        _UNKNOWN
        if (proof := metrics.get("proof_age_seconds")) is None
        else f"{format_duration(int(proof * 1000))} ago",
        _worst(fields["findings"]),
    )


def _group_cell(unknown: Mapping[str, str], cell: str, text: str) -> str:
    """Return `text` for a lag of groups, or `none` if no group or no message waits, or `?` if the lag is unknown."""
    return _UNKNOWN if _CELLS[cell] in unknown else text or _NONE


def _worst(findings: Sequence[Mapping[str, Any]]) -> str:
    """Return the worst finding as text, with the number of the others; empty if nothing is wrong."""
    worst = sorted(findings, key=lambda finding: finding["severity"] != Severity.DAMAGE)
    wrong = [finding for finding in worst if finding["severity"] != Severity.INFO]
    if not wrong:
        return ""
    more = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
    return one_line(f"{wrong[0]['kind']}{more}: {wrong[0]['file']}", _FINDING_WIDTH)
