"""One message in full, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput.clock import format_time
from reput.errors import CorruptMessageError
from reput.format import commit_log
from reput.format.batch_consume_queue import stated_batch_size
from reput.format.commit_log import MessageExt
from reput.format.properties import INNER_NUM, KEYS, TAGS, UNIQ_KEY, split_keys
from reput.messages.bodies import SentBody, is_compressed, sent_body
from reput.messages.body_text import body_text
from reput.messages.inner_batch import is_inner_batch, unwrap
from reput.text import one_line, printable

if TYPE_CHECKING:
    from rich.text import Text

_LABEL_WIDTH = 17
_PREVIEW_WIDTH = 60
_FLAGS = (
    (commit_log.SYS_FLAG_COMPRESSED, "body is compressed"),
    (commit_log.SYS_FLAG_MULTI_TAGS, "several tags"),
    (commit_log.SYS_FLAG_BORN_HOST_V6, "born host is IPv6"),
    (commit_log.SYS_FLAG_STORE_HOST_V6, "store host is IPv6"),
    (commit_log.SYS_FLAG_INNER_BATCH, "inner batch"),
)
_SHOWN_APART = (KEYS, TAGS, UNIQ_KEY)


def message_text(message: MessageExt) -> Text:
    """Labels and values, the other properties, the body."""
    from rich.text import Text

    view = Text()
    for label, value in _fields(message):
        view.append(f"{label:<{_LABEL_WIDTH}}", style="bold")
        view.append(f"{printable(value)}\n")
    sent = sent_body(message)
    inner = _inner_lines(message)
    body = body_text(b"" if inner else sent.data)
    view.append(f"{'body':<{_LABEL_WIDTH}}", style="bold")
    kind = f"{len(inner):,} messages" if inner else body.kind
    view.append(f"{_size(message, sent)}, {kind}{_crc(message)}\n")
    if sent.error is not None:
        view.append(f"{'':<{_LABEL_WIDTH}}{sent.error}\n")
    for line in inner:
        view.append(f"\n{printable(line)}")
    if inner:
        view.append("\n")
    if body.lines:
        view.append(f"\n{body.lines}")
    if body.unshown_bytes:
        view.append(f"\n… {body.unshown_bytes:,} more bytes; --body-only writes all that is stored")
    return view


def _inner_lines(message: MessageExt) -> list[str]:
    """The messages of an inner batch (5.x), a line each; none where it is no batch, or cannot be unwrapped."""
    if not is_inner_batch(message):
        return []
    try:
        inner = unwrap(message)
    except CorruptMessageError:
        return []
    lines = []
    for one in inner:
        tags, keys = one.tags or "-", " ".join(one.keys) or "-"
        preview = one_line(body_text(one.body).lines, _PREVIEW_WIDTH)
        lines.append(
            f"entry {one.queue_offset:,}  {one.unique_key or '-'}  {tags}  {keys}  {preview}"
        )
    return lines


def flags_in_words(message: MessageExt) -> str:
    """`5: body is compressed, prepared (first half of a transaction)`."""
    words = [name for bit, name in _FLAGS if message.sys_flag & bit]
    if message.transaction != "none":
        words.append(f"transaction: {message.transaction}")
    return f"{message.sys_flag} ({', '.join(words) or 'none set'})"


def _fields(message: MessageExt) -> list[tuple[str, str]]:
    properties = message.properties
    keys = split_keys(properties.get(KEYS, ""))
    fields = [
        ("topic", message.topic),
        ("queue", f"{message.queue_id}, {_entries(message)}"),
        ("physical offset", f"{message.physical_offset} ({message.size_bytes:,} bytes)"),
        ("message id", message.message_id),
        ("unique key", properties.get(UNIQ_KEY, "-")),
        ("tags", properties.get(TAGS, "-")),
        ("keys", ", ".join(keys) or "-"),
        ("stored", _moment(message.store_timestamp, str(message.store_host))),
        ("born", _moment(message.born_timestamp, str(message.born_host))),
        ("flag", str(message.flag)),
        ("system flags", flags_in_words(message)),
        ("reconsumed", f"{message.reconsume_times} times"),
    ]
    if message.prepared_transaction_offset:
        fields.append(("ends transaction", str(message.prepared_transaction_offset)))
    others = [f"{name} = {value}" for name, value in properties.items() if name not in _SHOWN_APART]
    fields += [("properties" if number == 0 else "", pair) for number, pair in enumerate(others)]
    return fields


def _entries(message: MessageExt) -> str:
    first = message.queue_offset
    count = stated_batch_size(message.properties.get(INNER_NUM)) or 1
    if not is_inner_batch(message) or count == 1:
        return f"entry {first:,}"
    return f"entries {first:,} to {first + count - 1:,}"


def _moment(timestamp_ms: int, host: str) -> str:
    return f"{format_time(timestamp_ms)}  {timestamp_ms}  {host}"


def _size(message: MessageExt, sent: SentBody) -> str:
    size = f"{len(message.body):,} bytes"
    if not is_compressed(message.sys_flag):
        return size
    return f"{size} compressed" + (f", {len(sent.data):,} sent" if sent.was_compressed else "")


def _crc(message: MessageExt) -> str:
    return "" if message.body_crc_ok else ", DAMAGED: it does not match its CRC"
