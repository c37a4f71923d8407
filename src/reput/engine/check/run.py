"""Check a store: compare CommitLog, ConsumeQueues and IndexFiles with each other, entry by entry.

The check only reads. The first tasks read one IndexFile each, the next tasks one queue each. Both kinds of tasks group
entries by the log file into which an entry leads. Then one task per log file compares its messages with their entries.
All runners return the same findings in the same order.

In this package, an item is an entry of an IndexFile. A span is the summary of those entries of one queue, or items of
one IndexFile, that lead into one log file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from os import PathLike, fspath
from pathlib import Path

from reput import io
from reput.base import Finding, Progress, Runner, SerialRunner, StoreConfig, silent
from reput.engine import rebuild
from reput.engine.check.checking.checked_store import CheckedStore, Unread, look_at
from reput.engine.check.checking.checkpoint import checkpoint_findings
from reput.engine.check.checking.config_files import config_findings
from reput.engine.check.checking.quick_check import quick_findings
from reput.engine.check.checking.tally import sampled
from reput.errors import UsageError
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.io import Location

CHECK_SCHEMA = "reput-check/1"
"""Version of the JSON lines of findings. Every incompatible change increases its number (docs/check.md)."""


def check_store(
    store: str | PathLike[str],
    *,
    config: StoreConfig | None = None,
    quick: bool = False,
    runner: Runner | None = None,
    progress: Progress = silent,
    on_unread: Callable[[Unread], None] = lambda unread: None,
) -> Iterator[Finding]:
    """Check a store without writing to it, and yield each problem as it is found.

    Identical findings of one file are joined into one finding with a count. Only the first few findings of each kind
    are yielded immediately. The further findings of a kind, in all files, are joined into one, which is yielded at the
    end. So memory does not grow with the damage. If a broker is writing the store, the check ends at the last message
    that was dispatched when the check began.

    Args:
        store: The folder that contains `commitlog/`.
        config: The broker's settings; by default derived from the store's files.
        quick: Whether to examine only names, sizes, headers, ends and samples.
        runner: Runs the tasks; by default this process does, one after the other.
        progress: Called with the phases index, queues and log.
        on_unread: Called with an `Unread` at the end of a quick check, and of a full check that misses a part, such as
            timers that the store has nowhere.

    Yields:
        Findings, in this order: about names and sizes, IndexFiles, queues, log files, and the store as a whole.

    Raises:
        StoreNotFoundError: The store has no CommitLog.
        StoreAccessError: A file cannot be read.
        UsageError: The store is a URL. `reput.check` copies such a store first.
    """
    if Location.is_url(store):
        raise UsageError(
            f"{fspath(store)}: check reads only local stores; download the store, or compare it "
            f"with a local copy by reput diff"
        )
    checked_store = look_at(Path(store).absolute(), config)
    yield from sampled(_findings(checked_store, quick, runner or SerialRunner(), progress))
    if quick or checked_store.unread.parts:
        on_unread(checked_store.unread)


def _findings(
    store: CheckedStore, quick: bool, runner: Runner, progress: Progress
) -> Iterator[Finding]:
    yield from store.findings
    yield from checkpoint_findings(store)
    yield from config_findings(store)
    if quick:
        yield from [] if store.is_live else store.facts.of_ends(store.ends)
        yield from quick_findings(store)
        return
    # Import this late: a quick check must not import modules that compile kernels.
    from reput.engine.check.checking.full_check import FullCheck

    yield from FullCheck(store, runner, progress).run()


@cache
def warm_up() -> None:
    """Check a newly rebuilt store of three messages, before workers need the kernels: once, not in each worker.

    See `reput.engine.rebuild.warm_up`.
    """
    small = rebuild.SMALL
    with io.Scratch.file(COMMIT_LOG_FOLDER, offset_file_name(0), rebuild.small_log()) as folder:
        rebuild.rebuild_store(SerialRunner(), folder, config=small)
        for finding in check_store(folder, config=small):
            raise RuntimeError(
                f"reput's check is broken: it reports a problem in a new store: {finding}"
            )
