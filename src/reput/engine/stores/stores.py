"""Run an operation, which is defined for one store, over many stores.

If a store cannot be read, the joint report names it and is incomplete. The answers of other stores are not affected.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, partial, update_wrapper
from inspect import signature
from os import PathLike, fspath
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from reput.base import Finding, Kind, Report, Runner, SerialRunner, Severity, counted, printable
from reput.engine.stores.journal import Journal
from reput.engine.stores.limited import limited, within
from reput.engine.stores.named_stores import NamedStore as NamedStore
from reput.engine.stores.opening import find_stores, log_bytes, open_store, split_logs, with_logs
from reput.engine.stores.replicas import find_replicas
from reput.engine.stores.runners import SMALL_BYTES, Chosen, opened_runner
from reput.engine.stores.threads import call_in_threads
from reput.errors import ReputError, StoreAccessError, StoreError, UsageError
from reput.io import Location

if TYPE_CHECKING:
    from reput.core import MessageStore

MANY_STORES = 16
"""With at least this many stores, several processes save time, even if all stores are small."""

# The smallest number of local stores that is worth a fork. Small stores take 2 ms each.
_LEAST_OF_FORK = 100
# The number of stores that are read at the same time if each has a limit of time.
_AT_ONCE = 16
_OF_ONE_STORE = ("index", "output")
_READ_ARCHIVES = frozenset({"stats"})
"""Operations that read a store together with its archive. Other operations examine only the store's own files."""
StorePath = str | PathLike[str]
_Result = TypeVar("_Result", bound=Report, covariant=True)


class HasCoverage(Protocol):
    """An answer that states whether it is complete."""

    @property
    def is_complete(self) -> bool: ...


class StoreState(StrEnum):
    """The states of a store, the worst first."""

    DAMAGED = "damaged"
    NOT_READ = "not read"
    WARNING = "warning"
    OK = "ok"


_STATES = {Severity.DAMAGE: StoreState.DAMAGED, Severity.WARNING: StoreState.WARNING}
_Answer = TypeVar("_Answer", bound=HasCoverage)
_Arguments = ParamSpec("_Arguments")


Stores = StorePath | NamedStore | Sequence[StorePath | NamedStore]
"""One store or several: paths, URLs, patterns of these, and stores with names."""


@dataclass(frozen=True, slots=True)
class StoreAnswer(Generic[_Answer]):
    """The answer of an operation for one store.

    Attributes:
        store: The name of the store.
        path: The folder or URL of the store.
        report: The report of the operation; None if it failed.
        error: The error of a failed operation; None if it succeeded.
        log_bytes: The size of the store's CommitLog files; 0 if they could not be listed.
        differs: Whether the log differs from that of the first store with the same cluster and broker name.
    """

    store: str
    path: str
    report: _Answer | None = None
    error: ReputError | None = None
    log_bytes: int = 0
    differs: bool = False

    @property
    def is_complete(self) -> bool:
        """Return whether the store was completely readable."""
        return self.report is not None and self.report.is_complete

    @property
    def state(self) -> StoreState:
        """Return the state of the store, which its worst finding determines."""
        if self.report is None:
            return StoreState.NOT_READ
        if self.differs:
            return StoreState.DAMAGED
        severity: Severity | None = getattr(self.report, "severity", None)
        return StoreState.OK if severity is None else _STATES.get(severity, StoreState.OK)

    @property
    def headline(self) -> str:
        """Return the headline of the report, or the error, in one line."""
        text = str(self.error) if self.report is None else str(getattr(self.report, "headline", ""))
        text = text.removeprefix(f"{self.path}: ")
        return f"{text} ({Kind.REPLICA_DIFFERS})" if self.differs else text


