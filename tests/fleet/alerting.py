"""Evaluate alert rules on metrics: the part of PromQL that deploy/prometheus-rules.yaml uses.

comparison  sum OPERATOR sum
sum         product { ("+" | "-") product }
product     value { ("*" | "/") value }
value       NUMBER | time() | NAME [ offset DURATION ]
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_SUMS: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: dict[str, Callable[[float, float], float]] = {
    "*": operator.mul,
    "/": operator.truediv,
}
_TOKEN = re.compile(r"\s*(time\(\)|[a-z_]\w*|\d+(?:\.\d+)?[smhdw]?|[=!><]=|[-+*/<>])")


def samples_of(text: str) -> dict[str, Vector]:
    """Return the samples of a page of metrics by name, as Prometheus reads them."""
    found: dict[str, Vector] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


@dataclass
class Rules:
    """Evaluates expressions.

    now      the samples of the present
    before   the samples of every earlier time
    seconds  the present, in seconds since 1970
    """

    now: Mapping[str, Vector]
    before: Mapping[str, Vector] = field(default_factory=dict)
    seconds: float = 0.0

    def alerts(self, expression: str) -> Vector:
        """Return the series for which an expression holds, with their values."""
        tokens = tokens_of(expression)
        left = self._sum(tokens)
        compare = OPERATORS[tokens.pop(0)]
        right = self._sum(tokens)
        assert not tokens, f"unexpected: {tokens}"
        matched = _joined(left, right, compare)
        assert isinstance(left, dict)
        return {labels: left[labels] for labels, holds in matched.items() if holds}

    def _sum(self, tokens: list[str]) -> Vector | float:
        return self._chain(tokens, _SUMS, self._product)

    def _product(self, tokens: list[str]) -> Vector | float:
        return self._chain(tokens, _PRODUCTS, self._value)

    def _chain(
        self,
        tokens: list[str],
        operators: Mapping[str, Callable[[float, float], float]],
        part: Callable[[list[str]], Vector | float],
    ) -> Vector | float:
        value = part(tokens)
        while tokens and tokens[0] in operators:
            combine = operators[tokens.pop(0)]
            right = part(tokens)
            if isinstance(value, dict) or isinstance(right, dict):
                value = _joined(value, right, combine)
            else:
                value = combine(value, right)
        return value

    def _value(self, tokens: list[str]) -> Vector | float:
        token = tokens.pop(0)
        if token == "time()":
            return self.seconds
        if token[0].isdigit():
            return float(token)
        samples = self.now
        if tokens[:1] == ["offset"]:
            samples = self.before
            del tokens[:2]
        return dict(samples.get(token, {}))


def tokens_of(expression: str) -> list[str]:
    """Return the tokens of an expression. Raises AssertionError for an expression outside of the grammar."""
    found, end = [], 0
    while end < len(expression.rstrip()):
        match = _TOKEN.match(expression, end)
        assert match is not None, f"cannot read {expression[end:]!r}"
        found.append(match[1])
        end = match.end()
    return found


def _joined(
    left: Vector | float, right: Vector | float, combine: Callable[[float, float], float]
) -> Vector:
    """Combine the series with the same labels, or each series with a number."""
    if isinstance(left, dict) and isinstance(right, dict):
        return {labels: combine(left[labels], right[labels]) for labels in left if labels in right}
    if isinstance(left, dict):
        assert not isinstance(right, dict)
        return {labels: combine(value, right) for labels, value in left.items()}
    assert isinstance(right, dict)
    return {labels: combine(left, value) for labels, value in right.items()}
