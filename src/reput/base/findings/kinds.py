"""The kinds of findings: name, severity, remedy and meaning."""

from __future__ import annotations

from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    INFO = "info"  # worth knowing; nothing is wrong
    WARNING = "warning"  # unusual, but every message and every entry is there
    DAMAGE = "damage"  # bytes are lost or wrong


class Remedy(StrEnum):
    """The remedy of a finding, in words. `reput.engine.check.operation.repair_command` returns the command."""

    NONE = "nothing to do"
    REBUILD_INDEXES = "rebuild the indexes from the CommitLog"
    RECOVER = "recover the store"
    REMOVE_FILE = "move the file out of the store"
    RESTORE_FILE = "restore the file from a replica or a backup"


class Kind(StrEnum):
    """A kind of finding: its name, severity, remedy and meaning."""

    severity: Severity
    remedy: Remedy
    meaning: str

    def __new__(cls, name: str, severity: Severity, remedy: Remedy, meaning: str) -> Kind:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.severity, kind.remedy, kind.meaning = severity, remedy, meaning
        return kind

    # The CommitLog
    UNREADABLE_RECORD = (
        "unreadable_record", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "bytes of the log that cannot be read as records, although the log continues after them",
    )  # fmt: skip
    RECORD_SIZE_MISMATCH = (
        "record_size_mismatch", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "a record whose TOTALSIZE is not the sum of its parts",
    )  # fmt: skip
    UNDECODABLE_MESSAGE = (
        "undecodable_message", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "a record with a part that cannot be decoded: its hosts, properties or compressed body",
    )  # fmt: skip
    BODY_TOO_LARGE = (
        "body_too_large", Severity.WARNING, Remedy.NONE,
        "a compressed body that exceeds the limit for decompression; readers return it as stored",
    )  # fmt: skip
    BODY_CRC = (
        "body_crc", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "a record whose body does not match the CRC that it states",
    )  # fmt: skip
    RECORD_CRC = (
        "record_crc", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "a record of 5.x with a correct body that does not match the CRC of the whole record",
    )  # fmt: skip
    MISSING_LOG_FILE = (
        "missing_log_file", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "offsets between the first and the last file of the log that no file contains",
    )  # fmt: skip
    LOST_LOG_END = (
        "lost_log_end", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "the log ends before a message that its index, a queue or the checkpoint knows of",
    )  # fmt: skip
    MISPLACED_RECORD = (
        "misplaced_record", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "a record that states another physical offset than its place",
    )  # fmt: skip
    LOG_FILE_SIZE = (
        "log_file_size", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "a CommitLog file of another size than the others, with which a broker does not start",
    )  # fmt: skip
    LOG_FILE_NAME = (
        "log_file_name", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "CommitLog files that overlap: a name is not the offset of its file's first byte",
    )  # fmt: skip
    FOREIGN_LOG_FILE = (
        "foreign_log_file", Severity.WARNING, Remedy.REMOVE_FILE,
        "something in commitlog/ that is not a CommitLog file; a broker does not start with it",
    )  # fmt: skip
    TORN_LOG_END = (
        "torn_log_end", Severity.WARNING, Remedy.RECOVER,
        "unreadable bytes after the last record of the log",
    )  # fmt: skip
    UNCOVERED_RANGE = (
        "uncovered_range", Severity.DAMAGE, Remedy.NONE,
        "a range of the log for which nothing shows that the answer has all of its messages",
    )  # fmt: skip
    EXPIRED_UNREAD = (
        "expired_unread", Severity.DAMAGE, Remedy.NONE,
        "messages that expired before they were read",
    )  # fmt: skip

    REPLICA_DIFFERS = (
        "replica_differs", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "stores with one cluster and broker name whose logs have different bytes at one offset",
    )  # fmt: skip

    # ConsumeQueues
    PARTIAL_QUEUE_ENTRY = (
        "partial_queue_entry", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "bytes at the end of a ConsumeQueue file that are not a whole entry",
    )  # fmt: skip
    QUEUE_GAP = (
        "queue_gap", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "an unwritten entry, which ends its queue although later entries are written",
    )  # fmt: skip
    QUEUE_DISORDER = (
        "queue_disorder", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "an entry that leads to an offset before the end of the previous entry's message",
    )  # fmt: skip
    FOREIGN_QUEUE_ENTRY = (
        "foreign_queue_entry", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "an entry that leads to a message of another queue, or of another position in the queue",
    )  # fmt: skip
    MISSING_QUEUE_ENTRY = (
        "missing_queue_entry", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "messages that were dispatched but have no entry in their queue",
    )  # fmt: skip
    QUEUES_DELETED = (
        "queues_deleted", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "a log with messages but no ConsumeQueue at all",
    )  # fmt: skip
    MISSING_QUEUE = (
        "missing_queue", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "a queue with messages in the log that has no ConsumeQueue",
    )  # fmt: skip
    MISSING_QUEUE_FILE = (
        "missing_queue_file", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "a ConsumeQueue file that is missing between two others",
    )  # fmt: skip
    QUEUE_FILE_SIZE = (
        "queue_file_size", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "a ConsumeQueue file of another size than the others, with which a broker does not start",
    )  # fmt: skip
    UNCERTAIN_SIZE = (
        "uncertain_size", Severity.WARNING, Remedy.NONE,
        "files of one kind that do not show their size for certain; commands that write need the broker's settings",
    )  # fmt: skip
    WRONG_QUEUE_ENTRY = (
        "wrong_queue_entry", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "an entry whose size or tags code differs from its message",
    )  # fmt: skip
    MISPLACED_QUEUE_ENTRY = (
        "misplaced_queue_entry", Severity.WARNING, Remedy.NONE,
        "an entry whose number is not the queue offset of its message",
    )  # fmt: skip
    LMQ_OFFSETS_RESTARTED = (
        "lmq_offsets_restarted", Severity.WARNING, Remedy.NONE,
        "messages of an %LMQ% queue that were not dispatched because its queue offsets restarted "
        "at 0",
    )  # fmt: skip
    TOPIC_RECREATED = (
        "topic_recreated", Severity.INFO, Remedy.NONE,
        "messages of a topic that was deleted and created again: its queues have entries for newer messages only",
    )  # fmt: skip
    TOPIC_DELETED = (
        "topic_deleted", Severity.INFO, Remedy.NONE,
        "messages without a queue whose topic is not in config/topics.json: the topic was deleted",
    )  # fmt: skip
    QUEUE_OFFSET_DISORDER = (
        "queue_offset_disorder", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "a message without an entry whose queue offset does not fit between its neighbours in the log",
    )  # fmt: skip
    UNDISPATCHED_TAIL = (
        "undispatched_tail", Severity.WARNING, Remedy.REBUILD_INDEXES,
        "messages at the end of the log that were not dispatched",
    )  # fmt: skip
    SKIPPED_AT_START = (
        "skipped_at_start", Severity.WARNING, Remedy.RECOVER,
        "a message that the next start of a 5.x broker does not dispatch: it begins where the queues end",
    )  # fmt: skip

    # IndexFiles
    INDEX_FILE_SIZE = (
        "index_file_size", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "an IndexFile whose size does not match its slots and items",
    )  # fmt: skip
    INDEX_HEADER = (
        "index_header", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "an IndexFile whose header contradicts its slots and items, or the log",
    )  # fmt: skip
    INDEX_SLOT = (
        "index_slot", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "a slot that leads to an item that does not exist or belongs to another slot",
    )  # fmt: skip
    INDEX_ITEM = (
        "index_item", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "an item with an impossible hash or offset, or a link to an item that cannot precede it",
    )  # fmt: skip
    UNREACHABLE_INDEX_ITEM = (
        "unreachable_index_item", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "items that no slot and no other item points to",
    )  # fmt: skip
    BROKEN_INDEX_CHAIN = (
        "broken_index_chain", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "a chain of items that cannot be followed to its end",
    )  # fmt: skip
    STALE_INDEX_ENTRY = (
        "stale_index_entry", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "an item that points to no message, or to a message without its key",
    )  # fmt: skip
    INDEX_DELETED = (
        "index_deleted", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "a log with keys but no IndexFile at all",
    )  # fmt: skip
    MISSING_INDEX_ENTRY = (
        "missing_index_entry", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "keys of messages without an entry in any IndexFile",
    )  # fmt: skip
    INDEX_FILE_LOST = (
        "index_file_lost", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "the entries of whole IndexFiles, missing between two others",
    )  # fmt: skip
    DUPLICATE_INDEX_ENTRY = (
        "duplicate_index_entry", Severity.WARNING, Remedy.REBUILD_INDEXES,
        "repeated entries for a key of a message",
    )  # fmt: skip
    INDEX_TIME = (
        "index_time", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "an entry or a header whose time differs from its message's",
    )  # fmt: skip
    INDEX_FILE_ORDER = (
        "index_file_order", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "IndexFiles whose names do not sort in the order of their contents",
    )  # fmt: skip
    INDEX_AHEAD_OF_LOG = (
        "index_ahead_of_log", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "entries for messages after the end of the log",
    )  # fmt: skip
    INDEX_DATABASE = (
        "index_database", Severity.WARNING, Remedy.NONE,
        "an index of keys in RocksDB that lacks entries, has others, or cannot be read",
    )  # fmt: skip

    # Findings about the store's small files, and about the store as a whole
    CHECKPOINT = (
        "checkpoint", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "a checkpoint whose size differs from a broker's, or with an impossible time",
    )  # fmt: skip
    CHECKPOINT_MISSING = (
        "checkpoint_missing", Severity.WARNING, Remedy.REBUILD_INDEXES,
        "a store without a checkpoint",
    )  # fmt: skip
    CHECKPOINT_AHEAD = (
        "checkpoint_ahead", Severity.WARNING, Remedy.REBUILD_INDEXES,
        "a checkpoint with a time after the last message, or an offset outside of the log",
    )  # fmt: skip
    TIMER_MESSAGE_LOST = (
        "timer_message_lost", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "timer messages (5.x) that are to be delivered, but that the log no longer has",
    )  # fmt: skip
    CONFIG_FILE = (
        "config_file", Severity.DAMAGE, Remedy.RESTORE_FILE,
        "a JSON file of config/ that a broker cannot read, or that is missing although its .bak exists",
    )  # fmt: skip
    UNCLEAN_SHUTDOWN = (
        "unclean_shutdown", Severity.WARNING, Remedy.RECOVER,
        "a store that was not shut down cleanly",
    )  # fmt: skip
    CRASH_LOSES_INDEX = (
        "crash_loses_index", Severity.WARNING, Remedy.RECOVER,
        "IndexFiles that the next start deletes and does not rebuild whole",
    )  # fmt: skip
    STORE_IN_USE = (
        "store_in_use", Severity.INFO, Remedy.NONE,
        "a store that is being written: only messages stored before the check began were checked",
    )  # fmt: skip
    DISK_FULL = (
        "disk_full", Severity.WARNING, Remedy.NONE,
        "a disk without room for one more log file, or that will be full soon",
    )  # fmt: skip
    LOG_GROWTH = (
        "log_growth", Severity.WARNING, Remedy.NONE,
        "a log that grows faster than its limit",
    )  # fmt: skip
    GROUP_LAG = (
        "group_lag", Severity.WARNING, Remedy.NONE,
        "consumer groups that are further behind than their limit, in messages or in time",
    )  # fmt: skip
    OFFSET_OUTSIDE_QUEUE = (
        "offset_outside_queue", Severity.WARNING, Remedy.NONE,
        "an offset that a consumer group has committed after the end of a queue",
    )  # fmt: skip
    PROOF_OLD = (
        "proof_old", Severity.WARNING, Remedy.NONE,
        "files that no scrub has proved for longer than the limit",
    )  # fmt: skip
    TIMER_ROLLED_AGAIN = (
        "timer_rolled_again", Severity.WARNING, Remedy.NONE,
        "messages that the timer has rolled again and again, a known fault of brokers",
    )  # fmt: skip
    COMMITTED_TWICE = (
        "committed_twice", Severity.WARNING, Remedy.NONE,
        "transactions that were committed more than once, a known fault of brokers",
    )  # fmt: skip
    POP_LOST = (
        "pop_lost", Severity.WARNING, Remedy.NONE,
        "popped messages that were neither acknowledged nor revived, a known fault of brokers",
    )  # fmt: skip
    NO_NEW_MESSAGE = (
        "no_new_message", Severity.WARNING, Remedy.NONE,
        "a store whose newest message is older than its limit",
    )  # fmt: skip
    FOREIGN_FILE = (
        "foreign_file", Severity.INFO, Remedy.NONE,
        "a file with a name that a broker does not use and ignores",
    )  # fmt: skip
