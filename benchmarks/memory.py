"""Find the peak memory of this process and of the processes that it starts."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

_POLL_S = 0.1


class MemoryWatch:
    """A context manager that finds peaks of resident memory, in bytes.

    driver   the peak of this process
    workers  the greatest peak of a single Python process that this process started, directly or indirectly
    """

    def __init__(self) -> None:
        self.workers = 0
        self.driver = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_POLL_S):
            processes = _processes()
            parents = {pid: parent for pid, (_, parent, _) in processes.items()}
            for pid in processes:
                name, _, peak = processes[pid]
                if pid == os.getpid():
                    self.driver = max(self.driver, peak)
                elif name.startswith("python") and os.getpid() in ancestors(pid, parents):
                    self.workers = max(self.workers, peak)


def _processes() -> dict[int, tuple[str, int, int]]:
    """Return name, parent and peak resident bytes of each process, by its id."""
    processes = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            lines = (folder / "status").read_text().splitlines()
        except OSError:
            continue
        facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        peak = int(facts.get("VmHWM", "0 kB").split()[0]) * 1024
        processes[int(folder.name)] = (facts["Name"], int(facts["PPid"]), peak)
    return processes


def ancestors(pid: int, parents: Mapping[int, int]) -> set[int]:
    """Return the ids of a process and of its ancestors. `parents` maps the id of each process to its parent's id."""
    found: set[int] = set()
    while pid in parents and pid not in found:
        found.add(pid)
        pid = parents[pid]
    return found
