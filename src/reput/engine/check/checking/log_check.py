"""Check one log file: every record, and the entries of ConsumeQueues and IndexFiles that lead to its messages.

`reput.engine.compare.log_file` compares the entries with the messages, and this module explains each difference.
Entries that lead to an unreadable record are not reported as wrong: the finding for the record covers them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind, counted
from reput.core import FileScan, Queue, ScannedPiece, wrong_bodies
from reput.engine.check.checking.index_entries import IndexFindings
from reput.engine.check.checking.queue_entries import LightQueue, QueueFindings
from reput.engine.check.checking.tally import Tally
from reput.engine.compare import ComparedFile, FileComparison
from reput.engine.writer import PassedFile
from reput.errors import ReputError, StoreChangedError, StoreNotFoundError, raise_if_refused
from reput.format.commit_log import CRC_PROPERTY_END, record_crc_ok

_MISMATCHES = {
    Kind.BODY_CRC: "the body does not match its CRC",
    Kind.RECORD_CRC: "the record does not match its CRC (__CRC32#)",
}


@dataclass(frozen=True, slots=True)
class LogTask:
    """The check of one log file.

    compared         the log file, and the places of the queue entries and index items that point into it. Queues
                     without such entries are left out, unless an earlier attempt has met their messages.
    number           number of the log file
    is_last          whether no later file has a record
    is_padded        whether the bytes after the last record are no finding
    is_checked       whether a broker that starts now checks the records of this file
    dispatched_to    physical offset up to which messages have been dispatched
    index_folder     index/ of the store
    indexed          offsets of the first and last item of each IndexFile whose range meets the log file
    indexed_to       offset of the last item of all IndexFiles; None if the store has no items
    indexed_again    physical offset from which a broker that starts now adds index entries; None if it adds none
    dispatched_from  physical offset from which such a broker dispatches messages; None if it dispatches none
    has_light        whether the store has light queues (LMQ)
    """

    compared: ComparedFile
    number: int
    is_last: bool
    is_padded: bool
    is_live: bool
    is_checked: bool
    dispatched_to: int
    index_folder: str
    indexed: tuple[tuple[int, int], ...]
    indexed_to: int | None = None
    indexed_again: int | None = None
    dispatched_from: int | None = None
    has_light: bool = False


@dataclass(slots=True)
class LogFileResult:
    """The results for one log file.

    latest         latest store timestamp, ms
    without_queue  for each missing queue, number of its messages, and physical offset of the first message
    without_index  number of keys of messages; counted only if the store has no IndexFiles
    light          for each light queue (LMQ), the differences between the queue offsets of messages and the numbers of
                   their entries
    unplaced       queues whose messages were met, but which the task did not name
    """

    latest: int | None = None
    without_queue: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    without_index: int = 0
    light: dict[Queue, LightQueue] = field(default_factory=dict)
    unplaced: set[Queue] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)


def check_log_file(task: LogTask) -> LogFileResult:
    """Check one log file. A file that has expired since it was listed has no findings."""
    result = LogFileResult()
    try:
        _FileCheck(task, result).run()
    except ReputError as error:
        raise_if_refused(error)
        if not task.is_live or not isinstance(error, (StoreNotFoundError, StoreChangedError)):
            result.findings.append(
                Finding(Kind.UNREADABLE_RECORD, task.compared.file.path, f"cannot be read: {error}")
            )
    return result


class _FileCheck:
    def __init__(self, task: LogTask, result: LogFileResult) -> None:
        self._task, self._result = task, result
        self._tally = Tally()
        self._passed = PassedFile(task.compared.file)

    def run(self) -> None:
        task, result = self._task, self._result
        comparison = FileComparison(task.compared)
        # Usually, all records and their entries are valid. One quick pass suffices to show this.
        latest = comparison.latest_if_sound(self._is_sound)
        if latest is not None:
            result.latest = latest
            self._passed.keep(comparison.scan)
            return
        self._passed.restart()
        queues = QueueFindings(
            task.compared.queues, task.dispatched_to, task.dispatched_from, self._tally,
            os.path.dirname(task.index_folder),
        )  # fmt: skip
        index = IndexFindings(
            task.compared.index_files, task.indexed, task.indexed_to, task.dispatched_to,
            task.indexed_again, task.index_folder, self._tally, comparison.with_tags,
        )  # fmt: skip
        for stretch in comparison.stretches(self._check_records, has_light=task.has_light):
            for run in comparison.queue_runs(stretch):
                queues.explain(run, stretch)
            result.unplaced.update(queue for queue in stretch.taken if queue not in queues.light)
            index.explain(comparison.index_runs(stretch), stretch)
            for lost in stretch.damage:
                messages = comparison.entries_within(lost.start, lost.stop)
                cost = f"{counted(messages, 'message')} with a ConsumeQueue entry can no longer be read"
                finding = replace(self._with_start(lost), cost=cost if messages else "")
                result.findings.append(finding)
        self._passed.keep(comparison.scan)
        self._note_end(comparison.scan)
        result.without_queue, result.light = queues.without_queue, queues.light
        result.unplaced.update(queues.without_queue)
        result.without_index = index.without_index
        result.findings += self._tally.findings()

    def _is_sound(self, piece: ScannedPiece) -> bool:
        """Return whether all records of a piece of the log file match their CRCs."""
        self._passed.add(piece)
        wrong = wrong_bodies(piece.data, piece.positions, piece.batch.messages)
        return not len(wrong) and not len(_wrong_records(piece))

    def _check_records(self, piece: ScannedPiece) -> None:
        self._passed.add(piece)
        result, file, batch = self._result, self._task.compared.file, piece.batch
        offsets, times = piece.positions + piece.base, batch.messages["store_timestamp"]
        high = int(times.max())
        result.latest = high if result.latest is None else max(result.latest, high)
        stated_offsets = batch.messages["physical_offset"]
        misplaced = np.flatnonzero(stated_offsets != offsets)
        bodies = wrong_bodies(piece.data, piece.positions, batch.messages)
        records = np.setdiff1d(_wrong_records(piece), bodies)
        for kind, rows in (
            (Kind.MISPLACED_RECORD, misplaced), (Kind.BODY_CRC, bodies), (Kind.RECORD_CRC, records),
        ):  # fmt: skip
            if len(rows):
                at = int(offsets[rows[0]])
                stated = f"this record states physical offset {stated_offsets[rows[0]]}"
                lost = file.lost(at, at, _MISMATCHES.get(kind, stated), kind)
                self._tally.add(self._with_start(lost), len(rows), times[rows])

    def _with_start(self, lost: Finding) -> Finding:
        task = self._task
        if lost.kind is Kind.MISPLACED_RECORD:
            return lost
        reaction = "does not notice it, because it does not check this file"
        if lost.kind is Kind.RECORD_CRC:
            reaction = "does not notice it, because it compares only bodies unless forceVerifyPropCRC is set"
        elif task.is_checked:
            rest = task.compared.log_end - lost.start
            reaction = (
                f"cuts the log at {lost.start} and loses the {counted(rest, 'byte')} after it;"
                " the index keeps the entries of the lost messages"
            )
        return replace(lost, at_next_start=reaction)

    def _note_end(self, scan: FileScan) -> None:
        task, end = self._task, self._task.compared.log_end
        passed_over = any(lost.start >= end for lost in scan.damage)
        is_expected = task.is_live or task.is_padded
        if not task.is_last or is_expected or not (scan.end.torn or passed_over):
            return
        self._result.findings.append(
            Finding(
                Kind.TORN_LOG_END, task.compared.file.path,
                "the bytes after the last record are not a record", end - task.compared.file.start, end,
                cost="a message of the same size that is put here can make old records reappear",
                at_next_start=f"ends the log at {end}, and leaves the bytes there",
            )
        )  # fmt: skip


def _wrong_records(piece: ScannedPiece) -> npt.NDArray[np.int64]:
    """Return the rows of records that do not match the CRC in their last property (enabledAppendPropCRC, 5.x)."""
    ends = piece.positions + piece.batch.messages["size"]
    # A record without CRC_PROPERTY_END as its last byte has no CRC property. So all records of 4.9 are skipped here.
    may_have = np.flatnonzero(piece.data[ends - 1] == CRC_PROPERTY_END)
    data = piece.data.data
    wrong = [
        row
        for row in may_have.tolist()
        if not record_crc_ok(data[int(piece.positions[row]) : int(ends[row])])
    ]
    return np.array(wrong, np.int64)
