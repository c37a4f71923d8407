"""Manage the objects of a table in a bucket. A run becomes the owner, and commits, by replacing the object `head`.

    s3://bucket/lake/messages            the table
    s3://bucket/lake/messages.reput/     the control folder; messages/_reput/ for Iceberg and Delta
      head                  JSON: format, owner, pending commit, and for Parquet the last commit
      alive-<run>           replaced every few seconds by the run that owns the table
      commits/<run>.json    files and state of a commit
      staging/<run>/        files that are not committed yet

A run replaces the head by conditional writes, which fail if another run has replaced the head meanwhile. So a run that
was presumed dead, and has lost the table to another run, cannot replace the head any more, and commits nothing.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from posixpath import join
from typing import Any
from urllib.parse import urlsplit

from reput.errors import (
    ObjectConflictError,
    ReputError,
    StoreAccessError,
    StoreLockedError,
    StoreNotFoundError,
    StoreUnreachableError,
    UsageError,
)
from reput.io import MOST_PUT_BYTES, Bucket, at_once, boot_id
from reput.wings.lakes.commit import Commit, understood
from reput.wings.lakes.data_file import DataFile

CONTROL_FOLDER = "_reput"
"""Name of a control folder inside a table.

Readers of Iceberg and Delta find data files in the table's metadata, so they never take files of this folder for data.
"""
_HEAD = "head"
# Seconds after which the owner replaces its object `alive-<run>` again, as a sign of life.
_BEAT_S = 4.0
_PATIENCE_S = 30.0
"""Seconds without a sign of life after which another run takes the table from its owner."""
_POLL_S = 1.0
# Number of further attempts to replace the object `head` if the bucket does not respond.
_REPEATS = 5
# Longest URL of a table, in bytes. The whole name of an object, with partition and file, is limited to 900 bytes.
_MOST_NAME_BYTES = 400
# Bytes per request when a large manifest is uploaded.
_REQUEST_BYTES = 16 << 20

Placed = Sequence[tuple[str, DataFile]]
"""Staged files, each with the name of its final object relative to the table's parent folder."""


