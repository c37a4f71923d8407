"""Read messages as Arrow tables: plan which ranges to read, filter rows, decode columns.

`dataset` is the operation. Spark and exports read ranges themselves: `plan_reading` divides logs into `ReadTask`s, and
`RangeBatches` reads one range as batches. Nothing needs Spark.
"""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.engine.tables.arrow import dataset as dataset
    from reput.engine.tables.arrow import logs_of as logs_of
    from reput.engine.tables.by_key import IndexBesideLog as IndexBesideLog
    from reput.engine.tables.explain import estimated_seconds as estimated_seconds
    from reput.engine.tables.explain import plan_lines as plan_lines
    from reput.engine.tables.filters import Condition as Condition
    from reput.engine.tables.filters import OnCorrupt as OnCorrupt
    from reput.engine.tables.filters import check_on_corrupt as check_on_corrupt
    from reput.engine.tables.filters import choices as choices
    from reput.engine.tables.filters import light_queues as light_queues
    from reput.engine.tables.filters import selected as selected
    from reput.engine.tables.found_records import OpenedQueues as OpenedQueues
    from reput.engine.tables.log_paths import find_logs as find_logs
    from reput.engine.tables.naming import named_from as named_from
    from reput.engine.tables.plan import Bounds as Bounds
    from reput.engine.tables.plan import MissingLog as MissingLog
    from reput.engine.tables.plan import ReadPlan as ReadPlan
    from reput.engine.tables.plan import plan_between as plan_between
    from reput.engine.tables.plan import plan_reading as plan_reading
    from reput.engine.tables.plan import unknown_topics as unknown_topics
    from reput.engine.tables.read import LogRange as LogRange
    from reput.engine.tables.read import RangeBatches as RangeBatches
    from reput.engine.tables.read import ReadTask as ReadTask
    from reput.engine.tables.read_mark import ReadMark as ReadMark
    from reput.engine.tables.small_files import joined as joined
    from reput.engine.tables.times import first_stored as first_stored
    from reput.engine.tables.warm_up import compile_for as compile_for
    from reput.engine.tables.warm_up import start_compiling as start_compiling
else:
    __getattr__, __dir__ = face(__name__)
