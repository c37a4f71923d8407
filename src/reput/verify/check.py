"""The check of a store: CommitLog, ConsumeQueues and IndexFiles held against each other, to the last entry.

It only reads. Tasks over IndexFiles, then over queues, find out of which files of the log each index has entries; then
each file of the log is checked on its own against those. So any runner runs it, and on any runner the findings and
their order are the same. They come as soon as the tasks that find them are done.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path

from reput.config import StoreConfig
from reput.errors import FormatError, UsageError
from reput.files.storage import is_url
from reput.findings import Finding, Kind
from reput.format.file_names import CHECKPOINT_FILE
from reput.tasks import Progress, Runner, SerialRunner, silent
from reput.verify.checking.checked_store import CheckedStore, look_at
from reput.verify.checking.tally import sampled
from reput.verify.marker_inspection import inspect_checkpoint

CHECK_SCHEMA = "reput-check/1"
"""Of findings as JSON lines; raised with every change that a program would have to know of (docs/check.md)."""


def check_store(
    store: str | PathLike[str],
    *,
    config: StoreConfig | None = None,
    quick: bool = False,
    runner: Runner | None = None,
    progress: Progress = silent,
) -> Iterator[Finding]:
    """Yield what is wrong with a store as it is found; nothing is written.

    Alike findings of one file become one, with their count. The first of each kind come as they are found, the rest
    as one, counted, at the end: memory does not grow with the damage. A store that a broker is writing is
    checked up to what had been dispatched when the check began.

    Args:
        store: The folder that holds `commitlog/`.
        config: The broker's settings; what the store's own files show, where it is None.
        quick: Look at names, sizes, headers, ends and samples only.
        runner: Runs the tasks; in this process, one after the other, where it is None.
        progress: Called with the phases index, queues and log.

    Yields:
        Findings: of names and sizes, IndexFiles, queues, files of the log in order, then of the store as a whole.

    Raises:
        StoreNotFoundError: There is no CommitLog.
        StoreAccessError: Something cannot be read.
        UsageError: The store is a URL.
    """
    if is_url(store):
        raise UsageError(
            f"{fspath(store)}: a store is checked only on a local file system; download it, "
            "or compare it with a local copy: reput diff"
        )
    found = look_at(Path(store).absolute(), config)
    yield from sampled(_findings(found, quick, runner or SerialRunner(), progress))


def _findings(
    store: CheckedStore, quick: bool, runner: Runner, progress: Progress
) -> Iterator[Finding]:
    yield from store.findings
    yield from _checkpoint(store)
    if quick:
        from reput.verify.checking.quick_check import quick_findings

        yield from [] if store.is_live else store.ends.findings()
        yield from quick_findings(store)
        return
    # A quick check is to be done before what compiles kernels would be imported.
    from reput.verify.checking.full_check import FullCheck

    yield from FullCheck(store, runner, progress).run()


def _checkpoint(store: CheckedStore) -> Iterator[Finding]:
    path = store.path / CHECKPOINT_FILE
    if store.has_checkpoint and not store.is_live and not path.is_symlink():
        try:
            yield from inspect_checkpoint(str(path)).findings
        except FormatError as error:
            yield Finding.of_error(Kind.CHECKPOINT, error)
