"""Read and write staged files, which one task leaves for another, on a shared file system or in object storage.

A path that is a URL names an object. The driver opens the object store, and `PlacedRunner` passes it to the tasks. A
task writes an object as a whole from a local file, and reads it through a local copy. `AnchoredRunner` passes the open
folders of the driver to the tasks.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from reput.base import Runner, WrappedRunner
from reput.errors import ObjectConflictError, StoreAccessError
from reput.io.anchors import Anchor, anchors, holding
from reput.io.object_store import MOST_PUT_BYTES, ObjectStore
from reput.io.places import is_url
from reput.io.reader import FileReader
from reput.io.scratch import scratch_folder
from reput.io.writer import FileWriter, replacing

Task = TypeVar("Task")
Result = TypeVar("Result")

# Bytes per request for a large object.
_CHUNK_BYTES = 16 << 20
# Requests mostly wait, so a process sends many of them at the same time.
_REQUESTS_AT_ONCE = 16
_places: dict[str, ObjectStore] = {}
"""The object stores in which this process can read and write staged files, by the URL of the object store."""


def know(places: Sequence[ObjectStore]) -> None:
    """Register object stores, so that this process can read and write staged files in them."""
    _places.update((place.place, place) for place in places)


def places_of(path: str) -> tuple[ObjectStore, ...]:
    """Return the object store of a URL in a tuple, for `PlacedRunner`. For a path of a file system, return ()."""
    return (_object_of(path)[0],) if is_url(path) else ()


def attempt_path(folder: str, name: str) -> str:
    """Return the path at which one attempt of a task writes a file.

    On a file system, an attempt replaces the file of an earlier one. Objects cannot be replaced, so each attempt gets
    its own name.
    """
    return posixpath.join(folder, f"{name}-{uuid.uuid4().hex}" if is_url(folder) else name)


@contextmanager
def reading(path: str) -> Iterator[str]:
    """Yield the path of a local file with the content of a staged file: the file itself, or a temporary copy.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    if not is_url(path):
        yield path
        return
    with scratch_folder() as folder:
        copy = folder / "staged"
        fetch_file(*_object_of(path), copy)
        yield str(copy)


@contextmanager
def writing(path: str) -> Iterator[Path]:
    """Yield the path of a temporary file. It becomes the staged file when the with block succeeds.

    Raises:
        ObjectConflictError: another attempt has written an object with other bytes.
        StoreAccessError.
    """
    if not is_url(path):
        with replacing(Path(path)) as attempt:
            yield attempt
        return
    with scratch_folder() as folder:
        yield (attempt := folder / "staged")
        put_file(attempt, *_object_of(path))


def read_range(path: str, start: int, length: int) -> bytes:
    """Return part of a staged file. Raises StoreNotFoundError, StoreAccessError, StoreChangedError."""
    if is_url(path):
        store, name = _object_of(path)
        # Object stores refuse an empty range.
        return store.get_range(name, start, length) if length else b""
    with FileReader(path) as reader:
        return reader.read(start, length)


def delete_staged(path: str) -> None:
    """Delete a staged file if it exists. Raises StoreAccessError."""
    if is_url(path):
        store, name = _object_of(path)
        store.delete(name)
    else:
        Path(path).unlink(missing_ok=True)


def put_file(path: Path, store: ObjectStore, name: str) -> None:
    """Write a file as an object. It is no error if another attempt has already written the same bytes.

    Raises StoreAccessError, and ObjectConflictError if the object has other bytes.
    """
    with FileReader(str(path)) as reader:
        size = reader.size
        # After a conflict, `put_new` itself compares the bytes. `upload` does not, so it is followed by `_is_same`.
        if size <= MOST_PUT_BYTES:
            store.put_new(name, reader.read(0, size))
            return
        chunks = (
            reader.read(start, min(_CHUNK_BYTES, size - start))
            for start in range(0, size, _CHUNK_BYTES)
        )
        try:
            store.upload(name, chunks)
        except ObjectConflictError:
            if not _is_same(reader, store, name):
                raise


def put_staged(path: Path, url: str) -> None:
    """Write a file as the object of a URL. Raises the errors of `put_file`."""
    put_file(path, *_object_of(url))


def put_verified(path: Path, url: str) -> None:
    """Write a file as an object, then read the object back and compare it.

    Raises StoreAccessError if they differ, and the errors of `put_file`.
    """
    store, name = _object_of(url)
    put_file(path, store, name)
    with FileReader(str(path)) as reader:
        if not _is_same(reader, store, name):
            raise StoreAccessError(
                f"{url}: differs from the bytes that were written; check the network and the "
                f"server, and run the command again"
            )


def _is_same(reader: FileReader, store: ObjectStore, name: str) -> bool:
    size = reader.size
    return store.head(name).size == size and all(
        store.get_range(name, start, length) == reader.read(start, length)
        for start in range(0, size, _CHUNK_BYTES)
        for length in [min(_CHUNK_BYTES, size - start)]
    )


def fetch_file(store: ObjectStore, name: str, path: Path) -> None:
    """Write the content of an object to a new file. Raises StoreNotFoundError, StoreAccessError, StoreChangedError."""
    size = store.head(name).size
    with FileWriter(path, size=size) as file:
        for start in range(0, size, _CHUNK_BYTES):
            data = store.get_range(name, start, min(_CHUNK_BYTES, size - start))
            file.write(data, start)


def at_once(function: Callable[[Task], None], tasks: Sequence[Task]) -> None:
    """Call a function for each task, in several threads, because calls mostly wait for storage. Raises their errors."""
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        # `list` waits for all tasks, and raises the first error of a task.
        list(pool.map(function, tasks))


def _object_of(url: str) -> tuple[ObjectStore, str]:
    above = [place for place in _places if url.startswith(f"{place}/")]
    if not above:
        raise StoreAccessError(
            f"{url}: this process has no object store for staged files at this URL"
        )
    # Take the innermost folder: the folder of staged files may lie in the folder of the output.
    place = max(above, key=len)
    return _places[place], url[len(place) + 1 :]


class PlacedRunner(WrappedRunner):
    """A Runner that passes object stores to its tasks, so that the tasks can use staged files in these stores."""

    def __init__(self, runner: Runner, places: Sequence[ObjectStore]) -> None:
        super().__init__(runner)
        self._places = tuple(places)

    def wrapped(self, function: Callable[[Task], Result]) -> Callable[[Task], Result]:
        """Return a function that registers the object stores, then calls `function`."""
        return partial(_placed, self._places, function)


def _placed(
    places: Sequence[ObjectStore], function: Callable[[Task], Result], task: Task
) -> Result:
    # The task may run in another process, which does not know the object stores yet.
    know(places)
    return function(task)


class AnchoredRunner(WrappedRunner):
    """A `reput.base.tasks.Runner` whose tasks hold the anchors (open folders) that this process held at their start."""

    def wrapped(self, function: Callable[[Task], Result]) -> Callable[[Task], Result]:
        """Return a function that calls `function`, and holds this process's anchors (open folders) during the call."""
        return partial(_call_anchored, anchors(), function)


def _call_anchored(
    folders: Sequence[Anchor], function: Callable[[Task], Result], task: Task
) -> Result:
    # The task may run in another process, which does not hold the anchors yet.
    with holding(folders):
        return function(task)


class StagedFiles:
    """What a task does with a staged file, which has a path or a URL, and how a process gets to know object stores."""

    register_stores = staticmethod(know)
    stores_of = staticmethod(places_of)
    attempt_path = staticmethod(attempt_path)
    reading = staticmethod(reading)
    writing = staticmethod(writing)
    read_range = staticmethod(read_range)
    put = staticmethod(put_staged)
    put_verified = staticmethod(put_verified)
    fetch = staticmethod(fetch_file)
    delete = staticmethod(delete_staged)
