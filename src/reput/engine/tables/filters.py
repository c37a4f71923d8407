"""Define conditions on columns of a table, and derive from the conditions what must be read.

A row must meet all conditions. A null value meets only "is null".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.core import is_light
from reput.engine.messages import ALL_COLUMNS
from reput.errors import UsageError
from reput.format.message_id import spellings
from reput.format.properties import lite_topic_of

_COMPARISONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_TEXT_MATCHES = {
    "starts": pc.starts_with,
    "ends": pc.ends_with,
    "contains": pc.match_substring,
    "matches": pc.match_substring_regex,
}
_NULL_MATCHES = {"is null": pc.is_null, "is not null": pc.is_valid}
_MEMBERSHIPS = ("in", "not in")
# For each operator: the greatest integer that matches, and the least one, as distances from the compared value. None
# means no limit. Example: `< 5` matches values up to 5 - 1, and has no least value.
_BOUNDS: dict[str, tuple[int | None, int | None]] = {
    "=": (0, 0),
    "in": (0, 0),
    "<": (-1, None),
    "<=": (0, None),
    ">": (None, 1),
    ">=": (None, 0),
}
_HOLDS = "holds"
_LISTS = ("keys", "unique_keys")
# Conditions on these columns are refused, because their values are large or have no order. Only `holds` is allowed, on
# `keys` and `unique_keys`.
_UNANSWERED = (*_LISTS, "properties", "body", "corrupt_reason")

QUEUE_COLUMNS = ("topic", "queue_id")
"""The columns whose values are the same in all messages of a queue."""

Mask = npt.NDArray[np.bool_]

_INT64 = 1 << 63
_MOST_PRINTED = 10
"""Number of values of a list that the text of a condition contains."""
_MESSAGE_ID = re.compile("(?:[0-9A-F]{16}|[0-9A-F]{40})([0-9A-F]{16})")
"""Matches a message id: the host's address and port, then the physical offset."""
_SELECTIVE = frozenset(["=", "in", *_TEXT_MATCHES])
_WILD = frozenset("*?")
_NAMING = frozenset(["=", "in", "starts"])
"""Operators whose values are texts with which a column begins."""

OnCorrupt = Literal["fail", "skip", "row"]
"""How to handle a damaged range: raise an error, skip it with a warning, or return a row for it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column, such as Condition("queue_id", ">=", 3).

    Operators:

    = != < <= > >=
    in, not in                         the value is a tuple
    starts, ends, contains, matches    only for texts; `matches` takes a regular expression
    is null, is not null               without a value
    holds                              only for the lists `keys` and `unique_keys`: the list has a value of the tuple

    Texts are compared by their UTF-8 bytes. Raises UsageError if values cannot be compared.

    keeps_damage: whether rows for damaged ranges meet the condition too, because lost messages may have met it
    values: the compared values in the column's type; empty without a value
    """

    column: str
    operator: str
    value: Any = None
    keeps_damage: bool = False
    values: pa.Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.column not in ALL_COLUMNS.names:
            raise UsageError(f"cannot filter by {self.column}: no such column")
        if self.operator == _HOLDS and self.column not in _LISTS:
            raise UsageError(
                f"{self.column} {self.operator}: this operator works for {' and '.join(_LISTS)} only"
            )
        if self.column in _UNANSWERED and self.operator != _HOLDS:
            raise UsageError(f"{self.column} {self.operator}: cannot filter by this column")
        # Convert the values only once: a list may be long, and is compared with every block of the log.
        # Fields of a frozen dataclass can only be set in this way.
        object.__setattr__(self, "values", pa.array([], self._kind))
        if self.operator in _NULL_MATCHES:
            return
        if self.operator in _TEXT_MATCHES and not pa.types.is_string(self._kind):
            raise UsageError(f"{self.column} {self.operator}: this operator works for texts only")
        if self.operator not in (*_COMPARISONS, *_TEXT_MATCHES, *_MEMBERSHIPS, _HOLDS):
            raise UsageError(f"{self.column} {self.operator}: no such operator")
        values = self.value if self.operator in (*_MEMBERSHIPS, _HOLDS) else (self.value,)
        try:
            object.__setattr__(self, "values", pa.array(list(values), self._kind))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise UsageError(
                f"{self.column} {self.operator} {self.value!r}: not a value of type {self._kind}"
            ) from None

    @property
    def _kind(self) -> pa.DataType:
        """Return the type of the compared values; for a list column, the type of its elements."""
        kind = ALL_COLUMNS.field(self.column).type
        return kind.value_type if self.operator == _HOLDS else kind

    def keeps(self, column: pa.Array) -> Mask:
        """Return a mask of the values that meet the condition."""
        if self.operator == _HOLDS:
            return self._holding(column)
        if self.operator in _NULL_MATCHES:
            met = _NULL_MATCHES[self.operator](column)
        elif self.operator in _TEXT_MATCHES:
            met = _TEXT_MATCHES[self.operator](column, self.value)
        elif self.operator in _COMPARISONS:
            met = _COMPARISONS[self.operator](column, self.values[0])
        else:
            matches = pc.is_in(column, self.values)
            # `is_in` is false for null, so its inverse is true. In SQL, null meets neither `IN` nor `NOT IN`.
            met = (
                matches if self.operator == "in" else pc.and_(pc.invert(matches), column.is_valid())
            )
        return np.asarray(met.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)

    def excludes(self, column: str, value: Any) -> bool:
        """Return whether this condition excludes all rows that have this value in this column."""
        kind = ALL_COLUMNS.field(column).type
        return self.column == column and not self.keeps(pa.array([value], kind))[0]

    def _holding(self, lists: pa.ListArray) -> Mask:
        matches = pc.is_in(lists.flatten(), self.values)
        met = np.zeros(len(lists), np.bool_)
        met[pc.list_parent_indices(lists).filter(matches).to_numpy()] = True
        return met

    def __str__(self) -> str:
        if self.operator in _NULL_MATCHES:
            return f"{self.column} {self.operator}"
        is_text = pa.types.is_string(self.values.type)
        first = [repr(s.as_py()) if is_text else str(s) for s in self.values[:_MOST_PRINTED]]
        more = len(self.values) - len(first)
        return f"{self.column} {self.operator} {', '.join(first)}" + (
            f" and {more:,} more" if more else ""
        )


