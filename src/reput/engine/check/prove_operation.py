"""Define `reput.prove`, which compares IndexFiles with the log, to prove which ranges of the log each file covers.

A file covers a range if it has an item for each key of the range's messages, and a look-up reaches each item.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Unpack

from reput.base import Report, checked, counted, printable
from reput.core import Proof, ReaderOptions
from reput.engine.compare import prove_all
from reput.engine.stores import open_store, takes_stores
from reput.errors import UsageError
from reput.io import Location


@dataclass(frozen=True, slots=True)
class ProvenFile:
    """One IndexFile and its proof."""

    path: str
    name: str
    proof: Proof


@dataclass(frozen=True, slots=True, repr=False)
class ProofReport(Report):
    """The proven ranges of all IndexFiles of a store.

    Attributes:
        files: The IndexFiles, oldest first.
        problems: For other files in index/, the reasons why they are not used.
    """

    files: tuple[ProvenFile, ...]
    problems: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Return whether each IndexFile has all messages of the log between the file's first and last message."""
        return not self.problems and not any(file.proof.problems for file in self.files)

    @property
    def headline(self) -> str:
        size = sum(part.size_bytes for file in self.files for part in file.proof.ranges)
        return f"{counted(len(self.files), 'IndexFile', verb='proves')} {size:,} bytes of the log"

    def lines(self) -> Iterator[str]:
        for file in self.files:
            yield _line(file)
            for problem in file.proof.problems:
                yield f"  not proved: {printable(problem)}"
            if file.proof.ranges and not file.proof.is_kept:
                yield (
                    "  not remembered, because the file is changing or open for writing, "
                    "or its file system does not report all changes"
                )
        if not self.files and not self.problems:
            yield "no IndexFile: queries scan the log"
        for problem in self.problems:
            yield f"not used: {printable(problem)}"

    def as_dict(self) -> dict[str, Any]:
        return {"files": list(map(_fields, self.files)), "problems": list(self.problems)}


@takes_stores
@checked
def prove(store: str | PathLike[str], **reading: Unpack[ReaderOptions]) -> ProofReport:
    """Prove which part of the log each IndexFile covers, and remember the proofs in the user's cache folder.

    Args:
        store: A local store, which is only read.
        reading: Settings as for `open_store`.

    Raises:
        UsageError: the store is a URL.
        StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    path = fspath(store)
    if Location.is_url(path):
        raise UsageError(f"{path}: IndexFiles can be proved only in a local store")
    with open_store(path, **reading) as reader:
        files = reader.index.current()
        # Remember the topics of the log as well, because a search for a key in all topics needs them.
        for log_file in reader.commit_log.files:
            reader.known_ranges.learn(log_file, with_queues=True)
        reader.log_topics.keep()
        proofs = prove_all(reader.own_log, files, afresh=True)
        proven_files = [
            ProvenFile(file.path, file.name, proof)
            for file, proof in zip(files, proofs, strict=True)
        ]
        return ProofReport(tuple(proven_files), tuple(map(str, reader.index.problems)))


def _line(file: ProvenFile) -> str:
    proof = file.proof
    size = sum(part.size_bytes for part in proof.ranges)
    line = f"{printable(file.name)}  {counted(proof.items, 'entry', 'entries', 'proves')} {size:,} bytes of the log"
    if proof.ranges:
        line += f", from {proof.ranges[0].start:,} to {proof.ranges[-1].stop:,}"
    return line


def _fields(file: ProvenFile) -> dict[str, Any]:
    proof = file.proof
    return {
        "file": file.path,
        "entries": proof.items,
        "ranges": [list(part) for part in proof.ranges],
        "gap_bytes": proof.gap_bytes,
        "problems": list(proof.problems),
        "remembered": proof.is_kept,
    }
