"""What a store that is opened for writing must be like: no links in it, files of the sizes that the settings say."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from reput.config import StoreConfig
from reput.errors import StoreError, StoreNotFoundError
from reput.files.links import refuse_links
from reput.format.file_names import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    LOCK_FILE,
)
from reput.recovery.recovery_point import RECOVERY_POINT_FILE
from reput.store.existing import config_of

_NAMES = (
    LOCK_FILE, ABORT_FILE, CHECKPOINT_FILE, RECOVERY_POINT_FILE, COMMIT_LOG_FOLDER, CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
)  # fmt: skip


def check_places(store: Path, commit_log: str | None) -> None:
    """Raises StoreError for a link in the store, but of commitlog/ to the folder that the settings name."""
    place = store / COMMIT_LOG_FOLDER
    if commit_log is not None and not os.path.lexists(place):
        same = os.path.realpath(commit_log) == os.path.realpath(place)
        if os.path.isdir(commit_log) and not same:
            raise StoreError(
                f"{place}: is missing, and storePathCommitLog is {commit_log}; "
                "make it a link to that folder"
            )
    allowed = None if commit_log is None else Path(commit_log)
    refuse_links(store, _NAMES, allowed)


def fitting_config(
    store: Path, config: StoreConfig | None, log_file_bytes: int | None
) -> StoreConfig:
    """The settings to use: those given, or those that the store's files show; the log's size as it is."""
    if log_file_bytes is None:
        return config or StoreConfig()
    if config is None:
        try:
            config = config_of(store)
        except StoreNotFoundError:
            config = StoreConfig()
    elif config.commit_log_file_bytes != log_file_bytes:
        raise StoreError(
            f"{store}: its CommitLog files have {log_file_bytes} bytes, "
            f"not the {config.commit_log_file_bytes} of the settings (mappedFileSizeCommitLog)"
        )
    return replace(config, commit_log_file_bytes=log_file_bytes)
