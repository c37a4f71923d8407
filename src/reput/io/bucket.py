"""Read and write objects in a bucket of S3, GCS or Azure (through obstore), or in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from os import PathLike
from typing import Any, TypeVar
from urllib.parse import urlsplit

from reput.base import first_line, require
from reput.errors import (
    ObjectConflictError,
    ReputError,
    StoreAccessError,
    StoreChangedError,
    StoreNotFoundError,
    StoreUnreachableError,
    UsageError,
)
from reput.io import object_store
from reput.io.deadlines import CONNECT_S, POLICY, within
from reput.io.object_folder import ObjectFolder
from reput.io.object_store import check_conditions
from reput.io.places import is_url, local_path

Result = TypeVar("Result")
_Infos = list[object_store.ObjectInfo]

_VARIABLES = {
    "s3": "AWS", "gs": "GOOGLE", "gcs": "GOOGLE", "az": "AZURE", "abfs": "AZURE", "abfss": "AZURE",
}  # fmt: skip
"""Prefixes of the environment variables that obstore reads, by URL scheme."""
# Users name settings as in pyarrow's S3FileSystem. The values are the names of the same settings in obstore.
_S3_NAMES = {
    "access_key": "access_key_id",
    "secret_key": "secret_access_key",
    "session_token": "token",
    "region": "region",
}
_PART_BYTES, _PARTS_AT_ONCE = 8 << 20, 4
_RETRIES = 8
_LISTED_AT_ONCE = 1000
# S3's answer to an upload without a checksum into a bucket with Object Lock.
_NEEDS_CHECKSUM = re.compile(r"Content-MD5 or .{1,60} required", re.IGNORECASE)
# obstore has no error class for temporary faults, so they are recognised by text.
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,80})</Code>")
_SYSTEM_ERROR = re.compile(r'(?:message|error): "([^"\n]{1,200})"')
_TRANSIENT = re.compile(r"HTTP error: |status code: (408|429|5\d\d) ")


class Bucket:
    """See `reput.io.object_store.ObjectStore`. A version is an ETag; in Cloud Storage, it is a generation."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        """Open the bucket or folder at `url`, without sending a request. Raises UsageError, MissingExtraError."""
        self.place, self._options = url.rstrip("/"), dict(options)
        if not self.accepts(url):
            raise UsageError(
                f"{url}: conditional writes are not supported there; choose a bucket of S3, GCS "
                f"or Azure, or a folder"
            )
        self._is_s3 = url.startswith("s3:")
        self._version = "version" if url.startswith(("gs:", "gcs:")) else "e_tag"
        self._obstore, self._store = _open(self.place, self._options)

    @staticmethod
    def accepts(path: str | PathLike[str]) -> bool:
        """Return whether a path is a URL of a bucket that this class can write."""
        return urlsplit(os.fspath(path)).scheme in _VARIABLES

    def settings(self) -> dict[str, str]:
        """Return the settings of the bucket for libraries that use the Rust crate object_store."""
        return object_settings(self.place, self._options)

    def check_conditions(self, folder: str) -> None:
        """Test whether the bucket heeds the conditions of writes, with an object in `folder`. Raises UsageError."""
        check_conditions(self, folder)

    def __reduce__(self) -> tuple[type[Bucket], tuple[str, dict[str, str]]]:
        return type(self), (self.place, self._options)

    def put_new(self, name: str, data: bytes) -> str:
        return self._put(name, data, "create")

    def put_if_match(self, name: str, data: bytes, version: str) -> str:
        return self._put(name, data, {self._version: version})

    def _put(self, name: str, data: bytes, mode: Any) -> str:
        object_store.check_size(name, data)
        try:
            written = self._ask(
                name, POLICY.for_bytes(len(data)),
                lambda: self._obstore.put(self._store, name, data, mode=mode, use_multipart=False),
            )  # fmt: skip
        # If the answer to the write was lost, obstore has sent the write again. The conflict may then be with our own
        # first write.
        except ObjectConflictError as conflict:
            return object_store.settle_conflict(self, name, data, conflict)
        except StoreNotFoundError:
            # Some servers answer "not found" if the object of a conditional write was deleted.
            if mode != "create":
                raise ObjectConflictError(f"{self.place}/{name}: was deleted meanwhile") from None
            raise StoreAccessError(f"{self.place}: no such bucket; check its name") from None
        return str(written[self._version])

    def upload(self, name: str, chunks: Iterable[bytes]) -> int:
        # An upload in parts cannot be made conditional, so first check whether the object exists.
        with suppress(StoreNotFoundError):
            self.head(name)
            raise ObjectConflictError(f"{self.place}/{name}: exists already")
        upload = _Upload(chunks)
        try:
            # obstore uploads an iterable in parts. It aborts the upload if the iterable raises an error.
            self._ask(
                name, POLICY.for_bytes(_PARTS_AT_ONCE * _PART_BYTES),
                lambda: self._obstore.put(
                    self._store, name, iter(upload), chunk_size=_PART_BYTES,
                    max_concurrency=_PARTS_AT_ONCE,
                ),
                lambda: upload.size,
            )  # fmt: skip
        finally:
            # After a time-out, obstore's thread still takes chunks from `upload`. If `is_over` is true, `upload` raises
            # an error instead, so that obstore aborts the upload.
            upload.is_over = True
        if (size := self.head(name).size) != upload.size:
            raise StoreAccessError(
                f"{self.place}/{name}: has {size} bytes instead of {upload.size} after the upload; "
                f"run the command again"
            )
        return upload.size

    def get(self, name: str) -> object_store.StoredObject:
        answer = self._ask(name, POLICY.metadata, lambda: self._obstore.get(self._store, name))
        object_store.check_readable(f"{self.place}/{name}", answer.meta["size"])
        limit = POLICY.for_bytes(answer.meta["size"])
        data = self._ask(name, limit, lambda: bytes(answer.bytes()))
        return object_store.StoredObject(data, str(answer.meta[self._version]))

    def has_version(self, name: str, version: str) -> bool:
        head = self._ask(name, POLICY.metadata, lambda: self._obstore.head(self._store, name))
        return str(head[self._version]) == version

    def get_range(self, name: str, start: int, length: int) -> bytes:
        try:
            data = self._ask(
                name, POLICY.for_bytes(length),
                lambda: bytes(self._obstore.get_range(self._store, name, start=start, length=length)),
            )  # fmt: skip
        except StoreUnreachableError:
            raise
        # Servers refuse any range of an empty object, even one of length 0.
        except StoreAccessError:
            if self.head(name).size > start:
                raise
            data = b""
        if len(data) != length:
            raise StoreChangedError(f"{self.place}/{name}: ends before {start + length}")
        return data

    def head(self, name: str) -> object_store.ObjectInfo:
        head = self._ask(name, POLICY.metadata, lambda: self._obstore.head(self._store, name))
        return _info(head)

    def list(self, prefix: str = "") -> Iterator[object_store.ObjectInfo]:
        folder, names = prefix.rpartition("/")[0] or None, set[str]()
        infos = self._list_after(folder, None, names)
        while infos:
            yield from (info for info in infos if info.name.startswith(prefix))
            # A server may end a listing early. So request the objects after the last one, until there are none.
            infos = self._list_after(folder, infos[-1].name, names) if self._is_s3 else []

    def _list_after(self, folder: str | None, name: str | None, names: set[str]) -> _Infos:
        listing: _Infos = []
        pages = self._obstore.list(self._store, folder, offset=name, chunk_size=_LISTED_AT_ONCE)
        while page := self._asked(self.place, POLICY.metadata, lambda: next(pages, None)):
            infos = list(map(_info, page))
            # A server that ignores `offset` would otherwise keep this loop going for ever.
            if infos[0].name in names:
                raise StoreAccessError(
                    f"{self.place}: the server repeats its listing from the start, so it ignores start-after"
                )
            names.add(infos[0].name)
            listing += infos
        return listing

    def copy(self, source: str, name: str) -> None:
        """See ObjectStore. The provider copies the bytes. S3 copies objects of at most 5 GB in this way."""
        object_store.check_name(source)
        self._ask(name, POLICY.data, lambda: self._obstore.copy(self._store, source, name))

    def delete(self, name: str) -> None:
        try:
            self._ask(name, POLICY.metadata, lambda: self._obstore.delete(self._store, name))
        except StoreNotFoundError:
            return

    def _ask(
        self, name: str, seconds: float, call: Callable[[], Result], progress: Callable[[], int] = lambda: 0
    ) -> Result:  # fmt: skip
        """Return the result of a request for an object. Raises the errors of ObjectStore."""
        object_store.check_name(name)
        return self._asked(f"{self.place}/{name}", seconds, call, progress)

    def _asked(
        self, place: str, seconds: float, call: Callable[[], Result], progress: Callable[[], int] = lambda: 0
    ) -> Result:  # fmt: skip
        try:
            return within(seconds, place, call, progress)
        except ReputError:
            raise
        except FileNotFoundError:
            raise StoreNotFoundError(f"{place}: no longer exists") from None
        except self._obstore.exceptions.BaseError as error:
            raise self._translated(place, error) from error

    def _translated(self, place: str, error: Exception) -> ReputError:
        errors = self._obstore.exceptions
        reason = _reason(error)
        if isinstance(error, errors.AlreadyExistsError):
            return ObjectConflictError(f"{place}: exists already")
        if isinstance(error, errors.PreconditionError):
            return ObjectConflictError(f"{place}: was replaced or deleted meanwhile")
        if isinstance(error, errors.NotSupportedError):
            return UsageError(f"{place}: no conditional writes are possible there: {reason}")
        if _NEEDS_CHECKSUM.search(str(error)):
            return UsageError(
                f"{place}: the bucket has Object Lock, so its uploads need a checksum; set "
                "AWS_CHECKSUM_ALGORITHM=SHA256 in the environment"
            )
        # obstore refuses a plain http address with this text.
        if isinstance(error, errors.GenericError) and "builder error" in str(error):
            name = f"{_VARIABLES[urlsplit(self.place).scheme]}_ALLOW_HTTP"
            return UsageError(
                f"{place}: its address is not https; set {name}=true if you trust the network"
            )
        if isinstance(error, errors.GenericError) and _TRANSIENT.search(str(error)):
            return StoreUnreachableError(f"{place}: {reason}; run the command again")
        return StoreAccessError(f"{place}: {reason}; check the bucket and the credentials")


class _Upload:
    """The chunks of an upload. Once the upload is aborted, iteration raises an error."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self.size, self.is_over = chunks, 0, False

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            # If the iterable simply ended here, the object would be completed without its rest.
            if self.is_over:
                raise StoreUnreachableError("the upload was aborted")
            self.size += len(chunk)
            yield chunk


