"""Comparisons with a store that a broker wrote."""

from collections.abc import Sequence
from pathlib import Path

from tests.golden.sparse import data_ranges
from tests.golden.tables import AnswerRow, QueryRow
from tests.oracle.consume_queue import QueueFiles
from tests.oracle.query import CommitLogView, IndexView, client_matched, query_message, query_offset
from tests.oracle.walk import read_file


def same_bytes(path: Path, used: bytes, size: int) -> bool:
    """Return whether a file has the bytes `used` and then zeros up to `size`; its holes are not read."""
    data = read_file(path)
    if len(data) != size or data[: len(used)] != used:
        return False
    return not any(any(data[max(start, len(used)) : end]) for start, end in data_ranges(path))


def different_queue_files(store: Path, ours: QueueFiles) -> list[str]:
    """Return the files of consumequeue/, as topic/queue/name, that differ between two stores."""
    root = store / "consumequeue"
    theirs = {str(path.relative_to(root)): path for path in root.glob("*/*/*")}
    named = {
        f"{topic}/{queue_id}/{name}": data
        for (topic, queue_id), files in ours.items()
        for name, data in files.items()
    }
    return [
        name
        for name in sorted(named.keys() | theirs.keys())
        if name not in named or name not in theirs or named[name] != theirs[name].read_bytes()
    ]


def index_paths(store: Path) -> list[Path]:
    """Return the index files that the broker loads, in its order."""
    folder = store / "index"
    return (
        sorted(path for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []
    )


def read_index(store: Path, hash_slots: int) -> list[IndexView]:
    return [IndexView(read_file(path), hash_slots) for path in index_paths(store)]


def wrong_answers(
    log: CommitLogView,
    index: Sequence[IndexView],
    queries: Sequence[QueryRow],
    answers: Sequence[AnswerRow],
) -> list[tuple[AnswerRow, AnswerRow]]:
    """Return (the broker's answer, ours) for each query that the oracle answers differently."""
    pairs = [
        (theirs, answer_row(log, index, query, theirs.number))
        for query, theirs in zip(queries, answers, strict=True)
    ]
    return [(theirs, ours) for theirs, ours in pairs if theirs != ours]


def answer_row(
    log: CommitLogView, index: Sequence[IndexView], query: QueryRow, number: int
) -> AnswerRow:
    """Return the oracle's row of answers.tsv for a query."""
    asked = (query.topic, query.key, query.max_num, query.begin, query.end)
    if query.max_num < 0:
        return AnswerRow(number, 0, 0, (), 0, 0, (), (), "java.lang.IllegalArgumentException")
    by_index, by_store = query_offset(index, *asked), query_message(log, index, *asked)
    return AnswerRow(
        number=number,
        index_last_update_timestamp=by_index.last_update_timestamp,
        index_last_update_physical_offset=by_index.last_update_physical_offset,
        query_offset=by_index.offsets,
        message_last_update_timestamp=by_store.last_update_timestamp,
        message_last_update_physical_offset=by_store.last_update_physical_offset,
        query_message=by_store.offsets,
        client_matched=client_matched(log, by_store.offsets, query.topic, query.key),
    )
