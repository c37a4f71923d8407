"""Manage the control folder of a table: its owner's lock, staged files, and the commit in progress.

DEST/_reput/, or DEST.reput/ beside a folder of Parquet files
  owner           the lock of the run that writes the table
  format          the format of the table, written with the first commit
  staging/<run>/  files that are not committed yet
  pending.json    the commit in progress, and the table to which it belongs; deleted when the commit is finished
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol, cast

from reput.base import Progress, Runner
from reput.errors import StoreAccessError, StoreError, UsageError, explained
from reput.format.untrusted_json import parse_json
from reput.io import DISK, AnchoredRunner, FileReader, Location, PlacedRunner, StagedFiles, locked
from reput.wings.lakes.commit import Commit, Destination, FolderDestination, Staged, understood
from reput.wings.lakes.lake_bucket import CONTROL_FOLDER, LakeBucket

FORMAT_FILE = "format"
"""A file in the control folder that names the format of the table. The first commit writes this file."""


def folder_beside(folder: Path) -> Path:
    """Return the control folder beside a table, for formats whose readers open every file in the table's folder."""
    return folder.with_name(f"{folder.name}.reput")


def format_of(path: str, options: Mapping[str, str] | None = None) -> str | None:
    """Return the format of the table in a folder, or None if it has no exported table. Raises StoreAccessError.

    Args:
        path: The folder, or a URL.
        options: Options of a URL, as for `reput.open_store`.
    """
    if Location.is_url(path):
        for is_inside in (False, True):
            with suppress(UsageError):
                # UsageError: no table can exist at this URL, so nothing was exported there.
                layout = LakeBucket(path, options or {}, is_inside=is_inside).layout()
                if layout is not None:
                    return layout
        return None
    folder = Path(path).absolute()
    paths = (place / FORMAT_FILE for place in (folder / CONTROL_FOLDER, folder_beside(folder)))
    return next(
        (FileReader.text_of(file) for file in paths if folder.is_dir() and file.is_file()), None
    )


def control_of(destination: Destination) -> Control:
    """Return the object that locks a table in a folder or bucket, and records its commit in progress."""
    if hasattr(destination, "bucket"):
        return BucketControl(cast(BucketDestination, destination))
    return Control(cast(FolderDestination, destination))


class BucketDestination(Destination, Protocol):
    """A table in a bucket."""

    bucket: LakeBucket

    def fence(self) -> None:
        """Make sure that unfinished commits fail if they are from runs that no longer own the table."""


