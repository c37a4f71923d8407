"""Divide staged files among packs, so that they are read once in total, not once per pack.

A pack is a group of queues that one task writes. A divide task reads neighbouring staged files and writes one divided
file. A divided file consists of sections. Each section has messages of one pack only, in the format of a staged
file (`reput.engine.rebuild.batch_file`).

    index | sections | positions (begin, end) of the sections of pack 0, pack 1, ...

The index has one int64 per pack: the position of the pack's first (begin, end) pair. A last int64 is the end of all
pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from posixpath import join
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import DispatchBatch, Queue
from reput.engine.rebuild.batch_file import BatchFileWriter, new_runs, read_batches, read_section
from reput.engine.rebuild.old_numbers import OldNumbers, read_old_numbers
from reput.engine.rebuild.queue_plan import DivideTask, QueuePlan, read_plan
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.io import FileWriter, StagedFiles
from reput.kernels.jit import new_rows

_FIELDS = (
    "physical_offset", "size", "tags_code", "store_timestamp", "sys_flag", "queue", "queue_offset",
    "multi",
)  # fmt: skip
# A task writes its buffer to the file when it has this many messages, so that its memory is bounded.
_MOST_ROWS = 1 << 20
_NUMBER_BYTES = 8
_NO_PACK = -1
_Numbers = npt.NDArray[np.int64]
_Rows = npt.NDArray[np.void]


class _Part(NamedTuple):
    """The part of a batch for one pack (a group of queues that one task writes): messages with entries in its queues.

    multi  entries of these messages in further queues of the pack (queues that INNER_MULTI_DISPATCH names); the field
           `row` is an index into `messages`
    """

    messages: _Rows
    multi: _Rows


def divide(scanned: str, plan: str, parts: str, task: DivideTask) -> None:
    """Divide the messages of the task's staged files by pack, and write them to one divided file.

    A pack is a group of queues that one task writes. Safe to run twice, also at the same time. Raises StoreAccessError.
    """
    queue_plan = read_plan(plan)
    packs = _Packs(queue_plan, read_old_numbers(plan) if queue_plan.ranges else {})
    with StagedFiles.writing(_path(parts, task.number)) as attempt, FileWriter(attempt) as file:
        sections = _Sections(file, len(queue_plan.packs))
        for staged in queue_plan.staged[task.first : task.stop]:
            for batch in read_batches(join(scanned, staged), _FIELDS):
                numbers = sections.numbers_of(batch.queues)
                for pack, part in packs.divided(batch):
                    sections.append(pack, part, numbers)
        sections.finish()


def divided_batches(
    parts: str, files: int, pack: int, fields: Sequence[str], selection: Collection[Queue]
) -> Iterator[DispatchBatch]:
    """Yield the batches of one pack (a group of queues that one task writes) from the divided files, in log order.

    A divided file is the output of one divide task. `files` is the number of these files, `pack` the number of the
    pack. Raises StoreAccessError, FormatError.
    """
    for number in range(files):
        path = _path(parts, number)
        first, stop = _numbers(path, pack * _NUMBER_BYTES, 2 * _NUMBER_BYTES)
        for begin, end in _numbers(path, first, stop - first).reshape(-1, 2).tolist():
            yield from read_section(path, begin, end, fields, selection)


def _numbers(path: str, position: int, length: int) -> _Numbers:
    return np.frombuffer(StagedFiles.read_range(path, position, length), np.int64)


def _path(parts: str, number: int) -> str:
    return join(parts, f"divided-{number:06d}")


class _Packs:
    """Finds the pack to which each entry belongs. A pack is a group of queues that one task writes.

    A task writes all entries of its queues, or only the entries in one range of queue offsets per queue
    (`QueuePlan.ranges`). Queue offsets are compared as uint64.
    """

    def __init__(self, plan: QueuePlan, old: dict[Queue, OldNumbers]) -> None:
        self._old = old
        self._cuts: dict[Queue, tuple[npt.NDArray[np.uint64], _Numbers]] = {}
        begins: dict[Queue, list[tuple[int, int]]] = defaultdict(list)
        for pack in sorted(plan.divided):
            firsts = [first for first, _ in plan.ranges[pack]] if plan.ranges else None
            for place, queue in enumerate(plan.pack(pack)):
                begins[queue].append((firsts[place] if firsts else 0, pack))
        for queue, cuts in begins.items():
            columns = zip(*sorted(cuts), strict=True)
            of_cuts, packs = (list(column) for column in columns)
            self._cuts[queue] = np.array(of_cuts, np.uint64), np.array(packs, np.int64)

    def divided(self, batch: DispatchBatch) -> Iterator[tuple[int, _Part]]:
        """Divide a batch among packs (a pack is a group of queues that one task writes).

        Yield, for each pack with entries in the batch, the index of the pack and the messages of these entries.
        """
        messages, multi = batch.messages, batch.multi
        places = messages["physical_offset"]
        own = self._packs_of(batch.queues, messages["queue"], messages["queue_offset"], places)
        further = self._packs_of(
            batch.queues, multi["queue"], multi["queue_offset"], places[multi["row"]]
        )
        by_pack = np.argsort(further, kind="stable")
        # A message has an entry in its own queue, and one in each further queue (INNER_MULTI_DISPATCH). If several of
        # these queues belong to one pack (a group of queues that one task writes), the pack receives the message once.
        packs = np.concatenate([own, further])
        rows = np.concatenate([np.arange(len(own)), multi["row"]])
        order = np.lexsort((rows, packs))
        packs, rows = packs[order], rows[order]
        present = np.unique(packs)
        starts, stops = (np.searchsorted(packs, present, side) for side in ("left", "right"))
        for pack, start, stop in zip(
            present.tolist(), starts.tolist(), stops.tolist(), strict=True
        ):
            if pack != _NO_PACK:
                own_rows = np.unique(rows[start:stop])
                begin, end = np.searchsorted(further[by_pack], [pack, pack + 1]).tolist()
                own_multi = multi[by_pack[begin:end]]
                own_multi["row"] = np.searchsorted(own_rows, own_multi["row"])
                yield pack, _Part(messages[own_rows], own_multi)

    def _packs_of(
        self,
        queues: list[Queue],
        numbers: npt.NDArray[np.int32],
        queue_offsets: _Numbers,
        places: _Numbers,
    ) -> _Numbers:
        """Return, for each entry, the index of the pack to which it belongs; -1 for no pack.

        A pack is a group of queues that one task writes. `numbers` are indexes into `queues`, `queue_offsets` the queue
        offsets, and `places` the physical offsets.
        """
        of_queue = np.full(len(queues), _NO_PACK)
        divided: list[int] = []
        for number, queue in enumerate(queues):
            if (cuts := self._cuts.get(queue)) is not None:
                of_queue[number] = cuts[1][0]
                if len(cuts[1]) > 1:
                    divided.append(number)
        packs = of_queue[numbers]
        for number in divided:
            queue, rows = queues[number], np.flatnonzero(numbers == number)
            offsets = queue_offsets[rows]
            # Several tasks write this queue, each a range of its queue offsets. The old entries decide the queue offset
            # of a message, and thus which task writes its entry. A message that gets no entry (-1) goes to the task of
            # the first range, which counts these messages.
            if queue in self._old:
                offsets = np.maximum(self._old[queue].numbers(places[rows], offsets), 0)
            firsts, packs_of_queue = self._cuts[queue]
            cut = np.searchsorted(firsts, offsets.astype(np.uint64), side="right") - 1
            packs[rows] = packs_of_queue[cut]
        return packs


class _Sections:
    """Buffers messages by pack, and writes a full buffer as one section per pack.

    A pack is a group of queues that one task writes.
    """

    def __init__(self, file: FileWriter, packs: int) -> None:
        self._file, self._position = file, (packs + 1) * _NUMBER_BYTES
        self._places: list[list[tuple[int, int]]] = [[] for _ in range(packs)]
        self._parts: dict[int, list[_Part]] = defaultdict(list)
        self._numbers: dict[Queue, int] = {}
        self._rows = 0

    def numbers_of(self, queues: list[Queue]) -> npt.NDArray[np.int32]:
        """Return, for each of `queues`, the number that identifies the queue in the divided file.

        `queues` are the queues of a batch. The numbers in the staged file of this batch may differ.
        """
        numbers = [self._numbers.setdefault(queue, len(self._numbers)) for queue in queues]
        return np.array(numbers, np.int32)

    def append(self, pack: int, part: _Part, numbers: npt.NDArray[np.int32]) -> None:
        """Buffer the messages of a batch that belong to one pack (a group of queues that one task writes).

        A divided file numbers queues differently from a batch. `numbers[n]` is the number, in the divided file, of the
        queue that has number n in the batch.
        """
        for rows in part:
            rows["queue"] = numbers[rows["queue"]]
        self._parts[pack].append(part)
        self._rows += len(part.messages)
        if self._rows >= _MOST_ROWS:
            self._flush()

    def _flush(self) -> None:
        queues = list(self._numbers)
        for pack, parts in sorted(self._parts.items()):
            batch = _joined(parts, queues)
            writer = BatchFileWriter(self._file, self._position)
            writer.append(batch)
            begin, self._position = self._position, writer.finish(None, new_runs(0))
            self._places[pack].append((begin, self._position))
        self._parts.clear()
        self._rows = 0

    def finish(self) -> None:
        """Write the buffer, the positions of the sections, and the index."""
        self._flush()
        counts = [len(places) for places in self._places]
        ends = self._position + 2 * _NUMBER_BYTES * np.cumsum([0, *counts])
        places = np.array([place for section in self._places for place in section], np.int64)
        self._file.write(ends.astype(np.int64).tobytes(), 0)
        self._file.write(places.tobytes(), self._position)


def _joined(parts: Sequence[_Part], queues: Sequence[Queue]) -> DispatchBatch:
    """Return the parts as one batch. The batch lists only the queues in which its messages have entries."""
    messages = new_rows(sum(len(part.messages) for part in parts), MESSAGE_DTYPE)
    np.concatenate([part.messages for part in parts], out=messages)
    multi = new_rows(sum(len(part.multi) for part in parts), MULTI_DTYPE)
    np.concatenate([part.multi for part in parts], out=multi)
    before = np.cumsum([0, *(len(part.messages) for part in parts[:-1])])
    multi["row"] += np.repeat(before, [len(part.multi) for part in parts])
    used = np.unique(np.concatenate([messages["queue"], multi["queue"]]))
    for rows in (messages, multi):
        rows["queue"] = np.searchsorted(used, rows["queue"])
    # Divided files are read only by tasks that write queues. These tasks need no key hashes, so the batch has none, and
    # its messages must state 0 keys.
    messages["key_count"] = 0
    names = [queues[number] for number in used.tolist()]
    return DispatchBatch(messages, np.empty(0, np.int32), multi, names)
