"""What an answer covers, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reput.index.key_index import Basis
from reput.store.answers import Coverage


def coverage_in_words(coverage: Coverage) -> Iterator[str]:
    """What the answer covers, one sentence per line."""
    files = coverage.indexed_files
    ways = [f"through {index_files_in_words(files)} ({_bases(coverage)})"] if files else []
    if coverage.scanned_bytes or not ways:
        ways.append(f"{coverage.scanned_bytes:,} bytes message by message")
    log = coverage.log
    yield f"Searched the CommitLog from {log.start:,} to {log.stop:,}, {' and '.join(ways)}."
    if coverage.inner_messages is not None:
        count = f"{coverage.inner_messages:,} messages inside inner batches"
        yield f"Compared {count}, whose keys a broker's index lacks, by scanning for them."
    yield from (f"Not used: {problem}" for problem in coverage.problems)
    if coverage.unreadable:
        lost = f"{coverage.unreadable_bytes:,} bytes could not be read"
        yield f"{lost}: a message in there is missing from this answer."
    yield from coverage.notes


def index_files_in_words(count: int) -> str:
    """`1 IndexFile`, `12 IndexFiles`."""
    return f"{count:,} IndexFile{'' if count == 1 else 's'}"


def _bases(coverage: Coverage) -> str:
    """`2 proven, 1 spot-checked`."""
    spot_checked = coverage.spot_checked_files
    proven = coverage.indexed_files - spot_checked
    counts = ((proven, Basis.PROVEN), (spot_checked, Basis.SPOT_CHECKED))
    return ", ".join(f"{count:,} {basis}" for count, basis in counts if count)


def coverage_fields(coverage: Coverage) -> dict[str, Any]:
    """The same to programs; docs/trace.md and docs/console.md name the fields."""
    return {
        "begin": coverage.log.start,
        "end": coverage.log.stop,
        "index_files": coverage.indexed_files,
        "spot_checked_files": coverage.spot_checked_files,
        "scanned_bytes": coverage.scanned_bytes,
        "inner_messages": coverage.inner_messages,
        "problems": [one.as_json() for one in coverage.problems],
        "notes": list(coverage.notes),
    }
