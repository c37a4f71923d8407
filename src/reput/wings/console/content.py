"""Match the content of messages: by a text, a regular expression, a value at a JSON path, or a property.

Arrow runs regular expressions with RE2, whose time is linear in the length of a body. But the time also grows with the
number of states, which is the size of the pattern after its repetitions are expanded: 5,000 states take 2 minutes per
MiB. Therefore the number of states is limited.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.errors import UsageError

Mask = npt.NDArray[np.bool_]

MOST_JSON_BYTES = 1 << 20
"""Largest body that is parsed for a JSON path. Its Python objects may take 30 times as much memory."""

_MOST_CHARACTERS, _MOST_STATES = 1_000, 200
_MOST_DIGITS = 300  # Python refuses to parse integers of thousands of digits.

# A text condition also matches bodies in GB18030, which many Chinese applications use.
_OTHER_ENCODING = "gb18030"
_STEP = re.compile(r"""\.?([^\s.\[\]=!<>~'"]+)|\[(\d{1,9}|\*)\]|\[(?:"([^"]*)"|'([^']*)')\]""")
_COMPARISON = re.compile(r"\s*(==|=|!=|<=|>=|<|>|contains\s)\s*(.+)", re.DOTALL)
_REGEX_TOKEN = re.compile(
    r"(?P<atom>\\[pP]\{[^}]*\}|\\.|\[\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\((?!\?)|\(\?P?<\w+>|\(\?[\w-]*:?|[^\\\[(])",
    re.DOTALL,
)
_REPEATED = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class How(StrEnum):
    """The kinds of conditions."""

    TEXT = "text"
    REGEX = "regex"
    JSON = "json"
    PROPERTY = "property"


@dataclass(frozen=True, slots=True)
class Content:
    """A condition on bodies and properties, from `parse_content`.

    Attributes:
        how: The kind of condition.
        text: The text of the condition, as the user wrote it.
        reads_bodies: Whether the condition needs bodies.
        reads_properties: Whether the condition needs properties.
    """

    how: How
    text: str
    _bodies: Callable[[pa.Array], Mask] | None
    _properties: Callable[[pa.MapArray], Mask] | None

    def __reduce__(self) -> tuple[Callable[[str, str], Content], tuple[str, str]]:
        return parse_content, (self.how, self.text)

    @property
    def reads_bodies(self) -> bool:
        return self._bodies is not None

    @property
    def reads_properties(self) -> bool:
        return self._properties is not None

    def of_bodies(self, bodies: pa.Array) -> Mask:
        """Return a mask of the bodies that meet the condition. Bodies must be binary and decompressed."""
        return np.zeros(len(bodies), np.bool_) if self._bodies is None else self._bodies(bodies)

    def of_properties(self, properties: pa.MapArray) -> Mask:
        """Return a mask of the rows whose properties meet the condition."""
        if self._properties is None:
            return np.zeros(len(properties), np.bool_)
        return self._properties(properties)

    def takes(self, body: bytes, properties: dict[str, str]) -> bool:
        """Return whether one message meets the condition."""
        kind = pa.map_(pa.string(), pa.string())
        bodies = pa.array([body], pa.binary())
        maps = pa.array([[(_text(name), _text(value)) for name, value in properties.items()]], kind)
        return bool(self.of_bodies(bodies)[0] or self.of_properties(maps)[0])


def parse_content(how: str, text: str) -> Content:
    """Parse a condition.

    Args:
        how: One of `How`.
        text: The condition, whose form depends on `how`:
            text: a part of a body or of a property's value; case matters
            regex: a regular expression (RE2) that matches a part of a body or of a property's value
            json: a path and optionally a comparison, as in `$.items[*].price >= 10`
            property: NAME or NAME=VALUE

    Raises:
        UsageError: The text is too long or invalid.
    """
    if how not in tuple(How):
        raise UsageError(
            f"content: the kind must be one of {', '.join(How)}, not {how!r}", arguments=["how"]
        )
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(
            f"content: at most {_MOST_CHARACTERS:,} characters, not {len(text):,}",
            arguments=["contains"],
        )
    kind = How(how)
    if kind is How.JSON:
        return Content(kind, text, _json_matcher(text), None)
    if kind is How.PROPERTY:
        return Content(kind, text, None, _property_matcher(text))
    match = _regex_matcher(text) if kind is How.REGEX else _text_matcher(text)
    return Content(kind, text, match, _any_value(match))


def _text_matcher(text: str) -> Callable[[pa.Array], Mask]:
    needles = [text.encode("utf-8", "surrogatepass")]
    if not text.isascii():
        with suppress(UnicodeEncodeError):
            needles.append(text.encode(_OTHER_ENCODING))

    def match(values: pa.Array) -> Mask:
        found = np.zeros(len(values), np.bool_)
        for needle in needles:
            found |= _mask(pc.match_substring(values, needle))
        return found

    return match


def _regex_matcher(pattern: str) -> Callable[[pa.Array], Mask]:
    if _states(pattern) > _MOST_STATES:
        raise UsageError(
            f"regular expression: too large after its repetitions are expanded; at most {_MOST_STATES} characters",
            arguments=["contains"],
        )

    def match(values: pa.Array) -> Mask:
        return _mask(pc.match_substring_regex(values, pattern))

    # Arrow compiles a pattern only when the pattern is applied to values. So check it by applying it to one value.
    try:
        match(pa.array([b""], pa.binary()))
    except pa.ArrowException as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise UsageError(f"regular expression: {reason}", arguments=["contains"]) from None
    return match


def _states(pattern: str) -> int:
    """Return the approximate number of characters of a pattern after its repetitions are expanded."""
    sums, last, at = [0], 0, 0
    while at < len(pattern):
        repeated = _REPEATED.match(pattern, at)
        if repeated:
            # Ignore further digits: nine digits are enough to exceed the limit. Python converts long numbers slowly.
            low, high = int(repeated[1][:9]), repeated[2]
            count = low if high is None else int(high[:9]) if high else low + 1
            sums[-1] += last * (max(count, 1) - 1)
            last *= max(count, 1)
            at = repeated.end()
            continue
        token = _REGEX_TOKEN.match(pattern, at)
        at = token.end() if token else at + 1
        if token and token[0].startswith("("):
            sums.append(0)
        elif token and token[0] == ")" and len(sums) > 1:
            last = sums.pop()
            sums[-1] += last
        else:
            last = 1
            sums[-1] += 1
    return sum(sums)


def _any_value(match: Callable[[pa.Array], Mask]) -> Callable[[pa.MapArray], Mask]:
    """Return a function that matches a row if `match` matches one of its property values."""

    def match_maps(maps: pa.MapArray) -> Mask:
        return _any_of_row(maps, match(maps.items.cast(pa.binary())))

    return match_maps


def _property_matcher(text: str) -> Callable[[pa.MapArray], Mask]:
    name, has_value, value = text.partition("=")
    if not name:
        raise UsageError("property: write NAME or NAME=VALUE", arguments=["contains"])

    def match_maps(maps: pa.MapArray) -> Mask:
        found = _mask(pc.equal(maps.keys, name))
        if has_value:
            found &= _mask(pc.equal(maps.items, value))
        return _any_of_row(maps, found)

    return match_maps


def _any_of_row(maps: pa.MapArray, of_item: Mask) -> Mask:
    offsets = maps.offsets.to_numpy()
    counts = np.append(0, np.cumsum(of_item))
    found: Mask = counts[offsets[1:]] > counts[offsets[:-1]]
    return found


def _mask(found: pa.Array) -> Mask:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _json_matcher(text: str) -> Callable[[pa.Array], Mask]:
    steps, compare = _parse_path(text)

    def matches(body: bytes | None) -> bool:
        if not body or len(body) > MOST_JSON_BYTES:
            return False
        try:
            document = json.loads(body, parse_int=_integer)
            return any(map(compare, _values_at(document, steps)))
        except (ValueError, RecursionError, OverflowError):
            return False

    def match(bodies: pa.Array) -> Mask:
        return np.fromiter((matches(body.as_py()) for body in bodies), np.bool_, len(bodies))

    return match


def _parse_path(text: str) -> tuple[list[str | int | None], Callable[[Any], bool]]:
    """Return the steps of a path and the comparison after it. A step is a name, an index, or None for [*]."""
    rest = text.strip().removeprefix("$")
    steps: list[str | int | None] = []
    while found := _STEP.match(rest):
        name, index, *quoted = found.groups()
        if name is not None:
            steps.append(name)
        elif index is not None:
            steps.append(None if index == "*" else int(index))
        else:
            steps.append(next(one for one in quoted if one is not None))
        rest = rest[found.end() :]
    if not steps:
        raise UsageError(
            f"JSON path: write a path like $.order.id, not {text!r}", arguments=["contains"]
        )
    if not rest.strip():
        return steps, lambda value: True
    comparison = _COMPARISON.fullmatch(rest)
    if comparison is None:
        raise UsageError(
            "JSON path: after the path, write an operator (=, !=, <, <=, >, >= or contains) and a value, "
            f"not {rest.strip()!r}",
            arguments=["contains"],
        )
    return steps, _comparison(comparison[1].strip(), comparison[2].strip())


def _comparison(sign: str, text: str) -> Callable[[Any], bool]:
    try:
        wanted = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        wanted = text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
    if sign == "contains":
        needle = wanted if isinstance(wanted, str) else text
        return lambda value: isinstance(value, str) and needle in value
    if sign in ("=", "==", "!="):
        # A condition such as $.id = 5 matches the number 5, and also the text "5", because users may omit the quotes.
        is_equal = sign != "!="
        return lambda value: (_is_same(value, wanted) or value == text) is is_equal
    order = _ORDERS[sign]

    def compare(value: Any) -> bool:
        try:
            # In Python, True is 1; in JSON, true is not a number.
            return not isinstance(value, bool) and bool(order(value, wanted))
        # Texts and numbers have no common order, so the condition is not met.
        except TypeError:
            return False

    return compare


def _is_same(value: Any, wanted: Any) -> bool:
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def _values_at(value: Any, steps: list[str | int | None]) -> Iterator[Any]:
    found = [value]
    for step in steps:
        found = [inner for one in found for inner in _children(one, step)]
    yield from found


def _children(value: Any, step: str | int | None) -> Iterator[Any]:
    if isinstance(value, list):
        if step is None:
            yield from value
        elif isinstance(step, int) and step < len(value):
            yield value[step]
    elif isinstance(value, dict) and isinstance(step, str) and step in value:
        yield value[step]


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MOST_DIGITS else digits


def _text(value: str) -> str:
    """Replace characters that UTF-8 cannot encode, which Arrow would reject."""
    return value.encode("utf-8", "replace").decode()