@dataclass(frozen=True, slots=True, repr=False)
class StoresReport(Report, Generic[_Result]):
    """The reports of an operation over several stores, in the order of the stores.

    Attributes:
        answers: One answer per store.
        replica_of: The name of each replica's master, by the name of the replica.
        differing: Findings about stores with the same cluster and broker name whose logs differ.
    """

    answers: tuple[StoreAnswer[_Result], ...]
    replica_of: Mapping[str, str] = field(default_factory=dict)
    differing: tuple[Finding, ...] = ()

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[StoreAnswer[_Result]]:
        return iter(self.answers)

    def __getitem__(self, store: str) -> _Result:
        """Return the report of the store with this name or path. Raises KeyError if there is none."""
        for answer in self.answers:
            if store in (answer.store, answer.path) and answer.report is not None:
                return answer.report
        raise KeyError(store)

    @property
    def failed(self) -> tuple[StoreAnswer[_Result], ...]:
        """Return the stores without a report."""
        return tuple(answer for answer in self.answers if answer.report is None)

    @property
    def is_complete(self) -> bool:
        """Return whether each store was completely readable."""
        return all(answer.is_complete for answer in self.answers)

    @property
    def is_valid(self) -> bool:
        """Return whether each store was read, and none has a problem."""
        return self.severity is None and not self.failed

    @property
    def severity(self) -> Severity | None:
        states = {answer.state for answer in self.answers}
        if StoreState.DAMAGED in states or self.differing:
            return Severity.DAMAGE
        return Severity.WARNING if StoreState.WARNING in states else None

    @property
    def counted(self) -> tuple[StoreAnswer[_Result], ...]:
        """Return the answers that are included in totals: the answer of one store per log.

        Of several replicas, only the first that was read is counted.
        """
        answers: dict[str, StoreAnswer[_Result]] = {}
        for answer in sorted(self.answers, key=lambda answer: answer.store in self.replica_of):
            if answer.report is not None:
                answers.setdefault(self.replica_of.get(answer.store, answer.store), answer)
        names = {answer.store for answer in answers.values()}
        return tuple(answer for answer in self.answers if answer.store in names)

    @property
    def log_bytes(self) -> int:
        """Return the CommitLog bytes of all stores that have a report. Replicas of one log count once."""
        return sum(answer.log_bytes for answer in self.counted)

    @property
    def counts(self) -> dict[StoreState, int]:
        """Return the number of stores in each state, the worst first."""
        counts = Counter(answer.state for answer in self.answers)
        return {state: counts[state] for state in StoreState}

    @property
    def headline(self) -> str:
        parts = [f"{count:,} {state}" for state, count in self.counts.items() if count]
        if self.replica_of:
            parts.append(f"{len(self.replica_of):,} of them replicas")
        counts = f"{stores_in_words(len(self.answers))}: {', '.join(parts)}"
        return f"{counts}; {self.log_bytes:,} bytes of CommitLog"

    def worst_first(self) -> list[StoreAnswer[_Result]]:
        """Return the answers by descending severity, then in the order of the stores."""
        return sorted(self.answers, key=lambda answer: list(StoreState).index(answer.state))

    def lines(self) -> Iterator[str]:
        """Yield one line per store, the worst first, then differences between replicas, then the counts."""
        names = max((len(printable(answer.store)) for answer in self.answers), default=0)
        states = max((len(answer.state) for answer in self.answers), default=0)
        for answer in self.worst_first():
            text = f"{printable(answer.store):<{names}}  {answer.state:<{states}}  {printable(answer.headline)}"
            of = self.replica_of.get(answer.store)
            yield f"{text} (replica of {printable(of)})" if of else text
        for difference in self.differing:
            yield printable(f"{difference.severity}: {difference.kind}: {difference}")
        yield self.headline

    def coverage(self) -> list[dict[str, Any]]:
        """Return an object per store: its state, the size of its log, and whether it was completely readable."""
        return [
            {
                "store": answer.store,
                "path": answer.path,
                "state": answer.state,
                "log_bytes": answer.log_bytes,
                "replica_of": self.replica_of.get(answer.store),
                "is_complete": answer.is_complete,
                "error": None if answer.error is None else str(answer.error),
            }
            for answer in self.answers
        ]

    def total(self) -> dict[str, Any]:
        """Return the counts over all stores."""
        return {
            "stores": len(self),
            "failed": len(self.failed),
            "log_bytes": self.log_bytes,
            "is_complete": self.is_complete,
            "states": {state.value: count for state, count in self.counts.items()},
        }

    def as_dict(self) -> dict[str, Any]:
        rows = [
            {**coverage, "report": None if answer.report is None else answer.report.as_dict()}
            for coverage, answer in zip(self.coverage(), self.answers, strict=True)
        ]
        differing = [difference.as_json() for difference in self.differing]
        return {"total": self.total(), "stores": rows, "differing": differing}