class LakeBucket:
    """The objects of one table. Every method raises StoreAccessError."""

    def __init__(self, url: str, options: Mapping[str, str], *, is_inside: bool) -> None:
        """Prepare to access a table. Sends no request.

        Args:
            url: URL of the table.
            options: Options as for `reput.open_store`.
            is_inside: Whether the control folder is inside the table's folder instead of beside it.

        Raises:
            UsageError, MissingExtraError.
        """
        self.url, self.options = url.rstrip("/"), dict(options)
        parent, _, self.leaf = self.url.rpartition("/")
        if not urlsplit(self.url).path.strip("/") or len(self.url.encode()) > _MOST_NAME_BYTES:
            raise UsageError(
                f"{url}: name a folder in the bucket, such as {self.url}/messages; "
                f"the URL may have at most {_MOST_NAME_BYTES} bytes"
            )
        self.store = Bucket(parent, options)
        self.control = f"{self.leaf}/{CONTROL_FOLDER}" if is_inside else f"{self.leaf}.reput"
        self._is_inside = is_inside
        self._head: dict[str, Any] = {}
        self._version = ""
        self._run = uuid.uuid4().hex

    def staged(self, run: str) -> str:
        """Return the URL of the folder in which a run stages its files."""
        return join(self.store.place, self.control, "staging", run)

    def url_of(self, name: str) -> str:
        """Return the URL of an object."""
        return join(self.store.place, name)

    def layout(self) -> str | None:
        """Return the format of the table, or None if nothing was exported there."""
        return self._read()[0].get("layout") if self._is_there() else None

    def _is_there(self) -> bool:
        try:
            self.store.head(f"{self.control}/{_HEAD}")
        except StoreNotFoundError:
            return False
        return True

    def _read(self) -> tuple[dict[str, Any], str]:
        """Read the object `head`, and return it with its version. Raises StoreNotFoundError."""
        name = f"{self.control}/{_HEAD}"
        entry = self.store.get(name)
        with understood(self.url_of(name)):
            head = dict(json.loads(entry.data))
            pending = head.get("pending") or {"table": "", "manifest": ""}
            texts = [
                head["layout"],
                head.get("commit") or "",
                pending["table"],
                pending["manifest"],
            ]
            if not all(isinstance(text, str) for text in texts) or not isinstance(
                head.get("owner") or {}, dict
            ):
                raise TypeError("layout, commit, pending or owner has the wrong type")
        return head, entry.version

    def last(self) -> str | None:
        """Return the name of the last commit's manifest.

        Return None before the first commit. For Iceberg and Delta, always return None, because these formats record
        commits in their own metadata.
        """
        return self._current().get("commit")

    def read_last(self) -> str | None:
        """Read the object `head` again, and return the name of the last commit's manifest."""
        return self._read()[0].get("commit")

    def pending(self) -> Mapping[str, str] | None:
        """Return `table` and `manifest` of the unfinished commit, or None."""
        return self._current().get("pending")

    def _current(self) -> dict[str, Any]:
        """Return the object `head`: as this run wrote it, or as it is now if this run does not own the table."""
        if not self._version:
            with suppress(StoreNotFoundError):
                return self._read()[0]
        return self._head

    def change(self, **values: Any) -> None:
        """Replace values in the object `head`. Raises StoreLockedError if another run has taken the table."""
        # Each write has different bytes, so a write whose acknowledgement was lost can be recognized.
        head = {**self._head, **values, "write": uuid.uuid4().hex}
        name, data = f"{self.control}/{_HEAD}", json.dumps(head).encode()
        for tries in range(_REPEATS, -1, -1):
            try:
                self._version = self.store.put_if_match(name, data, self._version)
                break
            except ObjectConflictError:
                raise StoreLockedError(
                    f"{self.url}: another export began to write here, and this one stopped; run this one again"
                ) from None
            except StoreUnreachableError:
                if not tries:
                    raise
        self._head = head

    def check_owner(self) -> None:
        """Raise StoreLockedError if another run has taken the table."""
        try:
            version = self._read()[1]
        except StoreNotFoundError:
            version = ""
        if version != self._version:
            raise StoreLockedError(
                f"{self.url}: another export began to write here, and this one stopped; run this one again"
            )

    @contextmanager
    def claimed(self, layout: str, known_by: Sequence[str]) -> Iterator[None]:
        """Own the table during the `with` block.

        Args:
            layout: Format of the table.
            known_by: Names of files and folders; a table of this format has at least one of them.

        Raises:
            StoreLockedError: another run writes the table.
            UsageError: the place has other contents, or does not support conditional writes.
        """
        # Object storage that ignores the conditions of writes would let two runs own the table at the same time.
        self.store.check_conditions(f"{self.control}/")
        owner = {"run": self._run, **_this_process()}
        try:
            head, version = self._read()
        except StoreNotFoundError:
            self._check_empty(layout, known_by)
            self._head = {"layout": layout, "owner": owner}
            try:
                self._version = self.store.put_new(
                    f"{self.control}/{_HEAD}", json.dumps(self._head).encode()
                )
            except ObjectConflictError:
                raise self._busy() from None
        else:
            self._check_layout(head.get("layout"), layout)
            self._check_whole(head)
            self._wait_for(head.get("owner"), version)
            self._head, self._version = head, version
            self.change(owner=owner)
        ended = threading.Event()
        # Without these signs of life, other runs would take the table.
        beats = threading.Thread(
            target=self._beat, args=(ended,), name="reput-heartbeat", daemon=True
        )
        beats.start()
        try:
            yield
        finally:
            ended.set()
            beats.join()
            with suppress(ReputError):
                # If the table cannot be released, other runs can take it after `_PATIENCE_S` seconds.
                self.change(owner=None)
                self.store.delete(self._alive(self._run))
            # Other runs may now replace the object `head`, so forget the version that this run has written. `_current`
            # then reads the object again.
            self._version = ""

    def _busy(self) -> StoreLockedError:
        return StoreLockedError(
            f"{self.url}: another export is writing here; wait for it or stop it"
        )

    def _check_layout(self, present: str | None, layout: str) -> None:
        if present != layout:
            raise UsageError(
                f"{self.url}: messages were exported there with layout {present}, not {layout}; "
                "name another folder",
                arguments=["layout"],
            )

    def _check_empty(self, layout: str, known_by: Sequence[str]) -> None:
        first = next((name for name in self._names() if not self._is_control(name)), None)
        has_files = any(next(self.store.list(f"{self.leaf}/{name}/"), None) for name in known_by)
        if first is not None and not has_files:
            # A table of another layout may have its control folder elsewhere.
            other = LakeBucket(self.url, self.options, is_inside=not self._is_inside).layout()
            self._check_layout(other or layout, layout)
            raise UsageError(
                f"{self.url}: is not empty, but contains no exported table; name another folder"
            )

    def _check_whole(self, head: Mapping[str, Any]) -> None:
        """Raise UsageError if a table with rows has lost its objects."""
        if head.get("commit") is None or head.get("pending") is not None:
            # The table may have no files yet: nothing was committed, or a commit was interrupted before the files were
            # copied.
            return
        commit = self.read_commit(head["commit"])
        if commit.rows.rows and next(self._names(), None) is None:
            raise UsageError(
                f"{self.url}: does not exist, but exports to it are recorded in "
                f"{self.url_of(self.control)}; "
                f"restore it, or delete {self.url_of(self.control)} to start over"
            )

    def _names(self) -> Iterator[str]:
        return (entry.name for entry in self.store.list(f"{self.leaf}/"))

    def _is_control(self, name: str) -> bool:
        return name.startswith(f"{self.control}/")

    def _alive(self, run: str) -> str:
        return f"{self.control}/alive-{run}"

    def _beat(self, ended: threading.Event) -> None:
        """Write signs of life (see `_BEAT_S`) until `ended` is set."""
        version = ""
        while not ended.wait(_BEAT_S):
            name, data = self._alive(self._run), uuid.uuid4().bytes
            with suppress(ReputError):
                # One missing sign of life does no harm: another run takes the table only after several are missing.
                version = (
                    self.store.put_if_match(name, data, version)
                    if version
                    else self.store.put_new(name, data)
                )

    def _wait_for(self, owner: Mapping[str, Any] | None, version: str) -> None:
        """Wait until the owner of the table can be presumed dead. Raises StoreLockedError if the owner is alive."""
        if owner is None or _has_ended(owner):
            return
        run = str(owner.get("run"))
        before, until = self._sign_of(run), time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            time.sleep(min(_POLL_S, _PATIENCE_S))
            # If the owner's sign of life has changed, the owner is alive. If the object `head` has changed, another
            # run took the table first.
            if self._sign_of(run) != before or self._read()[1] != version:
                raise self._busy()

    def _sign_of(self, run: str) -> str:
        try:
            return self.store.get(self._alive(run)).version
        except StoreNotFoundError:
            return ""

    def bring(self, places: Placed, run: str) -> None:
        """Copy staged files to their places. An interrupted run may have copied some of them."""
        staged = f"{self.control}/staging/{run}"

        def copy(place: tuple[str, DataFile]) -> None:
            name, file = place
            with suppress(StoreNotFoundError):
                if self.store.head(name).size == file.file_bytes:
                    # An interrupted run has already copied this file.
                    return
            self.store.copy(f"{staged}/{file.name}", name)
            if (size := self.store.head(name).size) != file.file_bytes:
                raise StoreAccessError(
                    f"{self.url_of(name)}: has {size} bytes, not {file.file_bytes}; repeat the operation"
                )

        at_once(copy, places)

    def remove(self, names: Sequence[str]) -> None:
        """Delete objects. Missing objects are skipped."""
        at_once(self.store.delete, names)

    def clear_staging(self) -> None:
        """Delete all staged files, and the `alive-` objects of earlier runs.

        Raises StoreLockedError, and deletes nothing, if another run has taken the table.
        """
        staged = self.store.list(f"{self.control}/staging/")
        signs = self.store.list(f"{self.control}/alive-")
        sign = self._alive(self._run)
        names = [entry.name for entry in (*staged, *signs) if entry.name != sign]
        # Check ownership after the listing: if this run still owns the table, no other run took it during the listing,
        # so the list has no objects of a later owner.
        self.check_owner()
        self.remove(names)

    def delete_staged(self, run: str) -> None:
        """Delete the staged files of a run. The deletion is safe even if another run has taken the table."""
        self.remove([entry.name for entry in self.store.list(f"{self.control}/staging/{run}/")])

    def write_commit(self, commit: Commit) -> str:
        """Write the manifest of a commit; return its name."""
        name = f"{self.control}/commits/{commit.state.run}.json"
        data = json.dumps(commit.as_json()).encode()
        if len(data) <= MOST_PUT_BYTES:
            self.store.put_new(name, data)
        else:
            self.store.upload(
                name, (data[n : n + _REQUEST_BYTES] for n in range(0, len(data), _REQUEST_BYTES))
            )
        return name

    def read_commit(self, name: str) -> Commit:
        """Read the manifest of a commit. Raises StoreNotFoundError if it was deleted."""
        try:
            data = self.store.get(name).data
        except StoreNotFoundError:
            raise StoreNotFoundError(
                f"{self.url_of(name)}: is missing, so it is unknown which messages were exported; "
                "restore it, or name another folder"
            ) from None
        with understood(self.url_of(name)):
            return Commit.from_json(json.loads(data))


def _this_process() -> dict[str, Any]:
    """Return an identity of this process with which other processes of the machine can check whether it has ended."""
    return {"machine": _machine(), "pid": os.getpid()}


def _machine() -> str:
    """Return a text that identifies the machine, its boot and the process namespace; empty if unknown."""
    try:
        return f"{boot_id().strip()} {os.readlink('/proc/self/ns/pid')}" if boot_id() else ""
    except OSError:
        return ""


def _has_ended(owner: Mapping[str, Any]) -> bool:
    """Return whether the owner of the table is known to have ended. False for a process of another machine."""
    machine, pid = owner.get("machine"), owner.get("pid")
    if not machine or machine != _machine() or not isinstance(pid, int) or pid <= 0:
        return False
    # If the owner has ended and another process has its process id now, this run waits longer than needed, which is
    # harmless.
    return not os.path.exists(f"/proc/{pid}")