def object_settings(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a place under the names of the Rust crate object_store, for libraries that use it.

    Args:
        url: The place.
        options: The options for `reput.open_store`. Only options named `s3.NAME` are used.
    """
    settings = {name[3:]: value for name, value in options.items() if name.startswith("s3.")}
    config = {_S3_NAMES[name]: value for name, value in settings.items() if name in _S3_NAMES}
    is_plain = settings.get("scheme") == "http"
    if endpoint := settings.get("endpoint_override"):
        scheme = settings.get("scheme", "https")
        config["endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        is_plain = config["endpoint"].startswith("http://")
    if settings.get("anonymous") == "true":
        config["skip_signature"] = "true"
    allowed = os.environ.get(f"{_VARIABLES[urlsplit(url).scheme]}_ALLOW_HTTP", "")
    if is_plain or allowed.lower() == "true":
        config["allow_http"] = "true"
    return config


def _open(url: str, options: Mapping[str, str]) -> tuple[Any, Any]:
    reason = f"{url}: writing into a bucket needs obstore: pip install 'reput[buckets]'"
    obstore = require("obstore", reason)
    config = object_settings(url, options)
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=CONNECT_S),
        "timeout": timedelta(seconds=POLICY.data),
    }
    if config.pop("allow_http", ""):
        client["allow_http"] = True
    retries = {
        "max_retries": _RETRIES,
        "retry_timeout": timedelta(seconds=POLICY.metadata),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=2),
            "base": 2,
        },
    }
    try:
        store = obstore.store.from_url(
            url.replace("gcs://", "gs://"), config=config or None, client_options=client,
            retry_config=retries,
        )  # fmt: skip
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise UsageError(f"{url}: {_reason(error)}") from error
    return obstore, store


def _info(meta: Mapping[str, Any]) -> object_store.ObjectInfo:
    modified = meta["last_modified"]
    return object_store.ObjectInfo(
        meta["path"], meta["size"], int(modified.timestamp() * 1e6) * 1000
    )


def _reason(error: Exception) -> str:
    """Return the readable part of obstore's error: the end of its first line, and the cause.

    The cause is the code in the body of the response, or the error of the system in the lines that follow.
    """
    text = str(error)
    reason = first_line(error).rpartition(" - ")[2].partition(": <")[0]
    causes = _CODE.findall(text) or _SYSTEM_ERROR.findall(text)
    return f"{reason}: {causes[-1]}" if causes and causes[-1] not in reason else reason


def open_object_store(
    place: str | PathLike[str], options: Mapping[str, str] | None = None
) -> object_store.ObjectStore:
    """Open a folder (created if missing) or a place in a bucket for conditional writes.

    Args:
        place: A path, or a URL of S3, GCS or Azure.
        options: The options for `reput.open_store`. Only options named `s3.NAME` are used.

    Raises:
        MissingExtraError: obstore is not installed.
        UsageError: conditional writes are not possible there.
        StoreAccessError: the place cannot be written.
    """
    if is_url(place):
        store: object_store.ObjectStore = Bucket(str(place), dict(options or {}))
    else:
        store = ObjectFolder(local_path(place))
    check_conditions(store)
    return store
