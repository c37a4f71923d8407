"""One random change to a file of a store, undone after a test has examined the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

_RANGE_BYTES = 24


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a store. `file` is the changed file, relative to the store."""

    file: Path
    how: str

    def __str__(self) -> str:
        return f"{self.file}: {self.how}"


@contextmanager
def changed_file(file: Path, random: Random) -> Iterator[str]:
    """Change or delete a file. Returns a description of the change."""
    data = file.read_bytes()
    changed, what = changed_bytes(data, random)
    with _put_back({file: data}):
        _put(file, changed)
        yield what


@contextmanager
def changed_store(store: Path, random: Random) -> Iterator[Change]:
    """A store with one change: of a file's content, or a file deleted, duplicated, renamed, or swapped with another."""
    files = sorted(file for file in store.rglob("*") if file.is_file())
    file = random.choice(files)
    name = file.relative_to(store)
    how = random.choice(("content", "content", "content", "duplicate", "swap", "rename"))
    beside = sorted(file.parent.iterdir())
    if how == "content" or len(beside) < 2 or file.parent == store:
        with changed_file(file, random) as what:
            yield Change(name, what)
        return
    data = file.read_bytes()
    if how == "swap":
        other = random.choice([one for one in beside if one != file])
        theirs = other.read_bytes()
        with _put_back({file: data, other: theirs}):
            _put(file, theirs)
            _put(other, data)
            yield Change(name, f"swapped with {other.name}")
        return
    new = file.with_name(_new_name(file.name, [one.name for one in beside], random))
    with _put_back({file: data, new: None}):
        _put(new, data)
        if how == "rename":
            file.unlink()
        yield Change(name, f"{how}d as {new.name}")


def _new_name(name: str, taken: list[str], random: Random) -> str:
    """Return a new file name: another number that a broker could choose (if `name` is one), or `name` with a suffix."""
    step = random.choice((1, 600, 4096, 1_000_000)) * random.choice((-1, 1))
    shifted = str(int(name) + step).zfill(len(name)) if name.isdigit() else name
    as_last = str(int(taken[-1]) + 4096).zfill(len(name)) if taken[-1].isdigit() else name
    fits = [one for one in (shifted, as_last) if one.isdigit() and one not in taken]
    return random.choice([*fits, f"{name}.bak"])


@contextmanager
def _put_back(contents: dict[Path, bytes | None]) -> Iterator[None]:
    try:
        yield
    finally:
        for file, data in contents.items():
            _put(file, data)


def _put(file: Path, data: bytes | None) -> None:
    if data is None:
        file.unlink(missing_ok=True)
    else:
        file.write_bytes(data)


def changed_bytes(data: bytes, random: Random) -> tuple[bytes | None, str]:
    """Return a file's content after one change, None for a deletion, and a description of the change."""
    used = max(len(data.rstrip(b"\0")), 4)
    at = random.randrange(used)
    how = random.choice(("bit", "bit", "word", "word", "range", "zeros", "cut", "gone"))
    changed = bytearray(data)
    if how == "gone":
        return None, how
    if how == "cut":
        return data[:at], f"cut at {at}"
    if how == "bit":
        changed[at] ^= 1 << random.randrange(8)
    elif how == "word":
        at -= at % 4
        changed[at : at + 4] = random.randrange(2 ** random.choice((8, 32))).to_bytes(4, "big")
        del changed[len(data) :]
    elif how == "range":
        changed[at : at + _RANGE_BYTES] = random.randbytes(min(_RANGE_BYTES, len(data) - at))
    else:
        at -= at % 512
        changed[at : at + 512] = bytes(min(512, len(data) - at))
    return bytes(changed), f"{how} at {at}"