class StoresOperation(Protocol[_Arguments, _Result]):
    """An operation that returns a report for one store, or a joint report for several."""

    # This overload is first: a str is also a Sequence[str], and type checkers take the first overload that matches.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, store: StorePath, /, *args: _Arguments.args, **options: _Arguments.kwargs
    ) -> _Result: ...

    @overload
    def __call__(
        self,
        store: NamedStore | Sequence[StorePath | NamedStore],
        /,
        *args: _Arguments.args,
        **options: _Arguments.kwargs,
    ) -> StoresReport[_Result]: ...


def takes_stores(
    operation: Callable[Concatenate[StorePath, _Arguments], _Result],
) -> StoresOperation[_Arguments, _Result]:
    """Make an operation on one store also accept a NamedStore, or a list of paths, patterns and NamedStores."""
    first = next(iter(signature(operation).parameters))

    def entrance(*args: Any, **options: Any) -> Any:
        stores: Any = args[0] if args else options.get(first)
        is_path = isinstance(stores, str | PathLike) or not isinstance(
            stores, NamedStore | Sequence
        )
        if is_path:  # An argument of a wrong type goes to the operation, which refuses it.
            return operation(*args, **options)
        if len(args) > 1:
            raise UsageError("with several stores, pass all other arguments by name")
        options.pop(first, None)
        return over_stores(entrance, stores, **options)

    named: Any = update_wrapper(entrance, operation)
    return cast("StoresOperation[_Arguments, _Result]", named)


