"""Violations that are known and not mended yet. The list only shrinks: an entry that no longer occurs fails."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.truth.harness import Violation


class Known(NamedTuple):
    """A known violation, and why it is one.

    Attributes:
        rules: The broken rules.
        paths: A regular expression for names of paths.
        damages: A regular expression for the description of the damage.
        seed, path: A scene and a path that show it.
    """

    rules: str
    paths: str
    damages: str
    reason: str
    seed: int
    path: str

    def matches(self, violation: Violation) -> bool:
        return (
            violation.rule in self.rules.split()
            and re.search(self.paths, violation.path) is not None
            and re.search(self.damages, violation.damage) is not None
        )


KNOWN: tuple[Known, ...] = (
    Known(
        "missing", "(queue|place|behind|window)$", "config restored",
        "a store whose derived files are all older looks like one that has not dispatched its newest messages", 30058,
        "MessageStore.pull:queue",
    ),
    Known(
        "missing", "window$", "log file .* replaced by its state",
        "records missing at the end of the last log file are seen by queues, but not by a scan of a window", 30270,
        "reput.export:window",
    ),
    Known(
        "missing", "newest$", r"consumequeue\S* deleted",
        "the newest messages of a joined store whose queues are lost are those of its archive", 3337517461,
        "messages_of_topic newest:newest",
    ),
    Known(
        "missing", "dataset:(key|id)", r"IndexFile .* zeroed",
        "a dataset trusts an IndexFile of an older proof whose items were zeroed, which a query doubts", 1216991925,
        "reput.dataset:key",
    ),
)  # fmt: skip


def is_known(violation: Violation) -> bool:
    """Return whether the list has this violation."""
    return any(known.matches(violation) for known in KNOWN)
