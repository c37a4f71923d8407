"""Refuse symbolic links in a store that is written, because they could lead to files outside the store.

When a file is opened for writing, `O_NOFOLLOW` refuses a link. This module also refuses links to folders, and links to
files that are only read or deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from reput.io.anchors import explained, refused_link


def refuse_links(root: Path, names: Iterable[str], allowed: Path | None = None) -> None:
    """Refuse symbolic links among these entries of `root`, and at any depth below them.

    Args:
        root: may be a link itself.
        names: names in `root`; missing entries are skipped.
        allowed: a folder to which a link directly in `root` may lead.

    Raises:
        StoreError: for the first link found.
        StoreAccessError: a folder cannot be read.
    """
    for name in names:
        path = root / name
        if path.is_symlink():
            if allowed is None or path.resolve() != allowed.resolve():
                raise refused_link(path)
            # This link may be followed. But the folder to which it leads must not contain links.
            path = allowed
        if path.is_dir():
            _refuse_below(path)


def _refuse_below(folder: Path) -> None:
    with explained(folder, "be read"), os.scandir(folder) as entries:
        below = []
        for entry in entries:
            if entry.is_symlink():
                raise refused_link(Path(entry.path))
            if entry.is_dir(follow_symlinks=False):
                below.append(Path(entry.path))
    for path in below:
        _refuse_below(path)
