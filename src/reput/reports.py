"""Provide the types of results: reports, answers, and the types of their fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput.base import face, offers

if TYPE_CHECKING:
    from reput.base import Finding as Finding
    from reput.base import Kind as Kind
    from reput.base import Remedy as Remedy
    from reput.base import Severity as Severity
    from reput.core import Basis as Basis
    from reput.core import Coverage as Coverage
    from reput.core import DispatchBatch as DispatchBatch
    from reput.core import DispatchRequest as DispatchRequest
    from reput.core import IndexedRange as IndexedRange
    from reput.core import OffsetRange as OffsetRange
    from reput.core import PulledBody as PulledBody
    from reput.core import PulledRecords as PulledRecords
    from reput.core import PullResult as PullResult
    from reput.core import PullStatus as PullStatus
    from reput.core import QueryMessageResult as QueryMessageResult
    from reput.core import QueryOffsetResult as QueryOffsetResult
    from reput.core import QueryProgress as QueryProgress
    from reput.core import QueryResult as QueryResult
    from reput.core import Question as Question
    from reput.core import Queue as Queue
    from reput.core import QueueEntries as QueueEntries
    from reput.core import ReaderOptions as ReaderOptions
    from reput.core import UnreadableMessages as UnreadableMessages
    from reput.core import unwrap as unwrap
    from reput.engine.check import CheckReport as CheckReport
    from reput.engine.check import ProofReport as ProofReport
    from reput.engine.check import RepairReport as RepairReport
    from reput.engine.check import UndoReport as UndoReport
    from reput.engine.lookup import coverage_of as coverage_of
    from reput.engine.rebuild import RebuildReport as RebuildReport
    from reput.engine.stores import FindReport as FindReport
    from reput.engine.stores import FoundMessage as FoundMessage
    from reput.engine.stores import StoreAnswer as StoreAnswer
    from reput.engine.stores import StoresReport as StoresReport
    from reput.engine.stores import StoreState as StoreState
    from reput.engine.stores import TailReport as TailReport
    from reput.engine.writer import Dispatcher as Dispatcher
    from reput.engine.writer import ExpiryReport as ExpiryReport
    from reput.engine.writer import PutColumnsResult as PutColumnsResult
    from reput.engine.writer import PutResult as PutResult
    from reput.engine.writer import PutResults as PutResults
    from reput.engine.writer import RecoveryReport as RecoveryReport
    from reput.engine.writer import RetentionLimits as RetentionLimits
    from reput.engine.writer import Subscription as Subscription
    from reput.engine.writer import WriterOptions as WriterOptions
    from reput.format.checkpoint import Checkpoint as Checkpoint
    from reput.format.host import Host as Host
    from reput.wings.archive import ArchiveReport as ArchiveReport
    from reput.wings.archive import ProvenMessage as ProvenMessage
    from reput.wings.archive import RestoreReport as RestoreReport
    from reput.wings.archive import VerifyReport as VerifyReport
    from reput.wings.erase import ErasedMessages as ErasedMessages
    from reput.wings.erase import EraseReport as EraseReport
    from reput.wings.erase import Mention as Mention
    from reput.wings.erase import TableRows as TableRows
    from reput.wings.erase import VerifyErasureReport as VerifyErasureReport
    from reput.wings.fleet.api import LagReport as LagReport
    from reput.wings.inspect.api import DiffReport as DiffReport
    from reput.wings.inspect.api import InspectReport as InspectReport
    from reput.wings.inspect.api import StatsReport as StatsReport
    from reput.wings.inspect.api import StoreReport as StoreReport
    from reput.wings.inspect.api import TraceReport as TraceReport
    from reput.wings.lakes import ExportReport as ExportReport
    from reput.wings.lakes import ExportRequest as ExportRequest
else:
    __getattr__, __dir__ = face(__name__)
__all__ = sorted(offers(__name__))
