"""A server between an export and its servers, which kills the export at a chosen change of an object or a table.

Changes are requests that write or delete. Signs of life are not counted: their number depends on the time. The n-th
change is the last thing that the export does. If it is killed `before`, the server does not get that request. If it is
killed `after`, the server does it, and nobody gets the answer. If it is `late`, the server gets the request when
another export has ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

from tests.remote.faulty_server import Fault, FaultyServer
from tests.remote.rest_catalog import FIRST
from tests.remote.s3_server import ENDPOINT, Options, process_of

Mode = Literal["before", "after", "late"]
MODES: tuple[Mode, ...] = ("before", "after", "late")
_FAULTS: tuple[Fault, ...] = ("500", "503", "429", "drop", "lost", "500", "503", "lost", "stall")
_CHANCE = 0.04
_KINDS = {
    FIRST: "catalog", "/_delta_log/": "Delta log", "/metadata/": "Iceberg metadata", "/head": "head",
    "/commits/": "manifest", "/staging/": "staged file", "/rejects/": "rejected rows",
    "/_rejects/": "rejected rows", "messages_rejects/": "rejected rows",
}  # fmt: skip


def kind_of(method: str, path: str) -> str | None:
    """Return the step of an export that a request belongs to; None if it changes nothing, or is only a sign of life."""
    if method in ("GET", "HEAD") or "/alive-" in path:
        return None
    if method == "DELETE" or path.endswith("?delete"):
        return "deletion"
    return next((kind for part, kind in _KINDS.items() if part in path), "data file")


class KillingServer(FaultyServer):
    """A proxy that kills an export at a chosen change; see the module's docstring."""

    def __init__(self, upstream: str, catalog: str) -> None:
        super().__init__(upstream)
        self._catalog = catalog
        self._lock, self._late = threading.Lock(), 0
        self._released, self._ended = threading.Event(), threading.Condition(self._lock)
        self.watch(0, 0, "before", None)

    def watch(self, pid: int, step: int, mode: Mode, seed: int | None) -> None:
        """Count changes from now on, and kill the process at change `step` (0: never). A `seed` lets requests fail."""
        with self._lock:
            self.steps: list[str] = []
            self.killed_at: str | None = None
            self.failed = 0
            self._pid, self._step, self._mode = pid, step, mode
        if seed is None:
            self.fail(None)
        else:
            self.fail_often(seed, _FAULTS, _CHANCE)

    def release(self) -> None:
        """Forward the requests that were held back when their process was killed, and wait for their answers."""
        self.fail(None)
        self._released.set()
        with self._ended:
            self._ended.wait_for(lambda: not self._late)
        self._released = threading.Event()

    def next_fault(self, method: str, path: str) -> Fault | None:
        fault = super().next_fault(method, path)
        with self._lock:
            self.failed += fault is not None
        return fault

    def upstream_of(self, path: str) -> str:
        return self._catalog if path.startswith(FIRST) else self.upstream

    def admit(self, method: str, path: str) -> Callable[[], None] | None:
        kind = kind_of(method, path)
        if kind is None:
            return lambda: None
        with self._lock:
            self.steps.append(kind)
            is_last = len(self.steps) == self._step
            mode, released = self._mode, self._released
            if is_last:
                self.killed_at = kind
                self._late += mode == "late"
        if not is_last:
            return lambda: None
        if mode == "after":
            return self._kill
        self._kill()
        if mode == "before":
            return None
        released.wait()
        return self._is_late_no_more

    def _is_late_no_more(self) -> None:
        with self._ended:
            self._late -= 1
            self._ended.notify_all()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


class Killer:
    """Controls such a server in another process."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        assert server.stdin is not None
        assert server.stdout is not None
        self._orders, self._answers = server.stdin, server.stdout

    def watch(self, pid: int, step: int, mode: Mode, seed: int | None) -> None:
        """See KillingServer."""
        self._ask("watch", pid, step, mode, seed)

    def release(self) -> None:
        """See KillingServer."""
        self._ask("release")

    def seen(self) -> tuple[list[str], str | None, int]:
        """Return the changes since `watch`, the change at which the process died, and the number of failed requests."""
        steps, killed_at, failed = self._ask("seen")
        return steps, killed_at, failed

    def _ask(self, *order: Any) -> Any:
        print(json.dumps(order), file=self._orders, flush=True)
        return json.loads(self._answers.readline())


@contextmanager
def killing_process(options: Options, catalog: str) -> Iterator[tuple[Killer, Options, str]]:
    """Run a KillingServer as a proxy of an S3 server and a catalog.

    Yields the killer, and the S3 options and the catalog's address that lead through the proxy.
    """
    with process_of("tests.remote.killing_server", options[ENDPOINT], catalog) as (server, line):
        address = line.strip()
        yield Killer(server), {**options, ENDPOINT: address}, address


def _obey(server: KillingServer) -> None:
    for line in sys.stdin:
        order, *given = json.loads(line)
        if order == "watch":
            server.watch(*given)
        elif order == "release":
            server.release()
        print(json.dumps([server.steps, server.killed_at, server.failed]), flush=True)


if __name__ == "__main__":
    with KillingServer(*sys.argv[1:3]) as killing:
        threading.Thread(target=killing.serve_forever, daemon=True).start()
        print(killing.address, flush=True)
        _obey(killing)
        killing.ended.set()
        killing.shutdown()
