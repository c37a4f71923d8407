"""Find remaining messages that contain a key, an id or the body of an erased message."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.base import Progress, silent
from reput.core import MessageStore, unwrap
from reput.engine.tables import dataset
from reput.errors import CorruptMessageError
from reput.format.bodies import sent_body
from reput.format.commit_log import decode
from reput.format.java_string import encode_utf8
from reput.kernels.byte_search import LEAST_BYTES, TABLE_BITS, build_table, mark_holders
from reput.wings.erase.choosing import ChosenMessages
from reput.wings.erase.report import Mention

_MOST_BODIES, _LEAST_BODY_BYTES = 10_000, 16
_MOST_BODY_BYTES = 64 << 20
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_MOST_SPELLED_BYTES, _LEAST_SPELLED_BYTES = 1 << 20, 6
_COLUMNS = ("physical_offset", "queue_offset", "topic", "properties", "body")


class _Patterns(NamedTuple):
    """The texts to search for, in the form that the kernel `mark_holders` needs."""

    data: npt.NDArray[np.uint8]
    at: npt.NDArray[np.int64]
    is_word: npt.NDArray[np.uint8]
    shorter: npt.NDArray[np.int64]
    table: npt.NDArray[np.uint8]


def find_mentions(
    store: str,
    selection: ChosenMessages,
    options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> tuple[tuple[Mention, ...], tuple[str, ...]]:
    """Search all remaining messages for the ids, keys and bodies of the erased messages.

    The properties and the decompressed bodies of the remaining messages are searched.

    Returns:
        One `Mention` for each topic in which something was found, and notes about ids, keys, bodies or encodings that
        were not searched for.
    """
    bodies, notes = _bodies(store, selection, options)
    texts = {encode_utf8(text) for text in selection.ids | selection.keys}
    # Short keys occur by chance in many other messages.
    words = {text for text in texts if len(text) >= LEAST_BYTES}
    if len(words) < len(texts):
        notes.append(
            f"keys shorter than {LEAST_BYTES} bytes were not searched for in other messages"
        )
    spelled = words | bodies
    if sum(map(len, spelled)) > _MOST_SPELLED_BYTES:
        spelled = set()
        notes.append(
            f"encoded forms were not searched for in other messages: the erased keys and bodies "
            f"have more than {_MOST_SPELLED_BYTES >> 20} MiB"
        )
    patterns = _patterns(words, bodies.union(*map(spellings, spelled)) - words)
    places: dict[str, tuple[int, int]] = {}
    if patterns is not None:
        reader = dataset(
            store, _COLUMNS, on_corrupt="skip", unwrap_batches=True, storage_options=options
        ).to_reader()
        done = 0
        for batch in reader:
            done += len(batch)
            progress("mentions", done, done)
            for topic, offset in _holders(batch, patterns, selection):
                count, first = places.get(topic, (0, offset))
                places[topic] = count + 1, min(first, offset)
    mentions = tuple(Mention(topic, *place) for topic, place in sorted(places.items()))
    return mentions, tuple(notes)


def _bodies(
    store: str, selection: ChosenMessages, options: Mapping[str, str] | None
) -> tuple[set[bytes], list[str]]:
    """Return the decompressed bodies to search for, and a note if some were omitted."""
    limit = (
        f"bodies were not searched for in other messages: there are more than {_MOST_BODIES:,}, or "
        f"{_MOST_BODY_BYTES >> 20} MiB"
    )
    if len(selection.sizes) > _MOST_BODIES or sum(selection.sizes.values()) > _MOST_BODY_BYTES:
        return set(), [limit]
    bodies: set[bytes] = set()
    size = 0
    with MessageStore(store, storage_options=options) as reader:
        for offset in selection.offsets.tolist():
            inner = selection.inner.get(offset)
            try:
                messages = unwrap(decode(reader.get_record(offset)))
            # A damaged body cannot be decompressed, so there is nothing to search for.
            except CorruptMessageError:
                continue
            for message in messages:
                if inner is None or message.queue_offset in inner:
                    body = sent_body(message).data
                    size += len(body)
                    if size > _MOST_BODY_BYTES:
                        return set(), [limit]
                    if len(body) >= _LEAST_BODY_BYTES:
                        bodies.add(body)
    return bodies, []


def spellings(data: bytes) -> set[bytes]:
    """Return a text in other encodings: in Base64, hexadecimal digits and UTF-16, and as escaped in JSON and URLs."""
    digits = data.hex().encode()
    forms_ = {digits, digits.upper()}
    # A longer text that contains this one may have been encoded as Base64, in groups of three bytes. This text may
    # begin at the first, second or third byte of a group, so search for all three encodings.
    for shift in range(3):
        coded = b64encode(bytes(shift) + data)[-(-8 * shift // 6) : (shift + len(data)) * 8 // 6]
        forms_ |= {coded, coded.translate(_URL_SAFE)}
    url = quote(data, safe="").encode()
    forms_ |= {url, quote(data).encode(), quote_plus(data).encode(), _lower_escapes(url)}
    with suppress(UnicodeDecodeError):
        text = data.decode()
        forms_ |= {text.encode("utf-16-le"), text.encode("utf-16-be")}
        for is_ascii in (True, False):
            string = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
            forms = {string, string.replace("/", "\\/")}
            # A JSON document is often a string value in another JSON document. There, its backslashes and quotes are
            # escaped once more.
            forms |= {json.dumps(form, ensure_ascii=is_ascii)[1:-1] for form in forms}
            forms_ |= {form.encode() for form in forms}
    return {form for form in forms_ if len(form) >= _LEAST_SPELLED_BYTES} - {data}


def _lower_escapes(url: bytes) -> bytes:
    return re.sub(rb"%..", lambda escape: escape[0].lower(), url)


def _patterns(words: set[bytes], bodies: set[bytes]) -> _Patterns | None:
    texts = sorted(words | bodies)
    if not texts:
        return None
    at = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    data = np.frombuffer(bytearray(b"".join(texts)), np.uint8)
    table = np.zeros(1 << TABLE_BITS, np.uint8)
    build_table(data, at, table)
    is_word = np.array([text in words for text in texts], np.uint8)
    return _Patterns(data, at, is_word, _shorter(texts), table)


def _shorter(texts: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Return, for each of these sorted texts, the index of the longest other text that is a prefix of it, or -1."""
    prefixes = np.full(len(texts), -1, np.int64)
    beginnings: list[int] = []
    for number, text in enumerate(texts):
        while beginnings and not text.startswith(texts[beginnings[-1]]):
            beginnings.pop()
        if beginnings:
            prefixes[number] = beginnings[-1]
        beginnings.append(number)
    return prefixes


