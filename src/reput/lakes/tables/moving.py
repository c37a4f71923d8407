"""Files of a commit on their way from staging into a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reput.files.writer import make_folder, rename, sync_folder
from reput.lakes.data_file import DataFile

Places = Sequence[tuple[Path, DataFile]]
"""Where the files of a commit belong."""


def make_folders(places: Places) -> set[Path]:
    folders = {path.parent for path, _ in places}
    for folder in folders:
        make_folder(folder)
    return folders


def bring(places: Places, staged: Path) -> None:
    """Rename files to their places, durably; a run that died may have brought some of them."""
    folders = make_folders(places)
    for path, file in places:
        if not path.exists():
            rename(staged / file.name, path)
    for folder in folders:
        sync_folder(folder)
