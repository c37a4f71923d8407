"""Define `reput.check`, which compares CommitLog, ConsumeQueues and IndexFiles of a store."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from typing import Any

from reput.base import (
    Finding,
    FindingsReport,
    Kind,
    Progress,
    Remedy,
    Repair,
    Runner,
    SerialRunner,
    Severity,
    StoreConfig,
    checked,
    late,
    printable,
    silent,
)
from reput.engine.check.checking.checked_store import Unread
from reput.engine.check.local_copy import local_copy
from reput.engine.check.run import CHECK_SCHEMA, check_store, warm_up
from reput.engine.stores import Chosen, log_bytes, opened_runner, takes_stores
from reput.errors import FormatError, MissingExtraError
from reput.io import Location

# The wing `fleet` reads a broker's own topics. It is in a higher row, so it is imported by its name.
_broker_faults = late("reput.wings.fleet.faults", "broker_faults")


@dataclass(frozen=True, slots=True, repr=False)
class CheckReport(FindingsReport):
    """The report of a check.

    Attributes:
        store: The path of the store.
        findings: All findings. Identical findings of one file are joined to one finding with a count.
        is_quick: Whether only names, sizes, headers, ends and samples were checked.
        unread: What a quick check did not read, or what a full check missed; None for a full check that missed nothing.
    """

    store: str
    findings: tuple[Finding, ...]
    is_quick: bool = False
    unread: Unread | None = None

    @property
    def headline(self) -> str:
        first = next(
            (finding for finding in self.findings if finding.severity is self.severity), None
        )
        return self.last_line if first is None else f"{self.counted}; {first.kind}: {first}"

    @property
    def verdict(self) -> str:
        """Return the result in words."""
        if self.severity is Severity.DAMAGE:
            return "damaged"
        if self.severity is Severity.WARNING:
            return "warnings, but no damage"
        if not self.is_quick:
            missed = "" if self.unread is None else f"; not seen: {', '.join(self.unread.parts)}"
            return f"valid{missed}"
        unread = "" if self.unread is None else f"; not read: {self.unread}"
        return f"nothing found (only names, sizes, headers, ends and samples were checked{unread})"

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of findings by severity, the worst first."""
        return {
            severity.value: sum(
                finding.count for finding in self.findings if finding.severity is severity
            )
            for severity in (Severity.DAMAGE, Severity.WARNING, Severity.INFO)
        }

    @property
    def last_line(self) -> str:
        """Return the verdict, and the number of findings."""
        return f"{self.verdict}: {self.counted}" if self.findings else self.verdict

    @property
    def counted(self) -> str:
        """Return the numbers of findings in words, as in `2 damage, 1 warning`."""
        return ", ".join(f"{count:,} {name}" for name, count in self.counts.items() if count)

    def lines(self) -> Iterator[str]:
        for finding in self.findings:
            yield from finding_lines(finding, self.store)
        yield self.last_line

    def as_dict(self) -> dict[str, Any]:
        return {
            **check_header(self.store, self.is_quick),
            "valid": self.is_valid,
            "counts": self.counts,
            "unread": None if self.unread is None else asdict(self.unread),
            "findings": [finding_fields(finding, self.store) for finding in self.findings],
        }


@takes_stores
@checked
def check(
    store: str | PathLike[str],
    *,
    quick: bool = False,
    config: StoreConfig | None = None,
    runner: Any = "auto",
    on_finding: Callable[[Finding], None] = lambda finding: None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> CheckReport:
    """Check a store: every record and its CRC, every queue entry, every index entry. Nothing is written.

    Args:
        store: The folder that contains `commitlog/`, or its URL. A remote store is first copied to a temporary folder.
        quick: Check only names, sizes, headers, ends and samples.
        config: The broker's settings; by default derived from the store's files.
        runner: "auto", "serial", "processes", "spark", or a SparkSession.
        on_finding: Called with each finding as soon as it is known.
        storage_options: Options of the URL's file system.
        progress: Called with the phase, units done and units in all.

    Raises:
        StoreNotFoundError: the store has no CommitLog.
        StoreAccessError: a file cannot be read.
        UsageError: the runner is unknown.
    """
    findings, unread = [], list[Unread]()
    path, original = fspath(store), None
    with ExitStack() as stack:
        if Location.is_url(store):
            original = stack.enter_context(local_copy(path, storage_options, progress))
            path = original.path
        tasks: Runner = SerialRunner()
        if not quick:  # A quick check has no tasks and needs no kernels.
            tasks = stack.enter_context(opened_runner(Chosen.of(runner), log_bytes(path), warm_up))
        for finding in check_store(
            path, config=config, quick=quick, runner=tasks, progress=progress,
            on_unread=unread.append,
        ):  # fmt: skip
            finding = finding if original is None else original.as_original(finding)
            findings.append(finding)
            on_finding(finding)
        if not quick:
            for finding in _known_faults(path, config, findings):
                finding = finding if original is None else original.as_original(finding)
                findings.append(finding)
                on_finding(finding)
    return CheckReport(fspath(store), tuple(findings), quick, next(iter(unread), None))


def _known_faults(
    path: str, config: StoreConfig | None, findings: Iterable[Finding]
) -> Iterator[Finding]:
    """Yield traces of known faults of brokers.

    In a damaged store, and in one that is being written, a missing message is no trace of a fault. If RocksDB has a
    part of the broker's state and rocksdict is not installed, nothing is known.
    """
    if any(
        finding.severity is Severity.DAMAGE or finding.kind is Kind.STORE_IN_USE
        for finding in findings
    ):
        return
    with suppress(FormatError, MissingExtraError):
        yield from _broker_faults()(path, config=config).findings


def check_header(store: str, is_quick: bool) -> dict[str, Any]:
    """Return the first object of the JSON lines, which describes the check."""
    return {"schema": CHECK_SCHEMA, "store": store, "mode": "quick" if is_quick else "full"}


def finding_fields(finding: Finding, store: str) -> dict[str, Any]:
    """Return a finding as JSON fields, with the command that repairs it."""
    return {**finding.as_json(), "command": repair_command(finding, store)}


def finding_lines(finding: Finding, store: str) -> Iterator[str]:
    """Yield up to four lines: the problem, its consequence, a broker's reaction, and the repair."""
    yield printable(f"{finding.severity}: {finding.kind}: {finding}")
    if finding.cost:
        yield printable(f"    cost:         {finding.cost}")
    if finding.at_next_start:
        yield printable(f"    broker start: {finding.at_next_start}")
    command = repair_command(finding, store)
    if finding.remedy is Remedy.RESTORE_FILE and command:
        yield printable(f"    repair:       {finding.remedy}, or {command}")
    elif command or finding.remedy is not Remedy.NONE:
        yield printable(f"    repair:       {command or finding.remedy}")


def repair_command(finding: Finding, store: str) -> str:
    """Return the command that repairs a finding; an empty text if no command repairs it."""
    repair = finding.kind.repair
    options = "--truncate-tail " if repair & Repair.TRUNCATE else ""
    options += "--salvage " if repair & Repair.SALVAGE else ""
    return f"reput repair {options}{shlex.quote(store)}" if repair else ""
