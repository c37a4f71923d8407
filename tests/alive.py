"""Copy a store while a writer has it open, as a kill would leave it."""

import shutil
from contextlib import suppress
from pathlib import Path


def copy_alive(store: Path, target: Path) -> None:
    """Copy a store. Skip files that its writer renames meanwhile: temporary names of files that it replaces."""

    def copy(source: str, place: str) -> None:
        with suppress(FileNotFoundError):
            shutil.copy2(source, place)

    shutil.copytree(store, target, copy_function=copy)
