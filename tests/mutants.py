"""Change the core of reput in small ways, and report the changes that no test notices.

`make mutants` does this:

1. It collects the tests in `TESTS` once, in one process that has imported everything.
2. It runs the tests of each file in a fork of this process, and records what each test costs and which lines it
   reaches.
3. It forks the process for one change after the other. The fork replaces the code of the changed function, and runs the
   tests that reach the changed lines, the fastest first, until one fails or they have taken their time. No file of the
   checkout changes, so programs that a test starts run the code without the change.
4. It appends each result to `build/mutants/results.jsonl`. A later run tries a change again only if its module has
   changed, or if it survived and the tests have changed.

A change is an operator, a constant, a condition, two arguments or a call: see `_Changes`. `CHANGES_BY_HAND` adds the
changes that matter most. A surviving change needs a new test, or an entry in `tests/mutants.toml` that explains why it
makes no difference.
"""

from __future__ import annotations

import argparse
import ast
import gc
import inspect
import io
import json
import os
import resource
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from itertools import accumulate, groupby
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType
from typing import Any, NamedTuple, NoReturn, TypeVar

import pytest
from coverage import Coverage
from hypothesis import Phase, settings

from tests.durations import file_of, processor_s
from tests.scheduling import SPARK, scope_of

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "mutants"
RESULTS = PLACE / "results.jsonl"
EXPLAINED = Path(__file__).with_name("mutants.toml")
COUNT = 200
_TESTS_S, _MOST_CASES = 30.0, 2
"""For one change, the fastest tests run that cost less than this together, so many cases of each test."""
_STEP_S = 0.1
"""Tests below this cost run file by file. Then the tests below twice this cost run, and so on."""
_LEAST_S, _TIMES, _MEASURE_S = 10, 20, 3600
"""A test may cost `_LEAST_S` and `_TIMES` its cost without a change, a measured file `_MEASURE_S`."""
_WAIT_S = 300
"""A test that takes so much longer than its cost waits for something that does not happen."""
_MOST_BYTES = 4 << 30
"""The largest file and the most memory of a process with a change, which might never stop growing."""
_OUTPUT = "output.txt"
_BROKEN = "BROKEN"
"""The word with which a child reports that this script failed, not a test."""
_POWER = "test_operations_power_cut.py::test_a_cut_"
_Work = TypeVar("_Work")
_DULL_CALLS = ("progress", "log", "warn", "note", "close", "start_writeback", "prepare", "super")

MODULES = (
    "io/writer",
    "io/open_files",
    "io/user_cache",
    "io/copies",
    "io/disk",
    "engine/rebuild/commit",
    "engine/rebuild/staging",
    "engine/check/repairing/places",
    "wings/archive/new_store",
    "wings/erase/store_copy",
    "core/queues/reader",
    "core/queues/writer",
    "core/queues/set_writer",
    "engine/five/rocksdb_queues",
    "core/index/writer",
    "core/index/set_writer",
    "core/index/plan",
    "core/log/verdict",
    "core/log/ends",
    "engine/writer/recovery/recovery_point",
    "engine/writer/recovery/log",
    "engine/writer/recovery/queue_files",
    "engine/writer/dispatch",
    "engine/writer/flush",
    "engine/writer/expiry",
    "engine/writer/retention",
    "engine/writer/put/log_files",
    "wings/serve/broker/offsets",
    "engine/compare/placement",
    "engine/writer/file_sizes",
)
"""Modules below src/reput, the most important first."""

TESTS = (
    "archive/test_joined.py",
    "archive/test_restoring.py",
    "archive/test_retention.py",
    "broker/test_state.py",
    "check/test_repair.py",
    "check/test_repair_kills.py",
    "check/test_swaps.py",
    "cli/test_lag.py",
    "crash",
    "erase/test_choices.py",
    "erase/test_erase.py",
    "index",
    "io",
    "log",
    "query/test_expiring_under.py",
    "query/test_short_tail.py",
    "queues",
    "rebuild",
    "recovery",
    "remoting/test_administering.py",
    "store",
    "writer",
)
"""Folders and files below tests whose tests run."""


