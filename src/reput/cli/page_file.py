"""--output of the commands that write a page."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from reput.errors import UsageError
from reput.text import printable


def page_option(*, required: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--output FILE."""
    return click.option(
        "--output",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        required=required,
        help="The HTML file to write; one that exists is replaced.",
    )


def check_page(output: str, stores: Iterable[str]) -> None:
    """Raises UsageError where the page would be written into a store, or where there is no folder for it."""
    path = _place(output)
    if not path.parent.is_dir():
        raise UsageError(f"--output {output}: {path.parent} is not a folder")
    for store in stores:
        if path.is_relative_to(Path(store).resolve()):
            raise UsageError(f"--output {output}: is in the store {store}, which is only read")


def write_page(output: str, page: str) -> None:
    """Write the page, whole or not at all, and print where it is. Raises StoreAccessError."""
    from reput.files.anchors import writing_to
    from reput.files.disk import Disk

    place = _place(output)
    with writing_to(place):
        Disk().replace(place, page.encode("utf-8", "backslashreplace"))
    click.echo(f"Wrote {printable(output)}", err=True)


def _place(output: str) -> Path:
    """Return the file to write. Raises UsageError if root would follow the link of another user."""
    from reput.files.anchors import real_path

    path = Path(output)
    if path.is_symlink() and os.geteuid() == 0 and path.lstat().st_uid != 0:
        raise UsageError(f"--output {output}: a link of another user, which root does not follow")
    return Path(real_path(output))
