"""List the logs of the stores of a table, given as paths, URLs, patterns or NamedStores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reput.core import BrokerNames, LogListing, NamedStore, find_logs, named_from
from reput.io import Location


def logs_of(
    stores: Sequence[str | NamedStore],
    options: Mapping[str, str] | None = None,
    name_from: str | None = None,
) -> list[LogListing]:
    """Return the logs of stores, without duplicates.

    Args:
        stores: Paths, URLs, and NamedStores, which have their own names and options.
        options: Options of the URLs' file systems.
        name_from: Pattern that derives names of stores from their paths (`reput.core.log.naming`).

    Raises the errors of `find_logs`, and UsageError if two stores have the same name.
    """
    paths = [one for one in stores if not isinstance(one, NamedStore)]
    found = named_from(find_logs(paths, options), name_from) if paths else []
    for store in stores:
        found += log_of(store, options) if isinstance(store, NamedStore) else []
    return found


def log_of(store: NamedStore, options: Mapping[str, str] | None = None) -> list[LogListing]:
    """Return the log of a NamedStore, joined with its archive.

    If the store's path is a pattern, return all matching logs. Raises the errors of `find_logs`.
    """
    path, own = (
        (store.path, store.options)
        if Location.is_pattern(store.path)
        else store.arguments(joined=True)
    )
    logs = find_logs([Location.absolute(path)], own.get("storage_options", options))
    names = BrokerNames(store.broker, store.cluster)
    is_named = store.name != store.path
    return [replace(log, names=names, name=store.name if is_named else log.name) for log in logs]
