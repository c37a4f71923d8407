"""Create a folder of links that looks like one store, for a store whose CommitLog lies elsewhere."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Mapping

from reput.io.writer import explained


def linked_folder(name: str, entries: Mapping[str, str]) -> str:
    """Return a folder named `name` with the given links, in a temporary folder of this process.

    The folder and its links are deleted when the process ends, but not the targets of the links. Raises
    StoreAccessError.
    """
    temporary = tempfile.TemporaryDirectory(prefix="reput-view-")
    atexit.register(temporary.cleanup)
    folder = os.path.join(temporary.name, name)
    with explained(folder, "be created"):
        os.mkdir(folder)
        for link, path in entries.items():
            os.symlink(os.path.abspath(path), os.path.join(folder, link))
    return folder
