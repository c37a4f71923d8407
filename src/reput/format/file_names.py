"""Name a store's folders and files (`StorePathConfigHelper`, `BrokerPathConfigHelper`, `UtilAll.offset2FileName`).

CommitLog and ConsumeQueue files are named by the offset of their first byte in 20 digits. An IndexFile is named by the
local time of its creation, yyyyMMddHHmmssSSS, so that names sort in order of creation. `abort` is empty. It exists
while a broker runs, and after a crash. `lock` contains its own name. A running broker locks its first byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from reput.format.java_string import decimal_number, encode_utf8, parse_int64

COMMIT_LOG_FOLDER = "commitlog"
RESTORING_FOLDER = ".reput-restoring"
"""Name of the folder, in the destination, in which a restore keeps the unfinished store."""
CONSUME_QUEUE_FOLDER = "consumequeue"
BATCH_QUEUE_FOLDER = "batchconsumequeue"
QUEUE_DATABASE_FOLDER = "consumequeue_rocksdb"
"""The database of queues in a folder of its own (`useSeparateStorePathForRocksdbCQ`, 5.5)."""
DATABASE_SIGN = "CURRENT"
"""The file that RocksDB has in the folder of each database. It names the current manifest."""
EXTENSION_FOLDER = "consumequeue_ext"
INDEX_FOLDER = "index"
QUEUE_FOLDERS = (
    CONSUME_QUEUE_FOLDER, BATCH_QUEUE_FOLDER, EXTENSION_FOLDER, QUEUE_DATABASE_FOLDER,
)  # fmt: skip
"""All folders that a rebuild of the queues replaces. A store of 4.9 has the first, and possibly the third."""
CHECKPOINT_FILE = "checkpoint"
ABORT_FILE = "abort"
ABORT_COPY_FILE = "abort.bak"
LOCK_FILE = "lock"
RECOVERY_POINT_FILE = "reput.known"
"""The recovery point of reput (`reput.engine.writer.recovery.recovery_point`), in a store to which reput writes."""
OWNER_FILE = "reput.owner"
"""The owner of a store (`OwnerRecord`), while reput writes to the store, and after a crash."""
CUT_FOLDER = "reput.cut"
"""Copies of messages that recovery removed from the end of the log (`reput.engine.writer.recovery.cut_end`)."""

CONFIG_FOLDER = "config"
TOPICS_FILE = "topics.json"
CONSUMER_OFFSET_FILE = "consumerOffset.json"
CONSUMER_ORDER_FILE = "consumerOrderInfo.json"
DELAY_OFFSET_FILE = "delayOffset.json"
SUBSCRIPTION_GROUP_FILE = "subscriptionGroup.json"
CONSUMER_FILTER_FILE = "consumerFilter.json"
TOPIC_QUEUE_MAPPING_FILE = "topicQueueMapping.json"
TIMER_CHECK_FILE = "timercheck"
TIMER_METRICS_FILE = "timermetrics"
LMQ_OFFSET_FILE = "lmqConsumerOffset.json"
ROCKSDB_OFFSETS_FOLDER = "consumerOffsets"
ROCKSDB_TOPICS_FOLDER = "topics"
ROCKSDB_GROUPS_FOLDER = "subscriptionGroups"
ROCKSDB_CONFIG_FOLDER = "rdb"
ROCKSDB_SINGLE_FOLDER = "metadata"
ROCKSDB_CONFIGS = (
    ROCKSDB_CONFIG_FOLDER, ROCKSDB_SINGLE_FOLDER, ROCKSDB_TOPICS_FOLDER, ROCKSDB_GROUPS_FOLDER,
    ROCKSDB_OFFSETS_FOLDER,
)  # fmt: skip
"""All databases in config/ that a broker may have."""

LEDGER_PREFIX, LEDGER_DATA_FOLDER = "dledger-", "data"
COMPACTION_FOLDER = "compaction"
COMPACTION_LOG_FOLDER = "compactionLog"
COMPACTION_POSITIONS_FILE = "position-checkpoint"
COMPACTION_QUEUE_FOLDER = "compactionCq"
TIMER_LOG_FOLDER = "timerlog"
TIMER_WHEEL_FILE = "timerwheel"
EPOCH_FILE = "epochFileCheckpoint"
IDENTITY_FILE = "brokerIdentity"
KV_STORE_FOLDER = "kvStore"
TIERED_FOLDER = "tiered"
TIERED_INDEX_FOLDER = "tiered_index_file"
MESSAGE_DATABASE_FOLDERS = ("RocksDBMessageStore", "rocksdbstore")
"""Folders of the database with key index, timers and transactions (`MessageRocksDBStorage`): in 5.4, and in 5.5."""

ARCHIVE_MANIFEST = "archive.json"
"""The manifest of an archive."""

# Common file systems limit a name to this many bytes.
_MAX_NAME_BYTES = 255
_OFFSET_DIGITS = 20
# The number of digits of Java's largest int.
_ID_DIGITS = 10
_INDEX_TIME = "%Y%m%d%H%M%S%f"
_EPOCH = datetime(1970, 1, 1)
_MS = timedelta(milliseconds=1)


def offset_file_name(offset: int) -> str:
    return f"{offset:0{_OFFSET_DIGITS}d}"


def parse_offset_file_name(name: str) -> int | None:
    """Return the offset that a file name consists of; None if the name is not an offset of 20 digits."""
    return decimal_number(name, _OFFSET_DIGITS) if len(name) == _OFFSET_DIGITS else None


def parse_queue_id(name: str) -> int | None:
    """Return the queue id that a folder's name states; None if no queue can have this name."""
    return decimal_number(name, _ID_DIGITS)


