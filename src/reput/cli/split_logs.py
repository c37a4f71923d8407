"""STORE,LOG,LOG: a store whose CommitLog lies in other folders (`storePathCommitLog=a,b`), for commands that read."""

from __future__ import annotations

import os

import click

from reput.errors import StoreNotFoundError
from reput.files.linked_folder import linked_folder
from reput.files.storage import is_url
from reput.format.file_names import COMMIT_LOG_FOLDER, LOCK_FILE

_SEPARATOR = ","


def split_logs_option(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """A store argument's callback, see `with_logs`."""
    return with_logs(value)


def with_logs(given: str) -> str:
    """The store itself, or a folder of links to what is in it and to the folders of its log.

    The latter has no `lock`: whether a broker runs on the store is not seen.

    Raises StoreNotFoundError, StoreAccessError.
    """
    store, *logs = given.split(_SEPARATOR)
    if not logs or is_url(given) or os.path.exists(given):
        return given
    for path in (store, *logs):
        if not os.path.isdir(path):
            raise StoreNotFoundError(f"{path}: no such directory, of {given}")
    entries = {name: os.path.join(store, name) for name in sorted(os.listdir(store))}
    entries.pop(LOCK_FILE, None)  # which is never looked at through a link
    folders = [entries[COMMIT_LOG_FOLDER]] if COMMIT_LOG_FOLDER in entries else []
    named = {os.path.realpath(path): path for path in (*folders, *logs)}
    # A folder of the log may lie in the store itself, and would be found there a second time.
    entries = {name: path for name, path in entries.items() if os.path.realpath(path) not in named}
    entries |= {f"{COMMIT_LOG_FOLDER}-{n}": path for n, path in enumerate(named.values(), 1)}
    return linked_folder(os.path.basename(os.path.abspath(store)), entries)
