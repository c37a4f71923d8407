"""Add to Python what every room needs: modules that are imported late, and a base class for `with`.

A package that offers names (its face) imports a module when one of its names is first used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Self

from reput.errors import MissingExtraError

_OFFER = re.compile(r"^    from (\S+) import \(?\s*\w+ as (\w+)", re.MULTILINE)


@cache
def offers(package: str) -> dict[str, str]:
    """Return the names that a package offers, with their modules.

    They are those that its `__init__` imports below `if TYPE_CHECKING`, each in a statement `from MODULE import NAME as
    NAME`. So readers, type checkers and Python read the same list.
    """
    module = sys.modules[package]
    loader: Any = module.__loader__
    source = loader.get_data(module.__file__).decode()
    return {name: home for home, name in _OFFER.findall(source)}


def face(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that offers names. Importing all modules would take seconds."""
    module, homes = sys.modules[package], offers(package)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*vars(module), *homes})


def late(module: str, name: str) -> Callable[[], Any]:
    """Return a function that returns an attribute of a module, which is imported at the first call."""
    return lambda: getattr(import_module(module), name)


def require(library: str, reason: str, arguments: Sequence[str] = ()) -> Any:
    """Import and return an optional library. Raises MissingExtraError with this reason if it is not installed."""
    try:
        return import_module(library)
    except ImportError:
        raise MissingExtraError(reason, arguments=arguments) from None


class Closing:
    """Calls `close` at the end of the context."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release all resources."""
        raise NotImplementedError
