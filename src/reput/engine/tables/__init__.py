"""Read messages as Arrow tables: plan which ranges to read, filter rows, decode columns; look up many keys at once.

`dataset` and `look_up` are the operations. Spark and exports read ranges themselves: `plan_reading` divides logs into
`ReadTask`s, and `RangeBatches` reads one range as batches. `find` looks up `Keys` with any runner. Nothing needs Spark.
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
    from reput.engine.tables.filters import selected as selected
    from reput.engine.tables.found_records import OpenedQueues as OpenedQueues
    from reput.engine.tables.lookup.answer import LookupAnswer as LookupAnswer
    from reput.engine.tables.lookup.arrow import DEFAULT_COLUMNS as DEFAULT_COLUMNS
    from reput.engine.tables.lookup.arrow import Lookup as Lookup
    from reput.engine.tables.lookup.arrow import LookupOptions as LookupOptions
    from reput.engine.tables.lookup.arrow import find as find
    from reput.engine.tables.lookup.coverage import METADATA_KEY as METADATA_KEY
    from reput.engine.tables.lookup.coverage import CoverageForm as CoverageForm
    from reput.engine.tables.lookup.coverage import coverage_of as coverage_of
    from reput.engine.tables.lookup.key_parts import KeyPart as KeyPart
    from reput.engine.tables.lookup.key_parts import stage_parts as stage_parts
    from reput.engine.tables.lookup.keys import Keys as Keys
    from reput.engine.tables.lookup.lines import PLAIN as PLAIN
    from reput.engine.tables.lookup.lines import LineFormat as LineFormat
    from reput.engine.tables.lookup.lines import LineStyle as LineStyle
    from reput.engine.tables.lookup.lines import answer_lines as answer_lines
    from reput.engine.tables.lookup.local_files import AnswerFormat as AnswerFormat
    from reput.engine.tables.lookup.operation import FileLookup as FileLookup
    from reput.engine.tables.lookup.operation import look_up as look_up
    from reput.engine.tables.lookup.warm_up import warm_up_look_up as warm_up_look_up
    from reput.engine.tables.plan import Bounds as Bounds
    from reput.engine.tables.plan import MissingLog as MissingLog
    from reput.engine.tables.plan import ReadPlan as ReadPlan
    from reput.engine.tables.plan import plan_between as plan_between
    from reput.engine.tables.plan import plan_reading as plan_reading
    from reput.engine.tables.plan import unknown_topics as unknown_topics
    from reput.engine.tables.read import LogRange as LogRange
    from reput.engine.tables.read import RangeBatches as RangeBatches
    from reput.engine.tables.read import ReadTask as ReadTask
    from reput.engine.tables.times import first_stored as first_stored
    from reput.engine.tables.warm_up import compile_for as compile_for
    from reput.engine.tables.warm_up import start_compiling as start_compiling
else:
    __getattr__, __dir__ = face(__name__)
