"""Check the arguments of public functions.

The decorator `checked` compares arguments with a function's annotations: `str`, `int`, `bool`, paths, times,
collections of these, classes, and unions. An argument of another type raises UsageError, which names the expected type.
Other annotations are not checked.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from typing import Any, ParamSpec, TypeVar, get_origin

from reput.base.clock import in_seconds, looks_like_seconds, now_ms, parse_time
from reput.errors import UsageError

Time = int | datetime | str
"""A time in the arguments of public functions: milliseconds since 1970, a datetime with a timezone, or a text as on the
command line, such as "2026-10-14T08:35:06" (UTC) or "2h ago"."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_MISSING = object()
_BYTES = (bytes, bytearray, memoryview)
_COLLECTIONS = ("Collection", "Iterable", "Sequence", "list", "tuple", "set", "frozenset")
_ALIASES = {
    "StorePath": "str | PathLike[str]",
    "Stores": "str | PathLike[str] | NamedStore | Sequence[str | PathLike[str] | NamedStore]",
}
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Is = Callable[[Any], bool]


def milliseconds(time: Time, *, is_end: bool = False) -> int:
    """Convert a time to milliseconds since 1970. The caller has checked it.

    `is_end`: whether the time ends a window. Then a date without a time means the last millisecond of this day.
    """
    if isinstance(time, str):
        return parse_time(time, now_ms(), is_end=is_end)
    return (time - _EPOCH) // _MS if isinstance(time, datetime) else int(time)


def optional_milliseconds(time: Time | None, *, is_end: bool = False) -> int | None:
    """Convert a time as `milliseconds` does. None stays None."""
    return None if time is None else milliseconds(time, is_end=is_end)


