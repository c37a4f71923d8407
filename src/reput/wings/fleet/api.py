"""Describe each store of a fleet in one line: findings, newest message, growth, index coverage, lag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from typing import Any, Unpack

from reput.base import (
    Finding,
    Kind,
    Report,
    Severity,
    checked,
    format_days,
    format_duration,
    format_size,
    now_ms,
    one_line,
)
from reput.core import MessageStore, ReaderOptions, newest_timestamp
from reput.engine.check import check
from reput.engine.stores import StoreAnswer, StoresReport
from reput.engine.stores.open_store import open_store
from reput.errors import CorruptMessageError, MessageNotFoundError, ReputError, raise_if_refused
from reput.wings.fleet.lag import lag_cells
from reput.wings.inspect import covered_log
from reput.wings.inspect.measuring.figures import DAY_MS, disk_usage
from reput.wings.serve import GroupLag, consumer_lag, group_lags

_COLUMNS = ("store", "state", "newest", "per day", "full in", "indexed", "lag", "oldest", "")
_NAME_WIDTH, _FINDING_WIDTH = 48, 100
# A growth rate over a shorter time would be meaningless.
_LEAST_SPAN_MS = 60_000


@dataclass(frozen=True, slots=True, repr=False)
class SurveyReport(Report):
    """The state of one store of a fleet. Unknown figures are None.

    Attributes:
        findings: Findings of the quick check.
        log_bytes: Bytes from the first message to the end of the log.
        newest_ms: Store time of the newest message, ms since 1970.
        bytes_per_day: Growth of the log during its last day, or since its beginning if it is younger.
        days_until_full: Days until the disk is full at this rate, if nothing expires.
        indexed: Share of the log that IndexFiles cover, from 0 to 1.
        lag: Largest lag of any consumer group, in messages, and the name of this group.
        surveyed_ms: Time of the survey, ms since 1970.
        lag_problem: The reason why the lag is unknown although the store may have groups; otherwise empty.
        groups: The lag of each consumer group in messages and in time: the largest first, unknown lags last.
    """

    findings: tuple[Finding, ...]
    log_bytes: int
    newest_ms: int | None
    bytes_per_day: float | None
    days_until_full: float | None
    indexed: float | None
    lag: tuple[int, str] | None
    surveyed_ms: int
    lag_problem: str = ""
    groups: tuple[GroupLag, ...] = ()

    @property
    def is_valid(self) -> bool:
        return self.severity is None

    @property
    def severity(self) -> Severity | None:
        wrong = {finding.severity for finding in self.findings if finding.is_wrong}
        return Severity.DAMAGE if Severity.DAMAGE in wrong else next(iter(wrong), None)

    @property
    def headline(self) -> str:
        return " ".join(cells_of(self.as_dict()))

    def lines(self) -> Iterator[str]:
        yield self.headline

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """Return the figures by metric name."""
        return {
            "newest_message_seconds": None if self.newest_ms is None else self.newest_ms / 1000,
            "growth_bytes_per_day": self.bytes_per_day,
            "days_until_full": self.days_until_full,
            "index_coverage_ratio": self.indexed,
            "group_lag_messages": None if self.lag is None else self.lag[0],
            "group_lag_seconds": None if self.lag is None else self._oldest,
        }

    @property
    def _oldest(self) -> float | None:
        ages = [one.lag_seconds for one in self.groups]
        known = [age for age in ages if age is not None]
        return max(known, default=None) if len(known) == len(ages) else None

    def as_dict(self) -> dict[str, Any]:
        findings = [finding.as_json() for finding in self.findings]
        return {**asdict(self), "findings": findings, "metrics": dict(self.metrics)}


@checked
def survey(store: str | PathLike[str], **reading: Unpack[ReaderOptions]) -> SurveyReport:
    """Run a quick check of a store, and measure it. Nothing is written.

    Args:
        store: The folder that contains `commitlog/`.
        reading: Settings as for `open_store`.

    Raises:
        StoreNotFoundError, StoreAccessError, UsageError.
    """
    # A quick check needs no tasks, and many stores are surveyed in parallel already.
    found = check(fspath(store), quick=True, config=reading.get("config"), runner="serial")
    with open_store(store, **reading) as opened:
        begin, end = opened.begin_offset(), opened.end_offset()
        newest = newest_timestamp(opened.commit_log, end) if end > begin else None
        per_day = None if newest is None else _growth(opened, end, newest)
        groups, lag_problem = _groups(opened)
        return SurveyReport(
            found.findings, end - begin, newest, per_day, _days_until_full(opened, per_day),
            _indexed(opened, begin, end), _largest(groups), now_ms(), lag_problem, groups,
        )  # fmt: skip


def _growth(store: MessageStore, end: int, newest_ms: int) -> float | None:
    """Return the growth in bytes per day, measured over the newest log files that span at least a day."""
    for file in reversed(store.commit_log.files):
        try:
            first = store.commit_log.get(file.start + file.gap)
        # The first record of the file is missing or damaged, so use the next older file.
        except (MessageNotFoundError, CorruptMessageError):
            continue
        span_ms = newest_ms - first.store_timestamp
        if span_ms >= DAY_MS or file is store.commit_log.files[0]:
            is_long = span_ms >= _LEAST_SPAN_MS
            return (end - file.start) * DAY_MS / span_ms if is_long else None
    return None


def _days_until_full(store: MessageStore, per_day: float | None) -> float | None:
    _, free = disk_usage(store)
    return free / per_day if free is not None and per_day else None


def _indexed(store: MessageStore, begin: int, end: int) -> float | None:
    if end <= begin:
        return None
    ranges = covered_log(store.key_planner().segments(), end)
    return sum(one.end - one.begin for one in ranges if one.basis != "scanned") / (end - begin)


def _groups(store: MessageStore) -> tuple[tuple[GroupLag, ...], str]:
    """Return the lags of consumer groups, and the reason why they or some of them are unknown, else an empty text."""
    if not store.storage.is_local:
        return (), ""
    try:
        groups = tuple(group_lags(consumer_lag(store, store.path)))
    except ReputError as error:  # If consumerOffset.json is damaged, only this figure is unknown.
        raise_if_refused(error)
        return (), str(error)
    return groups, next((one.problem for one in groups if one.problem is not None), "")


def _largest(groups: Sequence[GroupLag]) -> tuple[int, str] | None:
    """Return the largest lag in messages and the name of its group; None without groups, or if a lag is unknown."""
    known = [(one.lag_messages, one.group) for one in groups if one.lag_messages is not None]
    return known[0] if known and len(known) == len(groups) else None


def fleet_lines(report: StoresReport[SurveyReport]) -> Iterator[str]:
    """Yield a table with one line per store, the worst first, then the counts."""
    rows = [_COLUMNS, *(_row(one) for one in report.worst_first())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
    for finding in report.differing:
        yield one_line(f"{finding.severity}: {finding.kind}: {finding}", 2 * _FINDING_WIDTH)
    yield report.headline


def _row(answer: StoreAnswer[Any]) -> tuple[str, ...]:
    start = one_line(answer.store, _NAME_WIDTH), str(answer.state)
    if answer.report is None:
        return (*start, *["-"] * (len(_COLUMNS) - 3), one_line(answer.headline, _FINDING_WIDTH))
    *figures, worst = cells_of(answer.report.as_dict())
    return (*start, *figures, worst or (str(Kind.REPLICA_DIFFERS) if answer.differs else ""))


def cells_of(fields: Mapping[str, Any]) -> Sequence[str]:
    """Return the cells of a store's line, from the fields of `SurveyReport.as_dict`."""
    newest, days, lag = fields["newest_ms"], fields["days_until_full"], fields["lag"]
    worst = sorted(fields["findings"], key=lambda one: one["severity"] != Severity.DAMAGE)
    wrong = [one for one in worst if one["severity"] != Severity.INFO]
    first = ""
    if wrong:
        others = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        first = one_line(f"{wrong[0]['kind']}{others}: {wrong[0]['file']}", _FINDING_WIDTH)
    per_day, indexed, problem = (
        fields["bytes_per_day"],
        fields["indexed"],
        fields.get("lag_problem"),
    )
    if problem and not first:
        first = one_line(f"lag unknown: {problem}", _FINDING_WIDTH)
    return (
        "-" if newest is None else f"{format_duration(fields['surveyed_ms'] - newest)} ago",
        "-" if per_day is None else format_size(per_day),
        "-" if days is None else f"{format_days(days)} d",
        "-" if indexed is None else f"{int(100 * indexed)}%",
        ("?" if problem else "-") if lag is None else f"{lag[0]:,} {one_line(lag[1], _NAME_WIDTH)}",
        _oldest_cell(fields),
        first,
    )


def _oldest_cell(fields: Mapping[str, Any]) -> str:
    """Return the age of the oldest message that a group has not consumed."""
    seconds = fields["metrics"].get("group_lag_seconds")
    if seconds is None:
        return "?" if fields.get("lag_problem") else "-"
    return lag_cells(1, seconds)[1] if seconds else "none"
