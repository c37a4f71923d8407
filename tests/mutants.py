"""Change the core of reput in small ways, and report the changes that no test notices.

`make mutants` does this in a copy of the checkout, in `build/mutants`:

1. It runs the tests of the core's rooms once, and records which tests reach which lines, and how long they take.
2. It applies one change after the other, runs the tests that reach the changed lines, the fastest first, until one
   fails or they have taken `_TESTS_S`, and restores the file.
3. It appends each result to `results.jsonl`. A later run tries a change again only if its module has changed, or if it
   survived and the tests have changed.

A change is an operator, a constant, a condition, two arguments or a call: see `_Changes`. `CHANGES_BY_HAND` adds the
changes that matter most. A surviving change needs a new test, or an entry in `tests/mutants.toml` that explains why it
makes no difference.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "mutants"
TREE = PLACE / "tree"
RESULTS = PLACE / "results.jsonl"
EXPLAINED = Path(__file__).with_name("mutants.toml")
COUNT = 200
_LEAST_S, _MOST_S = 60, 600
_TESTS_S = 40.0
"""For one change, the fastest tests run that took less than this together."""
# The packages that most tests import. A child process inherits them, so it starts quickly.
_HEAVY = (
    "numpy",
    "pyarrow",
    "pyarrow.parquet",
    "pyarrow.dataset",
    "hypothesis",
    "click",
    "rich",
    "numba",
    "pytest",
)
_DULL_CALLS = ("progress", "log", "warn", "note", "close", "start_writeback", "prepare", "super")

MODULES: dict[str, tuple[str, ...]] = {
    "io/writer": ("io/test_writer.py", "crash/test_operations_power_cut.py", "check/test_swaps.py"),
    "io/open_files": ("io/test_open_files.py",),
    "io/user_cache": ("io/test_own_cache.py", "crash/test_operations_power_cut.py"),
    "io/copies": ("io/test_copies.py", "crash/test_operations_power_cut.py", "check/test_repair.py"),
    "io/disk": (
        "io/test_disk.py", "crash/test_model.py", "writer/test_displaced.py",
        "crash/test_operations_power_cut.py",
    ),
    "engine/rebuild/commit": ("crash/test_operations_power_cut.py", "rebuild/test_runs.py"),
    "engine/rebuild/staging": ("crash/test_operations_power_cut.py", "rebuild/test_runs.py"),
    "engine/check/repairing/places": (
        "check/test_repair_kills.py", "check/test_swaps.py", "crash/test_operations_power_cut.py",
    ),
    "wings/archive/new_store": ("archive/test_restoring.py", "crash/test_operations_power_cut.py"),
    "wings/erase/store_copy": ("crash/test_operations_power_cut.py", "erase/test_erase.py"),
    "core/queues/reader": (
        "queues/test_reader.py", "queues/test_damage.py", "queues/test_batch_damage.py", "queues/test_gaps.py",
        "queues/test_last_entry.py",
    ),
    "core/queues/writer": ("queues/test_writer.py", "crash/test_model.py", "recovery/test_recovery_point.py"),
    "core/queues/set_writer": (
        "writer/test_extended_queues.py", "writer/test_failing_append.py", "crash/test_model.py",
    ),
    "engine/five/rocksdb_queues": ("writer/test_rocksdb_queues.py",),
    "core/index/writer": ("index/test_writer.py", "crash/test_model.py"),
    "core/index/set_writer": ("index/test_writer.py", "crash/test_model.py", "crash/test_operations_power_cut.py"),
    "core/index/plan": ("index/test_who_proves.py", "index/test_changed_files.py", "query/test_short_tail.py"),
    "core/log/verdict": ("log",),
    "core/log/ends": (
        "log", "store/test_facts.py", "recovery/test_recovery_point.py", "recovery/test_recovery.py",
    ),
    "engine/writer/recovery/recovery_point": ("recovery/test_recovery_point.py", "crash/test_model.py"),
    "engine/writer/recovery/log": (
        "recovery/test_recovery.py", "recovery/test_record_crc.py", "crash/test_model.py",
        "crash/test_power_cut.py",
    ),
    "engine/writer/recovery/queue_files": (
        "recovery/test_queue_files.py", "recovery/test_recovery.py", "crash/test_model.py",
    ),
    "engine/writer/dispatch": ("writer/test_dispatch.py", "crash/test_model.py", "writer/test_closing.py"),
    "engine/writer/flush": ("crash/test_model.py", "crash/test_power_cut.py", "writer/test_closing.py"),
    "engine/writer/expiry": ("writer/test_expiry.py", "crash/test_model.py"),
    "engine/writer/retention": ("writer/test_retention.py",),
    "engine/writer/put/log_files": ("writer/test_log_files.py", "crash/test_model.py", "crash/test_power_cut.py"),
    "wings/serve/broker/offsets": ("broker/test_state.py", "cli/test_lag.py"),
    "engine/compare/placement": ("recovery/test_placement.py", "recovery/test_recovery.py"),
    "engine/writer/file_sizes": ("store/test_facts.py",),
}  # fmt: skip
"""Modules below src/reput, and their tests below tests, the most important first."""


class Change(NamedTuple):
    """A change of a module: the text from `begin` to `end` is replaced.

    Attributes:
        module: A key of `MODULES`.
        place: The function.
        before, after: The changed text.
        number: Tells equal changes of one function apart.
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
    ("engine/rebuild/commit", "swap_in", "sync_tree(staging.new)", "pass"),
    ("engine/rebuild/commit", "swap_in", "sync_folder(output)", "pass"),
    ("engine/rebuild/commit", "swap_in", "if _sizes(place) != expected:", "if False:"),
    ("engine/rebuild/commit", "_write_checkpoint", "sync_folder(output)", "pass"),
    (
        "engine/rebuild/commit", "FolderTarget.commit",
        "swap_in(self._output, self._staging, commit.without)\n"
        "        _write_checkpoint(self._output, self._staging, commit)",
        "_write_checkpoint(self._output, self._staging, commit)\n"
        "        swap_in(self._output, self._staging, commit.without)",
    ),
    ("wings/erase/store_copy", "StoreCopy._copy", "sync_file(target)", "pass"),
    ("wings/erase/store_copy", "StoreCopy._finish", "sync_tree(self._new)", "pass"),
    ("engine/check/repairing/places", "Attempt.write_record", "sync_folder(self.folder)", "pass"),
    ("engine/check/repairing/places", "RepairPlaces._rename", "sync_folder(folder)", "pass"),
    ("wings/archive/new_store", "NewStore.finish", "sync_tree(self.folder)", "pass"),
    (
        "engine/writer/recovery/recovery_point", "read_recovery_point",
        'content["closed"] == _digest(store, known, config)', "True",
    ),
    (
        "engine/writer/recovery/recovery_point", "_digest",
        "parts += [_look(path) for path in _files_that_grow(store, known, config)]", "pass",
    ),
    ("wings/serve/broker/offsets", "ConsumerOffsets.take_reset", "if resets:", "if False:"),
    ("io/open_files", "_Pool._make_room", "max(most, 0)", "max(most - 1, 0)"),
    ("io/user_cache", "OwnCache._make_room", "left -= size", "pass"),
)  # fmt: skip
"""Module, function, text, and its replacement."""

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class _Changes(ast.NodeVisitor):
    """Collects the possible changes of a module: (function, statement, node, replacement)."""

    def __init__(self) -> None:
        self.found: list[tuple[str, ast.stmt, ast.AST, str]] = []
        self._names: list[str] = []
        self._statement: ast.stmt = ast.Pass()

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            self._names.append(node.name)
            for child in node.body:
                self.visit(child)
            self._names.pop()
            return
        # Texts of errors, and types, do not matter here.
        if isinstance(
            node, ast.Raise | ast.JoinedStr | ast.AnnAssign | ast.Import | ast.ImportFrom
        ):
            return
        if not self._names:
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
    """Return the changes by hand, and then others, chosen by a hash of their names, `count` in all."""
    hand: list[Change] = []
    rest: list[Change] = []
    for module in MODULES:
        source = _path(ROOT, module).read_text()
        hand += by_hand(module, source)
        rest += changes_of(module, source)
    taken = {(change.module, change.place, change.before) for change in hand}
    rest = [change for change in rest if (change.module, change.place, change.before) not in taken]
    # Without the module, so that a module that moves keeps its changes.
    rest.sort(key=lambda change: sha256(change.name.partition(" ")[2].encode()).digest())
    return [*hand, *rest][:count]


