"""Damage and doubts in a store, each reported as a `Finding`, and the kinds of findings.

All operations that read, rebuild, export, follow or inspect a store report problems as findings. A finding can be
printed as JSON for programs (`Finding.as_json`, see docs/findings.md) and as one line of text (`str`). Each kind of
finding is defined once, in `Kind`: one record has all that reput knows of it, its severity, remedy, meaning, cost and
repair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Flag, StrEnum, auto
from typing import Any, NamedTuple

from reput.errors import CorruptMessageError, FormatError


class Severity(StrEnum):
    """How much a finding matters."""

    INFO = "info"  # worth knowing; nothing is wrong
    WARNING = "warning"  # unusual, but every message and every entry is there
    DAMAGE = "damage"  # bytes are lost or wrong

    @classmethod
    def worst(cls, severities: Iterable[Severity | None]) -> Severity | None:
        """Return the worst of these severities; None if nothing is wrong."""
        present = set(severities)
        return next((one for one in (cls.DAMAGE, cls.WARNING) if one in present), None)


class Remedy(StrEnum):
    """The remedy of a finding, in words. `repair_command` returns the command."""

    NONE = "nothing to do"
    REBUILD_INDEXES = "rebuild the indexes from the CommitLog"
    RECOVER = "recover the store"
    REMOVE_FILE = "move the file out of the store"
    RESTORE_FILE = "restore the file from a replica or a backup"
    REBUILD_WHEEL = "rebuild the timer wheel from the timer log"


class Repair(Flag):
    """What `reput repair` does to remove a finding."""

    NOTHING = 0
    QUEUES = auto()  # rebuild the ConsumeQueues
    INDEX = auto()  # rebuild the IndexFiles
    CHECKPOINT = auto()  # write the checkpoint
    ABORT = auto()  # remove `abort`, because the repaired store is recovered
    DROP = auto()  # leave the file out of the repaired store
    TRUNCATE = auto()  # cut the end of the log, with --truncate-tail
    SALVAGE = auto()  # fill ranges of the log, with --salvage
    WHEEL = auto()  # write slots of the timer wheel


class _Record(NamedTuple):
    """All that is known of a kind of finding. docs/findings.md has a row per kind.

    Attributes:
        name: The name in JSON, in texts and in docs/findings.
        severity: How much such a finding matters.
        remedy: What to do about it.
        meaning: What is wrong, in words.
        cost: The usual consequence; empty if each finding states its own, or if there is none. With a `noun`, a text
            with two placeholders: the number with its noun, and the time or times at which the messages were stored.
        noun: A noun for the things that a finding's `count` counts, if each belongs to a message.
        repair: What `reput repair` does; NOTHING if it leaves such findings.
        is_unreadable: Whether the finding's range is a part of the log that cannot be read.
        in_check: Whether `reput check` reports it. Then docs/findings has a page of its own for the kind.
    """

    name: str
    severity: Severity
    remedy: Remedy
    meaning: str
    cost: str = ""
    noun: str = ""
    repair: Repair = Repair.NOTHING
    is_unreadable: bool = False
    in_check: bool = True


def _like(
    severity: Severity, remedy: Remedy, repair: Repair = Repair.NOTHING
) -> Callable[..., _Record]:
    """Return a function that creates records of one severity, with one remedy and repair."""

    def record(name: str, meaning: str, **others: Any) -> _Record:
        return _Record(name, severity, remedy, meaning, **{"repair": repair, **others})

    return record


_of_queues = _like(Severity.DAMAGE, Remedy.REBUILD_INDEXES, Repair.QUEUES)
_of_index = _like(Severity.DAMAGE, Remedy.REBUILD_INDEXES, Repair.INDEX)
_loss = _like(Severity.DAMAGE, Remedy.RESTORE_FILE)
_warning = _like(Severity.WARNING, Remedy.NONE)
_info = _like(Severity.INFO, Remedy.NONE)


class Kind(StrEnum):
    """A kind of finding, with the attributes of a `_Record`."""

    severity: Severity
    remedy: Remedy
    meaning: str
    cost: str
    noun: str
    repair: Repair
    is_unreadable: bool
    in_check: bool

    def __new__(cls, *values: Any) -> Kind:
        # The record is a tuple, and an enum passes the fields of a tuple one by one.
        record = _Record(*values)
        kind = str.__new__(cls, record.name)
        kind._value_ = record.name
        for attribute, value in zip(record._fields[1:], record[1:], strict=True):
            setattr(kind, attribute, value)
        return kind

    # The CommitLog
    UNREADABLE_RECORD = _loss(
        "unreadable_record", "bytes of the log that cannot be read as records, although the log continues after them",
        repair=Repair.SALVAGE, is_unreadable=True,
    )  # fmt: skip
    RECORD_SIZE_MISMATCH = _loss(
        "record_size_mismatch", "a record whose TOTALSIZE is not the sum of its parts",
        repair=Repair.SALVAGE, is_unreadable=True,
    )  # fmt: skip
    UNDECODABLE_MESSAGE = _loss(
        "undecodable_message", "a record with a part that cannot be decoded: its hosts, properties or compressed body",
        in_check=False,
    )  # fmt: skip
    BODY_TOO_LARGE = _warning(
        "body_too_large", "a compressed body that exceeds the limit for decompression; readers return it as stored",
        in_check=False,
    )  # fmt: skip
    BODY_CRC = _loss(
        "body_crc", "a record whose body does not match the CRC that it states",
        cost="{} stored {} without the body that was sent", noun="message", repair=Repair.SALVAGE,
    )  # fmt: skip
    RECORD_CRC = _loss(
        "record_crc", "a record of 5.x with a correct body that does not match the CRC of the whole record",
        cost="{} stored {} whose keys, properties or place may be wrong", noun="message",
    )  # fmt: skip
    MISSING_LOG_FILE = _loss(
        "missing_log_file", "offsets between the first and the last file of the log that no file contains",
        cost="all messages of the missing file", is_unreadable=True,
    )  # fmt: skip
    # A repair does not bring these messages back. It removes the index entries that lead to them.
    LOST_LOG_END = _loss(
        "lost_log_end", "the log ends before a message that its index, a queue or the checkpoint knows of",
        repair=Repair.QUEUES,
    )  # fmt: skip
    MISPLACED_RECORD = _loss(
        "misplaced_record", "a record that states another physical offset than its place",
        cost="{} stored {} are at places that no index points to", noun="message",
    )  # fmt: skip
    LOG_FILE_SIZE = _loss(
        "log_file_size", "a CommitLog file of another size than the others, with which a broker does not start",
        cost="a broker refuses the store", repair=Repair.TRUNCATE | Repair.SALVAGE, is_unreadable=True,
    )  # fmt: skip
    LOG_FILE_NAME = _loss(
        "log_file_name", "CommitLog files that overlap: a name is not the offset of its file's first byte",
    )  # fmt: skip
    FOREIGN_LOG_FILE = _Record(
        "foreign_log_file", Severity.WARNING, Remedy.REMOVE_FILE,
        "something in commitlog/ that is not a CommitLog file; a broker does not start with it", repair=Repair.DROP,
    )  # fmt: skip
    TORN_LOG_END = _Record(
        "torn_log_end", Severity.WARNING, Remedy.RECOVER, "unreadable bytes after the last record of the log",
        repair=Repair.TRUNCATE,
    )  # fmt: skip
    UNCOVERED_RANGE = _Record(
        "uncovered_range", Severity.DAMAGE, Remedy.NONE,
        "a range of the log for which nothing shows that the answer has all of its messages",
    )  # fmt: skip
    EXPIRED_UNREAD = _Record(
        "expired_unread", Severity.DAMAGE, Remedy.NONE, "messages that expired before they were read",
        in_check=False,
    )  # fmt: skip

    REPLICA_DIFFERS = _loss(
        "replica_differs", "stores with one cluster and broker name whose logs have different bytes at one offset",
    )  # fmt: skip

    # ConsumeQueues
    PARTIAL_QUEUE_ENTRY = _of_queues(
        "partial_queue_entry", "bytes at the end of a ConsumeQueue file that are not a whole entry",
        in_check=False,
    )  # fmt: skip
    QUEUE_GAP = _of_queues(
        "queue_gap", "an unwritten entry, which ends its queue although later entries are written",
        cost="consumers do not get past it",
    )  # fmt: skip
    QUEUE_DISORDER = _of_queues(
        "queue_disorder", "an entry that leads to an offset before the end of the previous entry's message",
        cost="consumers get messages twice, in the wrong order, or not at all",
    )  # fmt: skip
    FOREIGN_QUEUE_ENTRY = _of_queues(
        "foreign_queue_entry", "an entry that leads to a message of another queue, or of another position in the queue",
        cost="consumers get a message of another queue, or an error",
    )  # fmt: skip
    MISSING_QUEUE_ENTRY = _of_queues(
        "missing_queue_entry", "messages that were dispatched but have no entry in their queue",
        cost="{} stored {} cannot be consumed", noun="message",
    )  # fmt: skip
    QUEUES_DELETED = _of_queues("queues_deleted", "a log with messages but no ConsumeQueue at all")
    MISSING_QUEUE = _of_queues(
        "missing_queue", "a queue with messages in the log that has no ConsumeQueue"
    )
    EMPTY_QUEUE = _warning(
        "empty_queue", "a queue without an entry; only a full check shows whether the log has messages of it",
        cost="if the log has messages of the queue, which a full check shows, they cannot be consumed",
    )  # fmt: skip
    MISSING_QUEUE_FILE = _of_queues(
        "missing_queue_file", "a ConsumeQueue file that is missing between two others",
        cost="its messages cannot be consumed",
    )  # fmt: skip
    QUEUE_FILE_SIZE = _of_queues(
        "queue_file_size", "a ConsumeQueue file of another size than the others, with which a broker does not start",
        cost="a broker refuses the store",
    )  # fmt: skip
    UNCERTAIN_SIZE = _warning(
        "uncertain_size",
        "files of one kind that do not show their size for certain; commands that write need the broker's settings",
    )  # fmt: skip
    WRONG_QUEUE_ENTRY = _of_queues(
        "wrong_queue_entry", "an entry whose size or tags code differs from its message",
        cost="{} stored {} cannot be consumed, or pass a wrong filter", noun="message",
    )  # fmt: skip
    SECOND_QUEUES = _Record(
        "second_queues", Severity.WARNING, Remedy.REBUILD_INDEXES,
        "queues in RocksDB that are not as the log, and that a store also has in files",
        cost="consumers get other messages, or none, if the broker prefers RocksDB (combineCQPreferCQType)",
        repair=Repair.QUEUES,
    )  # fmt: skip
    MISPLACED_QUEUE_ENTRY = _warning(
        "misplaced_queue_entry", "an entry whose number is not the queue offset of its message",
        cost="{} stored {} with another queue offset than stated", noun="message",
    )  # fmt: skip
    LMQ_OFFSETS_RESTARTED = _warning(
        "lmq_offsets_restarted",
        "messages of an %LMQ% queue that were not dispatched because its queue offsets restarted at 0",
        cost="{} stored {} cannot be consumed", noun="message",
    )  # fmt: skip
    TOPIC_RECREATED = _info(
        "topic_recreated",
        "messages of a topic that was deleted and created again: its queues have entries for newer messages only",
        cost="{} stored {} cannot be consumed", noun="message",
    )  # fmt: skip
    TOPIC_DELETED = _info(
        "topic_deleted",
        "messages without a queue whose topic was deleted: it is not in config/topics.json, or it is a Lite topic",
    )  # fmt: skip
    QUEUE_OFFSET_DISORDER = _loss(
        "queue_offset_disorder",
        "a message without an entry whose queue offset does not fit between its neighbours in the log",
    )  # fmt: skip
    UNDISPATCHED_TAIL = _Record(
        "undispatched_tail", Severity.WARNING, Remedy.REBUILD_INDEXES,
        "messages at the end of the log that were not dispatched",
        cost="{} stored {} cannot be consumed until dispatched", noun="message", repair=Repair.QUEUES | Repair.INDEX,
    )  # fmt: skip
    SKIPPED_AT_START = _Record(
        "skipped_at_start", Severity.WARNING, Remedy.RECOVER,
        "a message that the next start of a 5.x broker does not dispatch: it begins where the queues end",
        repair=Repair.QUEUES,
    )  # fmt: skip

    # IndexFiles
    INDEX_FILE_SIZE = _of_index(
        "index_file_size", "an IndexFile whose size does not match its slots and items",
        cost="keys whose items are missing cannot be found",
    )  # fmt: skip
    INDEX_HEADER = _of_index(
        "index_header", "an IndexFile whose header contradicts its slots and items, or the log",
        cost="queries by key skip the file, or miss keys",
    )  # fmt: skip
    INDEX_SLOT = _of_index(
        "index_slot", "a slot that leads to an item that does not exist or belongs to another slot",
        cost="keys of that slot cannot be found",
    )  # fmt: skip
    INDEX_ITEM = _of_index(
        "index_item", "an item with an impossible hash or offset, or a link to an item that cannot precede it",
        cost="keys of that chain cannot be found",
    )  # fmt: skip
    UNREACHABLE_INDEX_ITEM = _of_index(
        "unreachable_index_item", "items that no slot and no other item points to",
        cost="keys of these items, and of items they lead to, cannot be found",
    )  # fmt: skip
    BROKEN_INDEX_CHAIN = _of_index(
        "broken_index_chain", "a chain of items that cannot be followed to its end",
        cost="older keys of that slot cannot be found",
    )  # fmt: skip
    STALE_INDEX_ENTRY = _of_index(
        "stale_index_entry", "an item that points to no message, or to a message without its key",
        cost="a query returns a message without the key, which the client drops",
    )  # fmt: skip
    INDEX_DELETED = _of_index("index_deleted", "a log with keys but no IndexFile at all")
    MISSING_INDEX_ENTRY = _of_index(
        "missing_index_entry", "keys of messages without an entry in any IndexFile",
        cost="{} of messages stored {} cannot be found by key", noun="key",
    )  # fmt: skip
    INDEX_FILE_LOST = _of_index(
        "index_file_lost", "the entries of whole IndexFiles, missing between two others",
        cost="{} of messages stored {} cannot be found by key", noun="key",
    )  # fmt: skip
    DUPLICATE_INDEX_ENTRY = _Record(
        "duplicate_index_entry", Severity.WARNING, Remedy.REBUILD_INDEXES, "repeated entries for a key of a message",
        cost="{} of messages stored {} are returned twice by queries", noun="key", repair=Repair.INDEX,
    )  # fmt: skip
    INDEX_TIME = _of_index(
        "index_time", "an entry or a header whose time differs from its message's",
        cost="{} of messages stored {} are found for the wrong time window", noun="key",
    )  # fmt: skip
    INDEX_FILE_ORDER = _of_index(
        "index_file_order", "IndexFiles whose names do not sort in the order of their contents"
    )
    INDEX_AHEAD_OF_LOG = _of_index(
        "index_ahead_of_log", "entries for messages after the end of the log"
    )
    INDEX_DATABASE = _warning(
        "index_database", "an index of keys in RocksDB that lacks entries, has others, or cannot be read",
    )  # fmt: skip

    MESSAGE_DATABASE = _loss(
        "message_database",
        "a database (5.4) with timers or transactions that is lost, cannot be read, or has a cut manifest",
    )  # fmt: skip

    # Findings about the store's small files, and about the store as a whole
    CHECKPOINT = _Record(
        "checkpoint", Severity.DAMAGE, Remedy.REBUILD_INDEXES,
        "a checkpoint whose size differs from a broker's, or with an impossible time",
        cost="after a crash a broker begins its recovery at the wrong place", repair=Repair.CHECKPOINT,
    )  # fmt: skip
    CHECKPOINT_MISSING = _Record(
        "checkpoint_missing", Severity.WARNING, Remedy.REBUILD_INDEXES, "a store without a checkpoint",
        repair=Repair.CHECKPOINT,
    )  # fmt: skip
    CHECKPOINT_AHEAD = _Record(
        "checkpoint_ahead", Severity.WARNING, Remedy.REBUILD_INDEXES,
        "a checkpoint with a time after the last message, or an offset outside of the log", repair=Repair.CHECKPOINT,
    )  # fmt: skip
    TIMER_MESSAGE_LOST = _loss(
        "timer_message_lost", "timer messages (5.x) that are to be delivered, but that the log no longer has",
    )  # fmt: skip
    TIMER_LOG = _loss(
        "timer_log", "a timer log (5.x) with lost units or files, or with units that do not lead to the previous unit",
    )  # fmt: skip
    TIMER_WHEEL = _Record(
        "timer_wheel", Severity.DAMAGE, Remedy.REBUILD_WHEEL,
        "a timer wheel (5.x) whose slots do not lead to the newest units of the timer log", repair=Repair.WHEEL,
    )  # fmt: skip
    CONFIG_FILE = _loss(
        "config_file", "a JSON file of config/ that a broker cannot read, or that is missing although its .bak exists",
    )  # fmt: skip
    UNCLEAN_SHUTDOWN = _Record(
        "unclean_shutdown", Severity.WARNING, Remedy.RECOVER, "a store that was not shut down cleanly",
        repair=Repair.ABORT,
    )  # fmt: skip
    CRASH_LOSES_INDEX = _Record(
        "crash_loses_index", Severity.WARNING, Remedy.RECOVER,
        "IndexFiles that the next start deletes and does not rebuild whole", repair=Repair.ABORT,
    )  # fmt: skip
    STORE_IN_USE = _info(
        "store_in_use", "a store that is being written: only messages stored before the check began were checked",
    )  # fmt: skip
    DISK_FULL = _warning(
        "disk_full", "a disk without room for one more log file, or that will be full soon",
        in_check=False,
    )  # fmt: skip
    LOG_GROWTH = _warning("log_growth", "a log that grows faster than its limit", in_check=False)
    GROUP_LAG = _warning(
        "group_lag", "consumer groups that are further behind than their limit, in messages or in time",
        in_check=False,
    )  # fmt: skip
    OFFSET_OUTSIDE_QUEUE = _warning(
        "offset_outside_queue", "an offset that a consumer group has committed after the end of a queue",
        in_check=False,
    )  # fmt: skip
    PROOF_OLD = _warning(
        "proof_old", "files that no scrub has proved for longer than the limit", in_check=False
    )
    TIMER_ROLLED_AGAIN = _warning(
        "timer_rolled_again", "messages that the timer has rolled again and again, a known fault of brokers",
    )  # fmt: skip
    COMMITTED_TWICE = _warning(
        "committed_twice", "transactions that were committed more than once, a known fault of brokers",
    )  # fmt: skip
    POP_LOST = _warning(
        "pop_lost", "popped messages that were neither acknowledged nor revived, a known fault of brokers",
    )  # fmt: skip
    NO_NEW_MESSAGE = _warning(
        "no_new_message", "a store whose newest message is older than its limit", in_check=False
    )
    FOREIGN_FILE = _info(
        "foreign_file", "a file with a name that a broker does not use and ignores"
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem and its place.

    Attributes:
        kind: The kind; `severity` and `remedy` follow from it.
        file: The file with the problem.
        detail: The specifics, in words.
        file_offset: Position in the file; None if the problem has no position.
        physical_offset: Offset in the CommitLog of the first lost byte; None if no byte is lost.
        length: Bytes lost, in the CommitLog or in the file; 0 if unknown or if no byte is lost.
        count: Number of similar findings, of which this one is the first; 1 if it is the only one.
        cost: Consequence of the problem, in words; empty if unknown.
        at_next_start: What a broker does about the problem at its next start, in words; empty if unknown.
    """

    kind: Kind
    file: str
    detail: str
    file_offset: int | None = None
    physical_offset: int | None = None
    length: int = 0
    count: int = 1
    cost: str = ""
    at_next_start: str = ""

    @classmethod
    def of_error(cls, kind: Kind, error: FormatError, remark: str = "") -> Finding:
        """Return the finding for an error about a file. `remark` is appended to the error's reason."""
        return cls(kind, error.path, f"{error.reason}{remark}", file_offset=error.offset)

    def as_error(self, advice: str = "", arguments: Iterable[str] = ()) -> CorruptMessageError:
        """Return an error with the content of the finding, for callers that cannot continue.

        Raises ValueError if the finding reports no lost bytes of the CommitLog.
        """
        return CorruptMessageError(
            self.file, self.file_offset or 0, f"{self._loss}{self.detail}{advice}", self.start,
            arguments=arguments,
        )  # fmt: skip

    @property
    def severity(self) -> Severity:
        return self.kind.severity

    @property
    def remedy(self) -> Remedy:
        return self.kind.remedy

    @property
    def is_wrong(self) -> bool:
        """Return True for a warning or damage, False for information (Severity.INFO)."""
        return self.severity is not Severity.INFO

    @property
    def start(self) -> int:
        """Return the physical offset of the first byte lost. Raises ValueError if no byte of the CommitLog is lost."""
        if self.physical_offset is None:
            raise ValueError(f"a finding without a physical offset: {self}")
        return self.physical_offset

    @property
    def stop(self) -> int:
        """Return the physical offset after the last byte lost. Raises ValueError if no byte of the log is lost."""
        return self.start + self.length

    def __str__(self) -> str:
        place = self.file if self.file_offset is None else f"{self.file}: offset {self.file_offset}"
        if self.physical_offset is not None and self.physical_offset != self.file_offset:
            place += f": physical offset {self.physical_offset}"
        total = f" ({self.count:,} in all)" if self.count > 1 else ""
        return f"{place}: {self._loss}{self.detail}{total}"

    @property
    def _loss(self) -> str:
        if not self.length:
            return ""
        return f"{self.length} {'byte' if self.length == 1 else 'bytes'} lost: "

    def as_json(self) -> dict[str, Any]:
        """Return all fields as values for json.dumps; every JSON output has findings in this form."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "file": self.file,
            "file_offset": self.file_offset,
            "physical_offset": self.physical_offset,
            "length": self.length,
            "count": self.count,
            "detail": self.detail,
            "cost": self.cost,
            "at_next_start": self.at_next_start,
            "remedy": self.remedy,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Finding:
        """Return the finding from the result of `as_json`. Raises KeyError for other values."""
        values = {field.name: stored[field.name] for field in fields(cls)}
        return cls(**{**values, "kind": Kind[stored["kind"].upper()]})
