"""A store on an S3 server that fails: a one-line error, in time, and never a silently incomplete answer."""

import time
from collections.abc import Callable, Iterator

import pytest

import reput
from reput.cli.main import FAILED
from reput.errors import StoreAccessError
from reput.io import deadlines, file_systems
from tests.cli.running import one_line
from tests.cli.running import reput as run
from tests.golden.stores import GoldenStore
from tests.remote.faulty_server import Fault, FaultyServer, faulty_server
from tests.remote.s3_server import upload_whole


@pytest.fixture(scope="module")
def proxy(s3: dict[str, str]) -> Iterator[FaultyServer]:
    with faulty_server(s3["s3.endpoint_override"]) as server:
        yield server


@pytest.fixture(scope="module")
def url(golden: Callable[[str], GoldenStore], s3: dict[str, str]) -> str:
    return upload_whole(golden("lmq").path, "faults", s3)


@pytest.fixture
def options(s3: dict[str, str], proxy: FaultyServer) -> dict[str, str]:
    """Options without time-outs: given time-outs would replace the deadlines (POLICY) that the tests set."""
    given = {name: value for name, value in s3.items() if not name.endswith("_timeout")}
    return {**given, "s3.endpoint_override": proxy.address}


@pytest.mark.every_case
@pytest.mark.parametrize("fault", ["drop", "hang", "503"])
def test_a_server_that_fails_ends_in_one_line(
    url: str,
    options: dict[str, str],
    proxy: FaultyServer,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    monkeypatch.setattr(file_systems, "POLICY", deadlines.Deadlines(0.5, 0.5))
    proxy.fail(fault)
    with pytest.raises(StoreAccessError) as error:
        reput.open_store(url, storage_options=options)
    assert "\n" not in str(error.value)


def test_a_listing_that_claims_to_go_on_ends(
    url: str, options: dict[str, str], proxy: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_systems, "POLICY", deadlines.Deadlines(1.0, 1.0))
    proxy.fail("truncated", "GET")
    with pytest.raises(StoreAccessError) as error:
        reput.open_store(url, storage_options=options)
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["drop", "hang"])
def test_a_command_ends_within_ten_seconds(
    url: str, proxy: FaultyServer, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{proxy.address}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "reput")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    proxy.fail(fault)
    begin = time.monotonic()
    done = run("inspect", url)
    assert done.code == FAILED
    one_line(done)
    assert time.monotonic() - begin < 2 * deadlines.POLICY.metadata
