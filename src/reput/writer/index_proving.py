"""Proving the IndexFiles that an open store wrote, so that nobody who asks them later need spot-check them."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

from reput.compare.proof import prove_all
from reput.config import StoreConfig
from reput.errors import ReputError
from reput.format.file_names import INDEX_FOLDER
from reput.index.set_reader import IndexFileSetReader
from reput.index.set_writer import IndexFileSetWriter

_log = logging.getLogger("reput.store")


class IndexProver:
    """Proves a file when it is full and durable, and the last one when the store is closed.

    A proof holds only before the first log file that has changed since. So the files that lead into the log file in
    which the store was opened are proved again from there on, and all that were written since.
    """

    def __init__(
        self, store: Path, config: StoreConfig, index: IndexFileSetWriter, log_begin: int
    ) -> None:
        """`log_begin` is the physical offset at which the log file begins that is written to first."""
        self._store, self._config, self._index = store, config, index
        self._log_begin = log_begin
        self._began = index.end
        self._last = self._began[0]
        self._is_ready = False

    def prove_full(self) -> None:
        """Prove the files that are full, where there is another than the last time.

        The first time all are proved as far as they have come: what a proof needs is loaded then, which takes longer
        than most proofs, while nobody waits for it.
        """
        name, count = self._index.end
        if not self._is_ready and count > 1 and self._index.end != self._began:
            self._prove()
            self._is_ready = True
        elif name != self._last:
            self._prove(before=name)
        self._last = name

    def prove(self) -> None:
        """Prove all files, for the last of them is complete; nothing is done where nothing was put."""
        if self._index.end != self._began:
            self._prove()

    def _prove(self, before: str | None = None) -> None:
        config, folder = self._config, self._store / INDEX_FOLDER
        try:
            with closing(
                IndexFileSetReader(folder, config.hash_slots, config.index_items)
            ) as index:
                files = [
                    file
                    for file in index.current()
                    if before is None or file.name < before
                    if file.offset(file.next_item - 1) >= self._log_begin
                ]
                for file, proof in zip(files, prove_all(str(self._store), files), strict=True):
                    for problem in proof.problems:
                        _log.warning("%s: %s", file.path, problem)
        except ReputError as error:  # the store is no worse for it
            _log.warning("%s: the index could not be proved: %s", self._store, error)
