"""Rebuild ConsumeQueues and IndexFiles from a CommitLog in parallel: plan, scan, stitch, write, commit.

The phases are plain functions over small picklable tasks. The caller runs the tasks, on Spark or one after the other.

- A split is a part of one CommitLog file. A scan task reads a split and stages the result: the task writes the result
  to a temporary file for the tasks of the next phase.
- Stitching checks that the scanned splits join without a gap, as if one process had read the log.
- A pack is a group of queues that one write task writes. A regular queue needs no pack: the position of each entry
  follows from the number of earlier entries. So tasks for different parts of the log can write the same regular queue.

See docs/architecture.md for the picture.
"""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.engine.rebuild.batch_file import read_batches as read_batches
    from reput.engine.rebuild.driver import Only as Only
    from reput.engine.rebuild.driver import rebuild_store as rebuild_store
    from reput.engine.rebuild.expired import expired_queue_ends as expired_queue_ends
    from reput.engine.rebuild.expired import expired_queues as expired_queues
    from reput.engine.rebuild.follow.driver import OnRebuilt as OnRebuilt
    from reput.engine.rebuild.follow.driver import OnReport as OnReport
    from reput.engine.rebuild.follow.driver import follow_store as follow_store
    from reput.engine.rebuild.growing import DEFAULT_SPLIT_BYTES as DEFAULT_SPLIT_BYTES
    from reput.engine.rebuild.growing import find_log_end as find_log_end
    from reput.engine.rebuild.growing import first_record as first_record
    from reput.engine.rebuild.growing import first_record_of as first_record_of
    from reput.engine.rebuild.growing import not_whole as not_whole
    from reput.engine.rebuild.growing import walk_on as walk_on
    from reput.engine.rebuild.old_numbers import REFUSED as REFUSED
    from reput.engine.rebuild.old_numbers import OldNumbers as OldNumbers
    from reput.engine.rebuild.old_numbers import read_old_numbers as read_old_numbers
    from reput.engine.rebuild.old_numbers import write_old_numbers as write_old_numbers
    from reput.engine.rebuild.operation import follow_log as follow_log
    from reput.engine.rebuild.operation import rebuild as rebuild
    from reput.engine.rebuild.queue_kinds import QueueBuild as QueueBuild
    from reput.engine.rebuild.queue_kinds import RunOne as RunOne
    from reput.engine.rebuild.queue_kinds import WriteQueues as WriteQueues
    from reput.engine.rebuild.queue_kinds import entries_of_a_task as entries_of_a_task
    from reput.engine.rebuild.queue_kinds import last_entries as last_entries
    from reput.engine.rebuild.queue_kinds import some_names as some_names
    from reput.engine.rebuild.queue_plan import QueueLayout as QueueLayout
    from reput.engine.rebuild.queue_plan import QueuePlan as QueuePlan
    from reput.engine.rebuild.queue_plan import QueueTask as QueueTask
    from reput.engine.rebuild.queue_plan import RunTable as RunTable
    from reput.engine.rebuild.queue_plan import SplitRuns as SplitRuns
    from reput.engine.rebuild.queue_plan import divide_tasks as divide_tasks
    from reput.engine.rebuild.queue_plan import read_plan as read_plan
    from reput.engine.rebuild.queue_plan import write_plan as write_plan
    from reput.engine.rebuild.renumbered import renumbered_entries as renumbered_entries
    from reput.engine.rebuild.report import FollowReport as FollowReport
    from reput.engine.rebuild.report import RebuildReport as RebuildReport
    from reput.engine.rebuild.report import damage_lines as damage_lines
    from reput.engine.rebuild.staging import STAGING_FOLDER as STAGING_FOLDER
    from reput.engine.rebuild.staging import Staging as Staging
    from reput.engine.rebuild.stitch import LogSummary as LogSummary
    from reput.engine.rebuild.warm_up import SMALL as SMALL
    from reput.engine.rebuild.warm_up import small_log as small_log
    from reput.engine.rebuild.warm_up import small_message as small_message
    from reput.engine.rebuild.write_files import WriteJob as WriteJob
    from reput.engine.rebuild.write_files import batches_of as batches_of
else:
    __getattr__, __dir__ = face(__name__)
