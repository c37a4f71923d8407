"""Provide base classes for results. They are printed as text, and shown as HTML in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import FrozenInstanceError, asdict, fields
from datetime import UTC, datetime
from html import escape
from typing import Any, Self

from reput.base.findings import Finding, Severity

_MOST_LINES = 10
_MOST_CHARACTERS = 200


class Report:
    """A result of an operation. `str()` returns the text that the command prints, and `as_dict()` data for JSON."""

    __slots__ = ()

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as values for `json.dumps`."""
        # A result is a dataclass, or overrides this method.
        fields: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return fields

    @property
    def headline(self) -> str:
        """Return the result in one line."""
        return next(self.lines(), "")

    @property
    def is_complete(self) -> bool:
        """Return whether everything that the result covers could be read."""
        return True

    @property
    def is_valid(self) -> bool:
        """Return whether the result has no errors."""
        return True

    @property
    def severity(self) -> Severity | None:
        """Return the severity of the worst problem; None if there is none."""
        return None if self.is_valid and self.is_complete else Severity.DAMAGE

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class FindingsReport(Report):
    """A result with findings. Its severity is that of the worst one."""

    __slots__ = ()
    findings: tuple[Finding, ...]

    @property
    def is_valid(self) -> bool:
        """Return whether nothing is wrong."""
        return self.severity is None

    @property
    def severity(self) -> Severity | None:
        """Return the severity of the worst finding; None if nothing is wrong."""
        return Severity.worst(finding.severity for finding in self.findings)


class Sealable:
    """A report that can be made immutable. The operation sets its fields, and then calls `sealed`."""

    __slots__ = ("_is_sealed",)

    def sealed(self) -> Self:
        """Make the report immutable, and return it."""
        object.__setattr__(self, "_is_sealed", True)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "_is_sealed", False):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __setstate__(self, state: tuple[object, dict[str, object]]) -> None:
        # Unpickling may restore `_is_sealed` before other fields. So bypass __setattr__, which refuses to change sealed
        # objects.
        for name, value in state[1].items():
            object.__setattr__(self, name, value)


class ShownAsTable:
    """Makes notebooks show a dataclass as a table of its fields that are not empty."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        values = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        rows = [(name, value) for name, value in values.items() if not _says_nothing(value)]
        return table_of(type(self).__name__, (), [(name.replace("_", " "), v) for name, v in rows])


def table_of(title: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table with a title, column names if there are any, and rows. Values are escaped."""
    parts = ["<table>", f"<caption>{_text(title)}</caption>"]
    if names:
        heads = "".join(f"<th>{_text(name)}</th>" for name in names)
        parts.append(f"<thead><tr>{heads}</tr></thead>")
    for row in rows:
        parts.append(f"<tr>{''.join(f'<td>{cell_of(value)}</td>' for value in row)}</tr>")
    return "\n".join([*parts, "</table>"])


def cell_of(value: Any) -> str:
    """Return the HTML of a value: numbers with thousands separators, lists shortened to some lines."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case bytes():
            return _text(value.decode("utf-8", "replace"))
        case dict():
            return cell_of([f"{name}: {one}" for name, one in value.items()])
        case list() | tuple():
            lines = [cell_of(each) for each in value[:_MOST_LINES]]
            more = len(value) - len(lines)
            return "<br>".join([*lines, f"and {more:,} more"] if more else lines)
        case _:
            return _text(str(value))


def time_of(milliseconds: int) -> str:
    """Format a message's time in ISO 8601; as a number if it is outside the calendar."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def _says_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, list | dict | tuple | str) and not value)


def _text(text: str) -> str:
    cut = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    return escape(cut)
