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

from reput.base.lazy import face

if TYPE_CHECKING:
    from reput.engine.rebuild.driver import rebuild_store as rebuild_store
    from reput.engine.rebuild.follow.report import FollowReport as FollowReport
    from reput.engine.rebuild.operation import rebuild as rebuild
    from reput.engine.rebuild.report import RebuildReport as RebuildReport
    from reput.engine.rebuild.report import damage_lines as damage_lines
    from reput.engine.rebuild.warm_up import SMALL as SMALL
    from reput.engine.rebuild.warm_up import small_log as small_log
    from reput.engine.rebuild.warm_up import small_message as small_message
else:
    __getattr__, __dir__ = face(__name__)
