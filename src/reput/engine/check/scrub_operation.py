"""Scrub a store: prove every file again and again, slowly, so that damage is found long before the file is needed.

A pass is a full check in small steps. It reads IndexFiles and queues, then compares one log file after the other with
them, in log order. After each step, the state is kept (`proofs`). A scrub that was stopped or killed continues with the
first log file that the pass has not proved. It reads IndexFiles and queues again, because it needs their entries.

A log file is proved when its step ends. An IndexFile or a queue file is proved at the end of a pass, as of the oldest
proof of a log file into which its entries lead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from reput.base import (
    Finding,
    FindingsReport,
    SerialRunner,
    StoreConfig,
    checked,
    counted,
    format_size,
    now_ms,
    silent,
)
from reput.engine.check.checking.checked_store import CheckedStore, look_at
from reput.engine.check.checking.full_check import FullCheck
from reput.engine.check.checking.log_check import LogFileResult
from reput.engine.check.checking.tally import sampled
from reput.engine.check.proofs import (
    STORE,
    Proofs,
    ProofStore,
    ProvedFile,
    inode_of,
    name_in,
    without_entries,
)
from reput.errors import UsageError
from reput.io import FileReader, Location, locked

DEFAULT_RATE = 20_000_000
"""Bytes per second. A broker's disk reads many times as fast, and a store of 1 TB is proved in 14 hours."""
# After a pause, at most this much time is made up for, so a scrub never reads in a burst.
_MOST_ARREARS_S = 1.0


