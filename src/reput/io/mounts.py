"""Find the file systems on which a lock may be valid in one view of the files only.

The same files may be visible at several places: a folder below a FUSE mount and its source, a layer of an overlay, a
folder that a virtual machine shares with its host, a network folder on several machines. A lock at one place then need
not exclude a process at another place.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_MOUNTS = Path("/proc/self/mountinfo")
_LOCAL_LOCKS = frozenset({
    "fuse", "9p", "virtiofs", "overlay", "vboxsf", "prl_fs", "vmhgfs", "fakeowner", "grpcfuse", "osxfs",
})  # fmt: skip
# On these, locks are valid on all machines, unless a mount option switches them off.
_NETWORK_OPTIONS = {
    "nfs": ("nolock", "local_lock=all", "local_lock=posix"),
    "nfs4": ("nolock", "local_lock=all", "local_lock=posix"),
    "cifs": ("nobrl",),
    "smb3": ("nobrl",),
}
# Characters that mountinfo writes as octal numbers. The backslash must come last.
_ESCAPED = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))


class Mount(NamedTuple):
    """A mounted file system: its place, its type, and whether locks on it may be local."""

    place: str
    kind: str
    has_local_locks: bool

    @staticmethod
    def all_with_local_locks(mounts: Path = _MOUNTS) -> list[Mount]:
        """Return the mounted file systems on which locks may be valid in one view only; none without /proc."""
        return [mount for mount in _mounts(mounts) if mount.has_local_locks]

    @staticmethod
    def local_locks_of(folder: str | os.PathLike[str], mounts: Path = _MOUNTS) -> str | None:
        """Return the type of a folder's file system if locks on it may be valid in one view only, else None."""
        path = os.path.realpath(folder)
        nearest: Mount | None = None
        for mount in _mounts(mounts):
            is_below = path == mount.place or path.startswith(mount.place.rstrip("/") + "/")
            # Of several mounts at one place, the last one is visible.
            if is_below and (nearest is None or len(mount.place) >= len(nearest.place)):
                nearest = mount
        return nearest.kind if nearest is not None and nearest.has_local_locks else None


def _mounts(path: Path) -> list[Mount]:
    try:
        lines = path.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    mounts = []
    for line in lines:
        before, dash, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if dash and len(fields) > 5 and len(types) > 2:
            place, kind = fields[4], types[0]
            for escaped, character in _ESCAPED:
                place = place.replace(escaped, character)
            options = {*fields[5].split(","), *types[2].split(",")}
            is_local = kind.partition(".")[0] in _LOCAL_LOCKS
            is_local |= not options.isdisjoint(_NETWORK_OPTIONS.get(kind, ()))
            mounts.append(Mount(place, kind, is_local))
    return mounts
