"""What lies below or beside a table: whose folder it is, files in staging, the commit that is being made.

DEST/_reput/, or DEST.reput/ beside a folder of Parquet files
  owner           the lock of the run that works here
  format          of the table that the folder is, from its first commit on
  staging/<run>/  files that no commit has yet
  pending.json    a commit and the table that it goes to: there from before it is made until all that follows is done
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from reput.errors import UsageError
from reput.files.anchors import anchored, writing_to
from reput.files.lock import locked
from reput.files.reader import read_text
from reput.files.writer import (
    explained,
    make_folder,
    remove_tree,
    replacing,
    sync_folder,
    write_durable,
)
from reput.lakes.commit import Commit, Destination, understood
from reput.tasks import Progress

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


class Control:
    """The control folder of a table. Every method raises StoreAccessError where the system refuses."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._folder = destination.control
        self._format, self._pending = self._folder / FORMAT_FILE, self._folder / "pending.json"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the folder for one run.

        Raises UsageError for a folder that is no such table, and leaves it as it is; StoreLockedError.
        """
        busy = "another export is writing here; wait for it or stop it"
        with ExitStack() as stack:
            for place in (self._folder, self._destination.folder):
                stack.enter_context(writing_to(place))
            self._check_place()
            make_folder(self._folder)
            stack.enter_context(self._held())
            stack.enter_context(anchored(self._folder))
            stack.enter_context(locked(self._folder / "owner", busy))
            self._check_place()  # another run may have made something of it
            yield

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Open nothing below the table through a link in the body."""
        place = self._destination.folder
        with anchored(place) if place.is_dir() else nullcontext():
            yield

    def _check_place(self) -> None:
        place, wanted = self._destination.folder, self._destination.layout
        with explained(place, "be read"):
            is_empty = not place.is_dir() or all(
                entry.name == CONTROL_FOLDER for entry in place.iterdir()
            )
            formats = [control / self._format.name for control in self._control_folders()]
            found = next((read_text(path) for path in formats if path.is_file()), None)
        if found is not None and found != wanted:
            raise UsageError(
                f"{place}: messages were exported there with layout {found}, not {wanted}; "
                "name another folder",
                arguments=["layout"],
            )
        if found is not None and not place.is_dir() and self._folder.parent == place.parent:
            raise UsageError(
                f"{place}: is gone, and {self._folder} says what was exported there; "
                "bring it back, or delete that folder to begin anew"
            )
        is_known = any((place / name).exists() for name in self._destination.known_by)
        if found is None and not is_empty and not is_known:
            raise UsageError(
                f"{place}: is not empty, and nothing was exported there; name another folder"
            )

    def _control_folders(self) -> tuple[Path, ...]:
        """Of a table of this format, and of the others that may be there."""
        place = self._destination.folder
        return self._folder, place / CONTROL_FOLDER, folder_beside(place)

    def pending(self) -> Commit | None:
        """The commit that the last run began and did not finish. Raises UsageError where it goes to another table."""
        if not self._pending.exists():
            return None
        text = read_text(self._pending)
        with understood(self._pending):
            stored = json.loads(text)
            table, commit = stored["table"], Commit.from_json(stored["commit"])
        if table != self._destination.table:
            raise UsageError(
                f"{self._destination.folder}: an export into another table was interrupted here; "
                f"run that one again first, or delete {self._pending} to give it up"
            )
        return commit

    def recover(self) -> bool:
        """Finish the commit that the last run made, or delete what it had brought; whether it was made."""
        commit = self.pending()
        is_made = commit is not None and self._destination.has(commit.state.run)
        if commit is not None:
            if is_made:
                self._destination.finish(commit, self.staged(commit.state.run))
            else:
                self._destination.discard(commit)
            self.end()
        self.clear_staging()
        return is_made

    def make(
        self,
        commit: Commit,
        staged: Path,
        action: Callable[[Commit], None],
        progress: Progress,
    ) -> None:
        """Bring the files of a commit to the table, make it by the action, and finish it."""
        self.begin(commit)
        progress("pending", 1, 1)
        with self._held():
            self._destination.publish(commit, staged)
            progress("published", 1, 1)
            action(commit)
            progress("committed", 1, 1)
            self._destination.finish(commit, staged)
        self.end()
        progress("finished", 1, 1)

    def begin(self, commit: Commit) -> None:
        """Make known what is about to be committed; its files are in staging."""
        sync_folder(self.staged(commit.state.run))
        if not self._format.exists():
            _replace(self._format, self._destination.layout)
        stored = {"table": self._destination.table, "commit": commit.as_json()}
        _replace(self._pending, json.dumps(stored))
        sync_folder(self._folder)

    def end(self) -> None:
        """Nothing is left to be done of the commit that was begun."""
        remove_tree(self._pending)
        sync_folder(self._folder)

    def staged(self, run: str) -> Path:
        return self._folder / "staging" / run

    def clear_staging(self) -> None:
        remove_tree(self._folder / "staging")

    @contextmanager
    def staging(self, run: str) -> Iterator[Path]:
        """A folder for the files of a run; it goes unless a commit was begun and could not be finished."""
        folder = self.staged(run)
        make_folder(folder)
        try:
            yield folder
        finally:
            if not self._pending.exists():
                self.clear_staging()


def _replace(path: Path, text: str) -> None:
    with replacing(path) as attempt:
        write_durable(attempt, text.encode())
