"""What operations and stores return: reports, answers, and the types in them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput.findings import Kind, Remedy, Severity
    from reput.format.checkpoint import Checkpoint
    from reput.format.host import Host
    from reput.index.key_index import Basis
    from reput.lakes.report import ExportReport
    from reput.log.dispatch_batch import DispatchBatch, Queue, QueueEntries
    from reput.log.offset_range import OffsetRange
    from reput.lookup.coverage import coverage_of
    from reput.messages.inner_batch import unwrap
    from reput.operations.check import CheckReport
    from reput.operations.diff import DiffReport
    from reput.operations.find import FindReport, FoundMessage
    from reput.operations.inspect import InspectReport
    from reput.operations.lag import LagReport
    from reput.operations.prove import ProofReport
    from reput.operations.repair import RepairReport
    from reput.operations.report import StoreReport
    from reput.operations.stats import StatsReport
    from reput.operations.stores import StoreAnswer, StoresReport
    from reput.operations.tail import TailReport
    from reput.operations.trace import TraceReport
    from reput.pipeline.report import RebuildReport
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
    from reput.writer.expiry import ExpiryReport
    from reput.writer.put.columns import PutColumnsResult
    from reput.writer.put.message import PutResult
    from reput.writer.put.results import PutResults
    from reput.writer.retention import RetentionLimits
    from reput.writer.subscribers import Dispatcher, Subscription
    from reput.writer.writer_settings import WriterOptions

__all__ = [
    "Basis",
    "CheckReport",
    "Checkpoint",
    "Coverage",
    "DiffReport",
    "DispatchBatch",
    "Dispatcher",
    "ExpiryReport",
    "ExportReport",
    "FindReport",
    "FoundMessage",
    "Host",
    "IndexedRange",
    "InspectReport",
    "Kind",
    "LagReport",
    "OffsetRange",
    "ProofReport",
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
    "RebuildReport",
    "RecoveryReport",
    "Remedy",
    "RepairReport",
    "RetentionLimits",
    "Severity",
    "StatsReport",
    "StoreAnswer",
    "StoreReport",
    "StoresReport",
    "Subscription",
    "TailReport",
    "TraceReport",
    "WriterOptions",
    "coverage_of",
    "unwrap",
]

_HOMES = {
    "Basis": "reput.index.key_index",
    "CheckReport": "reput.operations.check",
    "Checkpoint": "reput.format.checkpoint",
    "Coverage": "reput.store.answers",
    "DiffReport": "reput.operations.diff",
    "DispatchBatch": "reput.log.dispatch_batch",
    "Dispatcher": "reput.writer.subscribers",
    "ExpiryReport": "reput.writer.expiry",
    "ExportReport": "reput.lakes.report",
    "FindReport": "reput.operations.find",
    "FoundMessage": "reput.operations.find",
    "Host": "reput.format.host",
    "IndexedRange": "reput.store.answers",
    "InspectReport": "reput.operations.inspect",
    "Kind": "reput.findings",
    "LagReport": "reput.operations.lag",
    "OffsetRange": "reput.log.offset_range",
    "ProofReport": "reput.operations.prove",
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
    "RebuildReport": "reput.pipeline.report",
    "RecoveryReport": "reput.recovery.report",
    "Remedy": "reput.findings",
    "RepairReport": "reput.operations.repair",
    "RetentionLimits": "reput.writer.retention",
    "Severity": "reput.findings",
    "StatsReport": "reput.operations.stats",
    "StoreAnswer": "reput.operations.stores",
    "StoreReport": "reput.operations.report",
    "StoresReport": "reput.operations.stores",
    "Subscription": "reput.writer.subscribers",
    "TailReport": "reput.operations.tail",
    "TraceReport": "reput.operations.trace",
    "WriterOptions": "reput.writer.writer_settings",
    "coverage_of": "reput.lookup.coverage",
    "unwrap": "reput.messages.inner_batch",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