class Change(NamedTuple):
    """A change of a module: the text from `begin` to `end` is replaced.

    Attributes:
        module: One of `MODULES`.
        place: The function.
        before, after: The changed text.
        number: Distinguishes equal changes of one function.
        lines: The lines of the statement, from 1.
    """

    module: str
    place: str
    before: str
    after: str
    number: int
    begin: int
    end: int
    lines: tuple[int, int]

    @property
    def name(self) -> str:
        return f"{self.module} {self.place}: {self.before} -> {self.after}" + (
            f" #{self.number}" if self.number else ""
        )


CHANGES_BY_HAND: tuple[tuple[str, str, str, str], ...] = (
    ("io/writer", "write_durable", "file.sync()", "pass"),
    ("io/writer", "appending", "os.fsync(file.fileno())", "pass"),
    ("io/writer", "sync_folder", "os.fsync(fd)", "pass"),
    ("io/writer", "sync_tree", "os.fsync(folder)", "pass"),
    ("io/writer", "sync_file", "os.fsync(fd)", "pass"),
    ("io/writer", "FileWriter.sync", "os.fdatasync(self._fd)", "pass"),
    ("io/writer", "link", "os.path.samestat(status, linked) and inode in (None, linked.st_ino)", "True"),
    ("io/writer", "link", "os.path.samestat(status, linked)", "True"),
    ("io/writer", "link", "inode in (None, linked.st_ino)", "True"),
    ("engine/rebuild/commit", "swap_in", "DISK.sync_tree(staging.new)", "pass"),
    ("engine/rebuild/commit", "swap_in", "DISK.sync_folder(output)", "pass"),
    ("engine/rebuild/commit", "swap_in", "if _sizes(place) != expected:", "if False:"),
    ("engine/rebuild/commit", "_write_checkpoint", "DISK.sync_folder(output)", "pass"),
    (
        "engine/rebuild/commit", "FolderTarget.commit",
        "swap_in(self._output, self._staging, commit.without)\n"
        "        _write_checkpoint(self._output, self._staging, commit)",
        "_write_checkpoint(self._output, self._staging, commit)\n"
        "        swap_in(self._output, self._staging, commit.without)",
    ),
    ("wings/erase/store_copy", "StoreCopy._copy", "DISK.sync_file(target)", "pass"),
    ("wings/erase/store_copy", "StoreCopy._finish", "DISK.sync_tree(self._new)", "pass"),
    ("engine/check/repairing/places", "Attempt.write_record", "DISK.sync_folder(self.folder)", "pass"),
    ("engine/check/repairing/places", "RepairPlaces._rename", "DISK.sync_folder(folder)", "pass"),
    ("wings/archive/new_store", "NewStore.finish", "DISK.sync_tree(self.folder)", "pass"),
    (
        "engine/writer/recovery/recovery_point", "read_recovery_point",
        'content["closed"] == _digest(store, point, config)', "True",
    ),
    (
        "engine/writer/recovery/recovery_point", "_digest",
        "parts += [_look(path) for path in _files_that_grow(store, point, config)]", "pass",
    ),
    ("wings/serve/broker/offsets", "ConsumerOffsets.take_reset", "if resets:", "if False:"),
    ("io/open_files", "_Pool._make_room", "max(most, 0)", "max(most - 1, 0)"),
    ("io/user_cache", "OwnCache._make_room", "used -= size", "pass"),
    ("io/disk", "Disk.replace", "self.sync_folder(path.parent)", "pass"),
    ("io/disk", "Disk.make_folder", "self.sync_folder(folder.parent)", "pass"),
    ("core/queues/reader", "ConsumeQueueReader._max", "return end", "return max(end - 1, 0)"),
    ("core/queues/reader", "ConsumeQueueReader._max", "last is None or not last.is_written", "False"),
    ("core/queues/writer", "EntryFilesWriter.sync", "file.sync()", "pass"),
    ("core/queues/writer", "EntryFilesWriter.sync", "self._disk.sync_folder(folder)", "pass"),
    ("core/queues/set_writer", "ConsumeQueueSetWriter.sync", "self._sync_units(list(self._units))", "pass"),
    ("core/queues/set_writer", "ConsumeQueueSetWriter.sync", "queue.sync()", "pass"),
    ("engine/writer/put/log_files", "LogFiles.sync", "self._open[start].sync()", "pass"),
    ("engine/writer/put/log_files", "LogFiles._make", "self._disk.sync_folder(self._folder)", "pass"),
    ("engine/writer/flush", "Flusher.flush", "self._sync_log(self.flushed, end)", "pass"),
    ("engine/writer/expiry", "carry_out", "disk.sync_folder(path.parent)", "pass"),
    ("engine/writer/recovery/recovery_point", "delete_recovery_point", "disk.sync_folder(store)", "pass"),
)  # fmt: skip
"""Module, function, text, and its replacement."""

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class _Changes(ast.NodeVisitor):
    """Collects the possible changes of a module's functions: (function, statement, node, replacement)."""

    def __init__(self) -> None:
        self.found: list[tuple[str, ast.stmt, ast.AST, str]] = []
        self._names: list[str] = []
        self._depth = 0
        self._statement: ast.stmt = ast.Pass()

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            self._names.append(node.name)
            self._depth += isinstance(node, ast.FunctionDef)
            for child in node.body:
                self.visit(child)
            self._depth -= isinstance(node, ast.FunctionDef)
            self._names.pop()
            return
        # Texts of errors, and types, do not matter here.
        if isinstance(
            node, ast.Raise | ast.JoinedStr | ast.AnnAssign | ast.Import | ast.ImportFrom
        ):
            return
        if not self._depth:
            self.generic_visit(node)
            return
        if isinstance(node, ast.stmt):
            self._statement = node
        self._change(node)
        self.generic_visit(node)

    def _add(self, node: ast.AST, after: str) -> None:
        self.found.append((".".join(self._names), self._statement, node, after))

    def _change(self, node: ast.AST) -> None:
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            other = _COMPARED[type(node.ops[0])]()
            self._add(node, f"({ast.unparse(ast.Compare(node.left, [other], node.comparators))})")
        elif isinstance(node, ast.BoolOp):
            joined = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
            self._add(node, f"({ast.unparse(ast.BoolOp(joined, node.values))})")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            if not isinstance(node.left, ast.Constant | ast.List | ast.JoinedStr):
                sign = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
                self._add(node, f"({ast.unparse(ast.BinOp(node.left, sign, node.right))})")
        elif isinstance(node, ast.If):
            self._add(node.test, f"(not ({ast.unparse(node.test)}))")
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            self._add(node, str(node.value + 1))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if not any(word in ast.unparse(node.value.func) for word in _DULL_CALLS):
                self._add(node, "pass")
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            first, second, *rest = node.args
            is_symmetric = isinstance(node.func, ast.Name) and node.func.id in ("max", "min")
            if is_symmetric:
                return
            if isinstance(first, ast.Name | ast.Attribute) and isinstance(
                second, ast.Name | ast.Attribute
            ):
                swapped = ast.Call(node.func, [second, first, *rest], node.keywords)
                self._add(node, ast.unparse(swapped))


