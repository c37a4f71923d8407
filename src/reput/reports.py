"""Provide the types of results: reports, answers, and the types of their fields."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput.base.findings import Finding as Finding
    from reput.base.findings import Kind as Kind
    from reput.base.findings import Remedy as Remedy
    from reput.base.findings import Severity as Severity
    from reput.core.index.key_index import Basis as Basis
    from reput.core.log.dispatch_batch import DispatchBatch as DispatchBatch
    from reput.core.log.dispatch_batch import DispatchRequest as DispatchRequest
    from reput.core.log.dispatch_batch import Queue as Queue
    from reput.core.log.dispatch_batch import QueueEntries as QueueEntries
    from reput.core.log.offset_range import OffsetRange as OffsetRange
    from reput.core.query.answers import PulledBody as PulledBody
    from reput.core.query.answers import PulledRecords as PulledRecords
    from reput.core.query.answers import PullResult as PullResult
    from reput.core.query.answers import PullStatus as PullStatus
    from reput.core.query.answers import QueryMessageResult as QueryMessageResult
    from reput.core.query.answers import QueryOffsetResult as QueryOffsetResult
    from reput.core.query.answers import QueryProgress as QueryProgress
    from reput.core.query.answers import QueryResult as QueryResult
    from reput.core.query.answers import UnreadableMessages as UnreadableMessages
    from reput.core.query.evidence import Coverage as Coverage
    from reput.core.query.evidence import IndexedRange as IndexedRange
    from reput.core.query.evidence import Question as Question
    from reput.core.query.inner_batch import unwrap as unwrap
    from reput.core.store.store_reader import ReaderOptions as ReaderOptions
    from reput.engine.check.operation import CheckReport as CheckReport
    from reput.engine.check.prove import ProofReport as ProofReport
    from reput.engine.check.repair_operation import RepairReport as RepairReport
    from reput.engine.check.repair_operation import UndoReport as UndoReport
    from reput.engine.rebuild.report import RebuildReport as RebuildReport
    from reput.engine.stores.find import FindReport as FindReport
    from reput.engine.stores.find import FoundMessage as FoundMessage
    from reput.engine.stores.stores import StoreAnswer as StoreAnswer
    from reput.engine.stores.stores import StoresReport as StoresReport
    from reput.engine.stores.stores import StoreState as StoreState
    from reput.engine.stores.tail import TailReport as TailReport
    from reput.engine.tables.lookup.coverage import coverage_of as coverage_of
    from reput.engine.writer.expiry import ExpiryReport as ExpiryReport
    from reput.engine.writer.put.columns import PutColumnsResult as PutColumnsResult
    from reput.engine.writer.put.message import PutResult as PutResult
    from reput.engine.writer.put.results import PutResults as PutResults
    from reput.engine.writer.recovery.report import RecoveryReport as RecoveryReport
    from reput.engine.writer.retention import RetentionLimits as RetentionLimits
    from reput.engine.writer.subscribers import Dispatcher as Dispatcher
    from reput.engine.writer.subscribers import Subscription as Subscription
    from reput.engine.writer.writer_settings import WriterOptions as WriterOptions
    from reput.format.checkpoint import Checkpoint as Checkpoint
    from reput.format.host import Host as Host
    from reput.wings.archive.report import ArchiveReport as ArchiveReport
    from reput.wings.archive.report import ProvenMessage as ProvenMessage
    from reput.wings.archive.report import RestoreReport as RestoreReport
    from reput.wings.archive.report import VerifyReport as VerifyReport
    from reput.wings.erase.report import ErasedMessages as ErasedMessages
    from reput.wings.erase.report import EraseReport as EraseReport
    from reput.wings.erase.report import Mention as Mention
    from reput.wings.erase.report import TableRows as TableRows
    from reput.wings.fleet.lag import LagReport as LagReport
    from reput.wings.inspect.api import InspectReport as InspectReport
    from reput.wings.inspect.diff_operation import DiffReport as DiffReport
    from reput.wings.inspect.report import StoreReport as StoreReport
    from reput.wings.inspect.stats_operation import StatsReport as StatsReport
    from reput.wings.inspect.trace_operation import TraceReport as TraceReport
    from reput.wings.lakes.report import ExportReport as ExportReport

# A module is imported when one of its names is first used, because importing all modules takes seconds.
_NAMES = {
    "reput.wings.archive.report": "ArchiveReport ProvenMessage RestoreReport VerifyReport",
    "reput.wings.erase.report": "EraseReport ErasedMessages Mention TableRows",
    "reput.base.findings": "Finding Kind Remedy Severity",
    "reput.format.checkpoint": "Checkpoint",
    "reput.format.host": "Host",
    "reput.core.index.key_index": "Basis",
    "reput.wings.lakes.report": "ExportReport",
    "reput.core.log.dispatch_batch": "DispatchBatch DispatchRequest Queue QueueEntries",
    "reput.core.log.offset_range": "OffsetRange",
    "reput.engine.tables.lookup.coverage": "coverage_of",
    "reput.core.query.inner_batch": "unwrap",
    "reput.engine.check.operation": "CheckReport",
    "reput.wings.inspect.diff_operation": "DiffReport",
    "reput.engine.stores.find": "FindReport FoundMessage",
    "reput.wings.inspect.api": "InspectReport",
    "reput.wings.fleet.lag": "LagReport",
    "reput.engine.check.prove": "ProofReport",
    "reput.engine.check.repair_operation": "RepairReport UndoReport",
    "reput.wings.inspect.report": "StoreReport",
    "reput.wings.inspect.stats_operation": "StatsReport",
    "reput.engine.stores.stores": "StoreAnswer StoreState StoresReport",
    "reput.engine.stores.tail": "TailReport",
    "reput.wings.inspect.trace_operation": "TraceReport",
    "reput.engine.rebuild.report": "RebuildReport",
    "reput.engine.writer.recovery.report": "RecoveryReport",
    "reput.core.query.answers": "PullResult PullStatus PulledBody PulledRecords QueryMessageResult "
    "QueryOffsetResult QueryProgress QueryResult UnreadableMessages",
    "reput.core.query.evidence": "Coverage IndexedRange Question",
    "reput.core.store.store_reader": "ReaderOptions",
    "reput.engine.writer.expiry": "ExpiryReport",
    "reput.engine.writer.put.columns": "PutColumnsResult",
    "reput.engine.writer.put.message": "PutResult",
    "reput.engine.writer.put.results": "PutResults",
    "reput.engine.writer.retention": "RetentionLimits",
    "reput.engine.writer.subscribers": "Dispatcher Subscription",
    "reput.engine.writer.writer_settings": "WriterOptions",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
