"""Suggest known names that are similar to an unknown name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MOST_COMPARED = 10_000  # This many comparisons take about 0.1 s.
_LIKE = 0.6


def nearest_first(name: str, names: Sequence[str]) -> list[str]:
    """Sort names by their similarity to `name`, ignoring case."""
    return [other for _, other in _compared(name, names[:_MOST_COMPARED])] + list(
        names[_MOST_COMPARED:]
    )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a suggestion for the end of an error message: "; did you mean topic?". Empty if no name is similar."""
    compared = _compared(name, list(names)[:_MOST_COMPARED])
    near = [other for likeness, other in compared[:3] if likeness >= _LIKE]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _compared(name: str, names: Sequence[str]) -> list[tuple[float, str]]:
    """Return pairs (similarity from 0 to 1, name), most similar first."""
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(b=name.casefold(), autojunk=False)

    def likeness(other: str) -> float:
        matcher.set_seq1(other.casefold())
        return matcher.ratio()

    found = [(likeness(other), other) for other in names]
    return sorted(found, key=lambda pair: (-pair[0], pair[1]))