def stores_of(
    stores: Stores,
    storage_options: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> list[NamedStore]:
    """Return the stores to which paths and patterns lead, without duplicates, in the given order.

    Paths without a store are returned too: the operation reports why they cannot be read. With `limit_s`, paths that
    do not answer within so many seconds count as different stores.

    Raises:
        UsageError: no store is named, or two stores have the same name.
    """
    sources = [stores] if isinstance(stores, str | PathLike | NamedStore) else list(stores)
    if not sources:
        raise UsageError("name a store: pass at least one path or NamedStore")
    # Compare real paths, because two paths may lead to the same store.
    by_place: dict[str, NamedStore] = {}
    for source in sources:
        for store in _expanded(source, storage_options, limit_s):
            place = within(limit_s, partial(Location.canonical, store.path), store.path)
            by_place.setdefault(place, store)
    names = [store.name for store in by_place.values()]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        paths = [store.path for store in by_place.values() if store.name == twice]
        raise UsageError(f"{' and '.join(paths)} have the same name {twice}; rename one of them")
    return list(by_place.values())


def _expanded(
    path: StorePath | NamedStore,
    storage_options: Mapping[str, str] | None,
    limit_s: float | None,
) -> list[NamedStore]:
    if not isinstance(path, str | PathLike | NamedStore):
        raise UsageError(f"a store must be a path or a NamedStore, not {path!r}")
    store = path if isinstance(path, NamedStore) else _of_path(fspath(path))
    if not Location.is_pattern(store.path) or store.name != store.path:
        return [store]
    try:
        options = store.options.get("storage_options", storage_options)
        paths = find_stores([store.path], options, limit_s)
    except StoreError:  # The operation will report the error.
        return [store]
    return [replace(store, name=place, path=place) for place in paths]


def _of_path(path: str) -> NamedStore:
    store, logs = split_logs(path)
    return NamedStore(path, store, log_paths=logs)


def open_named(store: NamedStore, **reading: Any) -> MessageStore:
    """Open a NamedStore. Its own options override `reading`. Raises the errors of `open_store`."""
    path, of_store = store.arguments(joined=True)
    reader: MessageStore = open_store(path, **_merged(open_store, reading, of_store))
    return reader


def stores_in_words(count: int) -> str:
    """Return a number of stores in words, as in `1 store` or `12 stores`."""
    return counted(count, "store")


def over_stores(
    operation: Callable[..., _Result],
    stores: Stores,
    *,
    on_answer: Callable[[StoreAnswer[_Result]], None] = lambda answer: None,
    runner: Any = "auto",
    resume: StorePath | None = None,
    outputs: Mapping[str, str] | None = None,
    limit_s: float | None = None,
    **options: Any,
) -> StoresReport[_Result]:
    """Run an operation over several stores, a limited number at a time.

    Each small store is one task of the runner. Stores of 256 MiB or more are processed one after the other. If the
    operation has a parameter `runner`, each of these large stores is divided into tasks of the runner.

    Args:
        operation: A function at module level (it may be pickled), with the store as its first argument.
        stores: The stores. Options of a NamedStore override `options`.
        on_answer: Called in this thread with the answer of each store as soon as it is known.
        runner: "auto", "serial", "processes", "spark", or a SparkSession. "auto" uses this process for a few small
            stores.
        resume: A file in which answers are recorded. If it has the answer of a store, the store is not read again, and
            its report has only a headline and data.
        outputs: For each store, by name: the file or folder that the operation writes. If this file or folder does not
            exist, the store is read again, even if `resume` has its answer.
        limit_s: Seconds that each store may take. A store that takes longer counts as not read. With a limit, stores
            are processed in threads of this process, large ones too.
        options: Further arguments of the operation. Callbacks are called only for large stores.

    Raises:
        UsageError: no store is named, or an option is wrong. A store that cannot be read raises no error.
    """
    named = stores_of(stores, options.get("storage_options"), limit_s)
    # With a limit, even listing a store is a part of its task.
    sizes = [
        bytes_of(store, options.get("storage_options")) if limit_s is None else 0 for store in named
    ]
    answers: list[StoreAnswer[_Result] | None] = [None] * len(named)
    has_runner = "runner" in signature(operation).parameters
    if len(named) > 1 and (one_only := [name for name in _OF_ONE_STORE if options.get(name)]):
        raise UsageError(
            f"{', '.join(one_only)}: works with one store only, not with {len(named)}; set it in the options of a "
            f"NamedStore",
            arguments=one_only,
        )

    with ExitStack() as stack:
        journal = None
        if resume is not None:
            journal = stack.enter_context(Journal(resume, operation.__name__, options))

        def output_of(store: NamedStore) -> str:
            return (outputs or {}).get(store.name, "")

        def done(place: int, answer: StoreAnswer[_Result]) -> None:
            answers[place] = answer
            on_answer(answer)
            # Record the answer only after `on_answer`. If the process is killed before the answer is recorded, the
            # next run reads the store again, and calls `on_answer` again.
            if journal is not None and answer.report is not None:
                journal.add(named[place], output_of(named[place]), answer.report)

        for place, store in enumerate(named if journal is not None else ()):
            output = output_of(store)
            earlier = None if journal is None else journal.report_of(store, output)
            if earlier is not None and (
                not output or Location.is_url(output) or os.path.exists(output)
            ):
                report = cast("_Result", earlier)
                answers[place] = StoreAnswer(store.name, store.path, report, None, sizes[place])
                on_answer(cast("StoreAnswer[_Result]", answers[place]))
        places = [place for place, answer in enumerate(answers) if answer is None]
        small = [place for place in places if sizes[place] < SMALL_BYTES]
        whole = options | ({"runner": "serial"} if has_runner else {})
        # A task may run in another process, where it cannot call the callbacks of this process.
        whole = {name: value for name, value in whole.items() if not callable(value)}
        with ExitStack() as running:
            tasks = []
            if limit_s is None:
                tasks = [_task(operation, named[place], sizes[place], whole) for place in small]
            if limit_s is not None:
                small_stores = [named[place] for place in small]
                for place, answer in _limited(operation, small_stores, limit_s, whole):
                    done(small[place], answer)
            choice = Chosen.of(runner) if limit_s is None else Chosen("serial")
            size = sum(sizes[place] for place in small)
            at_once = _runner_of_many(running, choice, size, len(small))
            for place, answer in _as_completed(tasks, at_once):
                done(small[place], answer)
        store_options = options | ({"runner": runner} if has_runner else {})
        for place in places:
            if (size := sizes[place]) >= SMALL_BYTES:
                done(place, _task(operation, named[place], size, store_options)())
    # A store that did not answer would not answer now either.
    replicas = find_replicas(
        [
            store
            for store, answer in zip(named, answers, strict=True)
            if limit_s is None or (answer is not None and answer.report is not None)
        ]
    )
    differing = {finding.file for finding in replicas.differing}
    every = tuple(
        replace(answer, differs=answer.path in differing)
        for answer in answers
        if answer is not None
    )
    joint_report = StoresReport(every, replicas.first, replicas.differing)
    raise_if_misused(joint_report.answers)
    return joint_report


def _limited(
    operation: Callable[..., _Result],
    stores: Sequence[NamedStore],
    limit_s: float,
    options: Mapping[str, Any],
) -> Iterator[tuple[int, StoreAnswer[_Result]]]:
    """Run an operation on stores, each for `limit_s` seconds at most, and yield (index of the store, answer)."""

    def task(store: NamedStore) -> StoreAnswer[_Result]:
        size = bytes_of(store, options.get("storage_options"))
        return _task(operation, store, size, options)()

    tasks = [partial(task, store) for store in stores]
    for place, answer in limited(tasks, _AT_ONCE, limit_s):
        if answer is None:
            store = stores[place]
            error = StoreAccessError(f"{store.path}: no answer within {limit_s:g} s")
            answer = StoreAnswer(store.name, store.path, None, error, 0)
        yield place, answer


def raise_if_misused(answers: Sequence[StoreAnswer[Any]]) -> None:
    """If the operation refused the arguments for every store, raise the error of the first store.

    In that case, the arguments themselves are probably wrong.
    """
    if answers and all(isinstance(answer.error, UsageError) for answer in answers):
        raise answers[0].error or UsageError()


def in_threads(
    ask: Callable[[NamedStore], tuple[_Answer, int]],
    stores: Sequence[NamedStore],
    at_once: int,
    may_fork: bool = False,
) -> Iterator[tuple[int, StoreAnswer[_Answer]]]:
    """Call `ask` for each store in threads, and yield (index of the store, answer) as soon as it is known.

    Args:
        ask: Returns the report of a store, and the size of its log in bytes.
        stores: The stores.
        at_once: The largest number of threads.
        may_fork: Whether many local stores may be divided between forks of this process (`reput.engine.stores.forks`).

    Raises UsageError. A store that cannot be read raises no error.
    """

    def answer(place: int) -> tuple[int, StoreAnswer[_Answer]]:
        store = stores[place]
        try:
            report, size = ask(store)
        except (ReputError, OSError) as error:
            return place, _unread(store, error, bytes_of(store))
        return place, StoreAnswer(store.name, store.path, report, None, size)

    remote = sum(Location.is_url(store.path) or store.archive is not None for store in stores)
    if may_fork and not remote and len(stores) >= 2 * _LEAST_OF_FORK:
        from reput.engine.stores.forks import in_forks

        def some(places: Sequence[int]) -> Iterator[tuple[int, StoreAnswer[_Answer]]]:
            return call_in_threads(lambda n: answer(places[n]), len(places), at_once, at_first=0)

        return in_forks(some, len(stores), _LEAST_OF_FORK)
    return call_in_threads(answer, len(stores), at_once, at_first=remote)


def _runner_of_many(stack: ExitStack, choice: Chosen, size_bytes: int, stores: int) -> Runner:
    """Return a runner whose tasks are whole stores."""
    if choice.runner == "auto" and choice.master is None:
        is_little = stores < MANY_STORES and size_bytes < SMALL_BYTES
        choice = choice._replace(runner="serial" if is_little else "processes")
    if stores < 2:
        return SerialRunner()
    return stack.enter_context(opened_runner(choice, size_bytes, lambda: None))


def _as_completed(
    tasks: Sequence[Callable[[], _Answer]], runner: Runner
) -> Iterator[tuple[int, _Answer]]:
    """Run tasks, `parallelism` at a time, and yield (index of the task, result) as soon as it is known."""
    if runner.parallelism == 1:
        yield from ((place, task()) for place, task in enumerate(tasks))
        return

    def run(place: int) -> tuple[int, _Answer]:
        return place, runner.run(_call, [tasks[place]], [1], lambda done, total: None)[0]

    threads = runner.parallelism
    yield from call_in_threads(run, len(tasks), threads, at_first=threads)


def _call(task: Callable[[], _Answer]) -> _Answer:
    return task()


def _task(
    operation: Callable[..., _Answer], store: NamedStore, size: int, options: Mapping[str, Any]
) -> Callable[[], StoreAnswer[_Answer]]:
    """Return a function that runs an operation on one store.

    The store's settings are read now, because tasks of a remote runner may not have access to the files of settings.
    """
    try:
        joined = getattr(operation, "__name__", "") in _READ_ARCHIVES
        path, of_store = store.arguments(joined=joined)
    except ReputError as error:
        return partial(StoreAnswer, store.name, store.path, None, error, size)
    return partial(_answer, operation, store, path, size, _merged(operation, options, of_store))


def _merged(
    operation: Callable[..., Any], options: Mapping[str, Any], of_store: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options for one store. The store's own options override other options.

    `config` overrides `broker_config`.
    """
    merged = {**options, **of_store}
    if merged.get("config") is not None:
        merged.pop("broker_config", None)
    # An operation without the option `storage_options` supports only local stores.
    if "storage_options" in merged and not _takes_storage(operation):
        merged.pop("storage_options", None)
    return merged


@cache
def _takes_storage(operation: Callable[..., Any]) -> bool:
    """Return whether an operation has the option `storage_options`."""
    parameters = signature(operation).parameters
    return "storage_options" in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def _answer(
    operation: Callable[..., _Answer],
    store: NamedStore,
    path: str,
    size: int,
    options: Mapping[str, Any],
) -> StoreAnswer[_Answer]:
    """Run an operation on one store, and return its report or its error."""
    try:
        report = operation(path, **options)
    except (ReputError, OSError) as error:
        return _unread(store, error, size)
    return StoreAnswer(store.name, store.path, report, None, size)


def _unread(store: NamedStore, error: ReputError | OSError, size: int) -> StoreAnswer[Any]:
    """Return the answer for a store on which the operation failed with `error`."""
    if not isinstance(error, ReputError):
        error = StoreAccessError(f"{error.filename or store.path}: {error.strerror or error}")
    return StoreAnswer(store.name, store.path, None, error, size)


def bytes_of(store: NamedStore, storage_options: Mapping[str, str] | None = None) -> int:
    """Return the size of a store's log, or 0 if the log cannot be listed.

    In that case, the following operation on the store reports the error.
    """
    options = store.options.get("storage_options", storage_options)
    try:
        return log_bytes(with_logs(store.path, store.log_paths), options)
    except ReputError:
        return 0
