"""Compile kernels before a user has to wait for them.

These kernels write to stores, compare IndexFiles with the log, and answer queries.
"""

from __future__ import annotations

from reput.base import StoreConfig
from reput.core import load_pull_kernel, warm_up_window_search
from reput.engine.compare import prove
from reput.engine.stores.opening import open_store
from reput.engine.writer import Message, delete_recovery_point
from reput.io import Disk, Scratch

_CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 16, queue_entries=16, hash_slots=4, index_items=64
)  # fmt: skip


def warm_up() -> None:
    """Compile kernels by using a small store: put messages with every put method, recover the store, and read it.

    See `reput.engine.rebuild.warm_up`.
    """
    message = Message("t", b"body", keys="k", tags="a")
    with Scratch.folder() as folder:
        with open_store(folder, mode="rw", config=_CONFIG) as store:
            store.put(message)
            store.put_many([message] * 2)
            store.put_batch([message] * 2)
            store.put_columns({"topic": ["t"], "body": [b"body"], "keys": ["k"]})
            store.wait_dispatched()
        # Delete the recovery point, so that the next writer compares the queues with the whole log. The comparison
        # compiles the kernels that recovery uses.
        delete_recovery_point(folder, Disk())
        with open_store(folder, mode="rw", config=_CONFIG) as store:
            store.put(message)
        load_pull_kernel()
        with open_store(folder, config=_CONFIG) as reader:
            for file in reader.index.current():
                prove(file, reader.commit_log)
                warm_up_window_search(file, reader.commit_log)
            for log_file in reader.commit_log.files:
                reader.known_ranges.learn(log_file, with_ids=True)
