"""The staging of a rebuild in object storage: the same names as in a folder, below one URL.

Nothing is locked there. The latest run wins: it replaces the object `run`, and tasks of earlier runs stop. Objects of a
run are never replaced, so a task that was cut off can only add to its own run.

    publishing   the last run that has begun to publish, and the folders of the output of which runs that were not
                 finished have published files
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import uuid4

from reput.errors import ObjectConflictError, StoreLockedError, StoreNotFoundError
from reput.files.object_store import ObjectStore
from reput.files.staged import delete_objects, join
from reput.pipeline.staging import RUN_FILE, FencedRun

_PUBLISHING = "publishing"


@dataclass(frozen=True)
class BucketStaging(FencedRun):
    """See `Staging`."""

    store: ObjectStore
    fingerprint: str
    run: str = field(default_factory=lambda: uuid4().hex)

    @property
    def place(self) -> str:
        return self.store.place

    @property
    def own_name(self) -> str:
        """Return where the objects of this run are, as the bucket names them."""
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

    @property
    def pieces(self) -> str:
        return join(self.place, self.own_name, "pieces")

    def prepare(self) -> None:
        """Stop earlier runs, and delete their unusable files.

        Raises StoreLockedError if another run begins at the same time, StoreAccessError.
        """
        try:
            self._put(RUN_FILE, self.run)
        except ObjectConflictError:
            raise StoreLockedError(
                f"{self.place}: another rebuild began there at the same time; run it again"
            ) from None
        kept = f"{self.fingerprint}/"
        names = [one.name for one in self.store.list()]
        old = [n for n in names if n not in (RUN_FILE, _PUBLISHING) and not n.startswith(kept)]
        delete_objects(self.store, old)

    def unfinished(self) -> frozenset[str]:
        """Return the folders of the output of which a run has published files, and was not finished."""
        try:
            content = self.store.get(_PUBLISHING).data.decode(errors="replace")
        except StoreNotFoundError:
            return frozenset()
        return frozenset(content.splitlines()[1:])

    def begin_publishing(self, folders: Collection[str]) -> None:
        """Record that this run publishes files of these folders. Raises StoreAccessError."""
        self._record(self.unfinished() | set(folders))

    def _record(self, folders: Collection[str]) -> None:
        self._put(_PUBLISHING, "\n".join([self.run, *sorted(folders)]))

    def _put(self, name: str, text: str) -> None:
        """Write an object. Raises ObjectConflictError if another run does at the same time."""
        try:
            version = self.store.get(name).version
        except StoreNotFoundError:
            self.store.put_new(name, text.encode())
        else:
            self.store.put_if_match(name, text.encode(), version)

    def remove(self, published: Collection[str] = ()) -> None:
        """Delete everything staged, the id of the run last, because the published folders are complete.

        Raises StoreAccessError.
        """
        names = {one.name for one in self.store.list()} - {RUN_FILE, _PUBLISHING}
        if left := self.unfinished() - set(published):
            self._record(left)
        else:
            names.add(_PUBLISHING)
        delete_objects(self.store, sorted(names))
        self.store.delete(RUN_FILE)
