"""Filter messages by their properties with RocketMQ's SQL92 expressions.

Mirrors `SelectorParser.jj` and the classes of `org.apache.rocketmq.filter.expression` (tags rocketmq-all-4.9.3 and
rocketmq-all-5.3.3, which adds CONTAINS, STARTSWITH and ENDSWITH).

Properties are texts. To compare a text with a number, the text is parsed as the same kind of number. If parsing fails,
the message does not match, regardless of the rest of the expression. A comparison with a missing property is unknown
(None), as in SQL. Like the broker's parser, this one ignores text after a complete expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isnan
from typing import NamedTuple

from reput.errors import UsageError
from reput.format.java_string import parse_int32, parse_int64

SQL_TYPE = "SQL92"
MOST_TERMS = 256
"""Maximum number of names, constants and operators in one expression."""
# Limits the recursion of the parser and of the compiled filter.
_MOST_DEPTH = 50
_INT32 = 1 << 31
_MOST_CACHED = 1024
_TOKEN = re.compile(
    r"(?P<skipped>[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|[\n\r])|/\*.*?\*/)"
    r"|(?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)"
    r"|(?P<integer>0|[1-9]\d*[lL]?)"
    r"|(?P<text>'(?:''|[^'])*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<symbol><>|<=|>=|[=<>(),+-])",
    re.DOTALL | re.ASCII,
)
# Digits can be matched in only one way, so even a failed match of a long text of digits takes only linear time.
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?)", re.ASCII
)
_WORDS = {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"}
_WORDS_OF_FIVE = {"CONTAINS", "STARTSWITH", "ENDSWITH"}
_CONSTANTS: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}

Value = str | int | float | bool | None
Properties = Mapping[str, str]
Matcher = Callable[[Properties], bool]
_Evaluate = Callable[[Properties], Value]


class _NoMatchError(Exception):
    """Raised for a comparison that throws an exception in a broker. The filter then does not match the message."""


class _Operand:
    """A part of an expression.

    Attributes:
        evaluate: Returns its value for the properties of a message.
        kind: "constant", "property", "boolean" (it has a truth value) or "other".
        value: Value of a constant, else None.
    """

    __slots__ = ("evaluate", "kind", "value")

    def __init__(self, evaluate: _Evaluate, kind: str, value: Value = None) -> None:
        self.evaluate, self.kind, self.value = evaluate, kind, value

    @property
    def is_boolean(self) -> bool:
        """Whether the part can be an operand of AND, OR and NOT."""
        is_truth = self.value is None or isinstance(self.value, bool)
        return self.kind == "boolean" or (self.kind == "constant" and is_truth)


class SqlFilter(NamedTuple):
    """A compiled expression.

    Attributes:
        matches: Returns whether the properties of a message match.
        names: Names of the properties that the expression contains, sorted.
    """

    matches: Matcher
    names: tuple[str, ...]


@lru_cache(_MOST_CACHED)
def compile_filter(expression: str, is_five: bool) -> SqlFilter:
    """Compile an expression, once.

    Raises UsageError for a text that the broker's grammar does not accept, or that has too many parts.
    """
    parser = _FilterParser(expression, is_five)
    evaluate = parser.truth(parser.disjunction()).evaluate

    def matches(properties: Properties) -> bool:
        try:
            return evaluate(properties) is True
        except _NoMatchError:
            return False

    return SqlFilter(matches, tuple(sorted(parser.names)))


class _FilterParser:
    """A parser by recursive descent, one method for each rule of the grammar."""

    def __init__(self, text: str, is_five: bool) -> None:
        self._text, self._position, self._depth, self._terms = text, 0, 0, 0
        self._words = _WORDS | (_WORDS_OF_FIVE if is_five else set())
        self._kind, self._token = "", ""
        self.names: set[str] = set()
        self._advance()

    def _error(self, problem: str) -> UsageError:
        place = self._text[max(self._position - 20, 0) : self._position + 20]
        return UsageError(f"SQL filter: {problem}, near {place!r}")

    def _advance(self) -> None:
        while True:
            if self._position == len(self._text):
                self._kind, self._token = "end", ""
                return
            match = _TOKEN.match(self._text, self._position)
            if match is None:
                self._kind, self._token = "unknown", self._text[self._position]
                return
            self._position = match.end()
            if match.lastgroup != "skipped":
                break
        self._kind, self._token = str(match.lastgroup), match[0]
        if self._kind == "name" and self._token.upper() in self._words:
            self._kind, self._token = "word", self._token.upper()
        self._terms += 1
        if self._terms > MOST_TERMS:
            raise UsageError(f"SQL filter: more than {MOST_TERMS} parts")

    def _take(self, *tokens: str) -> str | None:
        """Consume one of these symbols or words if it comes next, and return it."""
        if self._kind in ("word", "symbol") and self._token in tokens:
            token = self._token
            self._advance()
            return token
        return None

    def _need(self, token: str) -> None:
        if self._take(token) is None:
            raise self._error(f"expected {token!r}")

    def disjunction(self) -> _Operand:
        """Parse `a OR b OR c`."""
        parts = [self._conjunction()]
        while self._take("OR"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else _joined([*map(self.truth, parts)], True)

    def _conjunction(self) -> _Operand:
        parts = [self._equality()]
        while self._take("AND"):
            parts.append(self._equality())
        return parts[0] if len(parts) == 1 else _joined([*map(self.truth, parts)], False)

    def truth(self, node: _Operand) -> _Operand:
        """Check that an operand of AND, OR and NOT, or the whole expression, is a boolean.

        As in a broker, a property is allowed as a boolean, but is never true, because its value is a text.
        """
        if node.is_boolean:
            return node
        if node.kind != "property":
            raise self._error("the expression does not result in a boolean value")
        evaluate = node.evaluate
        return _Operand(lambda p: None if evaluate(p) is None else False, "boolean")

    def _equality(self) -> _Operand:
        operand = self._comparison()
        for _ in range(_MOST_DEPTH):
            if self._take("IS"):
                is_negated = self._take("NOT") is not None
                self._need("NULL")
                operand = _is_null(operand, is_negated)
            elif symbol := self._take("=", "<>"):
                operand = self._equal(operand, self._comparison(), symbol == "<>")
            else:
                return operand
        raise self._error("too many consecutive comparisons")

    def _equal(self, operand: _Operand, right: _Operand, is_negated: bool) -> _Operand:
        for node in (operand, right):
            if node.kind == "constant" and node.value is None:
                raise self._error("NULL cannot be compared; use IS NULL")
        if operand.kind == right.kind == "constant" and operand.is_boolean and not right.is_boolean:
            raise self._error("the constants cannot be compared")
        first, second = operand.evaluate, right.evaluate

        def equal(properties: Properties) -> Value:
            a, b = first(properties), second(properties)
            # Like a broker (`ComparisonExpression.createEqual`): if only the left value is missing, the result is
            # unknown. If only the right value is missing, the result is false. Two missing values are equal.
            if a is None or b is None:
                return None if a is None and b is not None else a is None
            return _equals(a, b) or _compare(a, b) == 0

        return _negated(_Operand(equal, "boolean")) if is_negated else _Operand(equal, "boolean")

    def _comparison(self) -> _Operand:
        operand = self._unary()
        for _ in range(_MOST_DEPTH):
            if symbol := self._take(">", ">=", "<", "<="):
                operand = self._ordered(operand, symbol, self._unary())
                continue
            is_negated = False
            if self._kind == "word" and self._token == "NOT":
                is_negated = True
                self._advance()
            if self._take("BETWEEN"):
                operand = self._between(operand, is_negated)
            elif self._take("IN"):
                operand = self._among(operand, is_negated)
            elif word := self._take(*_WORDS_OF_FIVE):
                operand = _contains(operand, word, self._text_literal(), is_negated)
            elif is_negated:
                raise self._error("expected BETWEEN or IN")
            else:
                return operand
        raise self._error("too many consecutive comparisons")

    def _check_order(self, *nodes: _Operand) -> None:
        for node in nodes:
            is_number = not isinstance(node.value, bool) and isinstance(node.value, int | float)
            if (node.kind == "constant" and not is_number) or node.kind == "boolean":
                raise self._error(
                    "only numbers and properties can be compared by <, <=, >, >= and BETWEEN"
                )

    def _ordered(self, operand: _Operand, symbol: str, right: _Operand) -> _Operand:
        self._check_order(operand, right)
        first, second, holds = operand.evaluate, right.evaluate, _ORDERS[symbol]
        return _Operand(lambda p: _in_order(first(p), second(p), holds), "boolean")

    def _between(self, operand: _Operand, is_negated: bool) -> _Operand:
        low = self._unary()
        self._need("AND")
        high = self._unary()
        # For BETWEEN, a broker refuses constant bounds that are NULL or in descending order. For NOT BETWEEN, it
        # accepts them.
        if not is_negated and low.kind == high.kind == "constant":
            if low.value is None or high.value is None:
                raise self._error("the bounds of BETWEEN cannot be NULL")
            if _compare(high.value, low.value) < 0:
                raise self._error("the lower bound of BETWEEN is above the upper one")
        self._check_order(operand, low, high)
        evaluate = operand.evaluate
        above, below = ("<", ">") if is_negated else (">=", "<=")
        bounds = [(low.evaluate, _ORDERS[above]), (high.evaluate, _ORDERS[below])]

        def between(properties: Properties) -> Value:
            # Evaluate the left operand of BETWEEN once, not once per bound. Otherwise, nested expressions would take
            # 2^depth steps.
            value = evaluate(properties)
            truth: Value = not is_negated
            # One false comparison makes BETWEEN false. One true comparison makes NOT BETWEEN true. In both cases, the
            # other comparison may be unknown (None).
            for bound, holds in bounds:
                result = _in_order(value, bound(properties), holds)
                if result is is_negated:
                    return result
                if result is None:
                    truth = None
            return truth

        return _Operand(between, "boolean")

    def _among(self, operand: _Operand, is_negated: bool) -> _Operand:
        if operand.kind != "property":
            raise self._error("IN needs a property")
        self._need("(")
        texts = {self._text_literal()}
        while self._take(","):
            texts.add(self._text_literal())
        self._need(")")
        evaluate = operand.evaluate

        def among(properties: Properties) -> Value:
            value = evaluate(properties)
            return None if value is None else (value in texts) is not is_negated

        return _Operand(among, "boolean")

    def _unary(self) -> _Operand:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._error("nested too deeply")
        try:
            if self._take("+"):
                return self._unary()
            if self._take("-"):
                return _minus(self._unary())
            if self._take("NOT"):
                return _negated(self.truth(self._unary()))
            return self._primary()
        finally:
            self._depth -= 1

    def _primary(self) -> _Operand:
        kind, token = self._kind, self._token
        if kind == "text":
            return _constant(self._text_literal())
        if kind in ("integer", "float"):
            self._advance()
            return _constant(self._number(kind, token))
        if kind == "word" and token in _CONSTANTS:
            self._advance()
            return _constant(_CONSTANTS[token])
        if kind == "name":
            self._advance()
            self.names.add(token)
            return _Operand(lambda properties: properties.get(token), "property")
        if self._take("("):
            inner = self.disjunction()
            self._need(")")
            return inner
        raise self._error("expected a property, a constant or '('")

    def _number(self, kind: str, token: str) -> int | float:
        try:
            if kind == "integer":
                return parse_int64(token.rstrip("lL"))
            number = float(token)
        except ValueError:
            raise self._error("expected an integer of at most 64 bits") from None
        if not 5e-324 <= number < float("inf"):
            raise self._error("expected a positive number within the range of a double")
        return number

    def _text_literal(self) -> str:
        if self._kind != "text":
            raise self._error("expected a text in single quotes")
        text = self._token[1:-1].replace("''", "'")
        self._advance()
        return text


_ORDERS: Mapping[str, Callable[[int], bool]] = {
    ">": lambda order: order > 0, ">=": lambda order: order >= 0,
    "<": lambda order: order < 0, "<=": lambda order: order <= 0,
}  # fmt: skip


def _constant(value: Value) -> _Operand:
    return _Operand(lambda properties: value, "constant", value)


def _joined(parts: list[_Operand], stops_at: bool) -> _Operand:
    """Join parts by OR (`stops_at` true) or AND.

    The first part with the value `stops_at` decides. If no part has this value, the result is unknown if any part is
    unknown.
    """
    evaluates = [part.evaluate for part in parts]

    def joined(properties: Properties) -> Value:
        result: Value = not stops_at
        for evaluate in evaluates:
            value = evaluate(properties)
            if value is stops_at:
                return stops_at
            if value is None:
                result = None
        return result

    return _Operand(joined, "boolean")


def _negated(node: _Operand) -> _Operand:
    evaluate = node.evaluate

    def negated(properties: Properties) -> Value:
        value = evaluate(properties)
        return None if value is None else not value

    return _Operand(negated, "boolean")


def _minus(node: _Operand) -> _Operand:
    evaluate = node.evaluate

    def minus(properties: Properties) -> Value:
        value = evaluate(properties)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return -value if is_number else None  # type: ignore[operator]  # a number

    if node.kind == "constant" and isinstance(node.value, int | float):
        return _constant(minus({}))
    return _Operand(minus, "other")


def _is_null(node: _Operand, is_negated: bool) -> _Operand:
    evaluate = node.evaluate
    return _Operand(lambda properties: (evaluate(properties) is None) is not is_negated, "boolean")


def _contains(node: _Operand, word: str, text: str, is_negated: bool) -> _Operand:
    """Return an operand that tests whether a property contains, starts with or ends with a text.

    As in a broker, the test and its negation are both False if the property is missing or the text is empty.
    """
    evaluate = node.evaluate

    def contains(properties: Properties) -> Value:
        value = evaluate(properties)
        if not text or not isinstance(value, str):
            return False
        if word == "CONTAINS":
            return (text in value) is not is_negated
        result = value.startswith(text) if word == "STARTSWITH" else value.endswith(text)
        return result is not is_negated

    return _Operand(contains, "boolean")


def _in_order(a: Value, b: Value, holds: Callable[[int], bool]) -> bool | None:
    """Return whether two values are in the required order, or None if one is unknown. Raises _NoMatchError."""
    if a is None or b is None:
        return None
    if isinstance(a, str) and isinstance(b, str):
        a, b = _java_double(a), _java_double(b)
    return holds(_compare(a, b))


def _equals(a: Value, b: Value) -> bool:
    return type(a) is type(b) and a == b


def _compare(a: Value, b: Value) -> int:
    """Compare two values as a broker does (`ComparisonExpression.__compare`). Raises _NoMatchError.

    The result is negative if `a` is less, positive if `a` is greater, and 0 if both are equal.
    """
    if isinstance(a, bool) and isinstance(b, str):
        raise _NoMatchError
    if isinstance(a, str) and isinstance(b, bool):
        a = a.lower() == "true"
    elif isinstance(a, str) and isinstance(b, int | float):
        a = _as_number(a, b)
    elif isinstance(b, str) and isinstance(a, int | float):
        b = _as_number(b, a)
    elif isinstance(a, bool) is not isinstance(b, bool):
        # As in a broker, a boolean and a number are unequal, and the left one counts as the smaller.
        return -1
    if isinstance(a, float) and isinstance(b, float) and (isnan(a) or isnan(b)):
        return isnan(a) - isnan(b)  # In Java, NaN is above all other numbers, and equal to itself.
    return (a > b) - (a < b)  # type: ignore[operator]  # of one kind


def _as_number(text: str, example: int | float) -> int | float:
    """Parse a text as a number of the same kind as `example`. Raises _NoMatchError."""
    if isinstance(example, float):
        return _java_double(text)
    try:
        return parse_int32(text) if -_INT32 <= example < _INT32 else parse_int64(text)
    except ValueError:
        raise _NoMatchError from None


def _java_double(text: str) -> float:
    """Parse as `Double.valueOf` does, without hexadecimal numbers. Raises _NoMatchError."""
    stripped = text.strip("".join(map(chr, range(33))))
    if _DOUBLE.fullmatch(stripped) is None:
        raise _NoMatchError
    plain = stripped if stripped.endswith(("NaN", "Infinity")) else stripped.rstrip("dDfF")
    return float(plain)