def checked(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Make a public function or method raise UsageError for arguments that do not have the annotated types.

    If the function passes on keyword arguments (`**options: Unpack[Options]`), the result raises TypeError for others,
    in the name of the function.
    """
    checks: list[tuple[int, str, _Check]] | None = None
    options: frozenset[str] | None = None

    @wraps(function)
    def entrance(*given: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        nonlocal checks, options
        # Annotations are read at the first call, because they may name classes that are defined later.
        if checks is None:
            checks, options = _checks_of(function), _options_of(function)
        if options is not None:
            refuse_unknown(function.__name__, named, options)
        for place, name, check in checks:
            value = given[place] if 0 <= place < len(given) else named.get(name, _MISSING)
            if (
                value is not _MISSING
                and type(value) not in check.exact
                and not check.accepts(value)
            ):
                raise check.refusal(name, value)
            if check.is_time and value is not None and value is not _MISSING:
                check_time(name, value)
        return function(*given, **named)

    return entrance


def refuse_unknown(function: str, named: Iterable[str], options: Collection[str]) -> None:
    """Raise TypeError for a keyword argument that a function does not have."""
    for name in named:
        if name not in options:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def _options_of(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return all keyword arguments of a function, if it passes those of a TypedDict on; None for other functions."""
    parameters = inspect.signature(function).parameters
    last = next(iter([*parameters.values()][-1:]), None)
    if last is None or last.kind is not last.VAR_KEYWORD or not isinstance(last.annotation, str):
        return None
    names = sys.modules[function.__module__].__dict__
    options: Any = names.get(last.annotation.removeprefix("Unpack[").removesuffix("]"))
    keys = getattr(options, "__optional_keys__", None)
    return None if keys is None else frozenset({*keys, *options.__required_keys__, *parameters})


def check_fields(instance: object, *, of: str = "") -> None:
    """Raise UsageError if a field of a dataclass does not have its annotated type.

    Args:
        instance: The dataclass.
        of: Prefix of the field's name in the error message.
    """
    kind = type(instance)
    if kind not in _of_fields:
        names = sys.modules[kind.__module__].__dict__
        checks = (
            (name, _check_of(text, names)) for name, text in inspect.get_annotations(kind).items()
        )
        _of_fields[kind] = [(name, check) for name, check in checks if check is not None]
    for name, check in _of_fields[kind]:
        value = getattr(instance, name)
        if type(value) not in check.exact and not check.accepts(value):
            refusal = check.refusal(name, value)
            raise UsageError(f"{of}{refusal}", arguments=[name]) if of else refusal


_of_fields: dict[type, list[tuple[str, _Check]]] = {}


def _checks_of(function: Callable[..., Any]) -> list[tuple[int, str, _Check]]:
    checks = []
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        check = _check_of(parameter.annotation, sys.modules[function.__module__].__dict__)
        if check is not None:
            is_named = parameter.kind is parameter.KEYWORD_ONLY
            checks.append((-1 if is_named else place, parameter.name, check))
    return checks


class _Check:
    """The values that an annotation allows.

    exact: types that are accepted without calling a test
    wanted: the allowed types in words
    is_time: whether the value is a time
    """

    def __init__(self, parts: list[tuple[tuple[type, ...], _Is, str]], is_time: bool) -> None:
        is_plain = not is_time
        self.exact = frozenset(kind for exact, _, _ in parts for kind in exact if is_plain)
        self._tests = [test for _, test, _ in parts]
        words = list(dict.fromkeys(word for *_, word in parts if word))
        self.expectation = " or ".join(words)
        self.is_time = is_time

    def accepts(self, value: Any) -> bool:
        # Do not use `any(...)`: a KeyboardInterrupt that arrives while its generator is being closed would be lost.
        for test in self._tests:  # noqa: SIM110
            if test(value):
                return True
        return False

    def refusal(self, name: str, value: Any) -> UsageError:
        text = repr(value)
        excerpt = text if len(text) <= 60 else f"{text[:57]}..."
        hint = ""
        if isinstance(value, _BYTES) and "string" in self.expectation:
            hint = f"; pass {bytes(value).decode(errors='replace')!r}"
        elif self.is_time and isinstance(value, float) and looks_like_seconds(value):
            hint = f"; pass {int(value * 1000)}"
        elif isinstance(value, str) and self.expectation.startswith("an integer"):
            hint = f"; pass {value.strip()}" if value.strip().lstrip("+-").isdecimal() else ""
        return UsageError(
            f"{name} must be {self.expectation}, not {excerpt}{hint}", arguments=[name]
        )


def check_time(name: str, value: Any) -> None:
    """Raise UsageError for a text that is no time, a datetime without a timezone, or a number of seconds."""
    if isinstance(value, str):
        try:
            parse_time(value, now_ms())
        except ValueError as error:
            raise UsageError(f"{name}: {error}", arguments=[name]) from None
        return
    # A time is usually an int, so test for int first. Comparing the type is faster than `isinstance`.
    if type(value) is not int and isinstance(value, datetime):
        if value.utcoffset() is None:
            raise UsageError(
                f"{name}: {value} has no timezone; pass a datetime with a timezone, for instance "
                "value.replace(tzinfo=timezone.utc)",
                arguments=[name],
            )
    elif looks_like_seconds(int(value)):
        raise UsageError(f"{name}: {in_seconds(int(value))}", arguments=[name])


def _check_of(annotation: Any, names: Mapping[str, Any]) -> _Check | None:
    """Return the check for an annotation; None if it is not checked."""
    if not isinstance(annotation, str):
        return None
    parts, is_time = [], False
    for part in _union(ast.parse(annotation, mode="eval").body, names):
        is_time |= isinstance(part, ast.Name) and part.id == "Time"
        part_check = _part(part, names)
        if part_check is None:
            return None
        parts.append(part_check)
    return _Check(parts, is_time)


def _union(node: ast.expr, names: Mapping[str, Any]) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [*_union(node.left, names), *_union(node.right, names)]
    if isinstance(node, ast.Name) and node.id in _ALIASES:
        return _union(ast.parse(_ALIASES[node.id], mode="eval").body, names)
    return [node]


def _part(node: ast.expr, names: Mapping[str, Any]) -> tuple[tuple[type, ...], _Is, str] | None:
    if isinstance(node, ast.Constant) and node.value is None:
        return (type(None),), lambda value: value is None, ""
    if isinstance(node, ast.Name):
        return _PLAIN.get(node.id) or _of_class(node.id, names)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if node.value.id == "PathLike":
            return (), lambda value: isinstance(value, PathLike), "a path"
        if node.value.id == "Literal":
            choices = ast.literal_eval(node.slice)
            every = choices if isinstance(choices, tuple) else (choices,)
            words = " or ".join(map(repr, every))
            return (), lambda value: isinstance(value, str) and value in every, words
        if node.value.id == "Mapping":
            return _mapping(ast.unparse(node.slice) == "(str, str)")
        if node.value.id == "Callable":
            return (), callable, "a function"
        if node.value.id in _COLLECTIONS:
            return _collection(_Elements(_union(node.slice, names), names))
    return None


def _mapping(of_strings: bool) -> tuple[tuple[type, ...], _Is, str]:
    def accepts(value: Any) -> bool:
        if not isinstance(value, Mapping) or not of_strings:
            return isinstance(value, Mapping)
        return all(isinstance(one, str) for item in value.items() for one in item)

    return (), accepts, "a mapping of strings" if of_strings else "a mapping"


class _Elements:
    """The allowed elements of a collection. Only elements that must be strings, integers or paths are checked."""

    def __init__(self, nodes: list[ast.expr], names: Mapping[str, Any]) -> None:
        parts = [_part(node, names) for node in nodes if not isinstance(node, ast.Constant)]
        element_parts = [part for part in parts if part is not None and part[2] in _ELEMENTS]
        self.tests = (
            [test for _, test, _ in element_parts] if len(element_parts) == len(parts) else []
        )
        self.word = _ELEMENTS[element_parts[0][2]] if self.tests else "values"


def _collection(elements: _Elements) -> tuple[tuple[type, ...], _Is, str]:
    def accepts(value: Any) -> bool:
        if isinstance(value, (str, *_BYTES, Mapping)) or not isinstance(value, Iterable):
            return False
        # Elements of an iterator cannot be checked without consuming it.
        if elements.tests and isinstance(value, list | tuple | set | frozenset):
            return all(any(test(one) for test in elements.tests) for one in value)
        return True

    return (), accepts, f"a collection of {elements.word}"


def _of_class(name: str, names: Mapping[str, Any]) -> tuple[tuple[type, ...], _Is, str] | None:
    """Return the check for a class that an annotation names.

    Return None for protocols, and for classes that the module imports for type checkers only.
    """
    kind = names.get(name, getattr(builtins, name, None))
    if get_origin(kind) is Callable:
        return (), callable, "a function"
    if name == "Any" or not inspect.isclass(kind) or getattr(kind, "_is_protocol", False):
        return None
    cls: type = kind
    return (cls,), lambda value: isinstance(value, cls), f"a {name}"


def is_spark_session(value: object) -> bool:
    """Return whether a value is a SparkSession (classic or Spark Connect), without importing PySpark."""
    return any(
        kind.__name__ == "SparkSession" and kind.__module__.startswith("pyspark.sql.")
        for kind in type(value).__mro__
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


_PLAIN: dict[str, tuple[tuple[type, ...], _Is, str]] = {
    "SparkSession": ((), is_spark_session, "a SparkSession"),
    "str": ((str,), lambda value: isinstance(value, str), "a string"),
    "int": ((int,), _is_whole, "an integer"),
    "bool": ((bool,), lambda value: isinstance(value, bool), "True or False"),
    "float": (
        (float, int),
        lambda value: isinstance(value, Real) and not isinstance(value, bool),
        "a number",
    ),
    "bytes": ((bytes,), lambda value: isinstance(value, bytes), "bytes"),
    "Time": (
        (int,),
        lambda value: _is_whole(value) or isinstance(value, datetime | str),
        "milliseconds since 1970 (an integer), a datetime with a timezone, or a text such as '2h ago'",
    ),
}
_ELEMENTS = {"a string": "strings", "an integer": "integers", "a path": "paths"}
