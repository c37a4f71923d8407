"""Read messages as Arrow tables: plan which ranges to read, filter rows, decode columns. Independent of Spark."""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.engine.tables.arrow import dataset as dataset
    from reput.engine.tables.by_key import IndexBesideLog as IndexBesideLog
    from reput.engine.tables.content import Content as Content
    from reput.engine.tables.content import How as How
    from reput.engine.tables.content import parse_content as parse_content
    from reput.engine.tables.filters import Condition as Condition
    from reput.engine.tables.filters import OnCorrupt as OnCorrupt
    from reput.engine.tables.filters import check_on_corrupt as check_on_corrupt
    from reput.engine.tables.filters import choices as choices
    from reput.engine.tables.filters import of_topics as of_topics
    from reput.engine.tables.filters import selected as selected
    from reput.engine.tables.lookup.answer import LookupAnswer as LookupAnswer
    from reput.engine.tables.lookup.arrow import Lookup as Lookup
    from reput.engine.tables.lookup.arrow import find as find
    from reput.engine.tables.lookup.arrow import keys_of as keys_of
    from reput.engine.tables.lookup.lines import PLAIN as PLAIN
    from reput.engine.tables.lookup.lines import LineFormat as LineFormat
    from reput.engine.tables.lookup.lines import LineStyle as LineStyle
    from reput.engine.tables.lookup.lines import answer_header as answer_header
    from reput.engine.tables.lookup.lines import answer_lines as answer_lines
    from reput.engine.tables.plan import SPLIT_BYTES as SPLIT_BYTES
    from reput.engine.tables.plan import Bounds as Bounds
    from reput.engine.tables.plan import ReadPlan as ReadPlan
    from reput.engine.tables.plan import ReadTask as ReadTask
    from reput.engine.tables.plan import bytes_of as bytes_of
    from reput.engine.tables.plan import plan_between as plan_between
    from reput.engine.tables.plan import plan_reading as plan_reading
    from reput.engine.tables.read import LogRange as LogRange
    from reput.engine.tables.read import RangeBatches as RangeBatches
    from reput.engine.tables.warm_up import compile_meanwhile as compile_meanwhile
    from reput.engine.tables.warm_up import compile_now as compile_now
    from reput.engine.tables.warm_up import parts_of as parts_of
else:
    __getattr__, __dir__ = face(__name__)