class Control:
    """The control folder of a table. Every method raises StoreAccessError if the system refuses an operation."""

    def __init__(self, destination: FolderDestination) -> None:
        self._destination: Any = destination
        self.place: str | Path = destination.folder
        self._folder = destination.control
        self._format, self._pending = self._folder / FORMAT_FILE, self._folder / "pending.json"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Own the table during the `with` block.

        Raises StoreLockedError, and UsageError for a folder with other contents, which stays unchanged.
        """
        busy = "another export is writing here; wait for it or stop it"
        with ExitStack() as stack:
            for place in (self._folder, self._destination.folder):
                stack.enter_context(DISK.writing_to(place))
            # Check the place before anything is created.
            self.check_place()
            DISK.create_folder(self._folder)
            stack.enter_context(self._held())
            stack.enter_context(DISK.anchored(self._folder))
            stack.enter_context(locked(self._folder / "owner", busy))
            # Check again, because another run may have changed the folder before the lock was taken.
            self.check_place()
            yield

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Refuse symbolic links below the table's folder during the `with` block."""
        place = self._destination.folder
        # A new table has no folder yet.
        with DISK.anchored(place) if place.is_dir() else nullcontext():
            yield

    def check_place(self) -> None:
        """Raise UsageError if the folder has other contents, or a table of another layout."""
        place, layout = self._destination.folder, self._destination.layout
        with explained(place, "be read"):
            # A first run that was interrupted may leave only the control folder. Then the export can simply run again.
            is_empty = not place.is_dir() or all(
                entry.name == CONTROL_FOLDER for entry in place.iterdir()
            )
            formats = [control / self._format.name for control in self._control_folders()]
            present = next((FileReader.text_of(path) for path in formats if path.is_file()), None)
        if present is not None and present != layout:
            raise UsageError(
                f"{place}: messages were exported there with layout {present}, not {layout}; "
                "name another folder",
                arguments=["layout"],
            )
        # A user has deleted the table's folder, but not the control folder beside it. An export would continue at the
        # offsets recorded there, and skip the deleted messages.
        if present is not None and not place.is_dir() and self._folder.parent == place.parent:
            raise UsageError(
                f"{place}: does not exist, but exports to it are recorded in {self._folder}; "
                f"restore it, or delete {self._folder} to start over"
            )
        # Accept any table of this format. `state` checks later whether an export created it.
        has_files = any((place / name).exists() for name in self._destination.known_by)
        if present is None and not is_empty and not has_files:
            raise UsageError(
                f"{place}: is not empty, but contains no exported table; name another folder"
            )

    def _control_folders(self) -> tuple[Path, ...]:
        """Return the control folder of this format, and the folders that other formats would use for the same table."""
        place = self._destination.folder
        return self._folder, place / CONTROL_FOLDER, folder_beside(place)

    def pending(self) -> Commit | None:
        """Return the last run's commit if it is unfinished, or None. Raises UsageError for another table's commit."""
        if not self._pending.exists():
            return None
        text = FileReader.text_of(self._pending)
        with understood(self._pending):
            value = parse_json(text)
            table, commit = value["table"], Commit.from_json(value["commit"])
        if table != self._destination.table:
            raise UsageError(
                f"{self._destination.folder}: an export into another table was interrupted here; "
                f"run that export again first, or delete {self._pending} to abandon it"
            )
        return commit

    def recover(self) -> bool:
        """Finish or undo a commit that was interrupted, if there is one. Return whether the table has this commit.

        If the table has the commit, only the work after a commit remains (`Destination.finish`). Otherwise the files of
        the run are deleted.
        """
        commit = self.pending()
        is_committed = commit is not None and self._is_made(commit)
        if commit is not None:
            if is_committed:
                self._destination.finish(commit, self._staged(commit.state.run))
            else:
                self._destination.discard(commit)
            self.end()
        self.clear_staging()
        return is_committed

    def _is_made(self, commit: Commit) -> bool:
        return bool(self._destination.has(commit.state.run))

    @contextmanager
    def reading(self, stores: Iterable[str]) -> Iterator[None]:
        """Keep the folders of the stores open during the `with` block, so that tasks read the same folders."""
        with DISK.reading_for(self.place, stores):
            yield

    def on(self, runner: Runner) -> Runner:
        """Return a runner whose tasks can read and write the files of the table."""
        return AnchoredRunner(runner)

    def make(
        self,
        commit: Commit,
        staged: Staged,
        action: Callable[[Commit], None],
        progress: Progress,
    ) -> None:
        """Move files to the table, call `action`, which commits them, and do the work that remains (`finish`)."""
        self.begin(commit)
        progress("pending", 1, 1)
        with self._held():
            self._destination.publish(commit, staged)
            progress("published", 1, 1)
            self._commit(commit, action)
            progress("committed", 1, 1)
            self._destination.finish(commit, staged)
        self.end()
        progress("finished", 1, 1)

    def _commit(self, commit: Commit, action: Callable[[Commit], None]) -> None:
        """Call the action, which commits.

        After an error, check whether the table has the commit: perhaps only the acknowledgement was lost.
        """
        try:
            action(commit)
        except StoreError:
            with suppress(StoreError):
                if self._destination.has(commit.state.run):
                    return
            raise

    def begin(self, commit: Commit) -> None:
        """Record that a commit is about to be made. Its files are staged already."""
        # Staged files must be durable before the pending commit names them, with the names of their folders.
        staged = self._staged(commit.state.run)
        for folder in (staged, staged.parent, self._folder, self._folder.parent):
            DISK.sync_folder(folder)
        if not self._format.exists():
            _replace(self._format, self._destination.layout)
        value = {"table": self._destination.table, "commit": commit.as_json()}
        _replace(self._pending, json.dumps(value))
        # The pending commit must be durable before files are moved.
        DISK.sync_folder(self._folder)

    def end(self) -> None:
        """Record that the commit in progress is finished."""
        DISK.remove_tree(self._pending)
        DISK.sync_folder(self._folder)

    def _staged(self, run: str) -> Path:
        return self._folder / "staging" / run

    def clear_staging(self) -> None:
        DISK.remove_tree(self._folder / "staging")

    @contextmanager
    def staging(self, run: str) -> Iterator[Staged]:
        """Yield a folder for the files of a run; keep it afterwards only if the commit could not be finished."""
        folder = self._staged(run)
        DISK.create_folder(folder)
        try:
            yield folder
        finally:
            if not self._pending.exists():
                self.clear_staging()


