"""A user who exchanges names in their own folder while another user, perhaps root, works there. Run as a process.

    python swapper.py FOLDER OUTSIDE USER SEED

It starts when a line arrives on stdin, and ends when stdin ends. Each turn exchanges files and folders in FOLDER with
links to the same names in OUTSIDE, with links to OUTSIDE itself, with FIFOs or with folders of links. Some moments
later, it exchanges them back.
"""

from __future__ import annotations

import ctypes
import os
import random
import select
import shutil
import sys
from contextlib import suppress
from pathlib import Path

_EXCHANGE = 2
_AT_FDCWD = -100
_TURNS = 40
_AT_ONCE = 3


def main() -> None:
    folder, outside, user, seed = (
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        int(sys.argv[3]),
        sys.argv[4],
    )
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    chance = random.Random(seed)
    aside = folder / "aside"
    aside.mkdir()
    print("ready", flush=True)
    sys.stdin.readline()
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        pairs = []
        for place in chance.sample(_places(folder, aside), k=_AT_ONCE):
            number += 1
            other = aside / str(number)
            with suppress(OSError):
                _put_other(other, _tail(folder, outside, place), outside, chance)
                pairs.append((place, other))
        for _ in range(_TURNS):
            for place, other in pairs:
                if chance.random() < 0.5:
                    _exchange(place, other)
        for place, other in pairs:
            _put_back(place, other)


def _places(folder: Path, aside: Path) -> list[Path]:
    """Return files and folders; upper ones appear more often, because they have more below them."""
    found: list[Path] = [folder / "store"] * _AT_ONCE
    for parent, folders, files in os.walk(folder):
        if Path(parent) == folder:
            folders[:] = [name for name in folders if name != aside.name]
        weight = 1 if len(Path(parent).parts) - len(folder.parts) > 2 else 4
        found += [Path(parent, name) for name in folders for _ in range(weight)]
        found += [Path(parent, name) for name in files]
    return found


def _tail(folder: Path, outside: Path, place: Path) -> Path:
    """Return the path in root's folder `outside` that has the same name as `place` has in its store."""
    names = place.relative_to(folder).parts
    known = ("commitlog", "consumequeue", "index", "config", "checkpoint", "lock", "abort")
    first = next((n for n, name in enumerate(names) if name in known), None)
    return outside if first is None else outside.joinpath(*names[first:])


def _put_other(other: Path, target: Path, outside: Path, chance: random.Random) -> None:
    kind = chance.choice(("link", "link", "link", "root", "fifo", "folder"))
    if kind == "link":
        other.symlink_to(target)
    elif kind == "root":
        other.symlink_to(outside)
    elif kind == "fifo":
        os.mkfifo(other)
    else:
        other.mkdir()
        for name in ("commitlog", "consumequeue", "index", "new", "A"):
            (other / name).symlink_to(outside / name)


def _exchange(one: Path, other: Path) -> None:
    """Exchange two names, if both exist and the system allows it."""
    libc = ctypes.CDLL(None)
    libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE)


def _put_back(place: Path, other: Path) -> None:
    """Exchange back the link that `_put_other` created, and delete it."""
    with suppress(OSError):
        if place.is_symlink() or place.is_fifo() or (place / "new").is_symlink():
            _exchange(place, other)
        if other.is_symlink() or other.is_fifo():
            other.unlink()
        elif (other / "new").is_symlink():
            shutil.rmtree(other)


if __name__ == "__main__":
    main()
