"""Files of a size for tests: a store of the default sizes takes 1.4 GB, of memory where the files lie in it."""

from reput.config import StoreConfig

SMALL = StoreConfig(
    commit_log_file_bytes=1 << 20, queue_entries=1000, hash_slots=100, index_items=1000
)
