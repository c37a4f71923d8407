"""Read the file of a recovery point (`reput.engine.writer.recovery.recovery_point`), and what it tells of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reput.errors import StoreError
from reput.format.file_names import CONSUME_QUEUE_FOLDER, QUEUE_DATABASE_FOLDER, RECOVERY_POINT_FILE
from reput.format.untrusted_json import parse_json
from reput.io import FileReader

_MOST_BYTES, _MOST_VALUES = 1 << 28, 8 << 20  # A queue has 7 values.
DATABASE_FIELD = "database"
"""The field with the name of the folder that has the queues' database; empty if the queues are in files."""


def recovery_file(path: Path) -> Any:
    """Return the content of a recovery point's file. Raises StoreAccessError, ValueError."""
    return parse_json(FileReader.content_of(path, _MOST_BYTES), _MOST_VALUES)


def stated_database(store: str) -> str:
    """Return the folder in which the recovery point says the queues' database is; empty if it says nothing."""
    try:
        content = recovery_file(Path(store, RECOVERY_POINT_FILE))
        name = content[DATABASE_FIELD]
    # Any other content is no recovery point, so it tells nothing.
    except (OSError, ValueError, TypeError, LookupError, StoreError):
        return ""
    return name if name in (CONSUME_QUEUE_FOLDER, QUEUE_DATABASE_FOLDER) else ""