def changes_of(module: str, source: str) -> list[Change]:
    """Return every possible change of a module."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    data = source.encode()
    visitor = _Changes()
    visitor.visit(ast.parse(source))
    result: list[Change] = []
    for place, statement, node, after in visitor.found:
        begin = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        before = data[begin:end].decode()
        last = statement.lineno if isinstance(statement, ast.If) else statement.end_lineno
        change = Change(
            module, place, before, after, 0, begin, end,
            (statement.lineno, max(last or 0, node.end_lineno)),  # type: ignore[attr-defined]
        )  # fmt: skip
        alike = sum(other.name.split(" #")[0] == change.name for other in result)
        result.append(change._replace(number=alike))
    return result


def by_hand(module: str, source: str) -> Iterator[Change]:
    """Yield the changes in `CHANGES_BY_HAND` of a module. Raises LookupError if the text is missing or not unique."""
    places = {".".join(names): node for names, node in _functions(ast.parse(source), [])}
    data = source.encode()
    starts = [0]
    for text in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    for own, place, before, after in CHANGES_BY_HAND:
        if own != module:
            continue
        node = places[place]
        first, last = starts[node.lineno - 1], starts[node.end_lineno or 0]
        if data.count(before.encode(), first, last) < 1:
            raise LookupError(f"{module} {place}: has no {before!r}")
        begin = data.index(before.encode(), first, last)
        line = data.count(b"\n", 0, begin) + 1
        yield Change(
            module, place, before, after, 0, begin, begin + len(before.encode()),
            (line, line + before.count("\n")),
        )  # fmt: skip


def _functions(node: ast.AST, names: list[str]) -> Iterator[tuple[list[str], ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            inner = [*names, child.name]
            if isinstance(child, ast.FunctionDef):
                yield inner, child
            yield from _functions(child, inner)


def chosen(count: int = COUNT) -> list[Change]:
    """Return the changes by hand, and `count` others, chosen by a hash of their names."""
    hand: list[Change] = []
    rest: list[Change] = []
    for module in MODULES:
        source = _path(module).read_text()
        hand += by_hand(module, source)
        rest += changes_of(module, source)
    taken = {(change.module, change.place, change.before) for change in hand}
    rest = [change for change in rest if (change.module, change.place, change.before) not in taken]
    # Without the module, so that a module that moves keeps its changes.
    rest.sort(key=lambda change: sha256(change.name.partition(" ")[2].encode()).digest())
    return [*hand, *rest[:count]]


def _path(module: str) -> Path:
    return ROOT / "src" / "reput" / f"{module}.py"


def _digest(*paths: Path) -> str:
    digest = sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _digest_of_tests() -> str:
    names = [path for name in TESTS for path in sorted((ROOT / "tests" / name).rglob("*.py"))]
    return _digest(*names, *(ROOT / "tests" / name for name in TESTS if name.endswith(".py")))


class Cost(NamedTuple):
    """What a test costs, and the lines that it reaches.

    Attributes:
        seconds: Processor time, of the processes that it starts, too.
        lines: By module.
    """

    seconds: float
    lines: dict[str, list[int]]


@dataclass
class Result:
    """The result of a change.

    Attributes:
        name: The name of the change.
        digest, tests: Digests of the module and of the tests.
        state: killed, survived or unreached.
        by: The test that failed.
    """

    name: str
    digest: str
    tests: str
    state: str = "unreached"
    by: str = ""


def functions_of(code: CodeType) -> Iterator[CodeType]:
    """Yield the functions and methods of a module, without those inside of others."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & inspect.CO_OPTIMIZED:
                yield each
            else:
                yield from functions_of(each)


