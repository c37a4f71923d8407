"""The request of an export, which must be the same for every run on a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal, TypedDict, get_args

import pyarrow as pa

from reput.base import check_time
from reput.engine.messages import COLUMNS, CORRUPT_REASON, ORIGIN_COLUMNS, charset_name
from reput.engine.tables import Condition, OnCorrupt, check_on_corrupt, selected
from reput.errors import UsageError
from reput.wings.lakes.body_shape import BodyShape

UTF_8 = "utf-8"

KEY = pa.field("key", pa.string())
"""The column with the first of a message's keys, or null; tables are sorted by it."""

JSON = "json"
"""Name of the encoding JSON, and of the column with bodies decoded from JSON.

The field `json_body` of a request selects this encoding. The field `body` selects other encodings.
"""

JsonMode = Literal["strict", "permissive"]
"""How to handle a body with values that do not fit the types of their fields: "strict" rejects the message,
"permissive" stores null in these fields."""

Profile = Literal["safe", "fast"]
INFER = "infer"
_ADDED = {"body": None, "charset": UTF_8, "upsert_by": None}
"""Fields that are missing in the export requests stored with older tables, and their defaults."""

TEXT_PARTITIONS = ("topic", "real_topic", "broker", "cluster")
"""Partitions whose values come from a text column."""

PARTITIONS = (*TEXT_PARTITIONS, "day", "hour")

_NAMES = COLUMNS.names
TABLE_COLUMNS = pa.schema(
    [column for name in _NAMES for column in ([KEY] if name == "keys" else []) + [COLUMNS.field(name)]]
)  # fmt: skip
"""The default columns of a table: the columns of a message, and `key`."""

KNOWN_COLUMNS = pa.schema([*TABLE_COLUMNS, *ORIGIN_COLUMNS])
"""All columns that a request may name."""

_SEVERAL = ("columns", "topics", "partition_by")
"""Fields with several names."""

