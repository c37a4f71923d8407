"""Which topics of a followed store have batch queues (5.x); the store may get others meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

from reput.store.topics_file import TOPICS_PATH, batch_topics


class FollowedBatchTopics:
    """Topics with batch queues: those that the followed store says, and those that have one."""

    def __init__(self, store: Path, output: Path) -> None:
        self._store = store
        self._stored = self._state()
        self.names = batch_topics(str(store)) | batch_topics(str(output))

    def have_changed(self) -> bool:
        """Whether the store has others now; a topic is there before its first message."""
        if (state := self._state()) == self._stored:
            return False
        self._stored = state
        return not batch_topics(str(self._store)) <= self.names

    def _state(self) -> tuple[int, int] | None:
        """What changes with the file; a broker replaces it."""
        try:
            status = os.stat(self._store / TOPICS_PATH)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino
