"""Show one message in full, offer its bytes for download, and show its trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase

from starlette.requests import Request
from starlette.responses import Response

from reput.base import agreeing, counted, indented, printable
from reput.core import MessageStore
from reput.engine.messages import BodyText, body_hex, body_text, coverage_in_words
from reput.engine.writer import SharedStore
from reput.errors import MessageNotFoundError, ReputError, StoreError
from reput.format.bodies import pieces_of, sent_body, sent_pieces
from reput.format.commit_log import MessageExt
from reput.wings.console.arguments import text
from reput.wings.console.downloads import attachment
from reput.wings.console.rendering import Views
from reput.wings.console.users import Permission, demand, may
from reput.wings.inspect.api import Life, trace_life
from reput.wings.lakes import BodyDecoder, json_text_of
from reput.wings.serve import HTTP

_BYTES = "application/octet-stream"
_MOST_CHARACTERS = (
    1 << 18
)  # Maximum number of characters on a page. Browsers take long to lay out more.


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A body on a page. `view` is its current form, such as json, text or hex. `views` are all possible forms."""

    view: str
    views: tuple[str, ...]
    text: BodyText
    size_bytes: int
    error: str | None
    was_compressed: bool

    @classmethod
    def of(cls, message: MessageExt, view: str, decoder: BodyDecoder | None = None) -> ShownBody:
        sent = sent_body(message, HTTP.answer_bytes)
        body = body_text(sent.data, _MOST_CHARACTERS)
        views = {"JSON": ("json", "text", "hex"), "text": ("text", "hex")}.get(body.kind, ("hex",))
        chinese = chinese_text(sent.data) if views == ("hex",) else None
        if chinese is not None:
            views = ("gb18030", "hex")
        decoded = None if decoder is None else _decoded(decoder, sent.data)
        if decoder is not None and decoded is not None:
            views = (decoder.name, *views)
        if view not in views:
            view = views[0]
        if view == "hex":
            body = body_hex(sent.data)
        elif decoder is not None and decoded is not None and view == decoder.name:
            body = BodyText("JSON", decoded)
        elif view == "gb18030":
            body = BodyText("text", printable(chinese or "", keep="\n\t"))
        elif view == "text" and body.kind == "JSON":
            body = BodyText("text", sent.data.decode())
        if len(body.lines) > _MOST_CHARACTERS:
            rest = body.lines[_MOST_CHARACTERS:].encode("utf-8", "surrogatepass")
            unshown_bytes = len(rest) + body.unshown_bytes
            body = BodyText(body.kind, body.lines[:_MOST_CHARACTERS], unshown_bytes)
        return cls(view, views, body, len(sent.data), sent.error, sent.was_compressed)


def chinese_text(body: bytes) -> str | None:
    """Decode a body as GB18030, which includes GBK. Return None if the result is not plain Chinese text."""
    try:
        text = body.decode("gb18030")
    except UnicodeDecodeError:
        return None
    # A binary body may be valid GB18030 by chance, but it usually contains control characters.
    is_plain = all(character.isprintable() or character in "\r\n\t" for character in text)
    return text if is_plain and any("\u4e00" <= sign <= "\u9fff" for sign in text) else None


def _decoded(decoder: BodyDecoder, body: bytes) -> str | None:
    """Decode a body, and return its values as JSON; None if it does not have the decoder's encoding."""
    try:
        return printable(indented(json_text_of(decoder.decode(body))), keep="\n")
    # Producers can send any bytes as a body. If a body cannot be decoded, the page shows it in another view.
    except (ValueError, ReputError, RecursionError):
        return None