def _path(tree: Path, module: str) -> Path:
    return tree / "src" / "reput" / f"{module}.py"


class Reach(NamedTuple):
    """The tests of a group that reach each line, by module, and how long each test takes."""

    lines: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]


def new_tree() -> None:
    """Copy the files of the checkout, and its compiled kernels."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = [name for name in listed.stdout.decode().split("\0") if name]
    for name in names:
        target = TREE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists() and not _is_same(ROOT / name, target):
            shutil.copy2(ROOT / name, target)
    kernels = "src/reput/kernels/__pycache__"
    if (ROOT / kernels).exists():
        shutil.copytree(ROOT / kernels, TREE / kernels, dirs_exist_ok=True)


def _is_same(path: Path, copy: Path) -> bool:
    return copy.exists() and path.read_bytes() == copy.read_bytes()


def run_tests(arguments: Sequence[str], most_s: float) -> tuple[int | None, str]:
    """Run pytest in a child process in the copy. Return its exit code, or None after `most_s`, and its output."""
    log = PLACE / "output.txt"
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.chdir(TREE)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.path[:0] = [str(TREE), str(TREE / "src")]
            os.environ["PYTHONPATH"] = f"{TREE}:{TREE / 'src'}"
            # A package that was imported from the checkout would hide the copy.
            for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "reput")]:
                del sys.modules[name]
            import pytest

            os._exit(int(pytest.main(["-p", "no:cacheprovider", "-q", *arguments])))
        finally:
            os._exit(9)
    deadline = time.monotonic() + most_s
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None, log.read_text(errors="replace")
        time.sleep(0.05)


def reach_of(tests: str) -> Reach:
    """Return what the tests of a file or folder reach, from an earlier run if the files are the same."""
    digest = sha256(_digest_of_tests([tests], TREE).encode())
    for module in MODULES:
        digest.update(_path(TREE, module).read_bytes())
    kept = PLACE / f"reach-{tests.replace('/', '-')}-{digest.hexdigest()[:12]}.json"
    if not kept.exists():
        _measure(tests, kept)
    lines, seconds = json.loads(kept.read_text())
    return Reach({m: {int(n): t for n, t in inner.items()} for m, inner in lines.items()}, seconds)


def _digest_of_tests(tests: Sequence[str], tree: Path) -> str:
    digest = sha256()
    for folder in (tree / "tests" / name for name in tests):
        for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _digest_of(module: str, tree: Path) -> str:
    return sha256(_path(tree, module).read_bytes()).hexdigest()[:16]


def _measure(tests: str, kept: Path) -> None:
    from coverage import CoverageData

    data, junit = PLACE / "coverage", PLACE / "junit.xml"
    data.unlink(missing_ok=True)
    os.environ["COVERAGE_FILE"] = str(data)
    os.environ["COVERAGE_CORE"] = "ctrace"
    code, output = run_tests(
        [
            f"tests/{tests}", "-m", "slow or not slow" if "operations_power" in tests else "not slow", "-k",
            "not every_step", "--cov=src/reput", "--cov-context=test", "--cov-report=", "--cov-fail-under=0",
            f"--junitxml={junit}", "-o", "junit_family=xunit1",
        ],
        3600,
    )  # fmt: skip
    if code != 0:
        raise SystemExit(f"the tests fail without a change: tests/{tests}\n{output[-3000:]}")
    covered = CoverageData(str(data))
    covered.read()
    lines: dict[str, dict[int, list[str]]] = {}
    for module in MODULES:
        by_line = covered.contexts_by_lineno(str(_path(TREE, module)))
        lines[module] = {
            line: sorted({one.split("|")[0] for one in contexts if "|" in one})
            for line, contexts in by_line.items()
        }
    seconds = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        place = f"{case.get('file')}::{case.get('name')}"
        seconds[place] = float(case.get("time", "0"))
    kept.write_text(json.dumps([lines, seconds]))


@dataclass
class Result:
    """The result of a change.

    Attributes:
        name: The name of the change.
        digest, tests: Digests of the module and of its tests.
        state: killed, survived or unreached.
        by: The test that failed.
    """

    name: str
    digest: str
    tests: str
    state: str = "unreached"
    by: str = ""


def try_change(change: Change) -> Result:
    """Apply a change in the copy, run the tests that reach it, and restore the file."""
    path = _path(TREE, change.module)
    source = path.read_bytes()
    result = Result(
        change.name, _digest_of(change.module, TREE), _digest_of_tests(MODULES[change.module], TREE)
    )
    seconds: dict[str, float] = {}
    for tests in MODULES[change.module]:
        reach = reach_of(tests)
        first, last = change.lines
        for line in range(first, last + 1):
            for test in reach.lines.get(change.module, {}).get(line, ()):
                seconds[test] = reach.seconds.get(test, 1.0)
    order = _fastest(seconds)
    if not order:
        return result
    path.write_bytes(source[: change.begin] + change.after.encode() + source[change.end :])
    try:
        limit = min(_MOST_S, _LEAST_S + 10 * sum(seconds[test] for test in order))
        code, output = run_tests(
            ["-x", "--no-header", "--tb=no", "-m", "slow or not slow", *order], limit
        )
    finally:
        path.write_bytes(source)
    if code == 0:
        return replace(result, state="survived", by=f"{len(order)} tests")
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    by = failed[0] if failed else "time limit" if code is None else f"exit code {code}"
    return replace(result, state="killed", by=by[:200])


def _fastest(seconds: dict[str, float]) -> list[str]:
    """Return the fastest tests, as many as `_TESTS_S` allows, but at least one."""
    order = sorted(seconds, key=lambda test: seconds[test])
    ends = accumulate(seconds[test] for test in order)
    return [
        test
        for number, (test, end) in enumerate(zip(order, ends, strict=True))
        if end < _TESTS_S or not number
    ]


def earlier() -> dict[str, Result]:
    """Return the results in the file that are still valid, by the name of the change."""
    if not RESULTS.exists():
        return {}
    results = (Result(**json.loads(line)) for line in RESULTS.read_text().splitlines())
    valid = {}
    for result in results:
        module = result.name.split(" ")[0]
        if module in MODULES and result.digest == _digest_of(module, ROOT):
            is_settled = result.state == "killed" or result.tests == _digest_of_tests(
                MODULES[module], ROOT
            )
            if is_settled:
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
    parser.add_argument("--count", type=int, default=COUNT, help="number of changes in all")
    parser.add_argument(
        "--limit", type=int, default=COUNT, help="number of changes to try in this run"
    )
    parser.add_argument("--only", default="", help="text that the names of the changes contain")
    parser.add_argument("--list", action="store_true", help="print the changes")
    parser.add_argument("--report", action="store_true", help="print the results of earlier runs")
    options = parser.parse_args()
    changes = [change for change in chosen(options.count) if options.only in change.name]
    if options.list:
        print(*(change.name for change in changes), sep="\n")
        return 0
    if options.report:
        return report(changes)
    new_tree()
    for name in _HEAVY:
        __import__(name)
    kept, tried = earlier(), 0
    for change in changes:
        if change.name in kept or tried == options.limit:
            continue
        result = try_change(change)
        with RESULTS.open("a") as file:
            file.write(json.dumps(vars(result)) + "\n")
        print(f"{result.state:9} {result.name}   {result.by}", flush=True)
        tried += 1
    return report(changes)


if __name__ == "__main__":
    sys.exit(main())
