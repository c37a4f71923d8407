"""A forked child has copies of its parent's open stores: none of them is its own."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Disownable(Protocol):
    """What a fork must not use."""

    def disown(self, parent: int) -> None:
        """Called in the child; `parent` is the process that owns it."""


_owned: WeakSet[Disownable] = WeakSet()


def disown_when_forked(owned: Disownable) -> None:
    """Have every fork of this process disown its copy, as long as there is one."""
    _owned.add(owned)


def _disown_all() -> None:
    for owned in list(_owned):
        owned.disown(os.getppid())


os.register_at_fork(after_in_child=_disown_all)
