"""Define faces: a package offers names of its modules, and imports a module when one of its names is first used."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

_OFFER = re.compile(r"^    from (\S+) import \(?\s*\w+ as (\w+)", re.MULTILINE)


def face(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    It offers what its `__init__` imports below `if TYPE_CHECKING`, each name on a line `from MODULE import NAME as
    NAME`. So readers, type checkers and Python read the same list. Importing all modules at once would take seconds.
    """
    module = sys.modules[package]
    loader: Any = module.__loader__
    source = loader.get_data(module.__file__).decode()
    homes = {name: home for home, name in _OFFER.findall(source)}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*vars(module), *homes})
