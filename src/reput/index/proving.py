"""Proving IndexFiles for readers that are about to rely on them, and remembering what was proved."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

from reput.files.stamps import Stamp, settled_stamp
from reput.index.proof import prove
from reput.index.proven import Proof
from reput.index.reader import IndexFileReader
from reput.index.remembered import Remembered, Stamps, stamps_before
from reput.index.verdict import Verdict
from reput.log.reader import CommitLogReader
from reput.log.sources import StoreLog


def prove_all(store: str, files: Iterable[IndexFileReader], *, afresh: bool = False) -> list[Proof]:
    """What each of a store's IndexFiles may be believed for, in order; several are proved at once.

    Of a file that is unchanged, what is remembered is the answer, and only log files that changed since are compared
    with it. `afresh` proves all again.

    Raises StoreError.
    """

    def one(file: IndexFileReader) -> Proof:
        return _prove(store, file, afresh)

    with ThreadPoolExecutor() as pool:
        return list(pool.map(one, files))


def prove_new(store: str, file: IndexFileReader) -> Proof:
    """What a file may be believed for that was just written; nothing is remembered. Raises StoreError."""
    with closing(CommitLogReader(StoreLog(store))) as log:
        return prove(file, log)


def remember(store: str, file: IndexFileReader, proof: Proof, log_before: dict[int, Stamp]) -> None:
    """Keep what was proved of a file that this process has written, and put where readers find it.

    `log_before` are stamps of the log's files from before the proof. Raises StoreError.
    """
    before = Stamps(settled_stamp(file.path), log_before)
    with closing(CommitLogReader(StoreLog(store))) as log:
        Remembered().keep_proof(file, log, proof, before)


def _prove(store: str, file: IndexFileReader, afresh: bool) -> Proof:
    with closing(CommitLogReader(StoreLog(store))) as log:  # a reader is one thread's
        remembered = Remembered()
        known = None if afresh else remembered.proof(file, log)
        if known is not None and known.items == file.next_item - 1:
            return known
        before = stamps_before(file, log)
        proof = prove(file, log, known)
        is_kept = remembered.keep_proof(file, log, proof, before)
        return replace(proof, is_kept=is_kept)


class Proved:
    """A Judge that believes what `prove_all` has just found, and nothing else."""

    def __init__(self, store: str, files: Iterable[IndexFileReader]) -> None:
        """Raises StoreError."""
        every = tuple(files)
        self._proofs = dict(zip(every, prove_all(store, every), strict=True))

    def __call__(
        self,
        file: IndexFileReader,
        log: CommitLogReader,
        last: int,
        before: Verdict | None = None,
        files: int = 1,
    ) -> Verdict:
        """See `Judge`."""
        proof = self._proofs.get(file)
        if proof is None:  # it came after the others were proved
            return Verdict(last)
        problem = "; ".join(proof.problems) if not proof.ranges else ""
        return Verdict(last, proof=proof, problem=problem)
