"""Own a store: put messages, dispatch, flush, expire, and recover after a crash.

put       `WritableStore` and `StoreWriter` put messages, each as a `Message` or many as `PutColumns`.
expire    `plan_by_time` says what is deleted, `expire_indexes` deletes what leads only to deleted messages.
recover   `FoundIndexes` compares indexes with a log, from `trusted_point` on, and cuts and mends them. A rebuild that
          keeps queue offsets matches old queues with messages by the same classes.
"""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.engine.writer.expiry import ExpiryReport as ExpiryReport
    from reput.engine.writer.expiry import expire_indexes as expire_indexes
    from reput.engine.writer.expiry import plan_by_time as plan_by_time
    from reput.engine.writer.log_ends import LogEnds as LogEnds
    from reput.engine.writer.message_database import KEYS as KEYS
    from reput.engine.writer.message_database import MessageDatabase as MessageDatabase
    from reput.engine.writer.message_database import database_contents as database_contents
    from reput.engine.writer.message_database import has_keys_in_rocksdb as has_keys_in_rocksdb
    from reput.engine.writer.passed_file import PassedFile as PassedFile
    from reput.engine.writer.passed_file import PassedLog as PassedLog
    from reput.engine.writer.passed_file import keep_parts as keep_parts
    from reput.engine.writer.passed_file import keep_topics as keep_topics
    from reput.engine.writer.process_keys import process_prefix as process_prefix
    from reput.engine.writer.put.columns import PutColumns as PutColumns
    from reput.engine.writer.put.columns import PutColumnsResult as PutColumnsResult
    from reput.engine.writer.put.columns import Texts as Texts
    from reput.engine.writer.put.message import Message as Message
    from reput.engine.writer.put.message import PutResult as PutResult
    from reput.engine.writer.put.message import check_message as check_message
    from reput.engine.writer.put.message import joined_keys as joined_keys
    from reput.engine.writer.put.record_form import RecordForm as RecordForm
    from reput.engine.writer.put.results import PutResults as PutResults
    from reput.engine.writer.recovery.batch_queues import BatchQueueFiles as BatchQueueFiles
    from reput.engine.writer.recovery.batch_queues import BatchSizes as BatchSizes
    from reput.engine.writer.recovery.batch_queues import (
        recover_batch_queues as recover_batch_queues,
    )
    from reput.engine.writer.recovery.comparison import MatchedRecovery as MatchedRecovery
    from reput.engine.writer.recovery.comparison import OwnQueues as OwnQueues
    from reput.engine.writer.recovery.entry_layout import EntryLayout as EntryLayout
    from reput.engine.writer.recovery.extended_queues import (
        ExtendedQueueFiles as ExtendedQueueFiles,
    )
    from reput.engine.writer.recovery.indexes import CutIndexes as CutIndexes
    from reput.engine.writer.recovery.indexes import FoundIndexes as FoundIndexes
    from reput.engine.writer.recovery.indexes import trusted_point as trusted_point
    from reput.engine.writer.recovery.log import check_none_renamed as check_none_renamed
    from reput.engine.writer.recovery.log import stated_start as stated_start
    from reput.engine.writer.recovery.old_queues import LogPart as LogPart
    from reput.engine.writer.recovery.old_queues import OldQueue as OldQueue
    from reput.engine.writer.recovery.old_queues import PlacedBatches as PlacedBatches
    from reput.engine.writer.recovery.old_queues import is_folder_of as is_folder_of
    from reput.engine.writer.recovery.old_queues import old_batch_queues as old_batch_queues
    from reput.engine.writer.recovery.old_queues import old_batches as old_batches
    from reput.engine.writer.recovery.old_queues import old_queues as old_queues
    from reput.engine.writer.recovery.queue_files import QueueFiles as QueueFiles
    from reput.engine.writer.recovery.queue_matching import Count as Count
    from reput.engine.writer.recovery.queue_matching import KeptQueue as KeptQueue
    from reput.engine.writer.recovery.queue_matching import out_of_order as out_of_order
    from reput.engine.writer.recovery.queue_survey import RankedEntries as RankedEntries
    from reput.engine.writer.recovery.recovery_point import RecoveryPoint as RecoveryPoint
    from reput.engine.writer.recovery.recovery_point import (
        RecoveryPointWriter as RecoveryPointWriter,
    )
    from reput.engine.writer.recovery.recovery_point import (
        delete_recovery_point as delete_recovery_point,
    )
    from reput.engine.writer.recovery.report import RecoveryReport as RecoveryReport
    from reput.engine.writer.retention import RetentionLimits as RetentionLimits
    from reput.engine.writer.shared_store import AnyStore as AnyStore
    from reput.engine.writer.shared_store import MissingStore as MissingStore
    from reput.engine.writer.shared_store import SharedStore as SharedStore
    from reput.engine.writer.store_checks import can_salvage as can_salvage
    from reput.engine.writer.store_writer import StoreWriter as StoreWriter
    from reput.engine.writer.subscribers import Dispatcher as Dispatcher
    from reput.engine.writer.subscribers import Subscription as Subscription
    from reput.engine.writer.survey import KEPT_BY as KEPT_BY
    from reput.engine.writer.survey import StoreSurvey as StoreSurvey
    from reput.engine.writer.survey import survey_of as survey_of
    from reput.engine.writer.writable_store import WritableStore as WritableStore
    from reput.engine.writer.writer_settings import BrokerSettings as BrokerSettings
    from reput.engine.writer.writer_settings import WriterOptions as WriterOptions
    from reput.engine.writer.writer_settings import WriterSettings as WriterSettings
else:
    __getattr__, __dir__ = face(__name__)
