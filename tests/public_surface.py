"""Print everything that users can name, one line each: python -m tests.public_surface > tests/public_surface.txt.

Names of the Python API with their signatures, commands with their options, exit codes, kinds of findings, columns,
options of the Spark source, routes of the console, and metrics.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import inspect
import json
from collections.abc import Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click

MODULES = ("reput", "reput.reports", "reput.errors", "reput.spark", "reput.testing")
TOOLS = ("broker", "fixtures", "builders", "strategies", "forgetful_disk", "faulty_files")
"""The public modules of `reput.testing`."""
CODES = (
    "FOUND", "NOT_FOUND", "WRONG_USE", "DAMAGED", "FAILED", "WARNED", "UNREAD", "INTERRUPTED", "NO_READER",
)  # fmt: skip
PROTOCOLS = {
    "__call__", "__contains__", "__enter__", "__exit__", "__getitem__", "__iter__", "__len__", "__next__",
}  # fmt: skip
"""Methods that users call by syntax."""


def surface() -> list[str]:
    """Return all lines."""
    parts = (api, commands, exit_codes, findings, columns, spark_options, routes, metrics)
    return [line for part in parts for line in part()]


def api() -> Iterator[str]:
    for path in MODULES:
        module = import_module(path)
        names = getattr(module, "__all__", None) or _names_defined_in(module)
        modules = {"errors", "reports"} & {*dir(module)} if path == "reput" else set()
        yield f"{path}: {' '.join(sorted({*names, *modules}))}"
        for name in sorted(names):
            yield from described(f"{path}.{name}", getattr(module, name))
    for tool in TOOLS:
        module = import_module(f"reput.testing.{tool}")
        for name in _names_defined_in(module):
            yield from described(f"{module.__name__}.{name}", getattr(module, name))


def _names_defined_in(module: ModuleType) -> list[str]:
    return sorted(
        name
        for name, value in vars(module).items()
        if name[:1] != "_"
        and getattr(value, "__module__", None) == module.__name__
        and not isinstance(value, TypeVar)
    )


def described(name: str, value: object) -> Iterator[str]:
    """Yield a line for a function, and one for each member of a class."""
    if inspect.isclass(value):
        yield from _class(name, value)
    elif callable(value) and not hasattr(value, "__origin__"):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: {value if hasattr(value, '__origin__') else type(value).__name__}"


def _class(name: str, owner: type) -> Iterator[str]:
    bases = [base.__name__ for base in owner.__mro__[1:-1] if _is_public_base(base)]
    yield f"class {name}({', '.join(bases)})"
    if issubclass(owner, Enum):
        for member in owner:
            yield f"{name}.{member.name} = {member.value!r}"
    elif any({"__init__", "__new__"} & vars(part).keys() for part in _own(owner)):
        yield f"{name}{_signature(owner)}"
    for member_name in sorted(_members(owner)):
        member = inspect.getattr_static(owner, member_name, None)
        if isinstance(member, Enum):
            continue
        is_method = inspect.isfunction(member) or isinstance(member, classmethod | staticmethod)
        # Users do not name the parameters of methods that they call by syntax.
        is_named = is_method and member_name not in PROTOCOLS
        text = _signature(getattr(owner, member_name)) if is_named else ""
        yield f"{name}.{member_name}{text}"


def _is_public_base(base: type) -> bool:
    return base.__module__ == "builtins" or base.__module__ == "reput.errors"


def _own(owner: type) -> list[type]:
    """Return a class and its bases of reput; of a test tool, only those of the tools."""
    home = "reput.testing" if owner.__module__.startswith("reput.testing") else "reput"
    return [base for base in owner.__mro__ if f"{base.__module__}.".startswith(f"{home}.")]


def _members(owner: type) -> set[str]:
    found: set[str] = set()
    for base in _own(owner):
        found |= {*vars(base), *vars(base).get("__annotations__", ()), *_assigned(base)}
        if dataclasses.is_dataclass(base):
            found |= {field.name for field in dataclasses.fields(base)}
    return {name for name in found if name[:1] != "_" or name in PROTOCOLS}


def _assigned(owner: type) -> set[str]:
    """Return the attributes that the methods of a class assign to `self`."""
    node = _classes(owner.__module__).get(owner.__name__)
    return {
        target.attr
        for target in (ast.walk(node) if node else ())
        if isinstance(target, ast.Attribute)
        and isinstance(target.ctx, ast.Store)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    }


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    source = Path(str(import_module(module).__file__)).read_text(encoding="utf-8")
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


class _Default:
    """The default of a parameter, printed alike by all versions of Python."""

    def __init__(self, value: object) -> None:
        text = f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
        self._text = f"<{type(value).__name__}>" if " at 0x" in text else text

    def __repr__(self) -> str:
        return self._text


def _signature(function: object) -> str:
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(...)"
    parameters = [
        parameter.replace(
            annotation=inspect.Parameter.empty,
            default=parameter.default
            if parameter.default is inspect.Parameter.empty
            else _Default(parameter.default),
        )
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def commands() -> Iterator[str]:
    from reput.cli.main import cli

    yield from _command(cli, "reput", click.Context(cli, info_name="reput"))


def _command(command: click.Command, name: str, context: click.Context) -> Iterator[str]:
    yield name
    for parameter in command.params:
        yield f"{name} {_parameter(parameter)}"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _command(found, f"{name} {inner}", context)


def _parameter(parameter: click.Parameter) -> str:
    words = ["|".join((*parameter.opts, *parameter.secondary_opts)), parameter.metavar or ""]
    kind = parameter.type
    if isinstance(kind, click.Choice):
        words.append(f"[{'|'.join(map(str, kind.choices))}]")
    elif isinstance(kind, click.IntRange | click.FloatRange):
        words.append(repr(kind))
    else:
        words.append(kind.name)
    if parameter.nargs != 1:
        words.append(f"nargs={parameter.nargs}")
    words += [
        word
        for word in ("required", "multiple", "is_flag", "hidden", "count")
        if getattr(parameter, word, None)
    ]
    default = parameter.default
    if callable(default):
        words.append("default: computed")
    elif default not in (None, False, ()) and "UNSET" not in repr(default):
        words.append(f"default: {default!r}")
    return " ".join(filter(None, words))


def exit_codes() -> Iterator[str]:
    from reput import errors
    from reput.cli import main

    for name in CODES:
        yield f"exit code {name}: {getattr(main, name)}"
    for name in _names_defined_in(errors):
        error = getattr(errors, name)
        if inspect.isclass(error) and issubclass(error, errors.ReputError):
            yield f"exit code after {name}: {main.exit_code(error.__new__(error))}"


def findings() -> Iterator[str]:
    from reput.reports import Kind

    for kind in Kind:
        yield f"finding {kind}: {kind.severity}, {kind.remedy}: {kind.meaning}"


def columns() -> Iterator[str]:
    from reput.engine.messages import COLUMNS

    for column in COLUMNS:
        yield f"column {column}"


def spark_options() -> Iterator[str]:
    from reput.spark.options import OPTIONS

    yield f"options of the Spark source: {' '.join(sorted(OPTIONS))}"


def routes() -> Iterator[str]:
    """Yield the routes of the console, and the parameters of its API."""
    from starlette.routing import Route

    from reput.wings.console.app import create_app

    routes = [route for route in create_app({}).routes if isinstance(route, Route)]
    for route in routes:
        yield f"route {' '.join(sorted(route.methods or ()))} {route.path}"
    (describe,) = (route.endpoint for route in routes if route.path.endswith("openapi.json"))
    paths: dict[str, Any] = json.loads(asyncio.run(describe(None)).body)["paths"]
    for path, methods in paths.items():
        names = [part["name"] for part in methods["get"].get("parameters", ())]
        yield f"api {path}: {' '.join(names)}"


def metrics() -> Iterator[str]:
    from reput.wings.console.metrics import Metrics
    from reput.wings.console.mounts import Mounts
    from reput.wings.serve.remoting.server import Server

    families = Metrics(Mounts({}), Server().traffic).registry.collect()
    for family in sorted(families, key=lambda family: family.name):
        if family.name.startswith("reput_"):
            labels = " ".join(getattr(family, "_labelnames", ()))
            yield f"metric {family.name} {family.type} [{labels}]: {family.documentation}"


if __name__ == "__main__":
    print(*surface(), sep="\n")
