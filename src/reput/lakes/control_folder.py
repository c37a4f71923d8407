"""Where an export keeps what belongs to no table. Imports little: commands look at paths with it."""

from __future__ import annotations

from pathlib import Path

CONTROL_FOLDER = "_reput"
"""Below a destination whose readers know its files by a log: what belongs to no table."""
FORMAT_FILE = "format"
"""In the control folder, from the first commit on: the format of the table."""


def folder_beside(folder: Path) -> Path:
    """The same for a destination whose readers take whatever files they find below it."""
    return folder.with_name(f"{folder.name}.reput")


def format_of(path: str) -> Path | None:
    """The file that has the format of a folder's table; None where no export made a table of it."""
    folder = Path(path).absolute()
    found = (place / FORMAT_FILE for place in (folder / CONTROL_FOLDER, folder_beside(folder)))
    return next((file for file in found if folder.is_dir() and file.is_file()), None)
