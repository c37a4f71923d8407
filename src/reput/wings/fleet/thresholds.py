"""Compare the figures of a store with limits. A figure beyond its limit is a finding, so the store is not ok."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from reput.base import Finding, Kind, counted, format_days, format_duration, format_size
from reput.errors import UsageError
from reput.wings.fleet.figures import Figures

_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits for the figures of a store. None switches a limit off.

    Attributes:
        min_days: Days until the disk is full, at the log's growth. A disk without room for one more log file is always
            a finding.
        max_growth: Bytes per day by which the log grows.
        max_lag: Messages that a consumer group has not consumed.
        max_lag_age_s: Age of the oldest message that a consumer group has not consumed, in seconds. The default is one
            day in a store that a broker uses. In other stores, nobody consumes.
        max_age_s: Age of the newest message, in seconds.
        max_proof_age_s: Age of the last proof of a file, in seconds, in a store that was scrubbed.
    """

    min_days: float | None = 3.0
    max_growth: float | None = None
    max_lag: int | None = None
    max_lag_age_s: float | None = None
    max_age_s: float | None = None
    max_proof_age_s: float | None = 35.0 * _DAY_S

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise UsageError(f"{name} must be at least 0, not {value}", arguments=[name])

    def findings(
        self, path: str, figures: Figures, surveyed_ms: int, *, is_live: bool
    ) -> Iterator[Finding]:
        """Yield a finding for each figure beyond its limit. `is_live`: a broker uses the store."""
        yield from self._of_disk(path, figures)
        growth = figures.bytes_per_day
        if self.max_growth is not None and growth is not None and growth > self.max_growth:
            detail = f"grows by {format_size(growth)} per day; the limit is {format_size(self.max_growth)}"
            yield Finding(Kind.LOG_GROWTH, path, detail)
        yield from self._of_groups(path, figures, is_live=is_live)
        if self.max_age_s is not None and figures.newest_ms is not None:
            age_ms, most_ms = surveyed_ms - figures.newest_ms, int(self.max_age_s * 1000)
            if age_ms > most_ms:
                detail = f"the newest message is {format_duration(age_ms)} old; the limit is {format_duration(most_ms)}"
                yield Finding(Kind.NO_NEW_MESSAGE, path, detail)
        yield from self._of_proofs(path, figures)

    def _of_disk(self, path: str, figures: Figures) -> Iterator[Finding]:
        free, days = figures.free_bytes, figures.days_until_full
        if free is not None and free < figures.file_bytes:
            yield Finding(
                Kind.DISK_FULL, path,
                f"the disk has {format_size(free)} left, less than one log file ({format_size(figures.file_bytes)})",
                cost="a broker cannot create the next log file, and refuses messages",
            )  # fmt: skip
        elif self.min_days is not None and days is not None and days < self.min_days:
            yield Finding(
                Kind.DISK_FULL, path,
                f"the disk is full in {format_days(days)} days if nothing expires; the limit is {self.min_days:g}",
                cost="a broker deletes files before their time, then refuses messages",
            )  # fmt: skip

    def _of_groups(self, path: str, figures: Figures, *, is_live: bool) -> Iterator[Finding]:
        most_s = self.max_lag_age_s
        if most_s is None and is_live:
            most_s = _DAY_S
        late, first = 0, None
        outside = [group for group in figures.groups if group.offsets_after_end]
        if outside:
            yield Finding(
                Kind.OFFSET_OUTSIDE_QUEUE, path, f"{outside[0].group}: {outside[0].problem}",
                count=sum(group.offsets_after_end for group in outside),
                cost="a group that is sent back gets messages again, or misses messages",
                at_next_start="does not notice it; it sends the group back at its next pull",
            )  # fmt: skip
        for group in figures.groups:
            lag, age_s = group.lag_messages, group.lag_seconds
            detail = None
            if self.max_lag is not None and lag is not None and lag > self.max_lag:
                detail = f"{group.group} has not consumed {counted(lag, 'message')}; the limit is {self.max_lag:,}"
            elif most_s is not None and age_s is not None and age_s > most_s:
                limit = format_duration(int(most_s * 1000))
                age = format_duration(int(age_s * 1000))
                detail = f"{group.group} has not consumed a message that is {age} old; the limit is {limit}"
            if detail is not None:
                late, first = late + 1, first or detail
        if first is not None:
            yield Finding(
                Kind.GROUP_LAG, path, first, count=late,
                cost="messages that expire before they are consumed are lost for the group",
            )  # fmt: skip

    def _of_proofs(self, path: str, figures: Figures) -> Iterator[Finding]:
        most_s = self.max_proof_age_s
        old = [
            proof for proof in figures.files if most_s is not None and proof.age_seconds > most_s
        ]
        if old and most_s is not None:
            age = format_duration(int(old[0].age_seconds * 1000))
            limit = format_duration(int(most_s * 1000))
            yield Finding(
                Kind.PROOF_OLD, os.path.join(path, old[0].file),
                f"nothing has proved the file for {age}; the limit is {limit}", count=len(old),
                cost="damage of the disk may be found too late to restore the file from a replica",
            )  # fmt: skip
