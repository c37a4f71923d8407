"""Names of topics and groups that clients bring along (`TopicValidator`, `Validators`, tag rocketmq-all-4.9.3)."""

from __future__ import annotations

import re

from reput.errors import ReputError

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_MOST_CHARACTERS = {"topic": 127, "group": 255}


class NameRefusedError(ReputError):
    """A name that a broker does not take."""


def check_name(name: str, kind: str) -> None:
    """Check the name of a `topic` or a `group`. Raises NameRefusedError."""
    if not name.strip():
        raise NameRefusedError(f"The specified {kind} is blank.")
    if len(name) > _MOST_CHARACTERS[kind]:
        raise NameRefusedError(f"The specified {kind} is longer than {kind} max length.")
    if not _NAME.fullmatch(name):
        raise NameRefusedError(
            f"The specified {kind} contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        )
