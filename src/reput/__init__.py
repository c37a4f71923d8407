"""Read, rebuild, check and query the message store of Apache RocketMQ, byte for byte.

with reput.open_store("/data/rocketmq/store") as store:
    for message in store.query("orders", "o-17").messages:
        print(message.store_timestamp, message.body)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput.config import StoreConfig
    from reput.errors import ReputError
    from reput.findings import Finding, Kind, Remedy, Severity
    from reput.format.checkpoint import Checkpoint
    from reput.format.commit_log import MessageExt
    from reput.format.host import Host
    from reput.index.key_index import Basis
    from reput.log.dispatch_batch import DispatchBatch, Queue, QueueEntries
    from reput.log.offset_range import OffsetRange
    from reput.lookup.coverage import coverage_of
    from reput.messages.inner_batch import unwrap
    from reput.operations.look_up import look_up
    from reput.query.message_store import MessageStore
    from reput.query.open_store import open_store
    from reput.query.writable_store import WritableStore
    from reput.recovery.report import RecoveryReport
    from reput.store.answers import (
        Coverage,
        IndexedRange,
        PulledRecords,
        PullResult,
        PullStatus,
        QueryMessageResult,
        QueryOffsetResult,
        QueryProgress,
        QueryResult,
    )
    from reput.store.store_reader import ReaderOptions
    from reput.table.arrow import to_arrow
    from reput.writer.expiry import ExpiryReport
    from reput.writer.put.columns import PutColumnsResult
    from reput.writer.put.message import Message, PutResult
    from reput.writer.put.results import PutResults
    from reput.writer.retention import RetentionLimits
    from reput.writer.subscribers import Dispatcher, Subscription
    from reput.writer.writer_settings import WriterOptions, WriterSettings

__version__ = "0.2.0"

__all__ = [
    "Basis",
    "Checkpoint",
    "Coverage",
    "DispatchBatch",
    "Dispatcher",
    "ExpiryReport",
    "Finding",
    "Host",
    "IndexedRange",
    "Kind",
    "Message",
    "MessageExt",
    "MessageStore",
    "OffsetRange",
    "PullResult",
    "PullStatus",
    "PulledRecords",
    "PutColumnsResult",
    "PutResult",
    "PutResults",
    "QueryMessageResult",
    "QueryOffsetResult",
    "QueryProgress",
    "QueryResult",
    "Queue",
    "QueueEntries",
    "ReaderOptions",
    "RecoveryReport",
    "Remedy",
    "ReputError",
    "RetentionLimits",
    "Severity",
    "StoreConfig",
    "Subscription",
    "WritableStore",
    "WriterOptions",
    "WriterSettings",
    "coverage_of",
    "look_up",
    "open_store",
    "to_arrow",
    "unwrap",
]

# Imported when asked for: whoever needs one name does not wait for what the others import.
_HOMES = {
    "Basis": "reput.index.key_index",
    "Checkpoint": "reput.format.checkpoint",
    "Coverage": "reput.store.answers",
    "DispatchBatch": "reput.log.dispatch_batch",
    "Dispatcher": "reput.writer.subscribers",
    "ExpiryReport": "reput.writer.expiry",
    "Finding": "reput.findings",
    "Host": "reput.format.host",
    "IndexedRange": "reput.store.answers",
    "Kind": "reput.findings",
    "Message": "reput.writer.put.message",
    "MessageExt": "reput.format.commit_log",
    "MessageStore": "reput.query.message_store",
    "OffsetRange": "reput.log.offset_range",
    "PullResult": "reput.store.answers",
    "PullStatus": "reput.store.answers",
    "PulledRecords": "reput.store.answers",
    "PutColumnsResult": "reput.writer.put.columns",
    "PutResult": "reput.writer.put.message",
    "PutResults": "reput.writer.put.results",
    "QueryMessageResult": "reput.store.answers",
    "QueryOffsetResult": "reput.store.answers",
    "QueryProgress": "reput.store.answers",
    "QueryResult": "reput.store.answers",
    "Queue": "reput.log.dispatch_batch",
    "QueueEntries": "reput.log.dispatch_batch",
    "ReaderOptions": "reput.store.store_reader",
    "RecoveryReport": "reput.recovery.report",
    "Remedy": "reput.findings",
    "ReputError": "reput.errors",
    "RetentionLimits": "reput.writer.retention",
    "Severity": "reput.findings",
    "StoreConfig": "reput.config",
    "Subscription": "reput.writer.subscribers",
    "WritableStore": "reput.query.writable_store",
    "WriterOptions": "reput.writer.writer_settings",
    "WriterSettings": "reput.writer.writer_settings",
    "coverage_of": "reput.lookup.coverage",
    "look_up": "reput.operations.look_up",
    "open_store": "reput.query.open_store",
    "to_arrow": "reput.table.arrow",
    "unwrap": "reput.messages.inner_batch",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("reput.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "errors"})
