"""Check the broker's JSON files: with some damages of those in config/, a broker does not start.

Mirrors `ConfigManager.load` and `.loadBak`, and `BrokerController.initialize` (tags rocketmq-all-4.9.3,
rocketmq-all-5.3.3): a broker reads the previous version of a file (NAME.bak) if the file is missing, empty or
damaged. It does not start if the previous version is damaged, too. Without a previous version, it starts without the
content of the file.

A broker of 5.x keeps the progress of compaction in a file of the same kind, but starts even if both versions are
damaged (`CompactionPositionMgr`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from reput.base import Finding, Kind
from reput.engine.check.checking.checked_store import CheckedStore
from reput.errors import StoreError, raise_if_refused
from reput.format import file_names
from reput.format.untrusted_json import parse_java_json
from reput.io import FileReader

# Larger files are not read: a quick check must stay quick.
_MOST_BYTES = 16 << 20
_CONTENTS = {
    file_names.TOPICS_FILE: "the settings of topics",
    file_names.CONSUMER_OFFSET_FILE: "committed offsets",
    file_names.SUBSCRIPTION_GROUP_FILE: "the settings of groups",
    file_names.CONSUMER_FILTER_FILE: "the filters of consumers",
    file_names.DELAY_OFFSET_FILE: "the progress of delayed messages",
}
_CONTENTS_5 = {
    file_names.TOPIC_QUEUE_MAPPING_FILE: "the mappings of queues",
    file_names.CONSUMER_ORDER_FILE: "the state of ordered pops",
    file_names.LMQ_OFFSET_FILE: "committed offsets in light queues",
    file_names.TIMER_METRICS_FILE: "the counts of timer messages",
}


class _FileState(Enum):
    GOOD = "good"
    MISSING = "missing"
    EMPTY = "empty"
    DAMAGED = "damaged"


def config_findings(store: CheckedStore) -> Iterator[Finding]:
    """Yield a finding for each JSON file that a broker cannot read. Raises StoreAccessError."""
    # A running broker has read its files, and replaces them one after the other.
    if store.is_live:
        return
    names = _CONTENTS | (_CONTENTS_5 if store.config.is_five else {})
    for name, content in names.items():
        path = store.path / file_names.CONFIG_FOLDER / name
        yield from _findings(path, content, is_needed=True)
    if store.config.is_five:
        path = store.path / file_names.COMPACTION_FOLDER / file_names.COMPACTION_POSITIONS_FILE
        yield from _findings(path, "the progress of compaction", is_needed=False)


def _findings(path: Path, content: str, *, is_needed: bool) -> Iterator[Finding]:
    """Yield a finding if a broker cannot read a file. `is_needed`: it does not start with two damaged versions."""
    state, detail = _state(path)
    if state is _FileState.GOOD:
        return
    before, before_detail = _state(path.with_name(f"{path.name}.bak"))
    if state is _FileState.MISSING and before in (_FileState.MISSING, _FileState.EMPTY):
        return
    detail = {
        _FileState.MISSING: "the file is missing",
        _FileState.EMPTY: "the file is empty",
    }.get(state, detail)
    if before is _FileState.DAMAGED:
        detail += f", and {path.name}.bak is {before_detail}"
    if before is _FileState.GOOD:
        cost, at_start = f"the last changes of {content}", f"reads {path.name}.bak in its place"
    elif before is _FileState.DAMAGED and is_needed:
        cost, at_start = "a broker refuses the store", "does not start"
    else:
        cost, at_start = content, f"starts without {content}"
    yield Finding(Kind.CONFIG_FILE, str(path), detail, cost=cost, at_next_start=at_start)


def _state(path: Path) -> tuple[_FileState, str]:
    """Return the state of a file. If it is damaged, also return the reason."""
    # Do not follow a link, which may lead out of the store.
    if path.is_symlink() or not path.is_file():
        return (_FileState.GOOD if path.is_symlink() else _FileState.MISSING), ""
    try:
        data = FileReader.content_of(path, _MOST_BYTES + 1)
    except StoreError as error:
        raise_if_refused(error)
        return _FileState.DAMAGED, str(error)
    if len(data) > _MOST_BYTES:
        return _FileState.GOOD, ""
    if not data:
        return _FileState.EMPTY, ""
    try:
        content = parse_java_json(data)
    except ValueError as error:
        return _FileState.DAMAGED, str(error)
    return (
        (_FileState.GOOD, "")
        if isinstance(content, dict)
        else (_FileState.DAMAGED, "not a JSON object")
    )