class LiveFunctions:
    """The functions of the imported modules, whose code a change replaces.

    Other modules may have imported a function by name, so its code is replaced, not the function.
    """

    def __init__(self) -> None:
        for module in MODULES:
            import_module(f"reput.{module.replace('/', '.')}")
        gc.unfreeze()  # the collector does not list frozen objects
        paths = {str(_path(module)) for module in MODULES}
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename in paths:
                self._functions.setdefault(self._key(each.__code__), []).append(each)
        gc.freeze()

    @staticmethod
    def _key(code: CodeType) -> tuple[str, str, int]:
        return code.co_filename, code.co_qualname, code.co_firstlineno

    def differing(
        self, path: Path, source: bytes, changed: bytes
    ) -> list[tuple[FunctionType, CodeType]]:
        """Return each function that differs between two sources of a module, and its changed code."""
        old, new = (
            functions_of(compile(text, str(path), "exec", dont_inherit=True))
            for text in (source, changed)
        )
        return [
            (function, after)
            for before, after in zip(old, new, strict=True)
            if before != after
            for function in self._functions[self._key(before)]
        ]


class Mutation:
    """A plugin of pytest that measures the collected tests, and then runs them on one change after the other.

    Each measurement and each change has a forked process of its own, which has inherited all modules and tests.
    """

    def __init__(
        self, changes: Sequence[Change], tests_s: float, processes: int, is_partial: bool
    ) -> None:
        """Choose the changes. With `is_partial`, some tests are missing, so only changes that fail one are kept."""
        self._changes, self._tests_s, self._processes = changes, tests_s, processes
        self._is_partial = is_partial
        self._failed = ""
        self._costs: dict[str, Cost] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        # Nobody reads a failing example, so it need not be shrunk.
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings.get_profile("reput"), phases=phases)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items if _is_fast(item)}
        self._live = LiveFunctions()
        self._digests = {module: _digest(_path(module)) for module in MODULES}
        files = [(path, list(items)) for path, items in groupby(self._items, key=file_of)]
        # The names have the digests that the files had when they were imported.
        self._kept = {path: self._costs_file(path) for path, _ in files}
        self._share(files, self._measure_file)
        for path, tests in files:
            self._costs |= self._costs_of(path, tests)
        self._share(self._changes, self._record)
        return True

    def _share(self, work: Sequence[_Work], do: Callable[[_Work], None]) -> None:
        """Do each piece of work in one of the processes. Raises RuntimeError if a process fails."""
        workers = [
            self._begin(work[number :: self._processes], do) for number in range(self._processes)
        ]
        failed = [worker for worker in workers if os.waitpid(worker, 0)[1]]
        if failed:
            raise RuntimeError(f"{len(failed)} processes failed")

    @staticmethod
    def _begin(work: Sequence[_Work], do: Callable[[_Work], None]) -> int:
        """Start a process that does a part of the work; return its id."""
        worker = os.fork()
        if worker:
            return worker
        try:
            for each in work:
                do(each)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _record(self, change: Change) -> None:
        result = self._try(change)
        if result.state == "killed" or not self._is_partial:
            with RESULTS.open("a") as file:
                file.write(json.dumps(vars(result)) + "\n")
        print(f"{result.state:9} {result.name}   {result.by}", flush=True)

    def _measure_file(self, file: tuple[str, list[str]]) -> None:
        """Measure the tests of a file, if an earlier run has not measured it with the same modules."""
        path, tests = file
        kept = self._kept[path]
        if not kept.exists() or not self._is_valid(kept):
            kept.parent.mkdir(exist_ok=True)
            self._in_child(lambda report: self._measure(tests, kept, report), _MEASURE_S)
            print(f"measured  {path}", flush=True)

    @staticmethod
    def _costs_file(path: str) -> Path:
        return PLACE / "costs" / f"{path.replace('/', '-')}-{_digest(ROOT / path)}.json"

    def _costs_of(self, path: str, tests: list[str]) -> dict[str, Cost]:
        """Return the measured costs of the tests of a file."""
        content = json.loads(self._kept[path].read_text())["tests"]
        costs = {name: Cost(*content[name]) for name in tests if name in content}
        for name in set(tests) - costs.keys():
            print(f"fails without a change: {name}", flush=True)
        return costs

    def _is_valid(self, kept: Path) -> bool:
        digests = json.loads(kept.read_text())["modules"]
        return all(self._digests.get(module) == digest for module, digest in digests.items())

    def _measure(self, tests: list[str], kept: Path, report: Callable[[str], None]) -> None:
        paths = {str(_path(module)): module for module in MODULES}
        coverage = Coverage(data_file=None, config_file=False, include=list(paths))
        coverage.start()
        seconds: dict[str, float] = {}
        for name, following in zip(tests, [*tests[1:], tests[0]], strict=True):
            coverage.switch_context(name)
            begin_s = processor_s()
            if self._passes(name, following):
                seconds[name] = processor_s() - begin_s
        coverage.stop()
        lines: dict[str, dict[str, list[int]]] = {name: {} for name in seconds}
        data = coverage.get_data()
        for path, module in paths.items():
            for line, names in data.contexts_by_lineno(path).items():
                for name in seconds.keys() & set(names):
                    lines[name].setdefault(module, []).append(line)
        digests = {module: self._digests[module] for each in lines.values() for module in each}
        costs = {name: (seconds[name], lines[name]) for name in seconds}
        kept.write_text(json.dumps({"modules": digests, "tests": costs}))
        report("PASSED")

    def _passes(self, name: str, following: str) -> bool:
        """Run a test. The fixtures that the following test does not need are torn down."""
        self._failed = ""
        item = self._items[name]
        item.ihook.pytest_runtest_protocol(item=item, nextitem=self._items[following])
        return not self._failed

    def _try(self, change: Change) -> Result:
        """Run the tests that reach a change."""
        path = _path(change.module)
        source = path.read_bytes()
        result = Result(change.name, _digest(path), _digest_of_tests())
        tests = self._reaching(change)
        if not tests:
            return result
        changed = source[: change.begin] + change.after.encode() + source[change.end :]

        functions = self._live.differing(path, source, changed)

        def run(report: Callable[[str], None]) -> None:
            for function, code in functions:
                function.__code__ = code
            for name, following in zip(tests, [*tests[1:], tests[0]], strict=True):
                report(name)
                if not self._passes(name, following):
                    report(f"FAILED {name}")
                    return
            report("PASSED")

        by = self._in_child(run)
        if by == "PASSED":
            return replace(result, state="survived", by=f"{len(tests)} tests")
        return replace(result, state="killed", by=by[:200])

    def _reaching(self, change: Change) -> list[str]:
        """Return the tests that reach a change, as many as their time allows, but at least one.

        Those of its room come first, and the fastest of them.
        """
        lines = set(range(change.lines[0], change.lines[1] + 1))
        seconds = {
            name: cost.seconds
            for name, cost in self._costs.items()
            if not lines.isdisjoint(cost.lines.get(change.module, ()))
        }

        rooms = {"crash", *change.module.split("/")}

        def order(name: str) -> tuple[bool, int, str, float]:
            # The tests of a module's own room, and power cuts, look at what it promises. Others only pass through it.
            is_far = rooms.isdisjoint(file_of(name).split("/"))
            # Tests of one file share its fixtures.
            return is_far, int(seconds[name] / _STEP_S).bit_length(), file_of(name), seconds[name]

        names, cases = [], Counter[str]()
        for name in sorted(seconds, key=order):
            # Cases of one test mostly fail together.
            cases[name.split("[")[0]] += 1
            if cases[name.split("[")[0]] <= _MOST_CASES:
                names.append(name)
        ends = accumulate(seconds[name] for name in names)
        return [
            name
            for number, (name, end) in enumerate(zip(names, ends, strict=True))
            if end < self._tests_s or not number
        ]

    def _in_child(self, run: Callable[[Callable[[str], None]], None], limit_s: float = 0) -> str:
        """Call `run` in a forked process. Return the last word that it reports, and its end if it was ended.

        Args:
            run: Receives a function that reports a word.
            limit_s: How long it may take from one report to the next. Otherwise it depends on the reported test.
        """
        reading, writing = os.pipe()
        with TemporaryDirectory(prefix="mutant-") as folder:
            child = os.fork()
            if child == 0:
                self._be_child(Path(folder), run, writing)
            os.close(writing)
            word, ending = "", ""
            with open(reading, "rb", buffering=0) as pipe:
                while not word.startswith(("FAILED", "PASSED", _BROKEN)):
                    cost = self._costs.get(word)
                    most_s = limit_s or _LEAST_S + _TIMES * (cost.seconds if cost else 0)
                    if not self._is_readable(pipe, child, most_s):
                        ending = f"time limit in {word}"
                        break
                    read = pipe.read(1 << 16)
                    if not read:
                        ending = f"process ended in {word}"
                        break
                    word = read.decode().splitlines()[-1]
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if word == _BROKEN or not word:
                raise RuntimeError(f"tests cannot run: {(Path(folder) / _OUTPUT).read_text()}")
        return ending or word

    @staticmethod
    def _is_readable(pipe: io.FileIO, child: int, most_s: float) -> bool:
        """Wait for a word of a child. Return False if the child takes this processor time, or waits far longer."""
        begin_s, until = processor_s(child), time.monotonic() + most_s + _WAIT_S
        while not select([pipe], [], [], 1)[0]:
            if processor_s(child) - begin_s > most_s or time.monotonic() > until:
                return False
        return True

    def _be_child(
        self, folder: Path, run: Callable[[Callable[[str], None]], None], writing: int
    ) -> NoReturn:
        try:
            os.setpgrp()  # not a session, which Linux would schedule as a group of its own
            resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_BYTES, _MOST_BYTES))
            resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
            output = os.open(folder / _OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
            config = next(iter(self._items.values())).config
            config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
            reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
            reporter._tw._file = os.fdopen(output, "w")
            with open(writing, "w", buffering=1) as pipe:
                try:
                    run(lambda word: print(word, file=pipe))
                except Exception:
                    traceback.print_exc()
                    print(_BROKEN, file=pipe)
        finally:
            os._exit(0)


def _is_fast(item: pytest.Item) -> bool:
    """Whether a test is cheap enough, or cuts the power of an operation at some steps.

    Spark has threads, so a process with Spark cannot be forked.
    """
    if scope_of(item.nodeid) == SPARK:
        return False
    markers = {marker.name for marker in item.iter_markers()}
    return markers.isdisjoint({"slow", "long"}) or _POWER in item.nodeid


def earlier() -> dict[str, Result]:
    """Return the results in the file that are still valid, by the name of the change."""
    if not RESULTS.exists():
        return {}
    tests = _digest_of_tests()
    valid = {}
    for result in (Result(**json.loads(line)) for line in RESULTS.read_text().splitlines()):
        module = result.name.split(" ")[0]
        is_same = module in MODULES and result.digest == _digest(_path(module))
        if is_same and (result.state == "killed" or result.tests == tests):
            valid[result.name] = result
    return valid


def explained() -> dict[str, str]:
    """Return the reasons of surviving changes that make no difference."""
    content = tomllib.loads(EXPLAINED.read_text()) if EXPLAINED.exists() else {}
    return {entry["change"]: entry["reason"] for entry in content.get("survivor", [])}


def report(changes: Sequence[Change]) -> int:
    """Print the survivors. Return 1 if one of them is not explained."""
    kept, reasons = earlier(), explained()
    results = [kept[change.name] for change in changes if change.name in kept]
    alive = [result for result in results if result.state != "killed"]
    for result in alive:
        print(f"{result.state}: {result.name}\n    {reasons.get(result.name, 'NOT EXPLAINED')}")
    left = sum(result.name not in reasons for result in alive)
    print(
        f"{len(results)} of {len(changes)} changes tried: {len(alive)} survived, {left} of them not explained"
    )
    return int(left > 0)


def main() -> int:
    """Try the changes that have no result yet, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=COUNT, help="number of changes besides those by hand"
    )
    parser.add_argument(
        "--limit", type=int, default=None, help="number of changes to try in this run"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=_TESTS_S,
        help="processor time of the tests for each change",
    )
    parser.add_argument("--processes", type=int, default=1, help="number of processes")
    parser.add_argument(
        "--only", nargs="*", default=[""], help="texts, one of which the name of a change contains"
    )
    parser.add_argument(
        "--tests", nargs="*", default=[], metavar="TEST",
        help="run only these files and folders below tests; changes that survive them are printed, and tried again",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the changes")
    parser.add_argument("--report", action="store_true", help="print the results of earlier runs")
    options = parser.parse_args()
    changes = [
        change
        for change in chosen(options.count)
        if any(text in change.name for text in options.only)
    ]
    if options.list:
        print(*(change.name for change in changes), sep="\n")
        return 0
    if options.report:
        return report(changes)
    PLACE.mkdir(parents=True, exist_ok=True)
    kept = earlier()
    changes_left = [change for change in changes if change.name not in kept][: options.limit]
    if changes_left:
        tests = [f"tests/{name}" for name in options.tests or TESTS]
        pytest.main(
            ["-p", "no:cacheprovider", "-q", "-m", "", *tests],
            plugins=[
                Mutation(changes_left, options.seconds, options.processes, bool(options.tests))
            ],
        )
    return report(changes)


if __name__ == "__main__":
    sys.exit(main())
