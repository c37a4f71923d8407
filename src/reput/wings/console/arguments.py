"""Parse and check the parameters of requests, and describe errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import QueryParams

from reput import errors
from reput.base import now_ms, parse_time
from reput.engine.stores import understood
from reput.wings.console.mounts import UnknownStoreError
from reput.wings.console.users import ForbiddenError, Permission, demand
from reput.wings.serve import LimitError

if TYPE_CHECKING:
    from reput.wings.console.content import Content

MOST_MESSAGES = 1_000
_INT64 = 1 << 63
_MOST_DIGITS = 19
_MOST_PAGES = 100_000


class SearchForm(NamedTuple):
    """The conditions of a search.

    Attributes:
        topic: Only messages of this topic.
        keys: Keys or ids. A message must have one of them.
        begin, end: Only messages stored between these times, ms.
        limit: Maximum number of messages.
        after: The cursor of an earlier answer (a physical offset). Answers are newest first, so only messages before
            this offset are searched.
        content: A condition on bodies and properties.
        offset: A physical offset. The message that begins there is found even if it has none of the keys.
        place: Topic, queue and queue offset. The message there is found even if it has none of the keys.
    """

    topic: str | None
    keys: tuple[str, ...]
    begin: int | None
    end: int | None
    limit: int
    after: int | None
    content: Content | None = None
    offset: int | None = None
    place: tuple[str, int, int] | None = None

    @property
    def is_in_child(self) -> bool:
        """Return whether a child process runs this search: it reads the whole log to test contents."""
        return self.content is not None and not self.keys


def search_of(
    query: QueryParams,
    default_limit: int = 50,
    *,
    is_pasted: bool = False,
    most: int = MOST_MESSAGES,
) -> SearchForm:
    """Return the search that a request's parameters describe.

    Args:
        query: The parameters.
        default_limit: The limit if there is no such parameter.
        is_pasted: Whether the parameter `key` is text from the search field. The text may contain several keys and
            ids, or an offset.
        most: The greatest allowed limit.

    Raises:
        UsageError: A parameter is wrong.
    """
    limit = integer(query, "limit", default_limit)
    if not 1 <= limit <= most:
        raise errors.UsageError(f"limit must be 1 to {most:,}, not {limit}", arguments=["limit"])
    # Errors name the fields of the search form, or the parameters of the API.
    since, until = ("From", "To") if is_pasted else ("begin", "end")
    begin, end = time(query, "begin", since), time(query, "end", until)
    if begin is not None and end is not None and begin > end:
        raise errors.UsageError(f"{since} is after {until}", arguments=["begin", "end"])
    after = None if is_pasted else optional_integer(query, "after")
    key = text(query, "key")
    form = SearchForm(
        text(query, "topic"),
        () if key is None else (key,),
        begin,
        end,
        limit,
        after,
        content_of(query),
    )
    return form._replace(**understood(key)._asdict()) if is_pasted and key else form


def text(query: QueryParams, name: str) -> str | None:
    """Return a parameter without white space around it; None if it is missing or empty."""
    return query.get(name, "").strip() or None


def integer(query: QueryParams, name: str, default: int) -> int:
    """Return a whole number; `default` if it is missing. Raises UsageError."""
    number = optional_integer(query, name)
    return default if number is None else number


def optional_integer(query: QueryParams, name: str) -> int | None:
    """Return a whole number of 64 bits; None if it is missing. Raises UsageError."""
    value = text(query, name)
    if value is None:
        return None
    try:
        # 64 bits have at most 19 digits and a sign. Python refuses to convert thousands of digits.
        number = int(value) if len(value) <= 20 else _INT64
    except ValueError:
        raise errors.UsageError(
            f"{name} must be a whole number, not {value!r}", arguments=[name]
        ) from None
    if not -_INT64 <= number < _INT64:
        raise errors.UsageError(f"{name} does not fit into 64 bits", arguments=[name])
    return number


def page_number(query: QueryParams) -> int:
    """Return the number of the page of a list; 1 if it is missing. Raises UsageError."""
    return min(max(integer(query, "page", 1), 1), _MOST_PAGES)


def content_of(query: QueryParams) -> Content | None:
    """Return the condition on bodies or properties; None if it is missing. Raises UsageError, ForbiddenError."""
    contains = text(query, "contains")
    if contains is None:
        return None
    if query.get("how") != "property":
        demand(Permission.BODIES)
    from reput.wings.console.content import How, parse_content

    return parse_content(choice(query, "how", tuple(How)), contains)


def time(query: QueryParams, name: str, label: str = "") -> int | None:
    """Parse a time in any form that the command line accepts.

    Raises UsageError, whose message calls the parameter `label` if a label is given, otherwise `name`.
    """
    value = text(query, name)
    try:
        return None if value is None else parse_time(value, now_ms(), is_end=name == "end")
    except (ValueError, OverflowError) as error:
        raise errors.UsageError(f"{label or name}: {error}", arguments=[name]) from None


def choice(query: QueryParams, name: str, choices: tuple[str, ...]) -> str:
    """Return a parameter that must be one of `choices`; the first of them if it is missing. Raises UsageError."""
    value = text(query, name) or choices[0]
    if value not in choices:
        raise errors.UsageError(
            f"{name} must be {' or '.join(choices)}, not {value!r}", arguments=[name]
        )
    return value


class _NumberInPath(Convertor[int]):
    """A 64-bit number in a path. Its length is limited, because Python refuses to convert more than 4,300 digits."""

    regex = "[0-9]+"

    def convert(self, value: str) -> int:
        number = int(value) if len(value) <= _MOST_DIGITS else _INT64
        if number >= _INT64:
            raise errors.UsageError("a number in the path does not fit into 64 bits")
        return number

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("int64", _NumberInPath())


class Failure(NamedTuple):
    """The answer for an error: HTTP status, a word for programs, and a title and a sentence for people."""

    status: int
    kind: str
    title: str
    text: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Return the answer that reports an error.

        Damaged and unreadable stores must never be reported as "not found".
        """
        if isinstance(error, ForbiddenError):
            return cls(403, "forbidden", "Not allowed", str(error))
        if isinstance(error, errors.UsageError):
            return cls(400, "usage", "Wrong parameters", str(error))
        if isinstance(error, LimitError):
            return cls(503, "busy", "The server is busy", str(error))
        if isinstance(error, errors.StoreUnreachableError):
            return cls(503, "missing", "The store is missing", str(error))
        if isinstance(error, (errors.MessageNotFoundError, UnknownStoreError)):
            return cls(404, "not_found", "Not found", str(error))
        # The store was there when the server opened it.
        if isinstance(error, errors.StoreNotFoundError):
            return cls(503, "missing", "The store is missing", str(error))
        if isinstance(error, errors.FormatError):
            return cls(500, "damaged", "The store is damaged here", str(error))
        if isinstance(error, errors.ReputError):
            return cls(500, "unreadable", "The store cannot be read", str(error))
        return cls(500, "internal", "Something went wrong", "the server's log has the details")

    def as_json(self) -> dict[str, object]:
        return {"error": {"kind": self.kind, "message": self.text}}
