"""More queues, IndexFiles and stores than a process may have open files."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from reput.base.config import StoreConfig
from reput.engine.stores import open_store
from reput.engine.writer.put.message import Message


class Scale(NamedTuple):
    """The numbers of queues, IndexFiles and stores, and the limit of open files (`ulimit -n`)."""

    limit: int
    topics: int
    index_files: int
    stores: int


FEW, MANY = Scale(160, 1_000, 250, 25), Scale(1024, 10_000, 1_400, 100)
SMALL = StoreConfig(
    commit_log_file_bytes=1 << 22, queue_entries=10, hash_slots=10, index_items=4
)  # fmt: skip
_PUT_MANY = """
import sys
from reput.base.config import StoreConfig
from reput.engine.stores import open_store
from reput.engine.writer.put.message import Message
config = StoreConfig(commit_log_file_bytes=1 << 22, queue_entries=10, hash_slots=10, index_items=1000)
with open_store(sys.argv[1], mode="rw", config=config) as store:
    store.put_many([Message(f"T{n}", b"b") for n in range(int(sys.argv[2]))])
"""


@pytest.fixture(
    scope="module", params=[FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"]
)
def scale(request: pytest.FixtureRequest) -> Scale:
    assert isinstance(request.param, Scale)
    return request.param


def run(scale: Scale, *arguments: str | Path) -> str:
    """Return the output of a command whose limit of open files is `scale.limit`, and which cannot raise this limit."""

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (scale.limit, scale.limit))

    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        preexec_fn=limit_files, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout.decode()


def reput(scale: Scale, *arguments: str | Path) -> str:
    return run(scale, "-m", "reput", *arguments)


def test_more_queues_than_descriptors_in_one_batch(scale: Scale, tmp_path: Path) -> None:
    store = tmp_path / "store"
    run(scale, "-c", _PUT_MANY, store, str(scale.topics))
    assert len(list((store / "consumequeue").iterdir())) == scale.topics
    (store / "abort").touch()
    (store / "reput.known").unlink()
    reput(scale, "recover", store)
    reput(scale, "put", store, "--topic", "T5", "--body", "again")
    with open_store(store) as opened:
        assert opened.get_by_queue("T5", 0, 1).body == b"again"
        assert opened.get_by_queue(f"T{scale.topics - 1}", 0, 0).body == b"b"
    assert "damage" not in reput(scale, "check", store, "--quick")


@pytest.fixture(scope="module")
def indexed(scale: Scale, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with more IndexFiles than descriptors."""
    store = tmp_path_factory.mktemp("indexed") / "store"
    with open_store(store, mode="rw", config=SMALL) as opened:
        opened.put_many(Message("T", b"b", [f"k{n}"]) for n in range(2 * scale.index_files))
    assert len(list((store / "index").iterdir())) >= scale.index_files
    return store


@pytest.mark.every_case
@pytest.mark.parametrize(
    "command",
    [
        ["query", "--topic", "T", "--key", "k7"], ["prove"], ["stats"], ["inspect"], ["check"],
        ["trace", "--key", "k7"], ["recover"], ["put", "--topic", "T", "--body", "x"],
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_more_index_files_than_descriptors(scale: Scale, indexed: Path, command: list[str]) -> None:
    name, *options = command
    sizes = ["--hash-slots", "10", "--index-items", "4"]
    reput(scale, name, indexed, *options, *(sizes if name in ("query", "prove") else ()))


def test_a_look_up_in_more_index_files_than_descriptors(
    scale: Scale, indexed: Path, tmp_path: Path
) -> None:
    (tmp_path / "keys.csv").write_text(
        "topic,key\n" + "".join(f"T,k{n}\n" for n in range(0, 500, 10))
    )
    asked: list[str | Path] = [
        "--keys",
        tmp_path / "keys.csv",
        "--output",
        "-",
        "--runner",
        "serial",
    ]
    lines = reput(scale, "lookup", indexed, *asked).splitlines()
    assert len(lines) == 50
    assert all(json.loads(line)["is_complete"] and json.loads(line)["message_id"] for line in lines)


@pytest.fixture(scope="module")
def stores(scale: Scale, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Stores with twenty files each."""
    paths = [tmp_path_factory.mktemp("stores") / f"s{number:03d}" for number in range(scale.stores)]
    for path in paths:
        with open_store(path, mode="rw", config=SMALL) as opened:
            opened.put_many([Message("T", b"b", [f"k{n}"], queue_id=n % 4) for n in range(30)])
    return paths


def test_a_look_up_in_more_stores_than_descriptors(
    scale: Scale, stores: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "keys.csv").write_text("topic,key\n" + "".join(f"T,k{n}\n" for n in range(30)))
    asked: list[str | Path] = [
        "--keys",
        tmp_path / "keys.csv",
        "--output",
        "-",
        "--runner",
        "serial",
    ]
    assert len(reput(scale, "lookup", *stores, *asked).splitlines()) == 30 * scale.stores


_READ_ALL = """
import sys
from contextlib import ExitStack
from reput.engine.stores import open_store
with ExitStack() as stack:
    stores = [stack.enter_context(open_store(path)) for path in sys.argv[1:]]
    for _ in range(2):
        for store in stores:
            for number in range(30):
                assert store.query("T", f"k{number}").messages
                assert store.get_by_queue("T", number % 4, number // 4).body == b"b"
"""


def test_more_open_stores_than_descriptors(scale: Scale, stores: list[Path]) -> None:
    run(scale, "-c", _READ_ALL, *stores)
