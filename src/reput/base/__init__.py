"""Errors of arguments, findings, settings, tasks, clocks and words: what every room uses."""

from typing import TYPE_CHECKING

from reput.base.python import Closing as Closing
from reput.base.python import face as face
from reput.base.python import late as late
from reput.base.python import offers as offers
from reput.base.python import require as require

if TYPE_CHECKING:
    from reput.base.arguments import Time as Time
    from reput.base.arguments import check_fields as check_fields
    from reput.base.arguments import check_time as check_time
    from reput.base.arguments import checked as checked
    from reput.base.arguments import is_spark_session as is_spark_session
    from reput.base.arguments import milliseconds as milliseconds
    from reput.base.arguments import optional_milliseconds as optional_milliseconds
    from reput.base.arguments import refuse_unknown as refuse_unknown
    from reput.base.clock import DAY_MS as DAY_MS
    from reput.base.clock import SECONDS as SECONDS
    from reput.base.clock import format_days as format_days
    from reput.base.clock import format_duration as format_duration
    from reput.base.clock import format_time as format_time
    from reput.base.clock import in_seconds as in_seconds
    from reput.base.clock import looks_like_seconds as looks_like_seconds
    from reput.base.clock import now_ms as now_ms
    from reput.base.clock import parse_duration as parse_duration
    from reput.base.clock import parse_time as parse_time
    from reput.base.clock import table_time as table_time
    from reput.base.config import INDEX_SETTINGS as INDEX_SETTINGS
    from reput.base.config import LOG_SETTING as LOG_SETTING
    from reput.base.config import QUEUE_SETTINGS as QUEUE_SETTINGS
    from reput.base.config import STORE_VERSIONS as STORE_VERSIONS
    from reput.base.config import StoreConfig as StoreConfig
    from reput.base.config import log_paths_of as log_paths_of
    from reput.base.config import read_properties as read_properties
    from reput.base.config import whole_number as whole_number
    from reput.base.findings import Finding as Finding
    from reput.base.findings import Kind as Kind
    from reput.base.findings import Remedy as Remedy
    from reput.base.findings import Repair as Repair
    from reput.base.findings import Severity as Severity
    from reput.base.machine import is_out_of_reach as is_out_of_reach
    from reput.base.machine import usable_cpus as usable_cpus
    from reput.base.notebook import FindingsReport as FindingsReport
    from reput.base.notebook import Report as Report
    from reput.base.notebook import Sealable as Sealable
    from reput.base.notebook import ShownAsTable as ShownAsTable
    from reput.base.notebook import table_of as table_of
    from reput.base.notebook import time_of as time_of
    from reput.base.tasks import Progress as Progress
    from reput.base.tasks import Result as Result
    from reput.base.tasks import Runner as Runner
    from reput.base.tasks import SerialRunner as SerialRunner
    from reput.base.tasks import Task as Task
    from reput.base.tasks import WrappedRunner as WrappedRunner
    from reput.base.tasks import no_progress as no_progress
    from reput.base.tasks import retried as retried
    from reput.base.tasks import silent as silent
    from reput.base.tasks import waiting as waiting
    from reput.base.tasks.processes import WITHOUT_SCRIPT as WITHOUT_SCRIPT
    from reput.base.tasks.processes import ProcessRunner as ProcessRunner
    from reput.base.visible_json import INVISIBLE_RANGES as INVISIBLE_RANGES
    from reput.base.visible_json import has_control as has_control
    from reput.base.visible_json import indented as indented
    from reput.base.visible_json import json_text as json_text
    from reput.base.visible_json import visible as visible
    from reput.base.words import PIPED_WIDTH as PIPED_WIDTH
    from reput.base.words import agreeing as agreeing
    from reput.base.words import aligned as aligned
    from reput.base.words import counted as counted
    from reput.base.words import did_you_mean as did_you_mean
    from reput.base.words import first_line as first_line
    from reput.base.words import format_size as format_size
    from reput.base.words import lines_of as lines_of
    from reput.base.words import nearest_first as nearest_first
    from reput.base.words import one_line as one_line
    from reput.base.words import parse_size as parse_size
    from reput.base.words import printable as printable
else:
    __getattr__, __dir__ = face(__name__)