def is_folder_name(topic: str) -> bool:
    """Return whether a topic is a valid folder name.

    A broker accepts only such topics, but a damaged or hostile log can contain any string.
    """
    special = topic in ("", ".", "..") or "/" in topic or "\0" in topic
    return not special and len(encode_utf8(topic)) <= _MAX_NAME_BYTES


def is_index_file_name(name: str) -> bool:
    """Return whether the broker loads a file of this name from `index/`. Long.parseLong must accept the name."""
    try:
        parse_int64(name)
    except ValueError:
        return False
    return True


def index_file_names(first_timestamps: Sequence[int], now_ms: int) -> list[str]:
    """Return names for IndexFiles whose first entries were stored at these times (ms), oldest file first.

    The names are unique and ascending for any times, and all are earlier than `now_ms`: a broker that continues the
    store names its next file by its clock, and the name of this file must sort after all other names. Like a broker,
    use local time in names.
    """
    # A name is a time in milliseconds. Each name must be later than the previous name, and all names must be
    # earlier than `now_ms`. So with n files, the first name must not be later than `latest`, which is n ms before
    # `now_ms`. The limit of each further name is 1 ms later than the limit of the previous name.
    latest = _local_ms(now_ms) - len(first_timestamps)
    names, previous = [], 0
    for number, timestamp in enumerate(first_timestamps):
        local = _local_ms(min(max(timestamp, 0), now_ms))
        previous = min(max(local, previous + 1), latest + number)
        names.append((_EPOCH + previous * _MS).strftime(_INDEX_TIME)[:-3])
    return names


def _local_ms(timestamp: int) -> int:
    """Return the time of the local clock at `timestamp`, in milliseconds since 1970-01-01T00:00 local time."""
    # Convert whole seconds only, because fractions in floating point are not exact.
    face = datetime.fromtimestamp(timestamp // 1000)
    return (face - _EPOCH) // _MS + timestamp % 1000


def index_file_name_of(previous: str | None, first_timestamp: int, now_ms: int) -> str:
    """Return the name that `index_file_names` gives to the file after `previous`.

    Args:
        previous: name of the previous file; None for the first file.
        first_timestamp: store time (ms) of the file's first entry.
        now_ms: current time.
    """
    # As in `index_file_names`, the time in a name is at least 1 ms after the epoch.
    local = max(_local_ms(min(max(first_timestamp, 0), now_ms)), 1)
    if previous is not None:
        try:
            before = (datetime.strptime(f"{previous}000", _INDEX_TIME) - _EPOCH) // _MS
        # The name of the previous file is a number, but not a time. A broker never creates such a file, but loads it.
        except ValueError:
            return next_index_file_name(previous, first_timestamp)
        local = max(local, before + 1)
    return (_EPOCH + local * _MS).strftime(_INDEX_TIME)[:-3]


def next_index_file_name(previous: str | None, now_ms: int) -> str:
    """Return the name of an IndexFile created at `now_ms`.

    `previous` is the name of the previous IndexFile, or None. The digits of the new name are normally the time
    `now_ms`. But if such a name would not sort after `previous`, the new name is the number `previous` plus one.

    In RocketMQ: timeMillisToHumanString.
    """
    name = (_EPOCH + _local_ms(now_ms) * _MS).strftime(_INDEX_TIME)[:-3]
    return name if previous is None or previous < name else f"{int(previous) + 1:0{len(name)}d}"


def whole_size(starts: Sequence[int]) -> int:
    """Return the size of files that are named by their starts: the least distance between them; 0 if unknown."""
    return min((after - before for before, after in pairwise(starts)), default=0)