def _holders(
    rows: pa.RecordBatch, patterns: _Patterns, selection: ChosenMessages
) -> Iterable[tuple[str, int]]:
    """Yield topic and physical offset of each remaining message that contains a pattern."""
    offsets = np.asarray(rows.column("physical_offset").to_numpy())
    marked = _marked(rows.column("body"), patterns)
    values = rows.column("properties")
    is_holder = _marked(values.items, patterns)
    if is_holder.any():
        counts = np.concatenate([[0], np.cumsum(is_holder)])[values.offsets.to_numpy()]
        marked |= np.diff(counts) > 0
    at = np.flatnonzero(marked)
    topics = rows.column("topic").take(pa.array(at)).to_pylist()
    numbers = rows.column("queue_offset").take(pa.array(at)).to_pylist()
    for topic, offset, number in zip(topics, offsets[at].tolist(), numbers, strict=True):
        inner = selection.inner.get(offset)
        is_erased = offset in selection.sizes if inner is None else number in inner
        if not is_erased:
            yield topic, offset


def _marked(array: Any, patterns: _Patterns) -> npt.NDArray[np.bool_]:
    """Return, for each value of an array, whether it contains a pattern."""
    array = array.cast(pa.large_binary())
    marked = np.zeros(len(array), np.uint8)
    _, offsets, data = array.buffers()
    if data is not None and len(array):
        bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        # Copy the buffers: Arrow's are read-only, and the kernel is not compiled for read-only arrays.
        content = np.frombuffer(data, np.uint8)
        mark_holders(content.copy(), bounds.copy(), *patterns, marked)
    return marked.astype(np.bool_)