class MessagePages:
    """The handlers of `/messages/OFFSET` and `/trace`."""

    def __init__(self, views: Views, decoders: Mapping[str, BodyDecoder]) -> None:
        self._views, self._mounts, self._decoders = views, views.mounts, decoders

    def _decoder(self, topic: str) -> BodyDecoder | None:
        """Return the first decoder whose pattern matches a topic; None if there is none."""
        fitting = (decoder for name, decoder in self._decoders.items() if fnmatchcase(topic, name))
        return next(fitting, None)

    async def message(self, request: Request) -> Response:
        name, store = self._views.store(request)
        offset = request.path_params["offset"]
        view = text(request.query_params, "view") or ""
        message = await self._mounts.run(lambda: store.get(offset))
        body = ShownBody("hex", (), BodyText("withheld", ""), 0, None, False)
        if may(Permission.BODIES):
            body = await self._mounts.run(
                lambda: ShownBody.of(message, view, self._decoder(message.topic))
            )
        around = await self._mounts.run(lambda: _around(store, message))
        return await self._views.page(
            request, "message.html", view="", store=name, message=message, body=body, around=around,
        )  # fmt: skip

    async def body(self, request: Request) -> Response:
        demand(Permission.BODIES)
        _, store = self._views.store(request)
        offset = request.path_params["offset"]
        message = await self._mounts.run(lambda: store.get(offset))
        pieces = await self._mounts.run(lambda: sent_pieces(message))
        return attachment(self._mounts, pieces, f"{message.physical_offset}.body", _BYTES)

    async def record(self, request: Request) -> Response:
        demand(Permission.BODIES)
        _, store = self._views.store(request)
        offset = request.path_params["offset"]
        record = await self._mounts.run(lambda: store.get_record(offset))
        return attachment(self._mounts, pieces_of(record), f"{offset}.record", _BYTES)

    async def trace(self, request: Request) -> Response:
        query = request.query_params
        q = {name: text(query, name) for name in ("key", "message", "topic", "store")}
        if not (q["key"] or q["message"]):
            return await self._views.page(
                request, "trace.html", view="trace", q=q, life=None, covered=[], store=q["store"]
            )
        missing, stores = self._mounts.unread(q["store"]), self._mounts.select(q["store"])
        question = {"key": q["key"], "message_id": q["message"], "topic": q["topic"]}
        life, names, problems = await self._mounts.search(lambda: traced(stores, **question))
        ranges = [line for search in life.searched for line in coverage_in_words(search.coverage)]
        if len(stores) > 1:
            total = sum(search.coverage.log.size_bytes for search in life.searched)
            ranges = [
                f"Searched {counted(total, 'byte')} of log in {counted(len(stores), 'store')}."
            ]
        return await self._views.page(
            request, "trace.html", view="trace", q=q, store=q["store"], life=life, covered=ranges,
            gaps=[_gap(event.gap_ms) for event in life.events],
            incomplete=[*problems, *missing, *_missing(life)],
            names=names,
        )  # fmt: skip


def traced(
    stores: Sequence[tuple[str, SharedStore]], **question: str | None
) -> tuple[Life, dict[str, str], list[str]]:
    """Trace a message over several stores.

    Returns the records of the message, the names of the searched stores by path, and a line per unreadable store.
    Raises UsageError, and StoreError if the only store is unreadable.
    """
    problems, names = list[str](), dict[str, str]()
    with ExitStack() as stack:
        readers: list[MessageStore] = []
        for name, store in stores:
            try:
                readers.append(stack.enter_context(store.reader()))
                names[readers[-1].path] = name
            except ReputError as error:
                if len(stores) == 1:
                    raise
                problems.append(f"{name}: not searched: {error}")
        while True:
            try:
                return trace_life(readers, **question), names, problems  # type: ignore[arg-type]
            except StoreError:
                # One store may have vanished since it was opened. Trace in the others.
                broken = {reader.path: why for reader in readers if (why := _why_broken(reader))}
                readers = [reader for reader in readers if reader.path not in broken]
                if not (broken and readers):
                    raise
                problems += [
                    f"{names.pop(path)}: not searched: {why}" for path, why in broken.items()
                ]


def _why_broken(reader: MessageStore) -> StoreError | None:
    """Return the error of a store that cannot be read at all, else None."""
    try:
        reader.end_offset()
    except StoreError as error:
        return error
    return None


def _gap(gap_ms: int | None) -> int:
    """Return the size of the gap before an event on the page, from 0 to 5. It grows with the logarithm of the time."""
    return 0 if not gap_ms or gap_ms < 10 else min(len(str(gap_ms)) - 1, 5)


def _missing(life: Life) -> list[str]:
    """Return the reasons why records may be missing from a trace."""
    reasons = []
    for search in life.searched:
        reasons += [str(problem) for problem in (*search.coverage.unreadable, *search.problems)]
        if search.is_shortened:
            reasons.append("There are more messages with this key; only the newest were followed.")
        if search.unread:
            reasons.append(
                f"{counted(search.unread, 'message')} of retry, dead letter, schedule and op queues "
                f"{agreeing(search.unread, 'was')} not read, because there are too many."
            )
    return reasons


def _around(store: SharedStore, message: MessageExt) -> dict[str, int]:
    """Return the physical offsets of the preceding and the next message in the queue."""
    offsets = {}
    for name, step in (("before", -1), ("after", 1)):
        try:
            place = message.topic, message.queue_id, message.queue_offset + step
            offsets[name] = store.get_by_queue(*place).physical_offset
        except (MessageNotFoundError, StoreError):
            continue
    return offsets
