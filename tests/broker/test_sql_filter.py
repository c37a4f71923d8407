"""Expressions of SQL92 match as a broker matches them."""

import pytest

from reput.errors import UsageError
from reput.wings.serve.broker.sql_filter import MOST_TERMS, compile_filter

PROPERTIES = {
    "a": "5", "b": "x", "big": "3000000000", "f": "2.5", "q": "it's", "t": "true", "KEYS": "k1 k2",
}  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a = 5", True), ("a <> 5", False), ("a > 4 AND a < 6", True), ("a >= 5.0", True), ("a > 5", False),
        ("5 = a", True), ("4 < a", True), ("a = '5'", True), ("b = 'x'", True), ("b = 5", False),
        ("b > 5", False), ("b > 5 OR a = 5", False), ("a = 5 OR b > 5", True), ("f > 2.4", True), ("f > 2", False),
        ("big > 2147483648", True), ("big > 1", False), ("a between 4 and 6", True), ("a NOT BETWEEN 4 AND 6", False),
        ("b in ('x', 'y')", True),
        ("b NOT IN ('x')", False), ("none in ('x')", False), ("none not in ('x')", False),
        ("none is null", True), ("none IS NOT NULL", False), ("a is not null", True), ("none = 1", False),
        ("none <> 1", False), ("not none = 1", False), ("NOT (a = 6)", True), ("NOT a = 6", None),
        ("t = TRUE", True), ("TRUE = t", False), ("t", False), ("TRUE", True), ("FALSE", False),
        ("TRUE OR b > 5", True),
        ("q = 'it''s'", True), ("a = 5 -- end\n AND b = 'x'", True), ("a /* is */ = 5", True), ("a > -6", True),
        ("-a = -5", False), ("a = +5", True), ("a = 5 garbage", True), ("A = 5", False), ("a = 5L", True),
        ("none = 1 OR a = 5", True), ("none = 1 AND a = 5", False), ("a = b", False), ("a > f", True),
        ("(((a = 5)))", True),
        ("a = 5 AND (b = 'y' OR f > 2.0)", True), ("a < .5e1", False), ("a <= 5.", True), ("KEYS = 'k1 k2'", True),
    ],
)  # fmt: skip
def test_expressions(expression: str, expected: bool | None) -> None:
    if expected is None:  # as in the broker, `NOT a = 6` means `(NOT a) = 6`
        expected = False
    assert compile_filter(expression, False).matches(PROPERTIES) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("KEYS CONTAINS 'k2'", True), ("KEYS NOT CONTAINS 'k3'", True), ("KEYS STARTSWITH 'k1'", True),
        ("KEYS ENDSWITH 'k1'", False), ("KEYS NOT ENDSWITH 'k1'", True), ("none NOT CONTAINS 'x'", False),
        ("KEYS CONTAINS ''", False),
    ],
)  # fmt: skip
def test_expressions_of_five(expression: str, expected: bool) -> None:
    assert compile_filter(expression, True).matches(PROPERTIES) is expected
    # A 4.9 broker reads the expression only up to the unknown word `CONTAINS`: `KEYS` alone matches no message.
    assert "NOT" in expression or compile_filter(expression, False).matches(PROPERTIES) is False


@pytest.mark.parametrize(
    "expression",
    [
        "", "a =", "= 5", "a = NULL", "a > 'x'", "a > TRUE", "5", "'x'", "a in (5)", "a in ()", "5 in ('x')",
        "a between 6 and 4", "a between NULL and 4", "(a = 5", "a = 5 AND", "a = 99999999999999999999", "TRUE = 5",
        "a is 5", "a = 'x", "a ? 5", "(" * 100 + "a = 5" + ")" * 100, " OR ".join(["a = 5"] * MOST_TERMS),
        "NOT " * 200 + "a = 5", "a = 1e999", "a" + " = 1" * 200, "a not 5", "a CONTAINS 5 OR (",
    ],
)  # fmt: skip
def test_what_is_not_an_expression_is_refused(expression: str) -> None:
    # The broker ignores text after a complete expression, so it accepts these two.
    if expression in ("a ? 5", "a CONTAINS 5 OR ("):
        assert compile_filter(expression, False).matches(PROPERTIES) is False
        return
    with pytest.raises(UsageError, match="SQL filter"):
        compile_filter(expression, False)


def test_nested_ranges_take_one_step_for_each_part() -> None:
    """A range evaluates its operand only once, so the work does not double with each level of nesting."""
    looks = 0

    class Counted(dict[str, str]):
        def get(self, name: str, default: object = None) -> str:
            nonlocal looks
            looks += 1
            return "1"

    expression = "a"
    for _ in range(16):
        expression = f"-({expression} BETWEEN 1 AND 2)"
    for negated in ("", "NOT "):
        looks = 0
        compile_filter(f"{expression} {negated}BETWEEN 1 AND 2", False).matches(Counted())
        assert looks == 1


@pytest.mark.parametrize("before", ["", ".", "1" * 1_000_000 + "."])
def test_a_text_of_many_digits_is_refused_as_a_number_in_linear_time(before: str) -> None:
    """The square of the number of digits would be more steps than the timeout of tests allows."""
    matches = compile_filter("a > 1.5", False).matches
    assert not matches({"a": before + "1" * 4_000_000 + "x"})
