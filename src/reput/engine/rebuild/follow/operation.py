"""Maintain indexes of a log that another process writes, for `reput rebuild --follow`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from reput.base import Progress, StoreConfig, checked, silent
from reput.core import log_bytes
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.follow.driver import follow_store
from reput.engine.rebuild.follow.report import FollowReport
from reput.engine.rebuild.report import RebuildReport
from reput.engine.rebuild.warm_up import warm_up
from reput.engine.stores import Chosen, opened_runner

Shown = Callable[[], AbstractContextManager[Progress]]
"""A function that returns a context manager, which shows the progress of the first rebuild."""


@checked
def follow(
    store: str | PathLike[str],
    output: str | PathLike[str],
    *,
    config: StoreConfig | None = None,
    split_size: int | None = None,
    runner: Any = "auto",
    shown: Shown = lambda: nullcontext(silent),
    **calls: Any,
) -> FollowReport:
    """Maintain indexes for a growing log until stopped. Missing indexes are first rebuilt with the runner.

    Args:
        store: A store directory, which another process may be writing.
        output: The folder for the indexes, which must not be the store.
        config: As for `follow_store`.
        split_size: Bytes of CommitLog per scan task of the rebuild.
        runner: The runner of the rebuild, as for `reput.rebuild`.
        shown: Shows the progress of the rebuild.
        calls: `stop` and other callbacks, as for `follow_store`.

    Raises the errors of `follow_store` and `reput.rebuild`.
    """
    rebuild = partial(_rebuild, Chosen.of(runner), shown, split_size)
    return follow_store(Path(store), Path(output), rebuild, config=config, **calls)


def _rebuild(
    choice: Chosen, bars: Shown, split_size: int | None, store: Path, output: Path, config: StoreConfig
) -> RebuildReport:  # fmt: skip
    with bars() as progress, opened_runner(choice, log_bytes(store), warm_up) as tasks:
        return rebuild_store(
            tasks, store, config=config, output=output, queues="files", split_size=split_size,
            progress=progress,
        )  # fmt: skip
