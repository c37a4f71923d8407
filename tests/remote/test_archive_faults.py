"""Archives in buckets of three kinds, on failing servers, with archivers that are killed or run concurrently."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

import reput
from reput.errors import StoreError
from reput.format.commit_log import MessageExt
from reput.io import bucket, deadlines
from reput.io.archive import Archive
from tests.golden.stores import GoldenStore
from tests.remote.faulty_server import FaultyServer, faulty_server
from tests.remote.s3_server import make_bucket

pytest.importorskip("obstore")
Golden = Callable[[str], GoldenStore]
Answers = dict[str, list[MessageExt]]
_KEYS = ("customer-48", "customer-12", "order-100377", "no-such-key")
_NUMBERS = count()
_MOST_RUNS = 40


@pytest.fixture
def url(s3: dict[str, str]) -> str:
    name = f"faults-{next(_NUMBERS)}"
    make_bucket(name, s3)
    return f"s3://{name}/a"


@pytest.fixture
def proxy(s3: dict[str, str]) -> Iterator[FaultyServer]:
    with faulty_server(s3["s3.endpoint_override"]) as server:
        yield server


@pytest.fixture
def options(s3: dict[str, str], proxy: FaultyServer) -> dict[str, str]:
    return {**s3, "s3.endpoint_override": proxy.address}


def _expected(golden: Golden, end: int) -> Answers:
    with reput.open_store(golden("orders").path) as store:
        return {
            key: [m for m in store.query("orders", key).messages if m.physical_offset < end]
            for key in _KEYS
        }


def _check(golden: Golden, url: str, options: dict[str, str]) -> None:
    """Check that the archive has every log file once, every byte is right, and the answers equal the store's."""
    manifest = Archive(url, options).manifest
    names = sorted(path.name for path in (golden("orders").path / "commitlog").iterdir())[:-1]
    assert [Path(file.path).name for file in manifest.log] == names
    for parts in (manifest.keys, manifest.queues):
        assert sum(part.files for part in parts) == len(names)
    assert reput.verify_archive(url, storage_options=options).is_valid
    with reput.open_store(url, storage_options=options) as archive:
        for key, messages in _expected(golden, manifest.end).items():
            found = archive.query("orders", key)
            assert list(found.messages) == messages
            assert found.is_complete


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1, 10))]
)
def test_a_server_that_fails_one_request_in_eight_delays_an_archive(
    golden: Golden, s3: dict[str, str], url: str, options: dict[str, str], proxy: FaultyServer, seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The server refuses requests, drops connections or loses answers. Run `archive` again if it gives up."""
    monkeypatch.setattr("reput.wings.archive.changes._FAN", 3)
    proxy.fail_often(seed)
    for _ in range(_MOST_RUNS):
        try:
            reput.archive(golden("orders").path, url, storage_options=options)
            break
        except StoreError:
            continue
    proxy.fail(None)
    _check(golden, url, s3)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1, 10))]
)
def test_answers_through_a_server_that_fails_are_right_or_errors(
    golden: Golden, s3: dict[str, str], url: str, options: dict[str, str], proxy: FaultyServer, seed: int,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    reput.archive(golden("orders").path, url, storage_options=s3)
    expected = _expected(golden, Archive(url, s3).manifest.end)
    monkeypatch.setattr(bucket, "POLICY", deadlines.Deadlines(2.0, 2.0))
    proxy.fail_often(seed)
    answered = 0
    for number in range(2):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(number)))
        for key, messages in expected.items():
            try:
                with reput.open_store(url, storage_options=options) as archive:
                    found = archive.query("orders", key)
            except StoreError:
                continue
            if found.is_complete:
                answered += 1
                assert list(found.messages) == messages
    assert answered


def test_archivers_of_one_bucket_at_once_neither_lose_nor_duplicate_a_file(
    golden: Golden, s3: dict[str, str], url: str
) -> None:
    store = golden("orders").path
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: reput.archive(store, url, storage_options=s3), range(3)))
    _check(golden, url, s3)


@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_an_archive_in_buckets_of_other_kinds(
    golden: Golden, kind: str, request: pytest.FixtureRequest
) -> None:
    place = f"{request.getfixturevalue(kind)}/broker-a"
    reput.archive(golden("orders").path, place)
    assert reput.archive(golden("orders").path, place).files == 0
    _check(golden, place, {})


_KILLED = """
import os, signal, sys
import reput
from reput.wings.archive import changes

changes._FAN = 3
seen = []

def kill(phase, done, total):
    seen.append(phase)
    if phase == sys.argv[3] and (seen.count(phase) == int(sys.argv[4])):
        os.kill(os.getpid(), signal.SIGKILL)

reput.archive(sys.argv[1], sys.argv[2], progress=kill)
"""


@pytest.mark.parametrize(
    ("step", "time"),
    [
        ("commit", 2),
        *(
            pytest.param(step, time, marks=pytest.mark.slow)
            for step, time in (
                ("archive", 2), ("scan", 2), ("keys", 3), ("queues", 3), ("commit", 7), ("merge", 1), ("snapshot", 1),
                ("clean", 1),
            )
        ),
    ],
)  # fmt: skip
def test_a_process_that_is_killed_at_any_step_can_be_run_again(
    golden: Golden, tmp_path: Path, step: str, time: int
) -> None:
    store, place = str(golden("orders").path), str(tmp_path / "archive")
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, store, place, step, str(time)], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    reput.archive(store, place)
    _check(golden, place, {})
