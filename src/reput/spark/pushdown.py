"""Convert Spark's filters to conditions of the table."""

from __future__ import annotations

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from reput.engine.tables import Condition
from reput.errors import UsageError

_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
    IsNotNull: "is not null",
    IsNull: "is null",
    LessThan: "<",
    LessThanOrEqual: "<=",
    StringContains: "contains",
    StringEndsWith: "ends",
    StringStartsWith: "starts",
}
_OPPOSITES = {
    "=": "!=", "<": ">=", "<=": ">", ">": "<=", ">=": "<", "in": "not in",
    "is null": "is not null", "is not null": "is null",
}  # fmt: skip


def condition_of(spark_filter: Filter) -> Condition | None:
    """Return a condition that keeps the same rows as the filter, or None if Spark itself must apply the filter."""
    is_negated = isinstance(spark_filter, Not)
    inner = spark_filter.child if isinstance(spark_filter, Not) else spark_filter
    operator = _OPERATORS.get(type(inner))
    value = getattr(inner, "value", None)
    if isinstance(inner, EqualNullSafe) and not is_negated:
        operator = "is null" if value is None else "="
    if operator is None or (is_negated and operator not in _OPPOSITES):
        return None
    # Leave comparisons with null to Spark. They are never true.
    if value is None and "null" not in operator:
        return None
    # In SQL, "x in (1, null)" is null, not false, if x is not 1.
    if isinstance(inner, In) and None in inner.value:
        return None
    path: tuple[str, ...] = inner.attribute  # type: ignore[attr-defined]
    try:
        return Condition(path[0], _OPPOSITES[operator] if is_negated else operator, value)
    except UsageError:
        return None
