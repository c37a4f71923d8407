"""The staging of a rebuild in object storage, with the same names as in a folder, below one URL.

Objects cannot be locked, so the latest run wins. It replaces the object `run`, and tasks of earlier runs stop. Objects
of a run are never replaced, so a leftover task can only add objects to its own run.

The object `publishing` has the id of the last run that began to publish, and the output folders that may contain files
of unfinished runs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from posixpath import join
from uuid import uuid4

from reput.engine.rebuild.staging import RUN_FILE, FencedRun
from reput.errors import ObjectConflictError, StoreLockedError, StoreNotFoundError
from reput.io import ObjectStore, at_once

_PUBLISHING = "publishing"


@dataclass(frozen=True)
class BucketStaging(FencedRun):
    """The staged objects of one rebuild. See `Staging` for the names."""

    store: ObjectStore
    fingerprint: str
    run: str = field(default_factory=lambda: uuid4().hex)

    @property
    def place(self) -> str:
        return self.store.place

    @property
    def own_name(self) -> str:
        """Return the prefix of this run's objects, relative to the URL."""
        return f"run-{self.run}"

    @property
    def plan(self) -> str:
        return join(self.place, self.own_name, "plan")

    @property
    def scanned(self) -> str:
        return join(self.place, self.fingerprint)

    @property
    def new(self) -> str:
        return join(self.place, self.own_name, "new")

    @property
    def parts(self) -> str:
        return join(self.place, self.own_name, "parts")

    def prepare(self) -> None:
        """Stop earlier runs, and delete those of their objects that cannot be reused.

        Raises StoreChangedError, StoreAccessError, and StoreLockedError if another run begins at the same time.
        """
        try:
            self._put(RUN_FILE, self.run)
        except ObjectConflictError:
            raise StoreLockedError(
                f"{self.place}: another rebuild started at the same time; run this one again"
            ) from None
        prefix = f"{self.fingerprint}/"
        names = [file.name for file in self.store.list()]
        old = [n for n in names if n not in (RUN_FILE, _PUBLISHING) and not n.startswith(prefix)]
        self.delete(self.store, old)

    def delete(self, store: ObjectStore, names: Sequence[str]) -> None:
        """Check that no other run has started, then delete objects.

        The caller must have listed the objects before this call. So the objects of a run that starts after the check
        are not deleted.

        Raises StoreChangedError, and deletes nothing, if another run has started. Raises StoreAccessError.
        """
        self.fenced(partial(at_once, store.delete))(names)

    def unfinished(self) -> frozenset[str]:
        """Return the output folders that may contain files of unfinished runs."""
        try:
            content = self.store.get(_PUBLISHING).data.decode(errors="replace")
        except StoreNotFoundError:
            return frozenset()
        return frozenset(content.splitlines()[1:])

    def begin_publishing(self, folders: Collection[str]) -> None:
        """Record that this run publishes files in these folders.

        Raises StoreAccessError, and StoreChangedError if another run has started.
        """
        self.fenced(self._record)(self.unfinished() | set(folders))

    def _record(self, folders: Collection[str]) -> None:
        self._put(_PUBLISHING, "\n".join([self.run, *sorted(folders)]))

    def _put(self, name: str, text: str) -> None:
        """Replace an object. Raises ObjectConflictError if another run replaces it at the same time."""
        try:
            version = self.store.get(name).version
        except StoreNotFoundError:
            self.store.put_new(name, text.encode())
        else:
            self.store.put_if_match(name, text.encode(), version)

    def remove(self, published: Collection[str] = ()) -> None:
        """Delete all staged objects; last of all, delete the object with the id of the run.

        Keep the record of output folders that have unfinished files, but remove the folders in `published` from it,
        because their files are complete. Raises StoreAccessError, and StoreChangedError if another run has started.
        """
        names = {file.name for file in self.store.list()} - {RUN_FILE, _PUBLISHING}
        # Output folders that are not in `published` may still have files of an unfinished run. Keep the names of these
        # folders, so that the next rebuild may delete the files.
        if unfinished := self.unfinished() - set(published):
            self.fenced(self._record)(unfinished)
        else:
            names.add(_PUBLISHING)
        self.delete(self.store, sorted(names))
        self.delete(self.store, [RUN_FILE])