def kept_rows(batch: pa.RecordBatch, conditions: Iterable[Condition]) -> pa.RecordBatch:
    """Return the rows of a batch that meet all conditions. The batch must have all columns that the conditions name."""
    for condition in conditions:
        batch = batch.filter(pa.array(condition.keeps(batch.column(condition.column))))
    return batch


def dispatched_under(column: str, keys: Collection[str]) -> tuple[Condition, ...]:
    """Return conditions for messages that have an index entry for one of these keys.

    Such messages have the key in `column`, which is `keys` or `unique_keys`, and were not rolled back. The conditions
    also accept some messages without such an index entry: if a record has several UNIQ_KEYs, it meets the conditions
    for each of them, but a broker indexes only the last one.
    """
    return (
        Condition(column, _HOLDS, tuple(keys), keeps_damage=True),
        Condition("transaction", "!=", "rollback", keeps_damage=True),
    )


def limits(conditions: Iterable[Condition], column: str) -> tuple[int | None, int | None]:
    """Return the least and the greatest value of a column that can meet all conditions; None if there is no limit.

    The column has numbers or times (microseconds). If the least exceeds the greatest, no value meets all conditions.
    """
    low: int | None = None
    high: int | None = None
    for condition in conditions:
        if condition.column != column or condition.operator not in _BOUNDS:
            continue
        values = condition.values.cast(pa.int64()).drop_null().to_pylist()
        if not values:  # A comparison with null is never true, so no value meets the condition.
            return 1, 0
        to_greatest, to_least = _BOUNDS[condition.operator]
        if to_least is not None:
            least = min(values) + to_least
            low = least if low is None else max(low, least)
        if to_greatest is not None:
            greatest = max(values) + to_greatest
            high = greatest if high is None else min(high, greatest)
    return low, high


def choices(conditions: Iterable[Condition], column: str) -> frozenset[str] | None:
    """Return the only texts that can meet all conditions on a column; None if there is no such restriction."""
    texts: frozenset[str] | None = None
    for condition in conditions:
        if condition.column == column and condition.operator in ("=", "in"):
            values = frozenset(condition.values.to_pylist()) - {None}
            texts = values if texts is None else texts & values
    return texts


def offsets_of(conditions: Iterable[Condition]) -> frozenset[int] | None:
    """Return the only physical offsets of messages that can meet all conditions; None if there is no such restriction.

    A message id contains the physical offset.
    """
    offsets: frozenset[int] | None = None
    for condition in conditions:
        if condition.operator not in ("=", "in"):
            continue
        if condition.column == "physical_offset":
            values = frozenset(condition.values.to_pylist()) - {None}
        elif condition.column == "message_id":
            ids = condition.values.drop_null().to_pylist()
            # A text that is no message id is the id of no message.
            values = frozenset(
                int(match[1], 16) for id in ids if (match := _MESSAGE_ID.fullmatch(id))
            )
        else:
            continue
        offsets = values if offsets is None else offsets & values
    return offsets


