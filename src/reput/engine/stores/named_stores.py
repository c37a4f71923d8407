"""Read fleet files, which list stores with names and settings (docs/fleet.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

from reput.base import StoreConfig, did_you_mean, read_properties
from reput.core import find_store
from reput.engine.stores.opening import with_archive, with_logs
from reput.errors import FormatError, StoreAccessError, StoreNotFoundError, UsageError
from reput.format.java_string import decimal_number
from reput.io import FileReader, Location

_TABLE = "store"
_TEXT, _TEXTS, _NUMBER, _TABLE_OF_TEXTS = (
    "a string", "an array of strings", "an integer from 0 on", "a table of strings",
)  # fmt: skip
_FIELDS = {
    "name": _TEXT, "path": _TEXT, "log_paths": _TEXTS, "cluster": _TEXT, "broker": _TEXT,
    "broker_id": _NUMBER, "config": _TEXT, "archive": _TEXT, "storage_options": _TABLE_OF_TEXTS,
}  # fmt: skip
"""The fields of a store in a fleet file, and their types."""
_OF_BROKER_CONFIG = {
    "cluster": "brokerClusterName", "broker": "brokerName", "broker_id": "brokerId",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NamedStore:
    """A store with its name and settings.

    Attributes:
        name: The name that answers show.
        path: The folder or URL of the store.
        options: Arguments of operations for this store only: `config`, `storage_options`.
        log_paths: Folders of its CommitLog outside of the store.
        cluster: The name of its cluster.
        broker: The name of its broker. Stores with the same cluster and broker may be replicas of one log.
        broker_id: The broker id; 0 for a master.
        config: The path of the broker's configuration file (broker.conf).
        archive: The folder or URL of its archive.
    """

    name: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    log_paths: tuple[str, ...] = ()
    cluster: str | None = None
    broker: str | None = None
    broker_id: int | None = None
    config: str | None = None
    archive: str | None = None

    @staticmethod
    def read(path: str | PathLike[str]) -> list[NamedStore]:
        """Return the stores of a fleet file. Raises UsageError, StoreNotFoundError, StoreAccessError."""
        return read_fleet(path)

    @property
    def log_name(self) -> tuple[str, ...]:
        """Return a name of the store's log. Stores with the same log name may be replicas of one log."""
        return (self.cluster or "", self.broker) if self.broker else (self.path,)

    def arguments(self, *, joined: bool = False) -> tuple[str, dict[str, Any]]:
        """Return the path to open, and the options to pass to an operation on this store.

        Args:
            joined: Whether to read the store together with its archive, if it has one.

        Raises UsageError, StoreNotFoundError, StoreAccessError.
        """
        options = dict(self.options)
        if self.config is not None:
            options.setdefault("config", StoreConfig.from_broker_config(self.config))
        path = self.path
        # A pattern must match exactly one store here. Patterns that match several were expanded before.
        if Location.is_pattern(path):
            path = find_store(path, options.get("storage_options"))[1]
        path = with_logs(path, self.log_paths)
        if joined and self.archive is not None:
            path = with_archive(path, self.archive, options.get("storage_options"))
        return path, options


def read_fleet(path: str | PathLike[str]) -> list[NamedStore]:
    """Read the stores of a fleet file, in the order of the file. Whether they exist is not checked.

    Relative paths are relative to the folder of the file. Cluster, broker and broker id default to those in the
    broker's configuration.

    Raises:
        UsageError: An entry is wrong. The message names the file and the entry.
        StoreNotFoundError, StoreAccessError: The file cannot be read.
    """
    where = fspath(path)
    entries = _entries(where)
    stores = [_store(where, number, entry) for number, entry in enumerate(entries, 1)]
    first: dict[str, int] = {}
    for number, store in enumerate(stores, 1):
        if (earlier := first.setdefault(store.name, number)) != number:
            raise UsageError(
                f"{where}: [[{_TABLE}]] {earlier} and {number} have the same name {store.name!r}; rename one"
            )
    return stores


