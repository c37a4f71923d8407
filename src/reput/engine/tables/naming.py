"""Derive names of stores and brokers from the paths of stores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from reput.core import BrokerNames, LogListing
from reput.errors import UsageError
from reput.io import Location

_FIELD = re.compile(r"\{([^{}]*)\}|(\*)")
_NAME = "[^/]+"


def named_from(logs: Sequence[LogListing], pattern: str | None) -> list[LogListing]:
    """Name stores after their brokers: `cluster/broker`, or `broker`. Without a pattern, return the logs unchanged.

    Args:
        logs: Logs whose names are the absolute paths or URLs of their stores.
        pattern: Path of a store with {broker} in place of the broker's name. {cluster} and * may replace other parts.

    Raises:
        UsageError: The pattern is malformed or does not match a store, or two stores get the same name.
    """
    if pattern is None:
        return list(logs)
    expression = _expression(pattern)
    named: dict[str, LogListing] = {}
    for log in logs:
        match = expression.fullmatch(Location.absolute(log.name).rstrip("/"))
        if match is None:
            raise UsageError(
                f"name_from {pattern}: does not match the store {log.name}", arguments=["name_from"]
            )
        names = BrokerNames(**match.groupdict())
        name = "/".join(part for part in (names.cluster, names.broker) if part)
        if name in named:
            raise UsageError(
                f"name_from {pattern}: {named[name].name} and {log.name} would both be named {name}",
                arguments=["name_from"],
            )
        named[name] = replace(log, names=names)
    return [replace(log, name=name) for name, log in named.items()]


def _expression(pattern: str) -> re.Pattern[str]:
    parts, last, fields = [], 0, []
    text = Location.absolute(pattern).rstrip("/")
    for found in _FIELD.finditer(text):
        parts.append(re.escape(text[last : found.start()]))
        last, field = found.end(), found[1]
        fields.append(field)
        parts.append(_NAME if found[2] else f"(?P<{field}>{_NAME})")
    known = [field for field in fields if field is not None]
    if (
        known.count("broker") != 1
        or not {"broker", "cluster"}.issuperset(known)
        or known.count("cluster") > 1
    ):
        raise UsageError(
            f"name_from {pattern}: must contain {{broker}} once; it may contain {{cluster}} once, and *",
            arguments=["name_from"],
        )
    return re.compile("".join([*parts, re.escape(text[last:])]))