class Pace:
    """Limits reads to a number of bytes per second. Call it before each read."""

    def __init__(
        self,
        rate: float,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._sleep, self._clock = rate, sleep, clock
        self._due = clock()

    def __call__(self, count: int) -> None:
        """Wait until `count` bytes may be read."""
        now = self._clock()
        self._due = max(self._due, now - _MOST_ARREARS_S)
        if self._due > now:
            self._sleep(self._due - now)
        self._due += count / self._rate


@dataclass(frozen=True, slots=True, repr=False)
class ScrubReport(FindingsReport):
    """The result of one pass of a scrub.

    Attributes:
        store: The path of the store.
        findings: The findings of the steps that this process has run, in the order in which they were found.
        files: Number of files that the pass has proved.
        log_bytes: Bytes of its log files.
        passes: Number of passes that were completed until now.
    """

    store: str
    findings: tuple[Finding, ...]
    files: int
    log_bytes: int
    passes: int

    @property
    def headline(self) -> str:
        wrong = sum(finding.count for finding in self.findings if finding.is_wrong)
        verdict = counted(wrong, "problem") if wrong else "valid"
        files = f"{counted(self.files, 'file')} proved, {format_size(self.log_bytes)} of log"
        return f"pass {self.passes:,}: {files}: {verdict}"

    def lines(self) -> Iterator[str]:
        yield self.headline

    def as_dict(self) -> dict[str, Any]:
        return {
            "store": self.store, "pass": self.passes, "files": self.files,
            "log_bytes": self.log_bytes, "valid": self.is_valid,
            "findings": [finding.as_json() for finding in self.findings],
        }  # fmt: skip


@checked
def scrub(
    store: str | PathLike[str],
    *,
    rate: int | None = DEFAULT_RATE,
    config: StoreConfig | None = None,
    on_finding: Callable[[Finding], None] = lambda finding: None,
    on_step: Callable[[str, str], None] = lambda state, part: None,
) -> ScrubReport:
    """Complete a pass over a store, and remember when each file was proved. Nothing is written below the store.

    A pass that was stopped is continued. So call this again and again, with pauses of any length.

    Args:
        store: The folder that contains `commitlog/`, on this machine.
        rate: Bytes per second; None for no limit.
        config: The broker's settings; by default derived from the store's files.
        on_finding: Called with each finding as soon as it is known.
        on_step: Called with "read" and the path of a log file after it was compared, then with "kept" when its proof
            is kept.

    Raises:
        StoreNotFoundError: the store has no CommitLog.
        StoreAccessError: a file cannot be read, or there is no folder for the proofs.
        StoreLockedError: another process scrubs the store.
        UsageError: the store is a URL.
    """
    if Location.is_url(store):
        raise UsageError(f"{fspath(store)}: a scrub reads only stores on this machine")
    path = Path(store).absolute()
    checked_store = look_at(path, config)
    place = ProofStore(path)
    with locked(place.lock_path(), "another process scrubs this store", ["scrub"]):
        one_pass = _Pass(checked_store, place, on_step)
        findings: list[Finding] = []
        meter = (lambda count: None) if rate is None else Pace(rate)
        with FileReader.metered(meter):
            for finding in sampled(one_pass.run()):
                findings.append(finding)
                on_finding(finding)
        proofs = one_pass.proofs
        size = sum(file.size for file in checked_store.files)
        return ScrubReport(
            fspath(store), tuple(findings), one_pass.proof_count, size, proofs.passes
        )  # fmt: skip


class _Pass:
    def __init__(
        self, store: CheckedStore, place: ProofStore, on_step: Callable[[str, str], None]
    ) -> None:
        self._store, self._place, self._on_step = store, place, on_step
        self._full = FullCheck(store, SerialRunner(), silent)
        self.proofs = place.load() or Proofs(store.path, now_ms())
        self.proof_count, self._begun_ms = 0, 0

    def run(self) -> Iterator[Finding]:
        store, full, proofs = self._store, self._full, self.proofs
        yield from store.findings
        begun = [*full.begin()]
        yield from begun
        self._see_files()
        results: dict[int, LogFileResult] = {
            number: proofs.results[name_in(store.path, file.path)]
            for number, file in enumerate(store.files)
            if self._has_proof(file.path)
        }
        self._begun_ms = max(now_ms(), proofs.pass_ms)
        for file, result, findings in full.steps(results):
            name = name_in(store.path, file.path)
            self._on_step("read", file.path)
            # The file was read between the end of the previous step and now, so the earlier time is safe.
            proofs.files[name].proved_ms = self._begun_ms
            self._begun_ms = max(now_ms(), proofs.pass_ms)
            proofs.results[name] = without_entries(result)
            proofs.note(name, findings)
            self._place.keep(proofs)
            self._on_step("kept", file.path)
            yield from findings
        ending_ms = max(now_ms(), proofs.pass_ms)
        ended = [*full.end()]
        yield from ended
        self._complete([*store.findings, *begun, *ended], ending_ms)

    def _see_files(self) -> None:
        """Note new files, and forget files that expired or were replaced."""
        proofs, store, now = self.proofs, self._store, now_ms()
        paths = [file.path for file in store.files]
        paths += [path for group, _ in self._full.leading_into() for path in group]
        names = {name_in(store.path, path): path for path in paths}
        for name in proofs.files.keys() - names.keys():
            del proofs.files[name]
            proofs.results.pop(name, None)
            proofs.findings.pop(name, None)
        for name, path in names.items():
            inode = inode_of(path)
            if name not in proofs.files or proofs.files[name].inode != inode:
                proofs.files[name] = ProvedFile(inode, now)
                proofs.results.pop(name, None)
        self._place.keep(proofs)

    def _has_proof(self, path: str) -> bool:
        """Return whether the current pass has proved a log file."""
        name = name_in(self._store.path, path)
        proved_ms = self.proofs.files[name].proved_ms
        is_new = proved_ms is not None and proved_ms >= self.proofs.pass_ms
        return is_new and name in self.proofs.results

    def _complete(self, findings: list[Finding], ending_ms: int) -> None:
        """Prove IndexFiles and queue files, and begin the next pass.

        Files that lead into no log file are proved as of `ending_ms`.
        """
        store, proofs, now = self._store, self.proofs, now_ms()
        times: list[int | None] = [
            proofs.files[name_in(store.path, file.path)].proved_ms for file in store.files
        ]
        for paths, numbers in self._full.leading_into():
            times_ms = [times[number] for number in numbers]
            for path in paths:
                proof_times = [time_ms for time_ms in times_ms if time_ms is not None]
                oldest = (
                    min(proof_times, default=ending_ms)
                    if len(proof_times) == len(times_ms)
                    else None
                )
                # A file that was created during the pass is proved by the next one.
                if (proof := proofs.files.get(name_in(store.path, path))) is not None:
                    proof.proved_ms = oldest
        # A log file after the end of the log has only zeros. Nothing leads into it.
        for number, file in enumerate(store.files):
            if times[number] is None and number > store.last_file:
                proofs.files[name_in(store.path, file.path)].proved_ms = ending_ms
        self.proof_count = sum(
            proof.proved_ms is not None and proof.proved_ms >= proofs.pass_ms
            for proof in proofs.files.values()
        )
        proofs.note(STORE, findings)
        proofs.results.clear()
        proofs.passes += 1
        # A file that was proved in this millisecond is not proved in the next pass yet.
        proofs.pass_ms = now + 1
        self._place.keep(proofs)