# A name that stands for TABLE_COLUMNS in a list of columns.
_USUAL = "*"


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The messages to export, and their columns.

    columns       names from KNOWN_COLUMNS, in order; "*" stands for all TABLE_COLUMNS. None for TABLE_COLUMNS and the
                  columns that `partition_by` names
    topics        topics of the messages, or patterns of them such as `orders-*`; () for all
    begin_ms, end_ms  store timestamps of the first and last messages, both inclusive, in ms since 1970
    partition_by  names from PARTITIONS; day and hour are those of the store timestamp, in UTC
    on_corrupt    fail, skip or row, see `reput.engine.tables.read.RangeBatches`
    decompressed  whether to decompress bodies
    json_body     None, INFER, or the name of a file with a schema: bodies are parsed into the column `json`
    json_mode     how to handle bodies with values that do not fit the types of their fields; also for other encodings
                  than JSON
    json_timestamps  whether INFER infers timestamps from texts that are ISO 8601 times with a zone
    body          encoding for `reput.wings.lakes.decoding.open_decoder`: bodies are decoded into a column with the
                  encoding's name; "json:infer" and "json:FILE" set `json_body` instead
    charset       charset of JSON bodies
    upsert_by     "key" for a table of the newest message of each key, see `reput.wings.lakes.upsert`
    profile       "safe" sorts the rows, and reads the written files back to verify them; "fast" does neither

    Raises UsageError.
    """

    columns: tuple[str, ...] | None = None
    topics: tuple[str, ...] = ()
    begin_ms: int | None = None
    end_ms: int | None = None
    partition_by: tuple[str, ...] = ()
    on_corrupt: OnCorrupt = "skip"
    decompressed: bool = True
    json_body: str | None = None
    json_mode: JsonMode = "strict"
    json_timestamps: bool = False
    body: str | None = None
    charset: str = UTF_8
    profile: Profile = "safe"
    upsert_by: str | None = None

    def __post_init__(self) -> None:
        check_on_corrupt(self.on_corrupt)
        if self.upsert_by not in (None, "key"):
            raise UsageError(
                f"upsert_by must be 'key', not '{self.upsert_by}'", arguments=["upsert_by"]
            )
        if self.upsert_by is not None and self.on_corrupt == "row":
            raise UsageError(
                "upsert_by: rows for damaged ranges have no key; choose on_corrupt skip or fail",
                arguments=["upsert_by", "on_corrupt"],
            )
        if self.profile not in get_args(Profile):
            raise UsageError(
                f"profile must be safe or fast, not {self.profile}", arguments=["profile"]
            )
        if self.body is not None and self.json_body is not None:
            raise UsageError("pass body or json_body, not both", arguments=["body", "json_body"])
        typed_by = "body" if self.body is not None else "json_body"
        if self.body is not None and self.body.startswith(f"{JSON}:"):
            # Fields of a frozen dataclass can only be set in this way.
            object.__setattr__(self, "json_body", self.body.removeprefix(f"{JSON}:"))
            object.__setattr__(self, "body", None)
        object.__setattr__(self, "charset", charset_name(self.charset))
        self._check_json()
        if "" in self.topics:
            raise UsageError("topics: empty topic name", arguments=["topics"])
        if self.columns is not None:
            names = ((name,) if name != _USUAL else TABLE_COLUMNS.names for name in self.columns)
            object.__setattr__(self, "columns", tuple(chain.from_iterable(names)))
        for name in self.columns or ():
            if name.removesuffix("_error") == (self.value_column or JSON):
                raise UsageError(
                    f"columns: remove {name}, because {typed_by} adds this column",
                    arguments=["columns", typed_by],
                )
            if name not in KNOWN_COLUMNS.names:
                possible = ", ".join(KNOWN_COLUMNS.names)
                raise UsageError(
                    f"columns: no column {name}; choose from {possible}", arguments=["columns"]
                )
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise UsageError("columns: a column is named twice", arguments=["columns"])
        if self.columns == ():
            raise UsageError("columns: name at least one", arguments=["columns"])
        for name in self.partition_by:
            if name not in PARTITIONS:
                raise UsageError(
                    f"partition_by {name}: must be one of {', '.join(PARTITIONS)}",
                    arguments=["partition_by"],
                )
        if {"day", "hour"} <= set(self.partition_by) or len(set(self.partition_by)) < len(
            self.partition_by
        ):
            raise UsageError(
                "partition_by: name each column once, and only one of day and hour",
                arguments=["partition_by"],
            )
        for name in ("begin_ms", "end_ms"):
            if (time := getattr(self, name)) is not None:
                check_time(name, time)
        if self.begin_ms is not None and self.end_ms is not None and self.begin_ms > self.end_ms:
            raise UsageError("begin_ms is later than end_ms", arguments=["begin_ms", "end_ms"])

    def _check_json(self) -> None:
        if self.json_mode not in get_args(JsonMode):
            raise UsageError(
                f"json_mode must be strict or permissive, not {self.json_mode}",
                arguments=["json_mode"],
            )
        if self.json_mode != "strict" and self.value_column is None:
            raise UsageError(
                "json_mode needs body or json_body", arguments=["json_mode", "body", "json_body"]
            )
        if self.charset != UTF_8 and self.json_body is None:
            raise UsageError("charset needs json_body", arguments=["charset", "json_body"])
        if self.json_timestamps and self.json_body != INFER:
            raise UsageError(
                "pass json_timestamps only if json_body is infer; a schema file states which fields are timestamps",
                arguments=["json_timestamps", "json_body"],
            )

    @property
    def text_partitions(self) -> tuple[str, ...]:
        """Return the partitions whose values come from a text column: all except `day` and `hour`."""
        return tuple(name for name in self.partition_by if name in TEXT_PARTITIONS)

    @property
    def is_fast(self) -> bool:
        return self.profile == "fast"

    @property
    def is_permissive(self) -> bool:
        return self.json_mode == "permissive"

    @property
    def value_column(self) -> str | None:
        """Return the column of typed bodies, which has the name of their encoding; None if bodies stay bytes."""
        if self.body is not None:
            return self.body.partition(":")[0]
        return None if self.json_body is None else JSON

    @property
    def error_column(self) -> pa.Field:
        """Return the column that states why values of a body became null. Only permissive mode sets values to null."""
        return pa.field(f"{self.value_column}_error", pa.string())

    def conditions(self) -> list[Condition]:
        """Return the conditions on messages.

        Rows for damaged ranges need not meet them, because the messages in such a range are unknown.
        """
        return list(
            selected(patterns=self.topics or None, begin_ms=self.begin_ms, end_ms=self.end_ms)
        )

    def table_schema(self) -> pa.Schema:
        """Return the requested columns, without the columns of decoded bodies."""
        names = list(TABLE_COLUMNS.names if self.columns is None else self.columns)
        if self.columns is None:
            names += [name for name in self.text_partitions if name not in names]
        fields = [KNOWN_COLUMNS.field(name) for name in names]
        return pa.schema([*fields, CORRUPT_REASON] if self.on_corrupt == "row" else fields)

    def columns_with(self, shape: BodyShape | None) -> pa.Schema:
        """Return all columns of the table.

        `shape` is the type of decoded bodies, or None if bodies are not decoded. If it is not None, the result includes
        the columns of decoded bodies.
        """
        schema = self.table_schema()
        if shape is not None:
            schema = schema.append(pa.field(self.value_column, shape.type))
            schema = schema.append(self.error_column) if self.is_permissive else schema
        return schema

    @classmethod
    def of(cls, request: ExportRequest | None, fields: Mapping[str, Any]) -> ExportRequest:
        """Return a request, or the request with these fields if it is None. Raises UsageError.

        A text in a field of several names is one name.
        """
        if request is None:
            several = {
                name: (fields[name],) for name in _SEVERAL if isinstance(fields.get(name), str)
            }
            lists = {
                name: tuple(v)
                for name, v in fields.items()
                if isinstance(v, list | set | frozenset)
            }
            return cls(**{**fields, **lists, **several})
        if fields:
            raise UsageError(
                f"{', '.join(fields)}: pass request or its fields, not both",
                arguments=["request", *fields],
            )
        return request

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ExportRequest:
        """Parse a request. Raises UsageError, TypeError."""
        return cls(**_as_given(values))

    def as_json(self) -> dict[str, Any]:
        """Return the request as JSON.

        The files and URLs from which schemas of bodies were read are omitted, because the table itself has the types.
        """
        kind = self.json_body if self.json_body in (None, INFER) else "a schema"
        return {**asdict(self), "json_body": kind, "body": self.body and self.value_column}

    def check_same(self, earlier: Mapping[str, Any], destination: str) -> None:
        """Raise UsageError if a table was created with another request."""
        mine = _comparable(self.as_json())
        for name, value in _comparable(earlier).items():
            if mine.get(name) != value:
                raise UsageError(
                    f"{destination}: was created with another {name} "
                    f"({_in_words(value)}, not {_in_words(mine.get(name))}); "
                    "pass the same value, or choose another destination",
                    arguments=[name],
                )


class ExportFields(TypedDict, total=False):
    """The fields of an `ExportRequest` as arguments of `reput.export`."""

    columns: Sequence[str] | None
    topics: Sequence[str]
    begin_ms: int | None
    end_ms: int | None
    partition_by: Sequence[str]
    on_corrupt: OnCorrupt
    decompressed: bool
    json_body: str | None
    json_mode: JsonMode
    json_timestamps: bool
    body: str | None
    charset: str
    profile: Profile
    upsert_by: str | None


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """How an export runs. Unlike the request, these settings may differ between the runs on a table.

    Attributes:
        incremental: Continue after the last commit to the table; otherwise, the table must be new.
        fail_on_data_loss: Raise if messages expired before they were exported.
        split_bytes: Bytes of CommitLog per task.
        target_file_bytes: Size up to which small files of a partition are combined.
        commit_every: Bytes of CommitLog ("10GB") or time ("10min") after which to commit; None for one commit.
        compact_after: Combine small files after the last commit if a partition has at least this many.
        max_rejects: Maximum number of rejected rows, or a share such as "1%". If more rows are rejected, nothing is
            committed.
    """

    incremental: bool = False
    fail_on_data_loss: bool = True
    split_bytes: int | None = None
    target_file_bytes: int | None = None
    commit_every: str | int | None = None
    compact_after: int | None = None
    max_rejects: str | int | None = None

    def only_for_tables(self) -> dict[str, Any]:
        """Return the settings that an export of lines does not have."""
        settings = asdict(self)
        return {
            name: value
            for name, value in settings.items()
            if name not in ("incremental", "fail_on_data_loss")
        }


DEFAULT_SETTINGS = ExportSettings()


def _as_given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}


def _comparable(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that determine the rows and their types. Tuples become lists."""
    return {
        name: list(value) if isinstance(value, list | tuple) else value
        for name, value in {**_ADDED, **request}.items()
        if name not in ("json_timestamps", "profile")
    }


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
