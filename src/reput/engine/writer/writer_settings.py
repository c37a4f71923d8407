"""Settings of a writable store that do not affect its bytes (`MessageStoreConfig`, tag rocketmq-all-4.9.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from os import PathLike, fspath
from typing import Any, Literal, TypedDict

from reput.base import StoreConfig, check_fields, read_properties, whole_number
from reput.engine.writer.retention import RetentionLimits
from reput.errors import UsageError
from reput.format.host import Host

_STORE_HOST = Host("127.0.0.1", 10911)
_FLUSH = {"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}
_NOT_NEGATIVE = (
    "flush_interval_commit_log_s", "flush_commit_log_least_pages",
    "flush_commit_log_thorough_interval_s", "flush_interval_consume_queue_s",
    "flush_consume_queue_least_pages", "flush_consume_queue_thorough_interval_s",
    "append_retry_pause_s",
)  # fmt: skip


class WriterOptions(TypedDict, total=False):
    """The fields of `WriterSettings` as named arguments of `open_store`. None keeps the value of the setting."""

    flush: Literal["async", "sync"] | None
    flush_interval_commit_log_s: float | None
    flush_commit_log_least_pages: int | None
    flush_commit_log_thorough_interval_s: float | None
    flush_interval_consume_queue_s: float | None
    flush_consume_queue_least_pages: int | None
    flush_consume_queue_thorough_interval_s: float | None
    append_retry_pause_s: float | None
    store_host: Host | None
    file_reserved_hours: float | None
    delete_when: str | None
    disk_max_used_space_ratio: float | None
    max_commit_log_bytes: int | None
    clean_resource_interval_s: float | None
    store_path_commit_log: str | None
    as_broker: bool | None


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Settings of a writable store: flushing, the address in records, and retention.

    Raises UsageError for invalid values. Intervals are in seconds. A broker's intervals are in milliseconds.

    Attributes:
        flush: 'async' to flush at intervals, 'sync' to flush before a put returns (flushDiskType).
        flush_interval_commit_log_s: Interval between two flushes of the log (flushIntervalCommitLog).
        flush_commit_log_least_pages: Minimum number of dirty pages for a flush (flushCommitLogLeastPages).
        flush_commit_log_thorough_interval_s: Interval after which any dirty page is flushed
            (flushCommitLogThoroughInterval).
        flush_interval_consume_queue_s: Interval between two flushes of ConsumeQueues (flushIntervalConsumeQueue).
        flush_consume_queue_least_pages: Minimum number of dirty pages of a queue for a flush
            (flushConsumeQueueLeastPages).
        flush_consume_queue_thorough_interval_s: Interval after which all queues, IndexFiles and the checkpoint are
            flushed (flushConsumeQueueThoroughInterval).
        append_retry_pause_s: Pause before each retry of a failed append to a ConsumeQueue (at most 30 tries).
        store_host: Address that is written into each record as its store host.
        file_reserved_hours, delete_when, disk_max_used_space_ratio, max_commit_log_bytes: See RetentionLimits. By
            default nothing is deleted.
        clean_resource_interval_s: Interval between two checks of the retention limits (cleanResourceInterval).
        store_path_commit_log: Folder to which the store's commitlog/ may be a link (storePathCommitLog).
        as_broker: End a damaged log where a broker ends it, even if readable messages follow. A copy is kept.

    In RocketMQ: getFlushIntervalConsumeQueue, getFlushConsumeQueueLeastPages, getFlushConsumeQueueThoroughInterval,
    lastFlushTimestamp.
    """

    flush: str = "async"
    flush_interval_commit_log_s: float = 0.5
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval_s: float = 10.0
    flush_interval_consume_queue_s: float = 1.0
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval_s: float = 60.0
    append_retry_pause_s: float = 1.0
    store_host: Host = _STORE_HOST
    file_reserved_hours: float | None = None
    delete_when: str | None = None
    disk_max_used_space_ratio: float | None = None
    max_commit_log_bytes: int | None = None
    clean_resource_interval_s: float = 10.0
    store_path_commit_log: str | None = None
    as_broker: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.flush not in ("async", "sync"):
            raise UsageError(f"flush must be 'async' or 'sync', not {self.flush!r}")
        if not self.clean_resource_interval_s > 0:
            raise UsageError(
                f"clean_resource_interval_s must be above 0, not {self.clean_resource_interval_s}"
            )
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} must be at least 0, not {getattr(self, name)}")
        self.limits()

    def limits(self) -> RetentionLimits:
        """Return the retention limits."""
        return RetentionLimits(
            self.file_reserved_hours, self.disk_max_used_space_ratio, self.max_commit_log_bytes,
            self.delete_when,
        )  # fmt: skip

    def changed(self, given: Mapping[str, Any]) -> WriterSettings:
        """Return a copy with the given values. A value of None keeps the present value. Raises UsageError."""
        unknown = given.keys() - {field.name for field in fields(WriterSettings)}
        if unknown:
            raise UsageError(f"open_store: a writable store has no setting {sorted(unknown)[0]!r}")
        return replace(self, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings of a store in a `broker.conf`.

    Attributes:
        ignored: Names of store settings in the file that have no counterpart in reput.
    """

    config: StoreConfig
    writer: WriterSettings
    ignored: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: str | PathLike[str]) -> BrokerSettings:
        """Read a Java properties file. Raises StoreNotFoundError, StoreAccessError, UsageError."""
        return cls.of(read_properties(path), fspath(path))

    @classmethod
    def of(cls, settings: Mapping[str, str], where: str = "settings") -> BrokerSettings:
        """Convert settings that have the names of `broker.conf`. `where` names their source in errors.

        Raises UsageError for invalid values.
        """
        values: dict[str, Any] = {}
        for name, (field, unit) in _NUMBERS.items():
            if name in settings:
                number = whole_number(settings[name], f"{where}: {name}")
                values[field] = number / unit if unit != 1 else number
        if "flushDiskType" in settings:
            kind = settings["flushDiskType"]
            if kind not in _FLUSH:
                raise UsageError(
                    f"{where}: flushDiskType must be ASYNC_FLUSH or SYNC_FLUSH, not {kind!r}"
                )
            values["flush"] = _FLUSH[kind]
        values |= {field: settings[name] for name, field in _TEXTS.items() if name in settings}
        try:
            writer = WriterSettings(**values)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        return cls(
            StoreConfig.from_broker_settings(settings, where),
            writer,
            tuple(sorted(settings.keys() & WITHOUT_COUNTERPART)),
        )


_NUMBERS = {
    "flushIntervalCommitLog": ("flush_interval_commit_log_s", 1000),
    "flushCommitLogLeastPages": ("flush_commit_log_least_pages", 1),
    "flushCommitLogThoroughInterval": ("flush_commit_log_thorough_interval_s", 1000),
    "flushIntervalConsumeQueue": ("flush_interval_consume_queue_s", 1000),
    "flushConsumeQueueLeastPages": ("flush_consume_queue_least_pages", 1),
    "flushConsumeQueueThoroughInterval": ("flush_consume_queue_thorough_interval_s", 1000),
    "cleanResourceInterval": ("clean_resource_interval_s", 1000),
    "fileReservedTime": ("file_reserved_hours", 1),
    "diskMaxUsedSpaceRatio": ("disk_max_used_space_ratio", 1),
}
"""The field for each broker setting, and a divisor: the broker's value divided by it is the value of the field."""
_TEXTS = {"deleteWhen": "delete_when", "storePathCommitLog": "store_path_commit_log"}

WITHOUT_COUNTERPART = frozenset(
    """
    accessMessageInMemoryMaxRatio bitMapLengthConsumeQueueExt brokerRole checkCRCOnRecover cleanFileForciblyEnable
    commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog dLegerGroup dLegerPeers
    dLegerSelfId debugLockEnable defaultQueryMaxNum deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval
    destroyMapedFileIntervalForcibly diskFallRecorded duplicationEnable enableBatchPush
    enableCalcFilterBitMap enableDLegerCommitLog enableScheduleAsyncDeliver enableScheduleMessageStats
    fastFailIfNoBufferInStorePool
    flushCommitLogTimed flushDelayOffsetInterval flushLeastPagesWhenWarmMapedFile haHousekeepingInterval haListenPort
    haMasterAddress haSendHeartbeatInterval haSlaveFallbehindMax haTransferBatchSize
    maxLmqConsumeQueueNum maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory messageIndexEnable messageIndexSafe
    offsetCheckInSlave osPageCacheBusyTimeOutMills preferredLeaderId putMsgIndexHightWater readOnlyCommitLogStorePaths
    redeleteHangedFileInterval scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    slaveTimeout storePathRootDir syncFlushTimeout transientStorePoolEnable transientStorePoolSize
    useReentrantLockWhenPutMessage warmMapedFileEnable
    """.split()  # noqa: SIM905
)
"""Settings of a broker's store that have no effect in reput. docs/differences.md has the reasons."""