def of_queues(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return the conditions on the topic and the queue id, if any of them excludes most queues; else nothing."""
    every = tuple(condition for condition in conditions if condition.column in QUEUE_COLUMNS)
    return every if any(condition.operator in _SELECTIVE for condition in every) else ()


class SoughtKeys(NamedTuple):
    """Keys of which a message must have one.

    column            the column with the keys
    keys              the keys to look up in IndexFiles
    with_rolled_back  whether rolled-back messages may meet the conditions, too; they are in no index
    """

    column: str
    keys: frozenset[str]
    with_rolled_back: bool


def sought_keys(conditions: Sequence[Condition]) -> SoughtKeys | None:
    """Return the keys that conditions require; None if they require none.

    A look-up finds all messages that meet the conditions, except rolled-back ones.
    """
    with_rolled_back = not any(
        condition.excludes("transaction", "rollback") for condition in conditions
    )
    unique = choices(conditions, "unique_key")
    if unique is not None:
        return SoughtKeys("unique_key", unique, with_rolled_back)
    for condition in conditions:
        if condition.operator == _HOLDS:
            keys = frozenset(condition.values.to_pylist())
            return SoughtKeys(condition.column, keys, with_rolled_back)
    return None


def by_cost(conditions: Sequence[Condition]) -> list[Condition]:
    """Sort conditions by cost: cheap ones first, so that expensive columns are decoded for few rows only."""
    dear = ("message_id", "born_host", "store_host", "unique_key", "tags", "body_crc_ok", *_LISTS)
    return sorted(conditions, key=lambda condition: condition.column in dear)


def selected(
    *,
    patterns: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    keys: Collection[str] | None = None,
    unique_keys: Collection[str] | None = None,
    queue_ids: Collection[int] | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
) -> tuple[Condition, ...]:
    """Return conditions for messages that meet all arguments. Rows for damaged ranges also meet them.

    Args:
        patterns: Allowed topics, or patterns of them such as `orders-*`.
        topics: Allowed topics.
        keys: Keys, of which a message must have one in its KEYS. An id in lower case also stands for it in upper case.
        unique_keys: Unique keys, of which a message must have one. They may be in lower case.
        queue_ids: Allowed queue ids.
        begin_ms: Earliest store time, in milliseconds since 1970.
        end_ms: Latest store time, in milliseconds since 1970.

    Raises:
        UsageError: a value is not possible in its column, or a pattern names light queues.
    """
    conditions = [] if patterns is None else [_of_topics(patterns)]
    for operator, stamp_ms in ((">=", begin_ms), ("<=", end_ms)):
        if stamp_ms is not None:
            conditions.append(Condition("store_timestamp", operator, _micros(stamp_ms), True))
    if topics is not None:
        conditions.append(Condition("topic", "in", tuple(topics), True))
    for column, values in (("keys", keys), ("unique_keys", unique_keys)):
        if values is not None:
            conditions += dispatched_under(column, spellings(*values))
    if queue_ids is not None:
        conditions.append(Condition("queue_id", "in", tuple(queue_ids), True))
    return tuple(conditions)


def _of_topics(patterns: Collection[str]) -> Condition:
    for name in patterns:
        _refuse_light(name)
    if not any(_WILD.intersection(name) for name in patterns):
        return Condition("topic", "in", tuple(patterns), keeps_damage=True)
    expression = "|".join(map(_as_regular_expression, patterns))
    return Condition("topic", "matches", f"^(?:{expression})$", keeps_damage=True)


def _refuse_light(name: str) -> None:
    """Raise UsageError for a light queue (LMQ), because no message states it as its topic."""
    if is_light(name):
        raise UsageError(_about_light(name))


def light_queues(conditions: Iterable[Condition]) -> list[str]:
    """Return a line for each light queue that conditions name as a topic, for a filter that cannot be refused.

    Such a filter is valid in SQL. But no message states a light queue as its topic, so the filter keeps no row.
    """
    return [
        _about_light(name)
        for condition in conditions
        if condition.column == "topic" and condition.operator in _NAMING
        for name in condition.values.drop_null().to_pylist()
        if is_light(name)
    ]


def _about_light(name: str) -> str:
    lite = lite_topic_of(name)
    topic = "the topic of its messages" if lite is None else f"its parent topic {lite[0]}"
    return f"{name} is a light queue, not a topic: use {topic}, or reput tail"


def _as_regular_expression(pattern: str) -> str:
    wild = {"*": ".*", "?": "."}
    return "".join(wild.get(character) or re.escape(character) for character in pattern)


def _micros(milliseconds: int) -> int:
    # A limit later than every possible time of the column has the same effect as the last possible time.
    return max(-_INT64, min(milliseconds * 1000, _INT64 - 1))


def check_on_corrupt(value: str) -> OnCorrupt:
    """Return the value unchanged if it is valid. Raises UsageError."""
    if value not in get_args(OnCorrupt):
        raise UsageError(
            f"on_corrupt must be fail, skip or row, not {value}", arguments=["on_corrupt"]
        )
    return value  # type: ignore[return-value]
