"""Conditional writes: the same rules in buckets of S3, Cloud Storage and Azure, in a failing one, and in a folder."""

import json
import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reput.errors import (
    ObjectConflictError,
    StoreAccessError,
    StoreChangedError,
    StoreNotFoundError,
    StoreUnreachableError,
    UsageError,
)
from reput.io import bucket, deadlines, object_folder, object_store
from reput.io.bucket import open_object_store
from reput.io.object_store import ObjectStore, check_conditions
from tests.remote.faulty_server import Fault, FaultyServer, faulty_server
from tests.remote.s3_server import upload_whole

pytest.importorskip("obstore")
pytestmark = pytest.mark.every_case

Options = dict[str, str]


@pytest.fixture(scope="module")
def proxy(s3: Options, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyServer]:
    upload_whole(tmp_path_factory.mktemp("empty"), "objects", s3)
    with faulty_server(s3["s3.endpoint_override"]) as server:
        yield server


@pytest.fixture
def faulty(s3: Options, proxy: FaultyServer, request: pytest.FixtureRequest) -> ObjectStore:
    proxy.fail(None)
    proxy.requests.clear()
    place = f"s3://objects/{abs(hash(request.node.name))}"
    return bucket.Bucket(place, {**s3, "s3.endpoint_override": proxy.address})