def _entries(where: str) -> list[Any]:
    import tomllib

    try:
        text = FileReader.text_of(where)
    except StoreNotFoundError:
        raise StoreNotFoundError(f"{where}: no such fleet file") from None
    except FormatError as error:
        raise UsageError(f"{where}: not a fleet file: {error.reason}") from None
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(f"{where}: not TOML: {reason}") from None
    for name in content:
        if name != _TABLE:
            raise UsageError(
                f"{where}: unknown field {name}; a fleet file has only [[{_TABLE}]] tables"
            )
    entries = content.get(_TABLE, [])
    if not isinstance(entries, list):
        raise UsageError(f"{where}: write [[{_TABLE}]] before each store, not [{_TABLE}]")
    if not entries:
        raise UsageError(f"{where}: has no [[{_TABLE}]]; add one for each store")
    return entries


def _store(where: str, number: int, entry: Any) -> NamedStore:
    label = f"{where}: [[{_TABLE}]] {number}"
    if not isinstance(entry, dict):
        raise UsageError(f"{label} must be a table")
    if isinstance(entry.get("name"), str):
        label += f" ({entry['name']})"
    for key, value in entry.items():
        if key not in _FIELDS:
            raise UsageError(f"{label}: unknown field {key}{did_you_mean(key, _FIELDS)}")
        if not _fits(_FIELDS[key], value):
            raise UsageError(f"{label}: {key} must be {_FIELDS[key]}, not {value!r}")
        if value == "" or (isinstance(value, list) and "" in value):
            raise UsageError(
                f"{label}: {key} is empty" if value == "" else f"{label}: {key} has an empty path"
            )
        if any("\0" in text for text in _texts(value)):
            raise UsageError(f"{label}: {key} has a NUL character; remove it")
    if "path" not in entry:
        raise UsageError(f"{label}: path is missing")
    path, config = entry["path"], entry.get("config")
    if Location.is_pattern(path) and ("name" in entry or "log_paths" in entry):
        raise UsageError(
            f"{label}: path {path} is a pattern, so name and log_paths cannot apply; omit them"
        )
    folder = os.path.dirname(where)
    config = None if config is None else _placed(folder, config)
    identity = {
        **_settings_in(config),
        **{name: entry[name] for name in _OF_BROKER_CONFIG if name in entry},
    }
    placed = _placed(folder, path)
    return NamedStore(
        name=entry.get("name", placed),
        path=placed,
        options={name: entry[name] for name in ("storage_options",) if name in entry},
        log_paths=tuple(_placed(folder, log_path) for log_path in entry.get("log_paths", ())),
        config=config,
        archive=_placed(folder, entry["archive"]) if "archive" in entry else None,
        **identity,
    )


def _fits(form: str, value: object) -> bool:
    match form:
        case "a string":
            return isinstance(value, str)
        case "an array of strings":
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        case "an integer from 0 on":
            return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
        case _:
            return isinstance(value, Mapping) and all(
                isinstance(item, str) for item in value.values()
            )


def _texts(value: Any) -> list[str]:
    """Return the strings of a field that fits its type."""
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    return value if isinstance(value, list) else [str(value)]


def _placed(folder: str, path: str) -> str:
    """Resolve a path relative to the folder of the fleet file. URLs are returned unchanged."""
    is_elsewhere = Location.is_url(path) or path.startswith("file:")
    return path if is_elsewhere else os.path.join(folder, path)


def _settings_in(config: str | None) -> dict[str, Any]:
    """Return cluster, broker and broker id from a broker's configuration.

    An unreadable file is ignored here; operations on the store report it.
    """
    if config is None:
        return {}
    try:
        settings = read_properties(config)
    except (StoreNotFoundError, StoreAccessError):
        return {}
    fields: dict[str, Any] = {
        key: settings[name].strip()
        for key, name in _OF_BROKER_CONFIG.items()
        if settings.get(name, "").strip()
    }
    broker_id = decimal_number(fields.pop("broker_id", ""), 18)
    return fields if broker_id is None else fields | {"broker_id": broker_id}