class BucketControl(Control):
    """The Control of a table in a bucket.

    Replacing the object `head` begins a commit; for Parquet, the replacement itself is the commit.
    """

    def __init__(self, destination: BucketDestination) -> None:
        self._destination: Any = destination
        self.place, self._bucket = destination.bucket.url, destination.bucket

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """See Control. Also raises UsageError if the place has no conditional writes."""
        with self._bucket.claimed(self._destination.layout, self._destination.known_by):
            StagedFiles.register_stores([self._bucket.store])
            yield

    def check_place(self) -> None:
        """Do nothing: `claimed` checks a place in a bucket."""

    @contextmanager
    def _held(self) -> Iterator[None]:
        # Buckets have no symbolic links, so there is nothing to refuse.
        yield

    @contextmanager
    def reading(self, stores: Iterable[str]) -> Iterator[None]:
        """See Control."""
        yield

    def on(self, runner: Runner) -> Runner:
        """See Control."""
        return PlacedRunner(AnchoredRunner(runner), [self._bucket.store])

    def pending(self) -> Commit | None:
        """See Control."""
        content = self._bucket.pending()
        if content is None:
            return None
        with understood(self._bucket.url):
            table, manifest = content["table"], content["manifest"]
        if table != self._destination.table:
            raise UsageError(
                f"{self._bucket.url}: an export into another table was interrupted here; run that export again first"
            )
        return self._bucket.read_commit(manifest)

    def _is_made(self, commit: Commit) -> bool:
        if self._destination.has(commit.state.run):
            return True
        # The run that began this commit may still be alive. `fence` makes its commit fail.
        self._destination.fence()
        return bool(self._destination.has(commit.state.run))

    def begin(self, commit: Commit) -> None:
        """See Control."""
        # Write the manifest first, so that the object `head` never names a missing manifest.
        manifest = self._bucket.write_commit(commit)
        self._bucket.change(pending={"table": self._destination.table, "manifest": manifest})

    def end(self) -> None:
        """See Control."""
        done = self._bucket.pending()
        self._bucket.change(pending=None)
        # For Parquet, the last manifest is the state of the table, so it stays.
        if done is not None and done["manifest"] != self._bucket.last():
            self._bucket.remove([done["manifest"]])

    def clear_staging(self) -> None:
        """See Control."""
        self._bucket.clear_staging()

    def _staged(self, run: str) -> Any:
        return self._bucket.staged(run)

    @contextmanager
    def staging(self, run: str) -> Iterator[Staged]:
        """See Control."""
        try:
            yield self._bucket.staged(run)
        except StoreError:
            with suppress(StoreAccessError):
                # Another run may have taken the table, and deleted the staged files of this run. In this case,
                # `check_owner` raises the error that reports the cause.
                self._bucket.check_owner()
            raise
        finally:
            if self._bucket.pending() is None:
                with suppress(StoreAccessError):
                    # If the deletion fails, the next run deletes the staged files. Delete only the files of this run:
                    # perhaps another run has taken the table, and is staging files now.
                    self._bucket.delete_staged(run)


def _replace(path: Path, text: str) -> None:
    with DISK.replacing(path) as attempt:
        DISK.write_durable(attempt, text.encode())
