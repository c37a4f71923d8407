"""Copy a store from object storage to this machine, for operations that read every byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from reput.base import Finding, Progress
from reput.core import find_store
from reput.errors import StoreAccessError, UsageError
from reput.io import DISK, FileWriter, FolderEntry, Scratch, Storage

_BLOCK_BYTES = 4 << 20
_MOST_DEPTH = 8


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A temporary copy of a store. `path` is its folder, `url` the original."""

    path: str
    url: str

    def as_original(self, finding: Finding) -> Finding:
        """Return a finding about the copy as a finding about the original: paths are replaced by URLs."""
        texts = {
            name: getattr(finding, name) for name in ("file", "detail", "cost", "at_next_start")
        }
        return replace(
            finding, **{n: text.replace(self.path, self.url) for n, text in texts.items()}
        )


@contextmanager
def local_copy(
    url: str, options: Mapping[str, str] | None, progress: Progress
) -> Iterator[LocalCopy]:
    """Copy all files of a store into a temporary folder. The folder is deleted when the `with` block ends.

    Blocks of zeros take no space in the copy. The environment variable TMPDIR sets the place of the folder. `progress`
    is called with the phase "fetch".

    Raises:
        UsageError: The URL belongs to an archive.
        StoreNotFoundError, StoreAccessError: A file cannot be read, or there is not enough space.
    """
    storage, store = find_store(url, options)
    if storage.is_archive or storage.is_joined:
        raise UsageError(
            f"{url}: is an archive; restore it into a folder first, or verify it as an archive"
        )
    files = list(_files(storage, store, _MOST_DEPTH))
    total = sum(file.stat().st_size for file in files)
    with Scratch.folder() as folder:
        done = 0
        for file in files:
            name = file.path.removeprefix(f"{store}/")
            _fetch(storage, file, folder / "store" / name)
            done += file.stat().st_size
            progress("fetch", done, total)
        yield LocalCopy(str(folder / "store"), url.rstrip("/"))


def _files(storage: Storage, folder: str, depth: int) -> Iterator[FolderEntry]:
    for entry in sorted(storage.list(folder), key=lambda entry: entry.name):
        # Object storage allows names such as `..`. As a local path, `..` would lead out of the copy's folder.
        if entry.name in ("", ".", "..") or "/" in entry.name or "\0" in entry.name:
            raise StoreAccessError(
                f"{entry.path}: a local file cannot have this name; copy the store without it"
            )
        if not entry.is_dir():
            yield entry
        elif depth:
            yield from _files(storage, entry.path, depth - 1)


def _fetch(storage: Storage, file: FolderEntry, target: Path) -> None:
    size = file.stat().st_size
    DISK.create_folder(target.parent)
    with FileWriter(target, size) as output, storage.open_file(file.path) as reader:
        for position in range(0, size, _BLOCK_BYTES):
            block = reader.read(position, min(_BLOCK_BYTES, size - position))
            # Skipping zeros keeps preallocated log files sparse.
            if any(block):
                output.write(block, position)
