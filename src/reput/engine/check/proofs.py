"""Remember when a scrub has proved each file of a store, and what it has found.

The state is a file in this user's cache folder, named by device and inode of the folder of the store's log. So a store
that was renamed, or whose log is elsewhere, keeps it. Its paths are relative to the store. The file is replaced
atomically after each step of a scrub. The proof of a file ends if another file takes its name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reput.base import Finding, Severity
from reput.core import Queue, facts_of
from reput.errors import StoreAccessError
from reput.io import OwnCache

if TYPE_CHECKING:
    from reput.engine.check.checking.log_check import LogFileResult

_FORM = 1
_MOST_BYTES = 256 << 20
# Errors that a damaged or foreign cache file can cause.
_WRONG_FORM = (ValueError, TypeError, LookupError, AttributeError)
STORE = ""
"""The part of a store whose findings do not belong to a step about one log file."""


@dataclass(slots=True)
class ProvedFile:
    """The proof of one file.

    Attributes:
        inode: The inode of the file.
        seen_ms: When a scrub first saw the file.
        proved_ms: When every byte of the file was last read and compared with the rest of the store; None if never.
    """

    inode: int
    seen_ms: int
    proved_ms: int | None = None

    @property
    def since_ms(self) -> int:
        """Return the time since which nothing has proved the file."""
        return self.seen_ms if self.proved_ms is None else self.proved_ms


@dataclass(slots=True)
class Proofs:
    """The state of the scrubs of one store.

    Attributes:
        folder: The folder of the store.
        pass_ms: When the current pass began. Files with an older proof are still to be read.
        passes: Number of completed passes.
        files: The proofs by path, relative to the store's folder if the file is below it.
        results: The result for each log file of the current pass, for the findings at its end.
        findings: The damage that was found, by the part of the store whose step has found it.
    """

    folder: Path
    pass_ms: int
    passes: int = 0
    files: dict[str, ProvedFile] = field(default_factory=dict)
    results: dict[str, LogFileResult] = field(default_factory=dict)
    findings: dict[str, list[tuple[int, Finding]]] = field(default_factory=dict)

    def note(self, part: str, findings: Iterable[Finding]) -> None:
        """Replace the findings of a part of the store. Only damage is kept: all else may change at any time."""
        damage = [finding for finding in findings if finding.severity is Severity.DAMAGE]
        self.findings[part] = [
            (inode_of(finding.file), replace(finding, file=name_in(self.folder, finding.file)))
            for finding in damage
        ]

    def damage(self) -> Iterator[Finding]:
        """Yield the damage that was found, except in files that were deleted or replaced since."""
        for part in self.findings.values():
            for inode, finding in part:
                path = path_of(self.folder, finding.file)
                if inode_of(path) == inode:
                    yield replace(finding, file=path)

    def present(self) -> Iterator[tuple[str, str, ProvedFile]]:
        """Yield name, path and proof of each file that was neither deleted nor replaced since a scrub saw it."""
        for name, proof in self.files.items():
            path = path_of(self.folder, name)
            if inode_of(path) == proof.inode:
                yield name, path, proof

    @property
    def unreadable_bytes(self) -> int:
        """Return the bytes of the log that cannot be read, as far as it was read."""
        ranges = sorted({(finding.start, finding.stop) for finding in self.damage() if finding.kind.is_unreadable
                         and finding.physical_offset is not None})  # fmt: skip
        total, before = 0, 0
        for start, stop in ranges:
            total += max(stop - max(start, before), 0)
            before = max(before, stop)
        return total


def inode_of(path: str) -> int:
    """Return the inode of a file, or 0 if it does not exist."""
    with suppress(OSError, ValueError):
        return os.lstat(path).st_ino
    return 0


def name_in(store: Path, path: str) -> str:
    """Return the name of a file in `Proofs.files`."""
    return os.path.relpath(path, store) if path.startswith(f"{store}/") else path


def path_of(store: Path, name: str) -> str:
    """Return the path of a file from its name in `Proofs.files`."""
    return os.path.join(store, name)


class ProofStore:
    """The place of a store's `Proofs`."""

    def __init__(self, store: Path) -> None:
        """Find the place. Raises StoreAccessError."""
        self._folder = store
        log = facts_of(store).log_folders[0]
        try:
            status = os.stat(log)
        except OSError as error:
            raise StoreAccessError(f"{log}: cannot be read: {error.strerror}") from error
        self._name = f"{status.st_dev:x}-{status.st_ino:x}.json"
        self._cache = OwnCache("scrubs")

    def lock_path(self) -> Path:
        """Return the file that a scrub locks. Raises StoreAccessError if there is no folder for it."""
        return self._cache.path_for(f"{self._name}.lock")

    def load(self) -> Proofs | None:
        """Return the state; None if this user has never scrubbed the store."""
        data = self._cache.read(self._name, _MOST_BYTES)
        if data is None:
            return None
        try:
            return _decoded(self._folder, json.loads(data))
        except _WRONG_FORM:
            return None

    def keep(self, proofs: Proofs) -> None:
        """Replace the state. Raises StoreAccessError."""
        self._cache.write(self._name, json.dumps(_encoded(proofs)).encode())


def proofs_of(store: Path) -> Proofs | None:
    """Return what the scrubs of this user have proved of a store; None if there were none. Raises StoreAccessError."""
    return ProofStore(store).load()


def _encoded(proofs: Proofs) -> dict[str, Any]:
    return {
        "form": _FORM,
        "pass_ms": proofs.pass_ms,
        "passes": proofs.passes,
        "files": {
            n: [proof.inode, proof.seen_ms, proof.proved_ms] for n, proof in proofs.files.items()
        },
        "results": {
            name: [
                result.latest,
                result.without_index,
                [[*q, *of] for q, of in result.without_queue.items()],
            ]
            for name, result in proofs.results.items()
        },
        "findings": {
            part: [[inode, finding.as_json()] for inode, finding in findings]
            for part, findings in proofs.findings.items()
        },
    }


def _decoded(folder: Path, fields: Mapping[str, Any]) -> Proofs | None:
    # Imported here, because it loads the kernels, which a server needs later, if at all.
    from reput.engine.check.checking.log_check import LogFileResult

    if fields["form"] != _FORM:
        return None
    proofs = Proofs(folder, int(fields["pass_ms"]), int(fields["passes"]))
    for name, (inode, seen_ms, proved_ms) in fields["files"].items():
        proved = None if proved_ms is None else int(proved_ms)
        proofs.files[str(name)] = ProvedFile(int(inode), int(seen_ms), proved)
    for name, (latest, without_index, queues) in fields["results"].items():
        result = LogFileResult(None if latest is None else int(latest), {}, int(without_index))
        for topic, queue_id, count, first in queues:
            result.without_queue[Queue(str(topic), int(queue_id))] = int(count), int(first)
        proofs.results[str(name)] = result
    for part, findings in fields["findings"].items():
        proofs.findings[str(part)] = [
            (int(n), Finding.from_json(finding)) for n, finding in findings
        ]
    return proofs


def without_entries(result: LogFileResult) -> LogFileResult:
    """Return the part of a result that the end of a pass needs."""
    return replace(result, light={}, findings=[], unplaced=set())
