"""A folder of links to the files of another: for a library that writes into every folder that it opens."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection

from reput.files.writer import explained


class FolderView:
    """Links to the files that a folder has now, in a temporary folder of this process; the folder stays as it is.

    Links in it are left out: they may lead out of the store.

    path  of the temporary folder, which is deleted by `close`, or with this object
    """

    def __init__(self, folder: str, without: Collection[str] = ()) -> None:
        """`without` names files that are left out. Raises StoreAccessError."""
        with explained(folder, "be read"), os.scandir(folder) as entries:
            files = [
                entry.path
                for entry in entries
                if entry.is_file(follow_symlinks=False) and entry.name not in without
            ]
        self._temporary = tempfile.TemporaryDirectory(prefix="reput-view-")
        self.path = self._temporary.name
        for path in files:
            os.symlink(os.path.abspath(path), os.path.join(self.path, os.path.basename(path)))

    def close(self) -> None:
        self._temporary.cleanup()
