"""Read consecutive small log files as if they were one file.

Each range of a log costs about a millisecond: a task, a walk, batches of its rows. A log file of 4 KiB has ten
messages, so nearly all time would be such costs. Consecutive files therefore become one range, whose file stands for
all of them (`CommitLogFile.file_bytes`), and one walk. At damage, that walk ends, and each further file is walked by
itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from reput.core import CommitLogFile
from reput.engine.tables.read import LogRange, ReadTask
from reput.io import FileReader

_MOST_FILE_BYTES = 1 << 20
_MOST_BYTES = 4 << 20
"""Size of files that are read together: the window of a walk."""


def joined(tasks: Iterable[ReadTask]) -> list[ReadTask]:
    """Return the same tasks, in which consecutive small files of a local log are one range."""
    result: list[ReadTask] = []
    waiting: list[ReadTask] = []
    for task in tasks:
        is_small = _is_small(task)
        if waiting and not (is_small and _continues(waiting, task.part)):
            result.append(_as_one(waiting))
            waiting = []
        if is_small:
            waiting.append(task)
        else:
            result.append(task)
    return [*result, _as_one(waiting)] if waiting else result


def _is_small(task: ReadTask) -> bool:
    part, file = task.part, task.part.file
    is_whole = part.start == file.start and part.stop == file.end
    is_plain = part.found is None and not (part.by_queue or part.ends_log or file.gap or file.known)
    return (
        0 < file.size <= _MOST_FILE_BYTES and is_whole and is_plain and task.open_file is FileReader
    )


def _continues(tasks: list[ReadTask], after: LogRange) -> bool:
    first, before = tasks[0].part, tasks[-1].part
    return (
        before.stop == after.start
        and after.stop - first.start <= _MOST_BYTES
        and first.file.size == after.file.size
        and first.store == after.store
        and first.file.path.rpartition("/")[0] == after.file.path.rpartition("/")[0]
    )


def _as_one(tasks: list[ReadTask]) -> ReadTask:
    first, last = tasks[0], tasks[-1].part
    if len(tasks) == 1:
        return first
    file = first.part.file
    size = last.stop - file.start
    of_all = CommitLogFile(file.start, size, file.path, file_bytes=file.size)
    part = replace(first.part, file=of_all, stop=last.stop, at_record=True)
    return replace(first, part=part)
