"""What lies in the folders of a store that is checked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def entries_of(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Sorted by name; none where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
