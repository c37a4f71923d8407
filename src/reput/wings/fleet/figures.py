"""Measure a store for its keeper: growth of the log and of each topic, room on the disk, lag of consumer groups.

Each figure is computed once, here. `reput fleet`, `/metrics` and JSON print it under the same name. A figure that is
unknown is None, and `Figures.unknown` states the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from reput.base import Finding, now_ms
from reput.core import MessageStore, newest_timestamp
from reput.engine.check import proofs_of
from reput.errors import ReputError, raise_if_refused
from reput.wings.inspect.api import (
    Growth,
    TopicGrowth,
    covered_log,
    days_until_full,
    disk_usage,
    growth_of,
)
from reput.wings.serve import GroupLag, consumer_lag, group_lags


class FileProof(NamedTuple):
    """The age of the last proof of a file by a scrub; None if no scrub has proved it.

    `age_seconds` is the time since which nothing has proved the file: since its last proof, or since a scrub first saw
    it.
    """

    file: str
    proof_age_seconds: float | None
    age_seconds: float


@dataclass(slots=True)
class Figures:
    """The figures of a store. Unknown figures are None.

    Attributes:
        log_bytes: Bytes from the first message to the end of the log.
        newest_ms: Store time of the newest message, ms since 1970.
        bytes_per_day: Growth of the log during its last day, or since its beginning if it is younger.
        free_bytes: Free bytes of the log's disk; of several disks, of the fullest one.
        file_bytes: Size of a log file.
        days_until_full: Days until the disk is full if the log and its indexes keep this growth, and nothing expires.
        indexed: Share of the log that IndexFiles cover, from 0 to 1.
        groups: The lag of each consumer group: the largest first, unknown lags last.
        topics: The growth of each topic, the largest first.
        files: The proof of each file, the oldest first.
        unreadable_bytes: Bytes of the log that scrubs could not read.
        unproved_bytes: Bytes of log files that no scrub has read yet.
        damage: Damage that a scrub has found.
        unknown: The reason why a figure is unknown, by the name of its metric.
    """

    log_bytes: int = 0
    newest_ms: int | None = None
    bytes_per_day: float | None = None
    free_bytes: int | None = None
    file_bytes: int = 0
    days_until_full: float | None = None
    indexed: float | None = None
    groups: tuple[GroupLag, ...] = ()
    topics: tuple[TopicGrowth, ...] = ()
    files: tuple[FileProof, ...] = ()
    unreadable_bytes: int | None = None
    unproved_bytes: int | None = None
    damage: tuple[Finding, ...] = ()
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def largest_lag(self) -> tuple[int, str] | None:
        """Return the largest lag in messages and its group; None without groups, or if a lag is unknown."""
        if not self.groups or "group_lag_messages" in self.unknown:
            return None
        return self.groups[0].lag_messages or 0, self.groups[0].group

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """Return the figures of the whole store by the names of their metrics."""
        lag = self.largest_lag
        ages = [group.lag_seconds or 0.0 for group in self.groups]
        is_aged = ages and "group_lag_seconds" not in self.unknown
        return {
            "newest_message_seconds": None if self.newest_ms is None else self.newest_ms / 1000,
            "growth_bytes_per_day": self.bytes_per_day,
            "disk_free_bytes": self.free_bytes,
            "days_until_full": self.days_until_full,
            "index_coverage_ratio": self.indexed,
            "group_lag_messages": None if lag is None else lag[0],
            "group_lag_seconds": max(ages) if is_aged else None,
            "unreadable_bytes": self.unreadable_bytes,
            "unproved_bytes": self.unproved_bytes,
            "proof_age_seconds": max((proof.age_seconds for proof in self.files), default=None),
        }


def measure(store: MessageStore) -> Figures:
    """Measure an open store. Raises StoreAccessError."""
    begin, end = store.begin_offset(), store.end_offset()
    files = store.commit_log.files
    growth: Growth | None = None
    figures = Figures(end - begin, file_bytes=max((file.size for file in files), default=0))
    if end > begin:
        figures.newest_ms = newest_timestamp(store.commit_log, end)
        ranges = covered_log(store.key_planner().segments(), end)
        indexed_bytes = sum(part.end - part.begin for part in ranges if part.basis != "scanned")
        figures.indexed = indexed_bytes / (end - begin)
    if figures.newest_ms is None:
        why = "the log has no message" if end <= begin else "no message of the log can be read"
        names = "newest_message_seconds", "growth_bytes_per_day"
        figures.unknown |= dict.fromkeys(names, why)
        if end <= begin:
            figures.unknown["index_coverage_ratio"] = why
    else:
        growth = growth_of(store, end, figures.newest_ms)
        _measure_growth(figures, growth)
    _measure_disk(store, figures, growth)
    _measure_groups(store, figures)
    _measure_proofs(store, figures)
    return figures


def _measure_growth(figures: Figures, growth: Growth | None) -> None:
    if growth is None:
        figures.unknown["growth_bytes_per_day"] = (
            "the first readable message is less than a minute older than the newest one"
        )
        return
    figures.bytes_per_day, figures.topics = growth.log_bytes_per_day, growth.topics
    if growth.problem:
        figures.unknown["topic_growth_bytes_per_day"] = growth.problem


def _measure_disk(store: MessageStore, figures: Figures, growth: Growth | None) -> None:
    usage = disk_usage(store)
    if usage is None:
        reason = "a store that is a URL has no disk whose room is known"
        figures.unknown |= dict.fromkeys(("disk_free_bytes", "days_until_full"), reason)
        return
    figures.free_bytes = usage[1]
    figures.days_until_full = days_until_full(figures.free_bytes, growth)
    if figures.days_until_full is None:
        figures.unknown["days_until_full"] = "the growth is unknown"


def _measure_groups(store: MessageStore, figures: Figures) -> None:
    reason: str | None = None
    if not store.storage.is_local:
        reason = "offsets of groups are read only on this machine"
    else:
        try:
            figures.groups = tuple(group_lags(consumer_lag(store, store.path)))
        except (
            ReputError
        ) as error:  # If consumerOffset.json is damaged, only this figure is unknown.
            raise_if_refused(error)
            reason = str(error)
    if reason is not None:
        figures.unknown |= dict.fromkeys(("group_lag_messages", "group_lag_seconds"), reason)
    for group in figures.groups:
        for name in ("lag_messages", "lag_seconds"):
            if getattr(group, name) is None and group.problem is not None:
                figures.unknown.setdefault(f"group_{name}", group.problem)


def _measure_proofs(store: MessageStore, figures: Figures) -> None:
    """Read what scrubs of this user have proved. Nothing else shows that all bytes of a store can be read."""
    names = "unreadable_bytes", "unproved_bytes", "proof_age_seconds"
    if not store.storage.is_local:
        figures.unknown |= dict.fromkeys(names, "a scrub reads only stores on this machine")
        return
    folder = Path(store.path).absolute()
    proofs = proofs_of(folder)
    if proofs is None:
        figures.unknown |= dict.fromkeys(names, "this user has not scrubbed the store")
        return
    now = now_ms()
    files, proved_paths = [], set[str]()
    for name, path, proof in proofs.present():
        age_s = max(now - proof.since_ms, 0) / 1000
        proof_age_s = None if proof.proved_ms is None else age_s
        files.append(FileProof(name, proof_age_s, age_s))
        if proof.proved_ms is not None:
            proved_paths.add(path)
    figures.files = tuple(sorted(files, key=lambda proof: (-proof.age_seconds, proof.file)))
    figures.damage = tuple(proofs.damage())
    figures.unproved_bytes = sum(
        file.size for file in store.commit_log.files if file.path not in proved_paths
    )
    figures.unreadable_bytes = proofs.unreadable_bytes
    if not proofs.passes and not figures.unreadable_bytes:
        figures.unreadable_bytes = None
        figures.unknown["unreadable_bytes"] = "no scrub has completed a pass"
    if not files:
        figures.unknown["proof_age_seconds"] = "no file of the store was seen by a scrub"
