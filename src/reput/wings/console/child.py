"""The main function of a child process, which runs searches by content for `reput.wings.console.children`."""

from __future__ import annotations

import os
import resource
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from time import monotonic

from reput.base import Finding
from reput.core import ReaderOptions
from reput.engine.writer import SharedStore
from reput.errors import ReputError, WorkerLostError
from reput.wings.console.children import ChildStep, Job, LiveJob
from reput.wings.console.mounts import Until
from reput.wings.console.new_rows import new_rows
from reput.wings.console.searching import Outcome, Share, swept
from reput.wings.console.users import CURRENT

_MEMORY_BYTES = 2 << 30
"""Memory of a child, mapped files excluded. A search needs some 200 MB."""
_IDLE_S = 30.0
"""Time after which a child without a search ends. Until then it may keep the space of expired log files."""
_MOST_STORES = 4
_NICENESS = 5


def main(descriptor: int) -> None:
    """Answer the searches that arrive on a socket, until it is closed or silent."""
    _limit()
    stores: OrderedDict[str, SharedStore] = OrderedDict()
    connection = Connection(descriptor)
    with suppress(EOFError, OSError):
        while connection.poll(_IDLE_S):
            job: Job | None = connection.recv()
            if job is None:
                connection.send(None)
                continue
            for step in _steps(stores, job):
                connection.send(step)


def _steps(stores: OrderedDict[str, SharedStore], job: Job) -> Iterator[ChildStep]:
    CURRENT.set(job.user)
    problems, sent = list[Finding](), 0
    try:
        if isinstance(job, LiveJob):
            tails = [(name, partial(_open, stores, path, how)) for name, path, how in job.stores]
            yield ChildStep(new_rows(tails, job.predicate, job.cursors, job.content), is_last=True)
            return
        store = _open(stores, job.path, job.settings)
        until = Until(monotonic() + job.search_s)
        for value in swept(store, job.form, Share(job.share_bytes), until, problems):
            news = tuple(problems) if len(problems) > sent else None
            sent = len(problems)
            yield ChildStep(value, news, isinstance(value, Outcome))
    except ReputError as error:
        yield ChildStep(error, is_last=True)
    except MemoryError:
        text = f"the search needs more than {_MEMORY_BYTES >> 20:,} MiB of memory"
        yield ChildStep(WorkerLostError(text), is_last=True)


def _open(stores: OrderedDict[str, SharedStore], path: str, settings: ReaderOptions) -> SharedStore:
    """Return the store of a search. A few stores stay open, because their readers know the times of their logs."""
    name = repr((path, settings))
    store = stores.pop(name, None) or SharedStore(path, **settings)
    stores[name] = store
    while len(stores) > _MOST_STORES:
        stores.popitem(last=False)[1].close()
    return store


def _limit() -> None:
    """Limit memory, and let the server run before this process."""
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = _MEMORY_BYTES if most < 0 else min(_MEMORY_BYTES, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    with suppress(OSError, AttributeError):
        os.nice(_NICENESS)


if __name__ == "__main__":
    main(int(sys.argv[1]))
