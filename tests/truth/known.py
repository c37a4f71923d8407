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
    """

    rules: str
    paths: str
    damages: str
    reason: str

    def matches(self, violation: Violation) -> bool:
        return (
            violation.rule in self.rules.split()
            and re.search(self.paths, violation.path) is not None
            and re.search(self.damages, violation.damage) is not None
        )


_LOG_LOST = r"^0.* deleted|log file .* (cut|zeroed|ended)"
_QUEUES_LOST = r"consumequeue\S* (deleted|replaced|cut)"

KNOWN: tuple[Known, ...] = (
    Known(
        "invented other missing", ".", r"log files? .* (exchanged|copy)",
        "readers do not compare the physical offset that a record states with its place",
    ),
    Known("missing", "(queue|place|offset)$", _LOG_LOST, "a lost part of the log is passed over"),
    Known("missing", "(queue|place)$", _QUEUES_LOST, "messages without queues are not found"),
    Known("other", "place$", _QUEUES_LOST, "entries of other queue offsets are followed"),
)  # fmt: skip
