"""Maintain indexes for a growing log until stopped: rebuild them if necessary, then follow the log in a loop.

The rebuild runs in parallel. The loop runs in this process, because one core processes more than a gigabyte per
second, which is more than a broker writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

from reput.base import StoreConfig
from reput.engine.rebuild.follow.follower import Follower
from reput.engine.rebuild.follow.state import FollowState, begin, has_indexes, owning
from reput.engine.rebuild.report import FollowReport, RebuildReport
from reput.engine.stores import wait_for_log
from reput.errors import UsageError
from reput.io import DISK

_POLL_S = 0.5
_SYNC_S = 2.0
_SYNC_PAUSE = 5  # The pause before the next sync is this multiple of the last sync's duration.

Rebuild = Callable[[Path, Path, StoreConfig], RebuildReport]
"""A function that rebuilds the indexes of a store. Its arguments are the store, the output folder, and the settings."""
OnRebuilt = Callable[[RebuildReport], None]
OnReport = Callable[[FollowReport], None]


def follow_store(
    store: str | Path,
    output: str | Path,
    rebuild: Rebuild,
    *,
    config: StoreConfig | None = None,
    stop: Event | None = None,
    on_wait: Callable[[], None] = lambda: None,
    on_rebuilt: OnRebuilt = lambda report: None,
    on_resume: OnReport = lambda report: None,
    on_step: OnReport = lambda report: None,
) -> FollowReport:
    """Maintain ConsumeQueues and IndexFiles of a store in `output`, until `stop` is set or KeyboardInterrupt is raised.

    Nothing is written into the store. If `output` has indexes, they are continued; otherwise they are rebuilt first. If
    the store has no CommitLog yet, the function waits for it. A KeyboardInterrupt in the middle of a step has the
    effect of a kill: nothing is lost, and the next start repeats the step.

    Args:
        store: a store directory, which another process may be writing.
        output: directory for `consumequeue/`, `index/` and `checkpoint`; not the store.
        rebuild: called if `output` has no indexes.
        config: sizes and settings; by default derived from the indexes, or else from the store's files.
        stop: an event that ends the function after the current step.
        on_wait: called when the store has no CommitLog yet.
        on_rebuilt: called after the rebuild.
        on_resume: called if no rebuild was necessary, once the position is known at which the indexes are continued.
        on_step: called after each step that indexed messages.

    Returns the report, which is empty if the function ended before a CommitLog existed.

    Raises:
        UsageError: `output` is the store, or was created with other settings. StoreNotFoundError, StoreLockedError,
        StoreAccessError, StoreChangedError, and the errors of `rebuild`.
    """
    store, output = Path(store).absolute(), Path(output).absolute()
    stop = stop or Event()
    if store.resolve() == output.resolve():
        raise UsageError(
            f"{output}: is the store itself, which is only read; choose another output",
            arguments=["output"],
        )
    try:
        if not wait_for_log(store, lambda: not stop.wait(_POLL_S), on_wait):
            return FollowReport()
    except KeyboardInterrupt:
        return FollowReport()
    with owning(output), DISK.reading_for(output, [store]):
        state = begin(store, output, config)
        exists = has_indexes(output)
        if not exists:
            _rebuild(rebuild, store, state, on_rebuilt)
        follower = Follower(store, output, state)
        if exists:
            on_resume(follower.report)
        _run(follower, stop, on_step)
    return follower.report


def _rebuild(rebuild: Rebuild, store: Path, state: FollowState, on_rebuilt: OnRebuilt) -> None:
    report = rebuild(store, state.folder, state.config)
    state.is_fresh, state.rebuilt_to = True, report.log_end
    on_rebuilt(report)


def _run(follower: Follower, stop: Event, on_step: OnReport) -> None:
    """Take steps until `stop` is set, then make the indexes durable, unless the last step failed."""
    is_between_steps, is_dirty = True, True
    sync_at = time.monotonic() + _SYNC_S
    try:
        while not stop.is_set():
            is_between_steps = False
            has_grown = follower.poll()
            is_dirty = is_dirty or has_grown
            if is_dirty and (begun := time.monotonic()) >= sync_at:
                follower.sync()
                # A sync takes one fsync per queue file, which is slow with very many queues. So the pause before the
                # next sync grows with the time that this sync took.
                took_s = time.monotonic() - begun
                sync_at = time.monotonic() + max(_SYNC_S, _SYNC_PAUSE * took_s)
                is_dirty = False
            is_between_steps = True
            if has_grown:
                on_step(follower.report)
            # Do not pause while there is a backlog.
            if not (has_grown and follower.has_more):
                stop.wait(_POLL_S)
    except KeyboardInterrupt:
        pass
    finally:
        # An interrupted step may have appended to some files only. A sync would record this state as complete.
        follower.close(sync=is_between_steps)
