"""Publish a rebuild in object storage: tasks copy staged objects to their final names, then `checkpoint` is written.

Object storage has no rename, so the commit cannot be atomic. Only `checkpoint` is ever replaced. A crash leaves some of
the files, and a record of their folders. The next rebuild deletes these files and publishes its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from posixpath import join
from typing import NamedTuple

from reput.engine.rebuild.commit import FolderTarget, RebuildCommit
from reput.engine.rebuild.staging import Staging
from reput.engine.rebuild.staging_bucket import BucketStaging
from reput.engine.rebuild.write_files import index_part
from reput.errors import StoreAccessError, StoreChangedError, StoreNotFoundError, UsageError
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from reput.format.file_names import CHECKPOINT_FILE, INDEX_FOLDER, QUEUE_FOLDERS
from reput.io import DISK, ObjectStore, StagedFiles, at_once

# Pauses between listings, six seconds in total: some servers list a new object only after a delay.
_PAUSES_S = (0.1, 1.0, 5.0)


class StagedFile(NamedTuple):
    """A file of the result: its staged URL, its path below the output, its size in bytes."""

    url: str
    name: str
    size: int


RunTasks = Callable[
    [Callable[[StagedFile], None], Sequence[StagedFile], Sequence[int], str], object
]
"""Runs a function over tasks. The arguments are the function, the tasks, their weights, and the phase."""


def _staged_queues(staging: BucketStaging, count: int) -> list[StagedFile]:
    """Return the `count` queue files of a result. Raises StoreAccessError if object storage lists fewer files."""
    new = f"{staging.own_name}/new/"
    for pause in (*_PAUSES_S, None):
        files = [
            StagedFile(join(staging.place, file.name), file.name.removeprefix(new), file.size)
            for file in staging.store.list(new)
        ]
        if len(files) >= count:
            break
        if pause is None:
            raise StoreAccessError(
                f"{staging.place}: the server lists only {len(files)} of {count} staged files; run the rebuild again; "
                "if the "
                "error repeats, choose another staging"
            )
        time.sleep(pause)
    return files


def _staged_index(staging: BucketStaging, names: Mapping[int, str]) -> list[StagedFile]:
    """Return the staged IndexFiles of a result, each with its final name."""
    parts = f"{staging.own_name}/parts/"
    sizes = {join(staging.place, file.name): file.size for file in staging.store.list(parts)}
    files = []
    for number, name in names.items():
        url = index_part(staging.parts, number)
        size = sizes.get(url)
        # An outdated listing may lack a file. The names of IndexFiles are known, so this file can be requested by its
        # name.
        if size is None:
            size = staging.store.head(url.removeprefix(f"{staging.place}/")).size
        files.append(StagedFile(url, join(INDEX_FOLDER, name), size))
    return files


class BucketTarget:
    """An output in object storage."""

    def __init__(
        self,
        output: ObjectStore,
        staging: BucketStaging,
        only: str | None,
        checkpoint: Checkpoint,
    ) -> None:
        """Prepare a publication.

        Args:
            output: Destination of the files.
            staging: The staged files.
            only: 'consumequeue' or 'index' if only this part is rebuilt; None for both.
            checkpoint: The store's present checkpoint.
        """
        self._output, self._staging, self._checkpoint = output, staging, checkpoint
        self.run_tasks: RunTasks | None = None  # The driver sets this attribute before `commit`.
        queues = () if only == "index" else QUEUE_FOLDERS
        self._folders = (*queues, *(() if only == "consumequeue" else (INDEX_FOLDER,)))
        self._index: Mapping[int, str] = {}
        self._staged = 0
        self._files: list[StagedFile] | None = None

    def check_empty(self) -> None:
        """Raise UsageError if the output has files other than those that an unfinished rebuild published.

        Raises StoreAccessError.
        """
        unfinished = self._staging.unfinished()
        for name in self._published():
            if name.partition("/")[0] not in unfinished:
                raise UsageError(
                    f"{self._output.place}: {name} exists, and a rebuild replaces no objects; delete it, or choose "
                    "another "
                    "output",
                    arguments=["output"],
                )

    def clear(self) -> None:
        """Delete the output of an interrupted rebuild. Raises StoreChangedError, StoreAccessError."""
        self._staging.delete(self._output, list(self._published()))

    def _published(self) -> dict[str, int]:
        """Return the size of each published file, by name."""
        listings = (self._output.list(f"{folder}/") for folder in self._folders)
        return {file.name: file.size for listing in listings for file in listing}

    def take_queues(self, staged: int) -> None:
        """Remember the number of queue files. `sizes` or `commit` lists the files, and compares the number."""
        self._staged = staged

    def take_index_files(self, names: Mapping[int, str]) -> None:
        """See Target."""
        self._index = names

    def _result(self) -> list[StagedFile]:
        if self._files is None:
            files = [
                *_staged_queues(self._staging, self._staged),
                *_staged_index(self._staging, self._index),
            ]
            self._files = sorted(files, key=lambda file: file.name)
        return self._files

    def sizes(self) -> dict[str, int]:
        """See Target. Raises StoreAccessError."""
        return {file.name: file.size for file in self._result()}

    def commit(self, commit: RebuildCommit) -> None:
        """See Target. Raises StoreChangedError if the published files are not exactly the files of this rebuild."""
        # Record the folders first, so that after a crash the next rebuild knows which files it may delete.
        self._staging.begin_publishing(self._folders)
        files = self._result()
        publish = partial(_publish, self._output.place)
        assert self.run_tasks is not None
        self.run_tasks(publish, files, [file.size + 1 for file in files], "publish")
        sizes = self._published()
        if sizes != self.sizes():
            odd = min(sizes.items() ^ self.sizes().items())[0]
            raise StoreChangedError(
                f"{self._output.place}: {odd} differs from this rebuild's result, so another rebuild is writing there; "
                "when it has ended, run this rebuild again"
            )
        self._write_checkpoint(commit)
        self._staging.remove(self._folders)

    def _write_checkpoint(self, commit: RebuildCommit) -> None:
        new = encode_checkpoint(commit.checkpoint_after(self._checkpoint))
        try:
            version = self._output.get(CHECKPOINT_FILE).version
        except StoreNotFoundError:
            self._output.put_new(CHECKPOINT_FILE, new)
        else:
            # The write is conditional, so that only one of two concurrent rebuilds succeeds.
            self._output.put_if_match(CHECKPOINT_FILE, new, version)


def _publish(output: str, file: StagedFile) -> None:
    """Copy a staged file to its place. Safe to run twice. Raises StoreAccessError, StoreChangedError."""
    with StagedFiles.reading(file.url) as path:
        StagedFiles.put(Path(path), join(output, file.name))


class FetchedTarget:
    """A folder of the driver's machine. The result is fetched into it from object storage."""

    def __init__(self, output: Path, local: Staging, staging: BucketStaging) -> None:
        self._folder = FolderTarget(output, local)
        self._local, self._staging = local, staging

    def clear(self) -> None:
        """Do nothing: a folder never has part of a result, because the commit swaps whole folders."""

    def take_queues(self, staged: int) -> None:
        """Fetch the queue files. Raises StoreAccessError, StoreChangedError."""
        at_once(self._fetch, _staged_queues(self._staging, staged))

    def _fetch(self, file: StagedFile) -> None:
        path = self._local.new / file.name
        DISK.create_folder(path.parent)
        StagedFiles.fetch(
            self._staging.store, file.url.removeprefix(f"{self._staging.place}/"), path
        )

    def take_index_files(self, names: Mapping[int, str]) -> None:
        """See Target. Raises StoreAccessError, StoreChangedError."""
        at_once(self._fetch, _staged_index(self._staging, names))

    def sizes(self) -> dict[str, int]:
        """See Target."""
        return self._folder.sizes()

    def commit(self, commit: RebuildCommit) -> None:
        """See Target."""
        self._folder.commit(commit)
        # The result is complete. Only the staged objects of this rebuild remain to be deleted. If another rebuild has
        # started in the same staging, it deletes or reuses these objects.
        with suppress(StoreChangedError):
            self._staging.remove()