@pytest.fixture(params=["bucket", "folder", "gcs", "azure"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_object_store(tmp_path / "objects")
    if request.param in ("gcs", "azure"):
        return open_object_store(f"{request.getfixturevalue(request.param)}/{tmp_path.name}")
    found: ObjectStore = request.getfixturevalue("faulty")
    check_conditions(found)
    return found


def test_an_object_is_created_once_and_replaced_by_who_read_it(store: ObjectStore) -> None:
    first = store.put_new("manifest/1", b"one")
    assert store.get("manifest/1") == (b"one", first)
    with pytest.raises(ObjectConflictError, match="exists already"):
        store.put_new("manifest/1", b"two")
    second = store.put_if_match("manifest/1", b"two", first)
    with pytest.raises(ObjectConflictError, match="replaced or deleted"):
        store.put_if_match("manifest/1", b"three", first)
    with pytest.raises(ObjectConflictError, match="replaced or deleted"):
        store.put_if_match("manifest/2", b"three", first)
    assert store.get("manifest/1") == (b"two", second)
    assert store.head("manifest/1")[:2] == ("manifest/1", 3)
    assert store.get_range("manifest/1", 1, 2) == b"wo"
    for start, length in ((2, 2), (3, 1), (9, 1)):
        with pytest.raises(StoreChangedError):
            store.get_range("manifest/1", start, length)
    store.put_new("manifest/12", b"")
    store.put_new("manifesto", b"")
    assert sorted(one.name for one in store.list("manifest/1")) == ["manifest/1", "manifest/12"]
    assert len(list(store.list())) == 3
    store.delete("manifest/1")
    store.delete("manifest/1")
    for use in (store.get, store.head, lambda name: store.get_range(name, 0, 1)):
        with pytest.raises(StoreNotFoundError):
            use("manifest/1")
    assert store.put_new("manifest/1", b"again")


def test_a_large_object_is_uploaded_in_parts(store: ObjectStore) -> None:
    parts = [bytes([number]) * (5 << 20) for number in range(5)]
    assert store.upload("large", iter(parts)) == 25 << 20
    assert store.get_range("large", (10 << 20) - 1, 2) == b"\1\2"
    assert store.head("large").size == 25 << 20

    def breaks_off() -> Iterator[bytes]:
        yield from parts
        raise KeyError

    with pytest.raises(KeyError):
        store.upload("broken", breaks_off())
    assert [one.name for one in store.list()] == ["large"]


def test_an_upload_replaces_no_object(store: ObjectStore) -> None:
    store.put_new("taken", b"of another writer")
    with pytest.raises(ObjectConflictError, match="exists already"):
        store.upload("taken", [b"x"])
    assert store.get("taken").data == b"of another writer"


def test_a_conditional_write_is_one_request_of_bounded_size(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = store.put_new("large", bytes(20 << 20))  # more than one part of an upload
    with pytest.raises(ObjectConflictError):
        store.put_new("large", b"\1" * (20 << 20))
    assert store.put_if_match("large", b"\2" * (20 << 20), version) != version
    monkeypatch.setattr(object_store, "MOST_PUT_BYTES", 1 << 20)
    more = bytes((1 << 20) + 1)
    puts: tuple[Callable[[], str], ...] = (
        lambda: store.put_new("more", more), lambda: store.put_if_match("large", more, version),
    )  # fmt: skip
    for put in puts:
        with pytest.raises(UsageError, match=r"1,048,577 bytes.*upload"):
            put()


@pytest.mark.parametrize("place", ["gcs", "azure"])
def test_a_server_that_is_gone_ends_in_time(
    place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = bucket.Bucket(f"{request.getfixturevalue(place)}/gone", {})
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it never accepts
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(bucket, "POLICY", deadlines.Deadlines(0.5, 0.5))
        account = json.loads(os.environ.get("GOOGLE_SERVICE_ACCOUNT_KEY", "{}"))
        monkeypatch.setenv(
            "GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps({**account, "gcs_base_url": address})
        )
        monkeypatch.setenv("AZURE_ENDPOINT", f"{address}/devstoreaccount1")
        opened = pickle.loads(pickle.dumps(opened))
        uses: tuple[Callable[[], Any], ...] = (
            lambda: opened.put_new("a", b"1"), lambda: opened.get("a"), lambda: list(opened.list()),
            lambda: opened.upload("a", [b"1"]),
        )  # fmt: skip
        for use in uses:
            with pytest.raises(StoreUnreachableError) as error:
                use()
            assert "\n" not in str(error.value)


def test_a_plain_http_address_that_nobody_allowed_is_no_passing_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "a")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "YQ==")
    monkeypatch.setenv("AZURE_ENDPOINT", "http://127.0.0.1:1/a")
    monkeypatch.delenv("AZURE_ALLOW_HTTP", raising=False)
    with pytest.raises(UsageError, match="AZURE_ALLOW_HTTP"):
        bucket.Bucket("az://objects", {}).put_new("a", b"")


def test_an_upload_that_breaks_off_leaves_no_parts(
    faulty: ObjectStore, proxy: FaultyServer
) -> None:
    def breaks_off() -> Iterator[bytes]:
        yield from [bytes(20 << 20)] * 2
        raise KeyError

    with pytest.raises(KeyError):
        faulty.upload("broken", breaks_off())
    begun = [one for one in proxy.requests if one.startswith("POST") and "uploads" in one]
    given_up = [one for one in proxy.requests if one.startswith("DELETE") and "uploadId" in one]
    assert len(begun) == len(set(given_up)) > 0  # the request to abort may be repeated


def test_of_many_writers_one_wins_each_time(store: ObjectStore) -> None:
    store.put_new("counter", b"0 start")
    wins: list[int] = []

    def count(writer: int) -> None:
        for turn in range(5):
            while True:
                data, version = store.get("counter")
                number = int(data.split()[0])
                try:
                    store.put_if_match("counter", b"%d %d.%d" % (number + 1, writer, turn), version)
                except ObjectConflictError:
                    continue
                wins.append(number)
                break

    threads = [threading.Thread(target=count, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == list(range(20))
    assert store.get("counter").data.startswith(b"20 ")


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "../a", "a//b", "a/./b", ".reput-lock", "a\nb", "a\\b", "x" * 1000]
)
def test_names_that_leave_the_place_are_refused(store: ObjectStore, name: str) -> None:
    uses: tuple[Callable[[], object], ...] = (
        lambda: store.put_new(name, b""), lambda: store.get(name), lambda: store.delete(name),
        lambda: store.upload(name, []),
    )  # fmt: skip
    for use in uses:
        with pytest.raises(UsageError):
            use()


def test_a_store_can_be_sent_to_another_process(store: ObjectStore) -> None:
    version = store.put_new("sent", b"x")
    other: ObjectStore = pickle.loads(pickle.dumps(store))
    assert other.get("sent") == (b"x", version)


@pytest.mark.parametrize("fault", ["drop", "503", "429"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_fault_that_passes_is_not_noticed(
    faulty: ObjectStore, proxy: FaultyServer, fault: Fault, count: int
) -> None:
    proxy.fail(fault, count=count)
    version = faulty.put_new("a", b"1")
    proxy.fail(fault, count=count)
    version = faulty.put_if_match("a", b"2", version)
    proxy.fail(fault, count=count)
    assert faulty.get("a") == (b"2", version)
    proxy.fail(fault, count=count)
    assert [one.name for one in faulty.list()] == ["a"]


@pytest.mark.every_case
@pytest.mark.parametrize("count", [1, 2])
def test_a_write_whose_acknowledgement_is_lost_is_no_conflict(
    faulty: ObjectStore, proxy: FaultyServer, count: int
) -> None:
    proxy.fail("lost", "PUT", count)
    version = faulty.put_new("a", b"of writer 1")
    proxy.fail("lost", "PUT", count)
    version = faulty.put_if_match("a", b"of writer 1, again", version)
    assert faulty.get("a") == (b"of writer 1, again", version)
    proxy.fail("lost", "PUT", count)
    with pytest.raises(ObjectConflictError):
        faulty.put_new("a", b"of writer 2")


@pytest.mark.every_case
@pytest.mark.parametrize("fault", ["drop", "503", "429", "hang", "lost"])
def test_a_fault_that_stays_is_transient_and_ends_in_time(
    faulty: ObjectStore, proxy: FaultyServer, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "POLICY", deadlines.Deadlines(0.5, 0.5))
    proxy.fail(fault)
    uses: tuple[Callable[[], Any], ...] = (
        lambda: faulty.put_new("a", b"1"), lambda: faulty.get("a"), lambda: list(faulty.list()),
    )  # fmt: skip
    for use in uses:
        with pytest.raises(StoreUnreachableError) as error:
            use()
        assert "\n" not in str(error.value)
    proxy.fail(None)


def test_a_listing_that_ends_too_early_is_continued(
    faulty: ObjectStore, proxy: FaultyServer
) -> None:
    names = [f"{number:04d}" for number in range(1100)]
    for name in names:
        faulty.put_new(name, b"")
    proxy.fail("truncated", "GET")
    assert sorted(one.name for one in faulty.list()) == names


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "Generic S3 error: Error performing GET http://h/x in 2s, after 10 retries - HTTP error: error sending "
            'request\n\nDebug source:\n Os {\n code: 111,\n message: "Connection refused",\n }',
            "HTTP error: error sending request: Connection refused",
        ),
        (
            "Generic S3 error: Error performing PUT http://h/x in 3ms - Server returned non-2xx status code: 403 "
            "Forbidden: <?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>m</Message></Error>",
            "status code: 403 Forbidden: AccessDenied; check",
        ),
    ],
)
def test_an_error_states_its_cause(s3: Options, text: str, cause: str) -> None:
    from obstore.exceptions import GenericError

    opened = bucket.Bucket("s3://objects", s3)

    def failing() -> None:
        raise GenericError(text)

    with pytest.raises(StoreAccessError, match=cause) as error:
        opened._ask("a", 5, failing)
    assert isinstance(error.value.__cause__, GenericError)


def test_what_stays_wrong_is_not_transient(s3: Options, proxy: FaultyServer) -> None:
    proxy.fail(None)
    missing = bucket.Bucket("s3://no-such-bucket", s3)
    with pytest.raises(StoreAccessError) as error:
        missing.put_new("a", b"")
    assert not isinstance(error.value, StoreUnreachableError)
    with pytest.raises(UsageError, match="conditional writes are not supported"):
        open_object_store("hdfs://name/folder")


class Careless(object_folder.ObjectFolder):
    """A store that ignores one condition of writes: If-None-Match or If-Match."""

    def __init__(self, place: str, ignored: str) -> None:
        super().__init__(place)
        self._ignored = ignored

    def put_new(self, name: str, data: bytes) -> str:
        if self._ignored == "If-None-Match":
            self.delete(name)
        return super().put_new(name, data)

    def put_if_match(self, name: str, data: bytes, version: str) -> str:
        return super().put_if_match(name, data, self.get(name).version)


@pytest.mark.every_case
@pytest.mark.parametrize("ignored", ["If-None-Match", "If-Match"])
def test_a_place_that_ignores_conditions_is_refused(tmp_path: Path, ignored: str) -> None:
    with pytest.raises(UsageError, match=f"ignores conditional writes .{ignored}.*two writers"):
        check_conditions(Careless(str(tmp_path), ignored))
    assert list(object_folder.ObjectFolder(str(tmp_path)).list()) == []
