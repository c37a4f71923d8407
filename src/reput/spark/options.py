"""Parse and check the options of the data source.

Options with the same meaning as an option of Spark's Kafka source have the same name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reput.base import did_you_mean, now_ms, parse_time
from reput.core import LogListing
from reput.engine.messages import column_name, select
from reput.engine.tables import (
    Condition,
    OnCorrupt,
    check_on_corrupt,
    find_logs,
    named_from,
    selected,
    unknown_topics,
)
from reput.errors import UsageError
from reput.io import Location

EARLIEST, LATEST = "earliest", "latest"
_MAX_NUMBER = 1 << 53  # A timestamp up to this limit fits 64 bits in microseconds.
_PLACES = (
    "path", "paths", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
)  # fmt: skip
_SELECTIONS = ("topic", "queueId", "key", "uniqueKey")
_NUMBERS = ("minPartitions", "splitBytes", "maxBytesPerTrigger", "maxOffsetsPerTrigger")
_SWITCHES = (
    "failOnDataLoss",
    "decompress",
    "useIndexes",
    "verbose",
    "pushFilters",
    "unwrapBatches",
)
_OTHERS = ("columns", "onCorrupt", "nameFrom")
OPTIONS = (*_PLACES, *_SELECTIONS, *_NUMBERS, *_SWITCHES, *_OTHERS)
_PREFIXES = ("s3.", "fsspec.")
_OF_TABLES = "owner"
"""An option that Spark adds to the options of CREATE TABLE."""

_OF_KAFKA = {
    "subscribe": "topic, a name or a JSON list of names",
    "subscribepattern": "topic with * and ?, such as orders-*",
    "assign": "topic and queueId",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "includeheaders": "the column properties, which every load has",
    "kafka.bootstrap.servers": "path, the folder of a store",
}
"""What to use in place of options of Spark's Kafka source that have no option of the same name here."""

NAME = "rocketmq"
"""Name of the source in `spark.read.format`."""

Offsets = str | int | dict[str, int]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one load.

    paths            absolute paths, or URLs
    starting_offsets, ending_offsets  "earliest", "latest", a physical offset for every store, or a map of offsets by
                                      store; None if not given
    columns          names of the columns if no schema is given; None for all
    starting_ms, ending_ms  store timestamps, both inclusive
    selected         conditions from the options topic, queueId, key and uniqueKey
    split_bytes      bytes of the log per task; None if not given
    file_systems     options whose names begin with `s3.` or `fsspec.`
    name_from        see `reput.engine.tables.naming`
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...] | None
    starting_offsets: Offsets | None
    ending_offsets: Offsets | None
    starting_ms: int | None
    ending_ms: int | None
    selected: tuple[Condition, ...]
    min_partitions: int
    split_bytes: int | None
    max_bytes_per_trigger: int | None
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    decompress: bool
    use_indexes: bool
    verbose: bool
    push_filters: bool
    unwrap_batches: bool
    on_corrupt: OnCorrupt
    file_systems: dict[str, str]
    name_from: str | None = None

    def logs(self) -> list[LogListing]:
        """List the files of all stores. Raises the errors of `find_logs`, and UsageError for a bad `name_from`."""
        return named_from(find_logs(self.paths, self.file_systems), self.name_from)

    def unknown_topics(self, sources: Sequence[LogListing]) -> list[str]:
        """Return a line for each topic of the option `topic` that no store has."""
        return unknown_topics(sources, self.selected)

    @property
    def has_trigger_limit(self) -> bool:
        """Whether an option limits the batches of a stream."""
        return self.max_offsets_per_trigger is not None or self.max_bytes_per_trigger is not None

    def conditions(self) -> list[Condition]:
        """Return the conditions that messages must meet.

        Damaged ranges are always reported, because the lost messages may have met the conditions.
        """
        times = selected(begin_ms=self.starting_ms, end_ms=self.ending_ms)
        return [*times, *self.selected]


