"""Small file sizes for tests. A store of default sizes would take 1.4 GB, of memory if /tmp is in memory."""

from dataclasses import replace

from reput.base.config import StoreConfig

SMALL = StoreConfig(
    commit_log_file_bytes=1 << 20, queue_entries=1000, hash_slots=100, index_items=1000
)
# A few dozen messages fill a file of each kind. The name contains the size of a log file.
SMALL_16K = StoreConfig(
    commit_log_file_bytes=1 << 14, queue_entries=50, hash_slots=64, index_items=300
)
SMALL_32K = replace(SMALL_16K, commit_log_file_bytes=1 << 15)
SMALL_64K = replace(SMALL_16K, commit_log_file_bytes=1 << 16)
