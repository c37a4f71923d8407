"""Own a store: put messages, dispatch, flush, expire, and recover after a crash."""

from typing import TYPE_CHECKING

from reput.base.lazy import face

if TYPE_CHECKING:
    from reput.engine.writer.put.message import Message as Message
    from reput.engine.writer.put.message import PutResult as PutResult
    from reput.engine.writer.put.record_form import RecordForm as RecordForm
    from reput.engine.writer.recovery.batch_queues import BatchSizes as BatchSizes
    from reput.engine.writer.recovery.queue_matching import Count as Count
    from reput.engine.writer.recovery.queue_matching import out_of_order as out_of_order
    from reput.engine.writer.recovery.recovery_point import (
        delete_recovery_point as delete_recovery_point,
    )
    from reput.engine.writer.recovery.report import RecoveryReport as RecoveryReport
    from reput.engine.writer.store_checks import can_salvage as can_salvage
    from reput.engine.writer.store_checks import has_other_form as has_other_form
    from reput.engine.writer.writable_store import WritableStore as WritableStore
else:
    __getattr__, __dir__ = face(__name__)
