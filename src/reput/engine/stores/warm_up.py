"""Compile kernels before a user has to wait for them.

These kernels write to stores, compare IndexFiles with the log, and answer queries.
"""

from __future__ import annotations

from reput.base import StoreConfig
from reput.core import CommitLogReader, IndexFileReader, OffsetRange, TimeWindow, load_pull_kernel
from reput.core.index.long_chain import chain_pieces
from reput.core.index.window_search import to_be_read
from reput.engine.compare import prove
from reput.engine.stores.opening import open_store
from reput.engine.writer import Message, delete_recovery_point
from reput.format.index_file import index_key, key_hash
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
                _skim(file, reader.commit_log)
            for log_file in reader.commit_log.files:
                reader.known_ranges.learn(log_file, with_ids=True)


def _skim(file: IndexFileReader, log: CommitLogReader) -> None:
    """Run the steps of a query for a frequent key in a time window, so that their kernels are compiled."""
    everywhere = OffsetRange(log.min_offset, log.files_end)
    chain = chain_pieces(file, key_hash(index_key("t", "k")), everywhere)
    for _ in to_be_read(log, chain, TimeWindow(0, 0), 0):
        raise RuntimeError("the query found a message outside its time window")