def read_options(options: Mapping[str, str], folder: str = "") -> SourceOptions:
    """Parse and check options. Relative paths are relative to `folder`; if `folder` is "", to the working directory.

    Raises UsageError for an unknown option or an invalid value.
    """
    names = {name.lower(): name for name in OPTIONS}
    values: dict[str, str] = {}
    file_systems: dict[str, str] = {}
    for option, value in options.items():
        if option.startswith(_PREFIXES):
            file_systems[option] = value
        elif option.lower() in names:
            values[names[option.lower()]] = value
        elif option == _OF_TABLES:
            raise UsageError(
                f"CREATE TABLE does not work with {NAME}, whose tables are stores; use "
                f"CREATE TEMPORARY VIEW messages USING {NAME} OPTIONS (path '/data/store')"
            )
        else:
            ours = _OF_KAFKA.get(option.lower(), "")
            instead = f": use {ours}" if ours else did_you_mean(option, OPTIONS)
            raise UsageError(
                f"unknown option {option}{instead}; the options are {', '.join(OPTIONS)}"
            )
    return SourceOptions(
        paths=tuple(_place(path, folder) for path in _paths(values)),
        columns=_columns(values.get("columns")),
        starting_offsets=_offsets(values, "startingOffsets", folder),
        ending_offsets=_offsets(values, "endingOffsets", folder),
        starting_ms=_time(values, "startingTimestamp"),
        ending_ms=_time(values, "endingTimestamp"),
        selected=_selected(values),
        min_partitions=_number(values, "minPartitions") or 1,
        split_bytes=_number(values, "splitBytes"),
        max_bytes_per_trigger=_number(values, "maxBytesPerTrigger"),
        max_offsets_per_trigger=_number(values, "maxOffsetsPerTrigger"),
        fail_on_data_loss=_switch(values, "failOnDataLoss", True),
        decompress=_switch(values, "decompress", True),
        use_indexes=_switch(values, "useIndexes", True),
        verbose=_switch(values, "verbose", False),
        push_filters=_switch(values, "pushFilters", False),
        unwrap_batches=_switch(values, "unwrapBatches", False),
        on_corrupt=check_on_corrupt(values.get("onCorrupt", "fail").lower()),
        file_systems=file_systems,
        name_from=_place(values["nameFrom"], folder) if "nameFrom" in values else None,
    )


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    paths: list[str] = []
    if "paths" in options:
        value = _json(options["paths"])
        if not isinstance(value, list) or not all(isinstance(path, str) for path in value):
            raise UsageError(f"paths must be a JSON list of paths, not {options['paths']}")
        paths = value
    if "path" in options:
        paths.append(options["path"])
    if not paths or not all(paths):
        raise UsageError(
            "path is missing: pass a store, its commitlog folder, or files, as .load(PATH) or "
            f"{NAME}('PATH'). Spark does not pass on the path of a table created with CREATE TABLE; "
            f"use CREATE TEMPORARY VIEW messages USING {NAME} OPTIONS (path 'PATH')"
        )
    return tuple(paths)


def _columns(text: str | None) -> tuple[str, ...] | None:
    """Return columns from a comma-separated text or a JSON list. Names are not case-sensitive."""
    if text is None:
        return None
    names: Any = _json(text) if text.startswith("[") else text.split(",")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"columns must be names separated by commas, or a JSON list, not {text}")
    return tuple(select(column_name(name.strip()) for name in names).names)


def _place(path: str, folder: str) -> str:
    # Accept any number of slashes: Hadoop and Spark SQL write file:/data instead of file:///data.
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else Location.absolute(os.path.join(folder, path))


def _selected(options: Mapping[str, str]) -> tuple[Condition, ...]:
    return selected(
        patterns=_texts(options, "topic"),
        keys=_texts(options, "key"),
        unique_keys=_texts(options, "uniqueKey"),
        queue_ids=_queue_ids(options["queueId"]) if "queueId" in options else None,
    )


def _texts(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return a text, or the texts of a JSON list; None if the option is not given."""
    text = options.get(name)
    if text is None:
        return None
    values: Any = _json(text) if text.startswith("[") else [text]
    if not isinstance(values, list) or not all(isinstance(v, str) and v for v in values):
        raise UsageError(f"{name} must be a text or a JSON list of texts, not {text}")
    return tuple(values)


def _queue_ids(text: str) -> tuple[int, ...]:
    values = _json(text)
    ids = values if isinstance(values, list) else [values]
    if not all(_is_offset(queue_id) and queue_id < 1 << 31 for queue_id in ids):
        raise UsageError(
            f"queueId must be a number from 0 on, or a JSON list of such numbers, not {text}"
        )
    return tuple(ids)


def _json(text: str) -> Any:
    """Return the value of a JSON text, or None for any other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _offsets(options: Mapping[str, str], name: str, folder: str) -> Offsets | None:
    text = options.get(name)
    if text is None:
        return None
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    value = _json(text)
    if isinstance(value, dict) and value and all(map(_is_offset, value.values())):
        if "nameFrom" in options:
            return value
        return {_place(store, folder): offset for store, offset in value.items()}
    if _is_offset(value):
        return int(value)
    raise UsageError(
        f'{name} must be earliest, latest, a physical offset or {{"STORE": offset, ...}}, not {text}'
    )


def _is_offset(value: object) -> bool:
    # JSON's true and false become bool, which is a kind of int in Python.
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(options: Mapping[str, str], name: str, least: int = 1) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value < _MAX_NUMBER:
        kind = "milliseconds since 1970" if name.endswith("Timestamp") else "a number above 0"
        raise UsageError(f"{name} must be {kind}, not {text}")
    return value


def _time(options: Mapping[str, str], name: str) -> int | None:
    """Return milliseconds since 1970, from such a number, a date, a time, or a text such as `2h ago`."""
    text = options.get(name)
    if text is None or text.lstrip("-").isdecimal():
        return _number(options, name, least=-_MAX_NUMBER)
    try:
        return parse_time(text, now_ms(), is_end=name == "endingTimestamp")
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _switch(options: Mapping[str, str], name: str, missing: bool) -> bool:
    text = options.get(name, str(missing)).lower()
    if text not in ("true", "false"):
        raise UsageError(f"{name} must be true or false, not {options[name]}")
    return text == "true"
