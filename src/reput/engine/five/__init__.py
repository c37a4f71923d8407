"""What only RocketMQ 5 has: queues and keys in RocksDB, timers, compacted topics, tiered storage.

The forms in RocksDB are in the registers of `reput.core`, which import them by name.
"""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.engine.five.compacted import CompactedLog as CompactedLog
    from reput.engine.five.compacted import compacted_queues as compacted_queues
    from reput.engine.five.rocksdb_index import indexed_messages as indexed_messages
    from reput.engine.five.tiered import TieredQueue as TieredQueue
    from reput.engine.five.tiered import TieredStore as TieredStore
    from reput.engine.five.timer import LOST as LOST
    from reput.engine.five.timer import WAITING as WAITING
    from reput.engine.five.timer import TimerLog as TimerLog
    from reput.engine.five.timer import Timers as Timers
    from reput.engine.five.timer_files import check_timer_files as check_timer_files
    from reput.engine.five.timer_files import timer_check as timer_check
    from reput.engine.five.timer_files import timer_queue_offset as timer_queue_offset
    from reput.engine.five.timer_files import timer_units as timer_units
    from reput.engine.five.timer_wheel import TimerWheel as TimerWheel
else:
    __getattr__, __dir__ = face(__name__)
