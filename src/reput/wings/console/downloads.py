"""Send the results of a search as a file: CSV, JSON lines or Parquet.

The name of a download states whether messages may be missing. Browsers need the name first, but only the end of the
search decides it. So the results are first written to a temporary file.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import IO, Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from reput.base import json_text
from reput.engine import messages as engine_messages
from reput.engine.messages import csv_line, field_value, message_cells, message_fields
from reput.engine.stores import FoundMessage
from reput.engine.writer import SharedStore
from reput.errors import ReputError, UsageError
from reput.format.bodies import sent_body
from reput.format.message_fields import CSV_NAMES, FIELDS
from reput.io import Scratch
from reput.wings.console.arguments import SearchForm, choice, search_of, text
from reput.wings.console.mounts import Mounts, Until
from reput.wings.console.searching import Outcome, Share, search
from reput.wings.console.users import Permission, demand
from reput.wings.serve import HTTP

MOST_MESSAGES = 10_000
_MOST_FILE_BYTES = 256 << 20
_LEAST_SHARE_BYTES = 64 << 10
_PAGE, _PIECE_BYTES, _AT_ONCE = 200, 1 << 18, 64
# Times in Parquet files are in microseconds. A time from 2^53 µs on (year 2255) comes from a damaged record, and could
# exceed 64 bits. Null is written for such a time.
_MOST_US = 1 << 53
_PARQUET_FIELDS = [
    field for field in FIELDS if field.group == "message" or field.name == "body_error"
]


Write = Callable[[IO[bytes], Iterator[FoundMessage]], None]


class Downloads:
    """The handler of `/download`."""

    def __init__(self, mounts: Mounts) -> None:
        self._mounts = mounts

    async def download(self, request: Request) -> Response:
        demand(Permission.DOWNLOAD, Permission.BODIES)
        query = request.query_params
        kind = choice(query, "format", tuple(_WRITERS))
        form = search_of(query, MOST_MESSAGES, is_pasted=True, most=MOST_MESSAGES)
        store = text(query, "store")
        names = [store] if store else self._mounts.names
        missing = [] if store else list(self._mounts.missing)
        stores = [self._mounts.named(name) for name in names]
        until = self._mounts.until()
        collected = _MessageMerge(stores, form, until)
        file = Scratch.unnamed_file()

        def write() -> None:
            writer, _ = _WRITERS[kind]
            try:
                writer(file, collected.messages(file))
            # The file has no name, so closing it frees its disk space.
            except BaseException:
                file.close()
                raise

        await self._mounts.search(write, request, until, in_child=form.is_in_child)
        is_complete = not collected.problems and not missing
        name = "messages" if is_complete else "messages-incomplete"
        name += f"-first-{collected.count}" if collected.is_limited else ""
        answer = attachment(self._mounts, _pieces(file), f"{name}.{kind}", _WRITERS[kind][1])
        answer.headers["content-length"] = str(file.seek(0, 2))
        return answer


def attachment(
    mounts: Mounts, pieces: Generator[bytes, None, None], name: str, kind: str
) -> Response:
    """Send bytes piece by piece, as a file that browsers save."""
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        # Content-Disposition asks browsers to save the file. If a browser displays the file nevertheless, this policy
        # keeps scripts in the bodies of messages from running.
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return StreamingResponse(mounts.iterate(pieces), media_type=kind, headers=headers)


class _MessageMerge:
    """Gathers the messages of a search over all stores, newest first.

    Attributes:
        count: Number of messages so far.
        problems: Reasons why messages may be missing.
        is_limited: Whether there are older messages that were not gathered.
    """

    def __init__(
        self, stores: Sequence[tuple[str, SharedStore]], form: SearchForm, until: Until
    ) -> None:
        self._stores, self._form, self._until = stores, form, until
        self.count, self.problems, self.is_limited = 0, list[str](), False

    def messages(self, file: IO[bytes]) -> Iterator[FoundMessage]:
        """Yield messages, up to the limit and the maximum size of the file."""
        of_stores = [self._of_store(name, store) for name, store in self._stores]
        # merge() expects sorted inputs. If a broker's clock was set back, the times of its messages are not sorted, so
        # the merged messages are not sorted either. But none is lost.
        merged = merge(*of_stores, key=lambda match: -match.message.store_timestamp)
        for match in islice(merged, self._form.limit):
            if file.tell() > _MOST_FILE_BYTES:
                self.is_limited = True
                return
            self.count += 1
            yield match
        self.is_limited |= next(merged, None) is not None

    def _of_store(self, name: str, store: SharedStore) -> Iterator[FoundMessage]:
        form = self._form._replace(limit=min(self._form.limit, _PAGE))
        # The merge holds a page of every store at the same time. So the pages share the maximum size of one answer.
        share_bytes = max(HTTP.answer_bytes // len(self._stores), _LEAST_SHARE_BYTES)
        while True:
            outcome = None
            try:
                for step in search(store, form, Share(share_bytes), self._until):
                    if isinstance(step, Outcome):
                        outcome = step
                    elif isinstance(step, tuple):
                        yield from (FoundMessage(name, message) for message in step)
            except UsageError:
                raise
            except ReputError as error:
                self.problems.append(f"{name}: {error}")
                return
            assert outcome is not None
            self.problems += [f"{name}: {problem}" for problem in outcome.problems]
            if outcome.is_late:
                self.problems.append(f"{name}: the time limit ended the search")
            if outcome.cursor is None or outcome.is_late:
                return
            form = form._replace(after=outcome.cursor)


def _pieces(file: IO[bytes]) -> Generator[bytes, None, None]:
    with file:
        file.seek(0)
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _write_csv(file: IO[bytes], messages: Iterator[FoundMessage]) -> None:
    file.write(csv_line(("store", *CSV_NAMES)).encode())
    for store, message in messages:
        cells = store, *message_cells(message, HTTP.answer_bytes)
        file.write(csv_line(cells, is_safe=True).encode("utf-8", "backslashreplace"))


def _write_json_lines(file: IO[bytes], messages: Iterator[FoundMessage]) -> None:
    for store, message in messages:
        fields = {"store": store, **message_fields(message, HTTP.answer_bytes)}
        file.write(json_text(fields).encode("utf-8", "backslashreplace") + b"\n")


def _write_parquet(file: IO[bytes], messages: Iterator[FoundMessage]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    schema = engine_messages.select([field.name for field in _PARQUET_FIELDS])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while some := list(islice(messages, _AT_ONCE)):
            writer.write_table(pa.Table.from_pylist(list(map(_parquet_row, some)), schema))


def _parquet_row(match: FoundMessage) -> dict[str, Any]:
    message = match.message
    sent = sent_body(message, HTTP.answer_bytes)
    fields: dict[str, Any] = {"store": match.store, "body": sent.data, "body_error": sent.error}
    for field in _PARQUET_FIELDS:
        if field.name not in fields:
            value = field_value(field)(message)
            if field.type == "map":
                value = list(value.items())
            if field.type == "time":
                value = value * 1000 if abs(value) < _MOST_US // 1000 else None
            fields[field.name] = value
    return {name: _encodable(value) for name, value in fields.items()}


def _encodable(value: Any) -> Any:
    """Escape lone surrogates in texts, because UTF-8 cannot encode them."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, (list, tuple)):
        return type(value)(map(_encodable, value))
    return value


_WRITERS: dict[str, tuple[Write, str]] = {
    "csv": (_write_csv, "text/csv; charset=utf-8"),
    "jsonl": (_write_json_lines, "application/x-ndjson"),
    "parquet": (_write_parquet, "application/vnd.apache.parquet"),
}
