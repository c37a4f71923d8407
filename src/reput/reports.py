"""Provide the types of results: reports, answers, and the types of their fields."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput.archives.report import ArchiveReport as ArchiveReport
    from reput.archives.report import ProvenMessage as ProvenMessage
    from reput.archives.report import RestoreReport as RestoreReport
    from reput.archives.report import VerifyReport as VerifyReport
    from reput.erasing.report import ErasedMessages as ErasedMessages
    from reput.erasing.report import EraseReport as EraseReport
    from reput.erasing.report import Mention as Mention
    from reput.erasing.report import TableRows as TableRows
    from reput.findings import Finding as Finding
    from reput.findings import Kind as Kind
    from reput.findings import Remedy as Remedy
    from reput.findings import Severity as Severity
    from reput.format.checkpoint import Checkpoint as Checkpoint
    from reput.format.host import Host as Host
    from reput.index.key_index import Basis as Basis
    from reput.lakes.report import ExportReport as ExportReport
    from reput.log.dispatch_batch import DispatchBatch as DispatchBatch
    from reput.log.dispatch_batch import DispatchRequest as DispatchRequest
    from reput.log.dispatch_batch import Queue as Queue
    from reput.log.dispatch_batch import QueueEntries as QueueEntries
    from reput.log.offset_range import OffsetRange as OffsetRange
    from reput.lookup.coverage import coverage_of as coverage_of
    from reput.messages.inner_batch import unwrap as unwrap
    from reput.operations.check import CheckReport as CheckReport
    from reput.operations.diff import DiffReport as DiffReport
    from reput.operations.find import FindReport as FindReport
    from reput.operations.find import FoundMessage as FoundMessage
    from reput.operations.inspect import InspectReport as InspectReport
    from reput.operations.lag import LagReport as LagReport
    from reput.operations.prove import ProofReport as ProofReport
    from reput.operations.repair import RepairReport as RepairReport
    from reput.operations.repair import UndoReport as UndoReport
    from reput.operations.report import StoreReport as StoreReport
    from reput.operations.stats import StatsReport as StatsReport
    from reput.operations.stores import StoreAnswer as StoreAnswer
    from reput.operations.stores import StoresReport as StoresReport
    from reput.operations.stores import StoreState as StoreState
    from reput.operations.tail import TailReport as TailReport
    from reput.operations.trace import TraceReport as TraceReport
    from reput.pipeline.report import RebuildReport as RebuildReport
    from reput.query.answers import PulledBody as PulledBody
    from reput.query.answers import PulledRecords as PulledRecords
    from reput.query.answers import PullResult as PullResult
    from reput.query.answers import PullStatus as PullStatus
    from reput.query.answers import QueryMessageResult as QueryMessageResult
    from reput.query.answers import QueryOffsetResult as QueryOffsetResult
    from reput.query.answers import QueryProgress as QueryProgress
    from reput.query.answers import QueryResult as QueryResult
    from reput.query.answers import UnreadableMessages as UnreadableMessages
    from reput.query.evidence import Coverage as Coverage
    from reput.query.evidence import IndexedRange as IndexedRange
    from reput.query.evidence import Question as Question
    from reput.recovery.report import RecoveryReport as RecoveryReport
    from reput.store.store_reader import ReaderOptions as ReaderOptions
    from reput.writer.expiry import ExpiryReport as ExpiryReport
    from reput.writer.put.columns import PutColumnsResult as PutColumnsResult
    from reput.writer.put.message import PutResult as PutResult
    from reput.writer.put.results import PutResults as PutResults
    from reput.writer.retention import RetentionLimits as RetentionLimits
    from reput.writer.subscribers import Dispatcher as Dispatcher
    from reput.writer.subscribers import Subscription as Subscription
    from reput.writer.writer_settings import WriterOptions as WriterOptions

# A module is imported when one of its names is first used, because importing all modules takes seconds.
_NAMES = {
    "reput.archives.report": "ArchiveReport ProvenMessage RestoreReport VerifyReport",
    "reput.erasing.report": "EraseReport ErasedMessages Mention TableRows",
    "reput.findings": "Finding Kind Remedy Severity",
    "reput.format.checkpoint": "Checkpoint",
    "reput.format.host": "Host",
    "reput.index.key_index": "Basis",
    "reput.lakes.report": "ExportReport",
    "reput.log.dispatch_batch": "DispatchBatch DispatchRequest Queue QueueEntries",
    "reput.log.offset_range": "OffsetRange",
    "reput.lookup.coverage": "coverage_of",
    "reput.messages.inner_batch": "unwrap",
    "reput.operations.check": "CheckReport",
    "reput.operations.diff": "DiffReport",
    "reput.operations.find": "FindReport FoundMessage",
    "reput.operations.inspect": "InspectReport",
    "reput.operations.lag": "LagReport",
    "reput.operations.prove": "ProofReport",
    "reput.operations.repair": "RepairReport UndoReport",
    "reput.operations.report": "StoreReport",
    "reput.operations.stats": "StatsReport",
    "reput.operations.stores": "StoreAnswer StoreState StoresReport",
    "reput.operations.tail": "TailReport",
    "reput.operations.trace": "TraceReport",
    "reput.pipeline.report": "RebuildReport",
    "reput.recovery.report": "RecoveryReport",
    "reput.query.answers": "PullResult PullStatus PulledBody PulledRecords QueryMessageResult "
    "QueryOffsetResult QueryProgress QueryResult UnreadableMessages",
    "reput.query.evidence": "Coverage IndexedRange Question",
    "reput.store.store_reader": "ReaderOptions",
    "reput.writer.expiry": "ExpiryReport",
    "reput.writer.put.columns": "PutColumnsResult",
    "reput.writer.put.message": "PutResult",
    "reput.writer.put.results": "PutResults",
    "reput.writer.retention": "RetentionLimits",
    "reput.writer.subscribers": "Dispatcher Subscription",
    "reput.writer.writer_settings": "WriterOptions",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
