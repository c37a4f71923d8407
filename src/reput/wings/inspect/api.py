"""The operations that examine a store, their reports, and the types of these reports that other wings show."""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.wings.inspect.diff_operation import DiffReport as DiffReport
    from reput.wings.inspect.diff_operation import diff as diff
    from reput.wings.inspect.inspect_operation import InspectReport as InspectReport
    from reput.wings.inspect.inspect_operation import inspect as inspect
    from reput.wings.inspect.measuring.figures import CoveredRange as CoveredRange
    from reput.wings.inspect.measuring.figures import covered_log as covered_log
    from reput.wings.inspect.measuring.growth import Growth as Growth
    from reput.wings.inspect.measuring.growth import TopicGrowth as TopicGrowth
    from reput.wings.inspect.measuring.growth import days_until_full as days_until_full
    from reput.wings.inspect.measuring.growth import disk_usage as disk_usage
    from reput.wings.inspect.measuring.growth import growth_of as growth_of
    from reput.wings.inspect.one_file import ConsumeQueue as ConsumeQueue
    from reput.wings.inspect.one_file import IndexFile as IndexFile
    from reput.wings.inspect.report import StoreReport as StoreReport
    from reput.wings.inspect.report import report as report
    from reput.wings.inspect.stats_operation import StatsReport as StatsReport
    from reput.wings.inspect.stats_operation import stats as stats
    from reput.wings.inspect.trace import trace_life as trace_life
    from reput.wings.inspect.trace_operation import TraceReport as TraceReport
    from reput.wings.inspect.trace_operation import trace as trace
    from reput.wings.inspect.tracing.life import TRACE_SCHEMA as TRACE_SCHEMA
    from reput.wings.inspect.tracing.life import Life as Life
    from reput.wings.inspect.tracing.life import Role as Role
    from reput.wings.inspect.tracing.life import life_fields as life_fields
    from reput.wings.inspect.tracing.life import role_of_topic as role_of_topic
else:
    __getattr__, __dir__ = face(__name__)
