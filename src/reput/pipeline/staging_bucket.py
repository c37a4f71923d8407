"""The staging of a rebuild in object storage: the same names as in a folder, below one URL.

Nothing is locked there. The last run that begins counts: it replaces the object `run`, and tasks of earlier runs stop.
Objects of a run are never replaced, so a task that was cut off can only add to its own run.

    publishing   the run that has begun to publish: the files of the output are its own
"""

from __future__ import annotations

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
        """Where the objects of this run are, as the bucket names them."""
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
        """Stop earlier runs, and delete what they left that this one cannot use.

        Raises StoreLockedError if another run begins at the same time, StoreAccessError.
        """
        try:
            self._put(RUN_FILE)
        except ObjectConflictError:
            raise StoreLockedError(
                f"{self.place}: another rebuild began there at the same time; run it again"
            ) from None
        kept = f"{self.fingerprint}/"
        names = [one.name for one in self.store.list()]
        old = [n for n in names if n not in (RUN_FILE, _PUBLISHING) and not n.startswith(kept)]
        delete_objects(self.store, old)

    def has_published(self) -> bool:
        """Whether a run has begun to publish, and was not finished."""
        try:
            self.store.head(_PUBLISHING)
        except StoreNotFoundError:
            return False
        return True

    def begin_publishing(self) -> None:
        """Record it. Raises StoreAccessError."""
        self._put(_PUBLISHING)

    def _put(self, name: str) -> None:
        """Write the id of this run. Raises ObjectConflictError if another run does at the same time."""
        try:
            version = self.store.get(name).version
        except StoreNotFoundError:
            self.store.put_new(name, self.run.encode())
        else:
            self.store.put_if_match(name, self.run.encode(), version)

    def remove(self) -> None:
        """Delete all that is staged, the id of the run last. Raises StoreAccessError."""
        names = [one.name for one in self.store.list() if one.name != RUN_FILE]
        delete_objects(self.store, names)
        self.store.delete(RUN_FILE)
