"""Count the habits that make text hard to read, and find phrases that have a plain form: `make lint` runs this.

It reads comments, docstrings and messages of Python files, and pages outside their code blocks. A tree fails if it has
more habits per 1,000 words than its limit. `python -m tests.prose` prints the rates, and `--list PATH` prints all hits.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

LIMITS: dict[tuple[str, ...], float] = {
    ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs"): 1.5,
    ("src",): 1.5,
    ("tests", "benchmarks", "examples", "fuzz", "packaging"): 1.0,
}
"""The allowed number of hits of HABITS per 1,000 words, in each group of files and folders."""

HABITS = {
    "clause for a noun (what is)": r"(?:(?:^|[.;:(|]\s)|\b(?:of|and|to|for|from|with|by|in|on|than|but|is|are)\s)what\s"
    r"(?:is|was|are|were|it|they|an?|the|no|can|has|have|had|must|follows|comes|lies|needs?|makes?|takes?|begins?|ends?)\b",
    "clause for a noun (where there is)": r"\bwhere\s(?:it|there|they|that|this|those|none|one|nothing)\s"
    r"(?:is|are|was|were|has|have|can|may|cannot|does|do)\b",
    "clause for a noun (those that)": r"\bthose\s(?:of|that|which|who|in|with)\b|\bthat\sof\s(?:the|an?|its)\b",
    "clause for a noun (one that)": r"\bones?\s(?:that|which|of\swhich)\b",
    "clause for a noun (whatever)": r"\b(?:whoever|whatever|whichever|wherever)\b",
    "is none, is no": r"\b(?:is|are|was|were|be)\s(?-i:none)\b"
    r"|\b(?:it|that|which)\s(?:is|are|was)\sno\b|\bNone\swhere\b",
    "behind (write: after)": r"\bbehind\s(?:it|them|the|an?|that|which|its)\b",
    "tell (write: report, print)": r"\b(?:tells?|told|telling)\b",
    "verbs of a court (believe, say of, hold against)": r"\b(?:believe[sd]?|(?:held|holds?)\sagainst|says?\s(?:of|so)"
    r"|speaks?\s(?:of|for)|takes?\sfor|taken\sfor)\b",
    "is to be": r"\b(?:is|are|was|were)\s(?:not\s)?to\sbe\b",
    "afterthought after a comma": r",\s(?:too|that\sis|but\sfor|so\sfar)\b",
    "alone, alike at the end": r"\b(?:alone|alike)\b[.;,]",
}

PHRASES = {
    "core time": "processor time",
    "core seconds": "processor time",
    "closed in order": "shut down cleanly",
    "bring in order": "recover, repair",
    "brings in order": "recover, repair",
    "put in order again": "repair",
    "proves itself": "valid, verifiable",
    "living store": "writable store",
    "living index": "live index",
    "writing it twice": "exactly once",
    "under way": "in flight, running",
    "carry on": "continue",
    "carries on": "continues",
    "be none of": "exclude",
    "so it does not stop, and does not shift": "tolerates damage",
    "what expects is": "the scan produces the expected",
    "of which they cannot say so": "that fails this test",
    "which folder is which state": "folders are identified by",
    "those that come and go": "stores that appear or disappear",
    "every now and then": "periodically",
    "none of them is its own": "disable what a child inherits",
    "one that is there, none is made": "open an existing one",
    "may be believed for": "covers",
    "what an entry lacks": "a missing entry",
    "only ever says yes": "returns 'sound' or 'unknown'",
    "told as one": "grouped",
    "none of the store's": "unrelated to the store",
    "a topic has a name": "empty topic name",
    "by capitals alone": "only in case",
    "give the same again": "pass the same value",
    "stands for 3 paths": "matches 3 paths",
    "header that is not one": "malformed header",
    "nothing that is kept between requests": "stateful requests are refused",
    "every row is answered": "each key yields one row per message",
    "None where that is not to be": "None if nothing is to be remembered",
    "for a column that is none": "for an unknown column",
    "message behind that before": "message after the previous one",
    "ranges to a partition": "pack ranges into partitions",
}
"""Phrases that must not occur, each with its replacement."""

EXCEPTIONS = {
    "tests/prose.py": "has these lists",
    "tests/test_prose.py": "has an example of each habit",
}
"""Files that are not read, each with its reason."""


class Hit(NamedTuple):
    path: str
    line: int
    habit: str
    text: str


_HABIT = {
    name: re.compile(pattern.replace(r"\s", r"\s+"), re.I) for name, pattern in HABITS.items()
}
_PHRASE = {
    f"{phrase} (write: {instead})": re.compile(rf"\b{phrase}\b".replace(" ", r"\s+"), re.I)
    for phrase, instead in PHRASES.items()
}
# One pattern for strings and comments of Python, because each of them may contain the other's delimiters.
_TOKEN = re.compile(
    r"""(?P<comment>#[^\n]*)|(?P<prefix>[rbfu]{0,2})(?P<string>\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""",
    re.IGNORECASE | re.DOTALL,
)
_FENCE = re.compile(r"^[ ]*```.*?^[ ]*```[^\n]*$", re.MULTILINE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>|\{[%#].*?[%#]\}|\{\{.*?\}\}", re.DOTALL)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file for readers, each with the number of its first line."""
    source = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix != ".py":
        yield 1, (_TAG if path.suffix == ".html" else _FENCE).sub(_blank, source)
        return
    line, position = 1, 0
    comment: list[str] = []
    last = 0
    for token in _TOKEN.finditer(source):
        line += source.count("\n", position, token.start())
        position = token.start()
        if token["comment"]:
            if comment and line != last + 1:
                yield last - len(comment) + 1, "\n".join(comment)
                comment = []
            comment.append(token["comment"].lstrip("#"))
            last = line
        elif " " in token["string"] and "b" not in token["prefix"].lower():
            yield line, token["string"].strip("'\"")
    if comment:
        yield last - len(comment) + 1, "\n".join(comment)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def files(trees: Sequence[str]) -> Iterator[Path]:
    """Yield the files of trees that have text for readers."""
    for tree in trees:
        found = [ROOT / tree] if (ROOT / tree).is_file() else sorted((ROOT / tree).rglob("*"))
        for path in found:
            if path.suffix in (".py", ".md", ".html") and _name(path) not in EXCEPTIONS:
                yield path


def read(paths: Iterable[Path]) -> tuple[int, list[Hit], list[Hit]]:
    """Return the number of words in the files, the hits of HABITS, and the hits of PHRASES."""
    words = 0
    habits: list[Hit] = []
    phrases: list[Hit] = []
    for path in paths:
        name = _name(path)
        for first, text in texts(path):
            words += len(text.split())
            for found, patterns in ((habits, _HABIT), (phrases, _PHRASE)):
                for habit, pattern in patterns.items():
                    for match in pattern.finditer(text):
                        line = first + text.count("\n", 0, match.start())
                        shown = text[max(0, match.start() - 40) : match.end() + 40]
                        found.append(Hit(name, line, habit, " ".join(shown.split())))
    return words, habits, phrases


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rate of each tree; return 1 if one is above its limit or has a banned phrase."""
    parser = argparse.ArgumentParser(prog="python -m tests.prose")
    parser.add_argument("--list", nargs="+", metavar="PATH", help="print all hits in these trees")
    given = parser.parse_args(arguments).list
    failed = False
    for trees, limit in {tuple(given): 0.0}.items() if given else LIMITS.items():
        words, habits, phrases = read(files(trees))
        rate = 1000 * len(habits) / max(words, 1)
        is_over = rate > limit
        if is_over or phrases:
            failed = True
            for hit in sorted([*phrases, *(habits if is_over else [])]):
                print(f"{hit.path}:{hit.line}: {hit.habit}: {hit.text}")
        print(f"{' '.join(trees)}: {rate:.1f} habits per 1,000 words, at most {limit}")
        if given:
            for habit, count in Counter(hit.habit for hit in habits).most_common():
                print(f"{count:6} {habit}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
