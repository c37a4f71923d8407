"""Golden stores on this machine and on a real S3 API server."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import reput
from reput.core.query.message_store import MessageStore
from tests.golden.stores import EVERY_STORE, GoldenStore
from tests.remote.azurite import azurite
from tests.remote.gcs_server import gcs_server
from tests.remote.s3_server import s3_server, upload_whole

_QUICK = ("lmq",)  # it has few files, so few requests
_THOROUGH = tuple(name for name in EVERY_STORE if name not in (*_QUICK, "defaults"))


class Pair(NamedTuple):
    """One store, on this machine and in a bucket."""

    golden: GoldenStore
    url: str
    options: dict[str, str]

    def open(self) -> MessageStore:
        return reput.open_store(self.url, storage_options=self.options)

    def as_local(self, text: str) -> str:
        return text.replace(self.url, str(self.golden.path))


@pytest.fixture(autouse=True)
def no_proofs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start without proofs of IndexFiles. Only local files have proofs, so their answers would differ from S3's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    """A server. All servers of a process share their buckets, and refuse to replace an object without credentials."""
    with s3_server() as options:
        yield options


@pytest.fixture(
    scope="session",
    params=[*_QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in _THOROUGH)],
)
def pair(
    request: pytest.FixtureRequest, golden: Callable[[str], GoldenStore], s3: dict[str, str]
) -> Pair:
    store = golden(request.param)
    return Pair(store, upload_whole(store.path, request.param, s3), s3)


@pytest.fixture(scope="module")
def gcs() -> Iterator[str]:
    """A bucket of Cloud Storage."""
    with gcs_server() as server, pytest.MonkeyPatch.context() as patch:
        account = {"gcs_base_url": f"http://{server.address}", "disable_oauth": True}
        for name in ("client_email", "private_key", "private_key_id"):
            account[name] = ""
        patch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
        patch.setenv("GOOGLE_ALLOW_HTTP", "true")
        yield "gs://objects"


@pytest.fixture(scope="module")
def azure() -> Iterator[str]:
    """A container of Azure's emulator."""
    with azurite() as settings, pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield "az://objects"
