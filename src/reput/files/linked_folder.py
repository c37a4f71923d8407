"""A folder of links that look like one store, for a store whose CommitLog lies elsewhere."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Mapping

from reput.files.writer import explained


def linked_folder(name: str, entries: Mapping[str, str]) -> str:
    """Return a folder named `name`, in a temporary folder of this process, with the given links.

    It is deleted when the process ends; the targets of its links stay unchanged. Raises StoreAccessError.
    """
    temporary = tempfile.TemporaryDirectory(prefix="reput-view-")
    atexit.register(temporary.cleanup)
    folder = os.path.join(temporary.name, name)
    with explained(folder, "be made"):
        os.mkdir(folder)
        for link, path in entries.items():
            os.symlink(os.path.abspath(path), os.path.join(folder, link))
    return folder
