"""Run a look-up with any runner: plan, find candidates, match records, and scan where an index is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from posixpath import join
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.base import Finding, Progress, Runner, no_progress, silent, waiting
from reput.core import Judge, NamedKey, StoreReader
from reput.engine.lookup import scan_task
from reput.engine.lookup.answer import LookupAnswer
from reput.engine.lookup.candidates import PART_SHIFT, CandidateRun
from reput.engine.lookup.coverage import LookupCoverage, LostSegment, UnwrappedBatches
from reput.engine.lookup.index_task import IndexFound, IndexTask, run_index_task
from reput.engine.lookup.judging import judged
from reput.engine.lookup.key_parts import KeyPart, SortedKeys, window_of
from reput.engine.lookup.match_task import MatchTask, run_match_task
from reput.engine.lookup.ranges import ScannedRange, StorePlan
from reput.format.properties import ID_DIGITS, LEAST_ID_DIGITS
from reput.io import DISK, ArrowFile, Location, StagedFiles

_GROUP_KEYS = 1 << 22
"""Maximum keys per task.

A task with many keys reads a whole IndexFile, and then follows the keys' chains in memory. With this number of keys,
following the chains takes longer than reading the file. So larger tasks, which would read the file less often, would
save little time.
"""

_MOST_NAMED_KEYS = 1 << 10
"""With more keys, records are not compared with the entries of an index without parts."""


def look_up(
    runner: Runner,
    stores: Sequence[StoreReader],
    parts: Sequence[KeyPart],
    folder: str,
    columns: tuple[str, ...],
    progress: Progress = silent,
    names: Sequence[str | None] = (),
) -> LookupAnswer:
    """Look up the staged parts of a key table in open stores, and stage the answer in `folder`.

    All tasks must be able to read the folder.

    `names` are the stores' names in the answer, by default their paths. The phases of `progress` are judge (only if
    there are many IndexFiles), search, read and unwrap.

    Raises StoreAccessError, StoreChangedError, FormatError.
    """
    job = _LookUp(runner, tuple(enumerate(parts)), folder, columns, progress)
    judges = judged(runner, stores, partial(progress, "judge"))
    plans = enumerate(zip(stores, judges, names or [None] * len(stores), strict=True))
    # Planning a remote store mostly waits for requests, so several remote stores are planned at the same time.
    is_remote = not all(store.log_storage.is_local for store in stores)
    job.stores = waiting(is_remote, len(stores)).run(
        _plan_of, list(plans), [1] * len(stores), no_progress
    )
    job.search()
    stale = job.read([run for plan in job.stores for run in plan.runs])
    # `stale` are candidates from wrong index entries. An IndexFile with a wrong entry for a key is not trusted for this
    # key. Instead, the part of the log that the IndexFile covers is scanned for this key.
    job.lose(stale)
    job.unwrap()
    job.compare_entries()
    places = StagedFiles.stores_of(join(folder, "answer"))
    return LookupAnswer(tuple(parts), columns, job.coverage(), dict(job.matches), places=places)


def _plan_of(task: tuple[int, tuple[StoreReader, Judge | None, str | None]]) -> StorePlan:
    number, (store, judge, name) = task
    return StorePlan(number, store, judge, name)


def _hashes(parts: Iterable[KeyPart]) -> npt.NDArray[np.int32]:
    every = np.concatenate(
        [np.empty(0, np.int32), *(SortedKeys(part.path).hashes for part in parts)]
    )
    # np.unique would put the numbers into a hash table first, which takes ten times as long.
    every.sort()
    return every[np.flatnonzero(np.diff(every, prepend=np.int32(-1)))]


@dataclass(slots=True)
class _LookUp:
    """The tasks of one look-up, and their results.

    damage  unreadable ranges that affect only some keys, as (number of the store, finding, numbers that
        identify the keys)
    """

    runner: Runner
    parts: tuple[tuple[int, KeyPart], ...]
    folder: str
    columns: tuple[str, ...]
    progress: Progress
    stores: list[StorePlan] = field(default_factory=list)
    lost: list[LostSegment] = field(default_factory=list)
    batches: list[UnwrappedBatches] = field(default_factory=list)
    damage: list[tuple[int, Finding, npt.NDArray[np.int64]]] = field(default_factory=list)
    matches: dict[int, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    _numbers: int = 0
    _has_wanted: bool = False

    def search(self) -> None:
        """Find the candidates of all stores, from IndexFiles and by scans of ranges that no IndexFile covers."""
        tasks: list[_SearchTask] = []
        ranges: list[tuple[StorePlan, ScannedRange]] = []
        window = window_of(part for _, part in self.parts)
        # Read `parallelism` only once, because Spark's runner calls the JVM for it each time.
        parallelism = self.runner.parallelism
        # A record of 5.x may have several UNIQ_KEY properties, but the index has only the last one. Search for the
        # others only if keys look like ids that a client generated.
        ids = tuple(each for each in self.parts if _may_be_ids(each[1]).any())
        indexed = [(plan.number, list(plan.indexed(window))) for plan in self.stores]
        # If there are fewer IndexFiles than parallel tasks, each is searched by several tasks, for different parts of
        # the keys.
        groups = self._groups(-(-parallelism // max(sum(len(own) for _, own in indexed), 1)))
        # Each pair of an IndexFile and a group of keys is one task.
        tasks += [
            IndexTask(store, number, part.bulk(within), group)
            for store, own in indexed
            for number, part, within in own
            for group in groups
        ]
        for plan in self.stores:
            for part in plan.to_scan(window):
                tasks += self._cut(plan, part, self._wanted())
            tasks += self._replaced_tasks(plan, ids)
            ranges += [(plan, part) for part in plan.ranges]
        self._run_search(tasks, ranges)

    def _replaced_tasks(
        self, plan: StorePlan, parts: tuple[tuple[int, KeyPart], ...]
    ) -> list[scan_task.ReplacedIdTask]:
        """Return tasks that search the log for ids that a 5.x broker did not index; none if no key looks like an id."""
        if not parts or not plan.has_replaced_ids:
            return []
        return [
            scan_task.ReplacedIdTask(plan.place, file, self._wanted(), parts)
            for file in plan.log.files
        ]

    def _groups(self, least: int) -> list[tuple[tuple[int, KeyPart], ...]]:
        """Divide the parts that have keys into at least `least` groups, if there are enough parts."""
        share = -(-sum(part.keys for _, part in self.parts) // least)
        most_keys = min(max(share, 1), _GROUP_KEYS)
        groups: list[tuple[tuple[int, KeyPart], ...]] = []
        group: list[tuple[int, KeyPart]] = []
        for each in self.parts:
            if each[1].keys:
                group.append(each)
            if sum(part.keys for _, part in group) >= most_keys:
                groups.append(tuple(group))
                group = []
        return [*groups, tuple(group)] if group else groups

    def _cut(
        self,
        plan: StorePlan,
        part: ScannedRange,
        hashes_path: str,
        only: npt.NDArray[np.int64] | None = None,
    ) -> list[scan_task.LookupScanTask]:
        parts = [each for each in self.parts if each[1].keys]
        tasks = part.cut(plan.place, self._numbers, hashes_path, parts, only)
        self._numbers += len(tasks)
        return tasks

    def _run_search(
        self,
        tasks: Sequence[_SearchTask],
        ranges: Sequence[tuple[StorePlan, ScannedRange]],
    ) -> None:
        """Run the search tasks. Repeat the scan of each split (part of a range) that began at a wrong offset."""
        replaced: list[scan_task.ReplacedFound] = []
        # A result states only the number of its task. `owner` has the range to which this task belongs.
        owner = {task.number: part for _, part in ranges for task in part.splits}
        phase = "search"
        while tasks:
            search = partial(_search, self.folder, {p.number: p.cells.edges for p in self.stores})
            weights = [task.weight for task in tasks]
            for result in self.runner.run(search, tasks, weights, partial(self.progress, phase)):
                if isinstance(result, scan_task.ScanFound):
                    owner[result.number].take(result)
                elif isinstance(result, scan_task.ReplacedFound):
                    replaced.append(result)
                else:
                    self.stores[result.store].take(result)
            # The scan of a split guesses where the first record of the split begins. The guess was wrong if the scan of
            # the previous split ended at another offset. Then scan the split again.
            tasks = [task for _, part in ranges if (task := part.rescan()) is not None]
            phase = "rescan"
        for plan, part in ranges:
            plan.runs += part.runs
            part.finish(plan.log)
        for done in replaced:
            self.stores[done.store].runs += done.runs
            self._lose_for_ids(done)

    def _lose_for_ids(self, result: scan_task.ReplacedFound) -> None:
        """Note damage that may hide messages with ids that are not in the index.

        If a message has several UNIQ_KEYs (5.x), the index has only the last one, so the earlier ids are not in it.
        The answer is then incomplete for every key that looks like a generated id.
        """
        if result.damage:
            numbers = [
                _rows(part)[_may_be_ids(part)] + (number << PART_SHIFT)
                for number, part in self.parts
            ]
            every = np.concatenate(numbers)
            self.damage += [(result.store, lost, every) for lost in result.damage]

    def read(self, runs: Iterable[CandidateRun]) -> npt.NDArray[np.int64]:
        """Compare the candidates in some runs (files) with the records at their offsets, then delete the runs.

        Return the stale candidates, whose record is missing or does not match: (store, segment, key's number, offset),
        int64[n, 4].
        """
        by_store: dict[int, list[CandidateRun]] = defaultdict(list)
        runs = list(runs)
        for run in runs:
            by_store[run.store].append(run)
        tasks: list[MatchTask] = []
        parallelism = self.runner.parallelism
        for plan in self.stores:
            tasks += plan.cells.tasks(
                plan.place, by_store[plan.number], parallelism,
                self._numbers + len(tasks),
            )  # fmt: skip
        self._numbers += len(tasks)
        match = partial(run_match_task, self.folder, self.columns)
        weights = [task.weight for task in tasks]
        stale = [np.empty((0, 4), np.int64)]
        for matched in self.runner.run(match, tasks, weights, partial(self.progress, "read")):
            stale.append(np.insert(matched.stale, 0, matched.store, axis=1))
            for part, batch in matched.batches:
                self.matches[part].append((matched.path, batch))
        for run in runs:
            # Staged objects are deleted together at the end.
            if not Location.is_url(run.path):
                DISK.remove_tree(Path(run.path))
        return np.concatenate(stale)

    def lose(self, stale: npt.NDArray[np.int64]) -> None:
        """Scan the log ranges of IndexFiles with wrong entries or broken chains, but only for the affected keys."""
        found = [
            (plan, number, keys)
            for plan in self.stores
            for number in range(len(plan.segments))
            if len(keys := _lost_keys(plan, number, stale))
        ]
        if not found:
            return
        tasks: list[scan_task.LookupScanTask] = []
        ranges: list[tuple[StorePlan, ScannedRange]] = []
        for plan, number, keys in found:
            wanted = join(self.folder, f"wanted-{plan.number}-{number}.npy")
            ArrowFile.write_array(wanted, self._hashes_of(keys[:, 0]))
            for part in plan.ranges_of(number):
                tasks += self._cut(plan, part, wanted, keys[:, 0])
                ranges.append((plan, part))
        for plan in self.stores:
            # The first search's runs (files of candidates) have been read and deleted.
            plan.runs = []
        self._run_search(tasks, ranges)
        self.read([run for plan in self.stores for run in plan.runs])
        for plan, number, keys in found:
            own = (part for of, part in ranges if of is plan and part.segment == number)
            self.lost.append(plan.lost_segment(number, keys, own))

    def _wanted(self) -> str:
        """Return the path of a file with the hashes of all keys. The first call writes the file."""
        path = join(self.folder, "wanted-all.npy")
        if not self._has_wanted:
            ArrowFile.write_array(path, _hashes(part for _, part in self.parts))
            self._has_wanted = True
        return path

    def unwrap(self) -> None:
        """Compare the messages of inner batches (5.x) with each requested key whose topic may have such batches."""
        tasks: list[scan_task.InnerTask] = []
        asking: dict[int, npt.NDArray[np.int64]] = {}
        for plan in self.stores:
            found = [(*each, _asking(each[1], plan.batch_topics)) for each in self.parts]
            topics = frozenset().union(*(keys.topics for *_, keys in found))
            if not topics:
                continue
            parts = tuple((number, part) for number, part, keys in found if keys.topics)
            asking[plan.number] = np.concatenate(
                [keys.rows + (number << PART_SHIFT) for number, _, keys in found]
            )
            tasks += [
                scan_task.InnerTask(
                    plan.place, file, self._wanted(), parts, self._numbers + number, topics
                )
                for number, file in enumerate(plan.log.files)
            ]
            self._numbers += len(plan.log.files)
        unwrap = partial(scan_task.run_inner_task, self.folder, self.columns)
        weights = [task.weight for task in tasks]
        done = self.runner.run(unwrap, tasks, weights, partial(self.progress, "unwrap"))
        for part in done:
            for number, batch in part.batches:
                self.matches[number].append((part.path, batch))
        for store, numbers in asking.items():
            own = [part for part in done if part.store == store]
            lost = [(one, numbers) for part in own for one in part.damage]
            lost += [
                (one, self._asking_for(topic))
                for part in own
                for topic, one in part.unopened
            ]  # fmt: skip
            self.damage += [(store, *each) for each in lost]
            # Bytes that other ranges have already reported as unreadable are not counted again.
            known = self.stores[store].partly_read(lost)
            unreadable = sum(part.unreadable_bytes for part in known)
            messages = sum(part.messages for part in own)
            self.batches.append(UnwrappedBatches(store, len(numbers), messages, unreadable))

    def _asking_for(self, topic: str) -> npt.NDArray[np.int64]:
        """Return the numbers, as `PART_SHIFT` defines them, of the keys whose topic is `topic`."""
        rows = [
            _asking(part, frozenset({topic})).rows + (number << PART_SHIFT)
            for number, part in self.parts
        ]
        return np.concatenate(rows)

    def _hashes_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        hashes = [np.empty(0, np.int32)]
        for number, part in self.parts:
            keys = SortedKeys(part.path).batch
            own = keys.column("row").to_numpy().astype(np.int64) + (number << PART_SHIFT)
            hashes.append(keys.column("hash").to_numpy()[np.isin(own, numbers)])
        return np.unique(np.concatenate(hashes))

    def compare_entries(self) -> None:
        """Note records that have lost a requested key, according to entries of an index without parts.

        Such an index is searched key by key, so this is omitted for many keys.
        """
        if sum(part.keys for _, part in self.parts) > _MOST_NAMED_KEYS:
            return
        numbers: dict[NamedKey, list[int]] = defaultdict(list)
        for number, part in self.parts:
            keys = SortedKeys(part.path).batch.select(["row", "topic", "key"]).to_pylist()
            for key in keys if part.keys else ():
                name = NamedKey(key["topic"], key["key"])
                numbers[name].append(key["row"] + (number << PART_SHIFT))
        for plan in self.stores:
            self.damage += [
                (plan.number, lost, np.array(numbers[name], np.int64))
                for name, lost in plan.lost_records(numbers)
            ]

    def coverage(self) -> LookupCoverage:
        stores = [plan.coverage() for plan in self.stores]
        for part in self.batches:
            stores[part.store] = replace(stores[part.store], inner_messages=part.messages)
        partly = [
            part
            for plan in self.stores
            for part in plan.partly_read(
                (lost, keys) for store, lost, keys in self.damage if store == plan.number
            )
        ]
        return LookupCoverage(stores, self.lost, self.batches, partly)


_SearchTask = IndexTask | scan_task.LookupScanTask | scan_task.ReplacedIdTask


def _search(
    folder: str, edges: dict[int, npt.NDArray[np.int64]], task: _SearchTask
) -> IndexFound | scan_task.ScanFound | scan_task.ReplacedFound:
    if isinstance(task, IndexTask):
        return run_index_task(folder, edges[task.store], task)
    if isinstance(task, scan_task.ReplacedIdTask):
        return scan_task.run_replaced_task(folder, edges[task.store], task)
    return scan_task.run_scan_task(folder, edges[task.store], task)


def _may_be_ids(part: KeyPart) -> npt.NDArray[np.bool_]:
    """Return a mask of a part's sorted keys: which of them look like generated ids (`may_be_replaced_id`)."""
    if not part.keys:
        return np.empty(0, np.bool_)
    keys = SortedKeys(part.path).batch.column("key")
    may_be = pc.greater_equal(pc.binary_length(keys), LEAST_ID_DIGITS).to_numpy(
        zero_copy_only=False
    )
    rows = np.flatnonzero(may_be)
    # The regular expression is slow, so it is applied only to keys that are long enough for an id.
    if len(rows):
        digits = f"^[{''.join(sorted(ID_DIGITS))}]+$"
        matches = pc.match_substring_regex(keys.take(pa.array(rows)), digits)
        may_be = may_be.copy()
        may_be[rows] = matches.to_numpy(zero_copy_only=False)
    return np.asarray(may_be, np.bool_)


def _rows(part: KeyPart) -> npt.NDArray[np.int64]:
    if not part.keys:
        return np.empty(0, np.int64)
    rows: npt.NDArray[np.int64] = SortedKeys(part.path).batch.column("row").to_numpy()
    return rows.astype(np.int64)


class _Asking(NamedTuple):
    """The keys, in one part of the key table, whose topic is in a given set.

    rows    rows of these keys in the part, ascending
    topics  the topics of the set that at least one key has
    """

    rows: npt.NDArray[np.int64]
    topics: frozenset[str]


def _asking(part: KeyPart, topics: frozenset[str]) -> _Asking:
    if not topics or not part.keys:
        return _Asking(np.empty(0, np.int64), frozenset())
    keys = SortedKeys(part.path).batch
    # A topic of a log may contain lone surrogates, but a string in Arrow may not. So topics are compared as bytes.
    names = {topic.encode(errors="surrogatepass"): topic for topic in topics}
    topics_of_keys = keys.column("topic").cast(pa.large_binary())
    is_topic = pc.is_in(topics_of_keys, value_set=pa.array(names, pa.large_binary()))
    matches = {names[name] for name in pc.unique(topics_of_keys.filter(is_topic)).to_pylist()}
    rows = keys.column("row").filter(is_topic).to_numpy().astype(np.int64)
    return _Asking(np.sort(rows), frozenset(matches))


def _lost_keys(plan: StorePlan, number: int, stale: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the keys with stale entries or broken chains in a segment: (number, offset), int64[n, 2].

    The offset is the physical offset of the key's newest stale entry, or -1 if only the key's chain is broken.
    """
    entries = stale[(stale[:, 0] == plan.number) & (stale[:, 1] == number)][:, 2:]
    broken = plan.broken.get(number, np.empty(0, np.int64))
    rows = np.concatenate([entries, np.stack([broken, np.full_like(broken, -1)], axis=1)])
    # For each key, the newest stale entry comes first.
    rows = rows[np.lexsort((-rows[:, 1], rows[:, 0]))]
    return rows[np.unique(rows[:, 0], return_index=True)[1]]
