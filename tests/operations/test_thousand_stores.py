"""A thousand small stores in a process that may open 1,024 files."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import reput
from reput import Message, StoreConfig
from tests.cli.running import REPUT

_STORES = 1000
_MOST_BYTES = 500_000_000
_SIZES = StoreConfig(
    commit_log_file_bytes=1 << 16, queue_entries=50, hash_slots=64, index_items=300
)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand stores of fifty messages each. Every hundredth store has one key."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(_STORES):
        with reput.open_store(folder / f"s{number:04d}" / "store", "rw", config=_SIZES) as store:
            store.put_many(
                [
                    Message(
                        "orders", b"%d" % place, tags="created" if place % 2 else "paid",
                        keys=[f"k{number}-{place}", *(["shared"] if place + number % 100 == 0 else [])],
                    )
                    for place in range(50)
                ]
            )  # fmt: skip
    return folder


def limited(folder: Path, *arguments: object, program: Path = REPUT) -> tuple[int, str]:
    """Run a command with a limit of 1,024 open files; return its exit code and output."""
    script = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))\n"
        "import subprocess\n"
        "code = subprocess.run(sys.argv[1:]).returncode\n"
        "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, file=sys.stderr)\n"
    )
    given = [sys.executable, "-c", script, str(program), *map(str, arguments)]
    ended = subprocess.run(
        given, capture_output=True, cwd=folder, env=os.environ, timeout=600, check=True, text=True
    )
    code, size = map(int, ended.stderr.splitlines()[-1].split())
    assert size < _MOST_BYTES
    return code, ended.stdout


@pytest.mark.slow
def test_a_thousand_stores_are_answered_with_few_files_and_little_memory(
    many: Path, tmp_path: Path
) -> None:
    code, out = limited(many, "query", "*/store", "--key", "shared", "--format", "jsonl")
    assert (code, len(out.splitlines())) == (0, 10)
    code, out = limited(many, "query", "*/store", "--key", "k500-3", "--format", "jsonl")
    assert (code, json.loads(out)["store"]) == (0, "s0500/store")
    code, out = limited(
        many, "query", "*/store", "--topic", "orders", "--begin", "1h ago", "--tag", "paid",
        "--limit", "100", "--format", "jsonl",
    )  # fmt: skip
    assert (code, len(out.splitlines())) == (0, 100)
    for command in (["check", "--quick"], ["check"], ["fleet"], ["stats"]):
        code, out = limited(many, command[0], "*/store", *command[1:])
        assert (code, out.splitlines()[-1].split(";")[0]) == (0, "1,000 stores: 1,000 ok")
    code, _ = limited(many, "report", "*/store", "--quick", "--output", tmp_path / "cluster.html")
    assert code == 0
    assert len(list((tmp_path / "cluster.stores").iterdir())) == _STORES
    keys = tmp_path / "keys.csv"
    keys.write_text("topic,key\norders,shared\norders,k7-7\n")
    code, out = limited(many, "lookup", "*/store", "--keys", keys, "--output", "-")
    assert (code, len(out.splitlines())) == (0, 11)


@pytest.mark.slow
def test_a_thousand_stores_are_a_table_and_a_console_with_few_files_and_little_memory(
    many: Path, tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(f'[[store]]\npath = "{many}/*/store"\n')
    code, _ = limited(many, "export", "--stores", fleet, tmp_path / "lake", "--runner", "serial")
    assert code == 0
    script = "import reput; print(len(reput.dataset('*/store').to_table(columns=['topic'])))"
    code, out = limited(many, "-c", script, program=Path(sys.executable))
    assert (code, out) == (0, "50000\n")
    process = subprocess.Popen(
        [REPUT, "serve", "--stores", fleet, "--http", "127.0.0.1:0", "--http-only"],
        stdout=subprocess.PIPE, text=True, preexec_fn=_with_few_files,
    )  # fmt: skip
    assert process.stdout is not None
    url = next(line for line in process.stdout if "in a browser" in line).split()[0]
    with httpx.Client(base_url=url, trust_env=False, timeout=120) as client:
        for path in ("readyz", "", "topics", "stores", "api/stores", "metrics"):
            assert client.get(path).status_code == 200, path
        page = client.get("", params={"key": "k500-3"}).text
        assert "s0500" in page
        assert "999 stores" in page
    status = Path(f"/proc/{process.pid}/status").read_text()
    most = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    assert int(most.split()[1]) * 1024 < _MOST_BYTES
    process.terminate()
    assert process.wait() == 0
    process.stdout.close()


def _with_few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
